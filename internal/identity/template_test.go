package identity

import (
	"errors"
	"strings"
	"testing"
)

// order is a payload with one of each kind of value.
const order = `{"order_id":"ORD-1001","shop":{"id":7,"name":"Duka"},"items":[{"sku":"A1"},{"sku":"B2"}],"big":9314159265358980,` +
	`"huge":931415926535897932384,"rate":1.50,"paid":true,"open":false,"none":null,"empty":"","space":" x ","word":"undefined",` +
	`"expr":"{{ $json.id }}","half":"\ud800","nul":"a\u0000","hash":"mine","a.b":"dotted","0":"zero","esc\u0061pe":"\u0041"}`

func TestTemplate(t *testing.T) {
	t.Parallel()
	digest, err := Hash([]byte(order))
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct{ tmpl, key, code, says string }{
		"path":                      {"order-{order_id}", "order-ORD-1001", "", ""},
		"nested":                    {"{shop.id}:{order_id}", "7:ORD-1001", "", ""},
		"index":                     {"sku-{items.1.sku}", "sku-B2", "", ""},
		"digits name a member":      {"x{0}", "xzero", "", ""},
		"escaped name and value":    {"x{escape}", "xA", "", ""},
		"F016 big integer":          {"{big}", "9314159265358980", "", ""},
		"F016 beyond 64 bits":       {"{huge}", "931415926535897932384", "", ""},
		"number as written":         {"r{rate}", "r1.50", "", ""},
		"true":                      {"paid-{paid}-{order_id}", "paid-true-ORD-1001", "", ""},
		"false":                     {"{open}.{order_id}", "false.ORD-1001", "", ""},
		"hash":                      {"order-{order_id}-{hash}", "order-ORD-1001-HASH", "", ""},
		"hash twice":                {"{hash}{hash}", "HASHHASH", "", ""},
		"no literal":                {"{order_id}{shop.name}", "ORD-1001Duka", "", ""},
		"a space inside is kept":    {"{order_id}/{space}/1", "ORD-1001/ x /1", "", ""},
		"empty template":            {"", "", CodeMissingKey, "key_template is empty"},
		"no placeholder":            {"order", "", CodeInvalidKey, "every event would get the same key"},
		"F005 expression":           {"order-{{ $json.id }}", "", CodeInvalidKey, "not resolved"},
		"F005 end of an expression": {"order-{order_id}}", "", CodeInvalidKey, "not resolved"},
		"open brace":                {"order-{order_id", "", CodeInvalidKey, "without its partner"},
		"closing brace":             {"order}-{order_id}", "", CodeInvalidKey, "without its partner"},
		"brace in a placeholder":    {"{a{b}", "", CodeInvalidKey, "without its partner"},
		"empty placeholder":         {"order-{}", "", CodeInvalidKey, "empty placeholder"},
		"empty part":                {"order-{shop..id}", "", CodeInvalidKey, `path "shop..id" has an empty part`},
		"finds nothing":             {"order-{order_no}", "", CodeInvalidKey, `path "order_no" in key_template finds nothing`},
		"wrong case":                {"order-{Order_ID}", "", CodeInvalidKey, "finds nothing"},
		"index out of range":        {"{items.2.sku}", "", CodeInvalidKey, "finds nothing"},
		"odd index":                 {"{items.01.sku}", "", CodeInvalidKey, "finds nothing"},
		"negative index":            {"{items.-1.sku}", "", CodeInvalidKey, "finds nothing"},
		"into a text":               {"{order_id.x}", "", CodeInvalidKey, "finds nothing"},
		"dot in a name":             {"{a.b}", "", CodeInvalidKey, "finds nothing"},
		"null":                      {"o{none}", "", CodeInvalidKey, `"none" in key_template is null`},
		"object":                    {"o{shop}", "", CodeInvalidKey, "is an object"},
		"array":                     {"o{items}", "", CodeInvalidKey, "is an array"},
		"element is an object":      {"o{items.0}", "", CodeInvalidKey, "is an object"},
		"empty text":                {"order-{order_id}-{empty}", "", CodeInvalidKey, "is an empty text"},
		"value is a leftover":       {"order-{word}", "", CodeInvalidKey, `"undefined" as a part`},
		"value is an expression":    {"order-{expr}", "", CodeInvalidKey, "not resolved"},
		"F014 value has a space":    {"order-{space}", "", CodeInvalidKey, "white space"},
		"F092 value has NUL":        {"o{nul}x", "", CodeInvalidKey, "control character"},
		"F092 lone surrogate":       {"o{half}", "", CodeInvalidKey, `at "half" holds half of a surrogate pair`},
		"F013 too long":             {strings.Repeat("x", 248) + "{order_id}", "", CodeInvalidKey, "256 bytes"},
		"F013 just not too long":    {strings.Repeat("x", 247) + "{order_id}", strings.Repeat("x", 247) + "ORD-1001", "", ""},
		"too many":                  {strings.Repeat("{paid}", 17), "", CodeInvalidKey, "more than 16"},
		"long path":                 {"{" + strings.Repeat("p", 100) + "}", "", CodeInvalidKey, `"` + strings.Repeat("p", 64) + `"…`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			key, err := Template(row.tmpl, []byte(order), func() ([32]byte, error) {
				calls++
				return digest, nil
			})
			want := strings.ReplaceAll(row.key, "HASH", hexText(digest)[:16])
			if key != want {
				t.Errorf("key %q, want %q", key, want)
			}
			if calls > 1 || calls == 1 != strings.Contains(row.tmpl, "{hash}") {
				t.Errorf("hash was called %d times", calls)
			}
			if row.code != "" {
				wantError(t, err, row.code, row.says)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func hexText(sum [32]byte) string {
	const digits = "0123456789abcdef"
	var out []byte
	for _, b := range sum {
		out = append(out, digits[b>>4], digits[b&15])
	}
	return string(out)
}

func TestTemplateWithoutPayload(t *testing.T) {
	t.Parallel()
	never := func() ([32]byte, error) {
		t.Error("hash was called")
		return [32]byte{}, nil
	}
	for _, payload := range []string{"", "null", " null\n"} {
		for _, tmpl := range []string{"{id}", "{hash}"} {
			key, err := Template(tmpl, []byte(payload), never)
			wantError(t, err, CodeInvalidKey, "needs a payload")
			if key != "" {
				t.Errorf("key %q", key)
			}
		}
	}
	_, err := Template("{id}", []byte(`{"id":`), never)
	wantError(t, err, CodeInvalidJSON, "")
	_, err = Template("{id}", []byte(`{"id":1,"id":2}`), never) // F023
	wantError(t, err, CodeInvalidJSON, `"id" stands twice`)

	broken := errors.New("broken")
	if _, err := Template("{hash}", []byte(`{}`), func() ([32]byte, error) { return [32]byte{}, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		payload, path, value string
		found                bool
		code                 string
	}{
		"member":                   {order, "order_id", "ORD-1001", true, ""},
		"nested":                   {order, "shop.name", "Duka", true, ""},
		"element":                  {order, "items.0.sku", "A1", true, ""},
		"F016 big integer":         {order, "big", "9314159265358980", true, ""},
		"F016 neighbour":           {`{"record":{"id":9314159265358979}}`, "record.id", "9314159265358979", true, ""},
		"empty text is found":      {order, "empty", "", true, ""},
		"text is untouched":        {order, "space", " x ", true, ""},
		"F092 NUL":                 {order, "nul", "a\x00", true, ""},
		"true":                     {order, "paid", "true", true, ""},
		"null":                     {order, "none", "", false, ""},
		"object":                   {order, "shop", "", false, ""},
		"array":                    {order, "items", "", false, ""},
		"absent":                   {order, "x", "", false, ""},
		"deeper than there is":     {order, "shop.id.x.y", "", false, ""},
		"F023 other case":          {`{"KEY":"c","Key":"b"}`, "key", "", false, ""},
		"F092 lone surrogate":      {order, "half", "", false, CodeInvalidKey},
		"lone surrogate elsewhere": {`{"a":"\ud800","id":"x"}`, "id", "x", true, ""},
		"lone surrogate as a name": {`{"\ud800":1,"id":"x"}`, "id", "x", true, ""},
		"array at the top":         {`[["a","b"],["c"]]`, "1.0", "c", true, ""},
		"elements before it":       {`[{"a":[1,2]},[3,[4]],"x"]`, "2", "x", true, ""},
		"same name deeper":         {`{"x":{"id":"no"},"id":"yes","y":{"id":"no"}}`, "id", "yes", true, ""},
		"same names on the way":    {`{"a":{"b":{"c":1}},"b":{"a":{"c":2}},"c":{"a":{"b":3}}}`, "b.a.c", "2", true, ""},
		"half a path elsewhere":    {`{"a":{"x":1},"b":{"b":5},"c":{"b":6}}`, "a.b", "", false, ""},
		"scalar at the top":        {`"id"`, "id", "", false, ""},
		"no payload":               {" \n", "id", "", false, ""},
		"null payload":             {"null", "id", "", false, ""},
		"F023 twice":               {`{"id":"a","id":"b"}`, "id", "", false, CodeInvalidJSON},
		"F023 twice, escaped":      {`{"id":"a","\u0069d":"b"}`, "id", "", false, CodeInvalidJSON},
		"F023 twice on the way":    {`{"a":{"id":1},"a":{}}`, "a.id", "", false, CodeInvalidJSON},
		"twice beside the way":     {`{"x":1,"x":2,"id":"a"}`, "id", "a", true, ""},
		"tail":                     {`{"id":"a"} x`, "id", "", false, CodeInvalidJSON},
		"cut off behind it":        {`{"id":"a","b":[`, "id", "", false, CodeInvalidJSON},
		"F118 deep":                {`{"id":"a","b":` + strings.Repeat("[", 10_001), "id", "", false, CodeInvalidJSON},
		"F118 at the limit":        {strings.Repeat(`{"a":`, 200) + `7` + strings.Repeat(`}`, 200), strings.Repeat("a.", 199) + "a", "7", true, ""},
		"path beyond the limit":    {strings.Repeat(`{"a":`, 200) + `7` + strings.Repeat(`}`, 200), strings.Repeat("a.", 500) + "a", "", false, ""},
		"empty path":               {order, "", "", false, CodeInvalidKey},
		"point at the end":         {order, "shop.", "", false, CodeInvalidKey},
		"huge index":               {`[1]`, "99999999999999999999", "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			value, found, err := Lookup([]byte(row.payload), row.path)
			if value != row.value || found != row.found {
				t.Errorf("%q, %t; want %q, %t", value, found, row.value, row.found)
			}
			if row.code != "" {
				wantError(t, err, row.code, "")
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStandardKey(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ payload, key, code, says string }{
		"id":                          {`{"id":"evt_1"}`, "evt_1", "", ""},
		"F016 number":                 {`{"id":9314159265358980}`, "9314159265358980", "", ""},
		"zero is a number":            {`{"id":0}`, "0", "", ""},
		"event_id":                    {`{"event_id":"e1"}`, "e1", "", ""},
		"transaction_reference":       {`{"transaction_reference":"T1"}`, "T1", "", ""},
		"F088 cancelled":              {`{"Body":{"stkCallback":{"MerchantRequestID":"1-2-3","CheckoutRequestID":"ws_CO_50","ResultCode":1032}}}`, "ws_CO_50", "", ""},
		"F088 text code":              {`{"Body":{"stkCallback":{"MerchantRequestID":"1-2-4","CheckoutRequestID":"ws_CO_51","ResultCode":"SFC_IC0003"}}}`, "ws_CO_51", "", ""},
		"F088 no items":               {`{"Body":{"stkCallback":{"CheckoutRequestID":"ws_CO_52","ResultCode":"0","CallbackMetadata":{"Item":[]}}}}`, "ws_CO_52", "", ""},
		"F089 hole in the items":      {`{"Body":{"stkCallback":{"CheckoutRequestID":"ws_CO_53","CallbackMetadata":{"Item":[{"Name":"Balance"},null]}}}}`, "ws_CO_53", "", ""},
		"the first path wins":         {`{"transaction_reference":"T1","event_id":"e1","id":"i1","Body":{"stkCallback":{"CheckoutRequestID":"c1"}}}`, "c1", "", ""},
		"null is skipped":             {`{"id":null,"event_id":"e1"}`, "e1", "", ""},
		"empty is skipped":            {`{"id":"","event_id":"","transaction_reference":"T1"}`, "T1", "", ""},
		"true is no key":              {`{"id":true,"event_id":"e1"}`, "e1", "", ""},
		"object is no key":            {`{"id":{"x":1},"event_id":"e1"}`, "e1", "", ""},
		"F004 form post":              {`{"name":"Asha","msg":"hi"}`, "", CodeMissingKey, "Body.stkCallback.CheckoutRequestID, id, event_id, transaction_reference"},
		"nested id is no id":          {`{"data":{"id":"x"}}`, "", CodeMissingKey, "looked in the payload"},
		"other case":                  {`{"ID":"x","Id":"y"}`, "", CodeMissingKey, ""},
		"array":                       {` [{"id":"a"}]`, "", CodeMissingKey, "Split Out"},
		"no payload":                  {``, "", CodeMissingKey, "no payload"},
		"null":                        {`null`, "", CodeMissingKey, "no payload"},
		"text":                        {`"evt_1"`, "", CodeMissingKey, ""},
		"F005 leftover":               {`{"id":"undefined","event_id":"e1"}`, "", CodeInvalidKey, "undefined"},
		"F014 padded":                 {`{"id":"k1 "}`, "", CodeInvalidKey, "white space"},
		"F092 NUL":                    {`{"id":"01\u00006"}`, "", CodeInvalidKey, "control character"},
		"F092 lone surrogate":         {`{"id":"\ud800"}`, "", CodeInvalidKey, "surrogate"},
		"F013 too long":               {`{"id":"` + strings.Repeat("x", 256) + `"}`, "", CodeInvalidKey, "256 bytes"},
		"F023 duplicate":              {`{"id":"a","id":"b"}`, "", CodeInvalidJSON, "twice"},
		"not JSON":                    {`id=tr_Invented01`, "", CodeInvalidJSON, ""},
		"F118 too deep":               {strings.Repeat(`{"id":`, 1001), "", CodeInvalidJSON, "200 levels"},
		"F007 the id and not the row": {`{"order_id":"Q7","status":"paid"}`, "", CodeMissingKey, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err := StandardKey([]byte(row.payload))
			if key != row.key {
				t.Errorf("key %q, want %q", key, row.key)
			}
			if row.code != "" {
				wantError(t, err, row.code, row.says)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func FuzzTemplate(f *testing.F) {
	for _, tmpl := range []string{
		"order-{order_id}-{hash}", "{record.id}", "{{ $json.body.id }}", "={{$json.id}}", "order-{", "}{", "{}", "{a..b}", "{items.0.sku}", "plain", "",
	} {
		for _, payload := range []string{order, `{"record":{"id":931415926535897932384}}`, `{"order_id":"Q7","status":"paid"}`, `null`, `[1]`, `{"id":"01\u00006"}`, `{`} {
			f.Add(tmpl, []byte(payload))
		}
	}
	f.Fuzz(func(t *testing.T, tmpl string, payload []byte) {
		key, err := Template(tmpl, payload, func() ([32]byte, error) { return Hash(payload) })
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Message == "" || key != "" {
				t.Fatalf("%q, %v", key, err)
			}
			return
		}
		if err := CheckKey(key); err != nil {
			t.Fatalf("%q: %v", key, err)
		}
		if !strings.Contains(tmpl, "{") {
			t.Fatalf("a constant key %q", key)
		}
		again, err := Template(tmpl, payload, func() ([32]byte, error) { return Hash(payload) })
		if err != nil || again != key {
			t.Fatalf("%q, then %q, %v", key, again, err)
		}
	})
}
