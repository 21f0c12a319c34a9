package inbox

import "holdfast/internal/identity"

// MpesaReceipt returns the receipt number of a payment: MpesaReceiptNumber of an
// STK callback, TransID of a C2B notice. Both are sent for one payment to a
// paybill that has C2B addresses registered, under different delivery keys; an
// effect that is claimed under the receipt number happens once for both.
//
// ok is false if there is none: a failed push has no receipt. It is also false
// if the items of a callback name two different ones, or body is not JSON.
func MpesaReceipt(body []byte) (receipt string, ok bool) {
	if receipt, ok, err := identity.Lookup(body, "TransID"); err != nil || ok {
		return receipt, err == nil && receipt != ""
	}
	// By name, not by place: the order of the items is not promised, and some
	// have no value or are null.
	list := body
	for _, name := range []string{"Body", "stkCallback", "CallbackMetadata", "Item"} {
		var err error
		if list, err = member(trimSpace(list), name); err != nil {
			return "", false
		}
	}
	if len(list) == 0 || list[0] != '[' {
		return "", false
	}
	clash := false
	err := eachElement(list, func(item []byte) error {
		if name, _, err := identity.Lookup(item, "Name"); err != nil || name != "MpesaReceiptNumber" {
			return err
		}
		value, _, err := identity.Lookup(item, "Value")
		if value != "" {
			clash = clash || receipt != "" && receipt != value
			receipt = value
		}
		return err
	})
	if err != nil || clash {
		return "", false
	}
	return receipt, receipt != ""
}
