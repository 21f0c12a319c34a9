package identity

import (
	"bytes"
	"strconv"
)

// numberLen returns how long the JSON number is that b begins with, 0 if there
// is none. What follows the number is the tokenizer's business.
func numberLen(b []byte) int {
	i := 0
	if i < len(b) && b[i] == '-' {
		i++
	}
	whole := digits(b[i:])
	if whole == 0 || whole > 1 && b[i] == '0' {
		return 0
	}
	i += whole
	if i < len(b) && b[i] == '.' {
		n := digits(b[i+1:])
		if n == 0 {
			return 0
		}
		i += 1 + n
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		n := digits(b[i:])
		if n == 0 {
			return 0
		}
		i += n
	}
	return i
}

func digits(b []byte) int {
	n := 0
	for n < len(b) && '0' <= b[n] && b[n] <= '9' {
		n++
	}
	return n
}

// appendNumber writes a JSON number by its exact decimal value: the sign if it
// is negative, the digits without zeros at either end, and, unless it is 0, "e"
// and the exponent of the last digit. So 1, 1.0 and 1e0 are "1", 100 is "1e2",
// 0.10 is "1e-1", and every zero is "0". No value is ever computed: the cost is
// the length of the text, whatever the exponent.
func appendNumber(dst, number []byte) []byte {
	mantissa, exponent := number, []byte(nil)
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		mantissa, exponent = number[:i], number[i+1:]
	}
	mantissa, negative := bytes.CutPrefix(mantissa, []byte("-"))
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))

	shift := -len(fraction)
	kept := bytes.TrimRight(fraction, "0")
	shift += len(fraction) - len(kept)
	if len(kept) == 0 {
		trimmed := bytes.TrimRight(whole, "0")
		shift += len(whole) - len(trimmed)
		whole = trimmed
	}
	if len(whole) == 1 && whole[0] == '0' {
		whole = nil
	}
	if len(whole) == 0 {
		kept = bytes.TrimLeft(kept, "0")
	}
	if len(whole)+len(kept) == 0 {
		return append(dst, '0')
	}
	if negative {
		dst = append(dst, '-')
	}
	dst = append(dst, whole...)
	dst = append(dst, kept...)
	return appendExponent(dst, exponent, shift)
}

// appendExponent writes "e" and exponent + shift, or nothing if that is 0.
func appendExponent(dst, exponent []byte, shift int) []byte {
	negative := false
	if len(exponent) > 0 && (exponent[0] == '+' || exponent[0] == '-') {
		negative = exponent[0] == '-'
		exponent = exponent[1:]
	}
	exponent = bytes.TrimLeft(exponent, "0")

	// Up to 17 digits an int64 has room for the shift as well, which is at
	// most the length of the text.
	if len(exponent) <= 17 {
		value := int64(0)
		for _, c := range exponent {
			value = value*10 + int64(c-'0')
		}
		if negative {
			value = -value
		}
		value += int64(shift)
		if value == 0 {
			return dst
		}
		return strconv.AppendInt(append(dst, 'e'), value, 10)
	}

	// Beyond, add on paper, from the right. The shift is smaller than the
	// exponent by many orders, so the sign stays and no borrow runs out.
	dst = append(dst, 'e')
	delta := int64(shift)
	if negative {
		dst = append(dst, '-')
		delta = -delta
	}
	start := len(dst)
	dst = append(append(dst, '0'), exponent...) // the 0 takes a last carry
	for i := len(dst) - 1; delta != 0; i-- {
		digit := int64(dst[i]-'0') + delta%10
		delta /= 10
		if digit < 0 {
			digit += 10
			delta--
		} else if digit > 9 {
			digit -= 10
			delta++
		}
		dst[i] = byte('0' + digit)
	}
	return append(dst[:start], bytes.TrimLeft(dst[start:], "0")...)
}
