package identity

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// keyRows are keys and what CheckKey has to say: an empty rule accepts.
var keyRows = map[string]struct{ key, rule string }{
	"plain":      {"evt_1", ""},
	"uuid":       {"b54557e4-0000-4000-8000-000000000001", ""},
	"one letter": {"a", ""},
	"one digit":  {"0", ""},

	"F005 expression":               {"{{ $json.body.id }}", "expression was not resolved"},
	"F005 expression with =":        {"={{$json.id}}", "expression was not resolved"},
	"F005 half an expression":       {"order-}}", "expression was not resolved"},
	"F005 undefined":                {"undefined", `the text "undefined"`},
	"F005 null":                     {"null", `the text "null"`},
	"F005 NaN":                      {"NaN", `the text "NaN"`},
	"F005 object":                   {"[object Object]", `the text "[object Object]"`},
	"F005 array":                    {"[undefined]", `the text "[undefined]"`},
	"part undefined":                {"order-undefined", `"undefined" as a part`},
	"part null in the middle":       {"a:null:b", `"null" as a part`},
	"part NaN at the front":         {"NaN_7", `"NaN" as a part`},
	"part object":                   {"lead/[object Object]", `as a part`},
	"part behind a point":           {"a.undefined", `as a part`},
	"part behind a bar":             {"a|null|b", `as a part`},
	"part between two separators":   {"a-_null", `as a part`},
	"undefined inside a word":       {"undefinedness", ""},
	"null inside a word":            {"nullable-1", ""},
	"NaN inside a word":             {"BaNaNa", ""},
	"separated by a space":          {"order null", ""},
	"another case is a name":        {"Null-7", ""},
	"another case, whole":           {"NULL", ""},
	"other case of NaN":             {"nan-1", ""},
	"single braces":                 {"a{b}c", ""},
	"= in front":                    {"=abc", ""},
	"word and separator":            {"order-", "nothing behind"},
	"word and colon":                {"Order:", "nothing behind"},
	"word and underscore":           {"a_", "nothing behind"},
	"word and point":                {"order.", "nothing behind"},
	"word and slash":                {"order/", "nothing behind"},
	"word and bar":                  {"order|", "nothing behind"},
	"two separators":                {"order--", ""},
	"two words":                     {"my-order-", ""},
	"digits and separator":          {"order7-", ""},
	"other letters":                 {"caf\u00e9-", ""},
	"separator first":               {"-order", ""},
	"separator alone":               {"-", ""},
	"word and another sign":         {"order#", ""},
	"F014 space behind":             {"k1 ", "white space"},
	"F014 space in front":           {" k1", "white space"},
	"F014 line break":               {"k1\n", "white space"},
	"F014 tab":                      {"k1\t", "white space"},
	"F014 no-break space":           {"k1\u00a0", "white space"},
	"ideographic space":             {"\u3000k1", "white space"},
	"line separator":                {"k1\u2028", "white space"},
	"byte order mark":               {"\ufeffk1", "white space"},
	"only a space":                  {" ", "white space"},
	"space inside":                  {"a b", ""},
	"no-break space inside":         {"a\u00a0b", ""},
	"F017 two spaces inside":        {"hello  world", ""},
	"F017 line break inside":        {"hello\nworld", "control character"},
	"F092 NUL":                      {"01\x006", "control character"},
	"NUL at the end":                {"k\x00", "control character"},
	"escape":                        {"a\x1bb", "control character"},
	"DEL":                           {"a\x7fb", "control character"},
	"C1":                            {"a\u0081b", "control character"},
	"next line inside":              {"a\u0085b", "control character"},
	"F017 case one":                 {"evt_1AbC", ""},
	"F017 composed":                 {"caf\u00e9", ""},
	"F017 decomposed":               {"cafe\u0301", ""},
	"F017 full width":               {"\uff21\uff22\uff23", ""},
	"emoji":                         {"😀", ""},
	"F008 separator inside":         {"b:c", ""},
	"F013 255 bytes":                {strings.Repeat("k", 255), ""},
	"F013 255 bytes of two":         {strings.Repeat("\u00e9", 127) + "k", ""},
	"F013 256 bytes":                {strings.Repeat("k", 256), "256 bytes long; at most 255"},
	"F013 256 bytes of two":         {strings.Repeat("\u00e9", 128), "256 bytes long"},
	"F013 3000 bytes":               {strings.Repeat("a", 3000), "3000 bytes long"},
	"F092 surrogate as bytes":       {"a\xed\xa0\x80b", "UTF-8"},
	"not UTF-8":                     {"a\xffb", "UTF-8"},
	"an honest replacement char":    {"a\ufffdb", ""},
	"F092 text like an escape":      {`a\u0000b`, ""},
	"number with a point":           {"1.0", ""},
	"negative number":               {"-5", ""},
	"F016 longer than 64 bits":      {"931415926535897932384", ""},
	"a template's leftovers, short": {"{}", ""},
}

func TestCheckKey(t *testing.T) {
	t.Parallel()
	for name, row := range keyRows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := CheckKey(row.key)
			if row.rule != "" {
				wantError(t, err, CodeInvalidKey, row.rule)
			} else if err != nil {
				t.Fatalf("CheckKey(%q): %v", row.key, err)
			}
		})
	}
	wantError(t, CheckKey(""), CodeMissingKey, "absent, null or empty")
}

func TestCheckDerivedKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"evt_1", " evt 1 ", "undefined", "{{x}}", "order-", "null:1", strings.Repeat("k", 255), "\u00a0"} {
		if err := CheckDerivedKey(key); err != nil {
			t.Errorf("CheckDerivedKey(%q): %v", key, err)
		}
	}
	wantError(t, CheckDerivedKey(""), CodeMissingKey, "empty")
	wantError(t, CheckDerivedKey(strings.Repeat("k", 256)), CodeInvalidKey, "256 bytes")
	wantError(t, CheckDerivedKey("a\x00"), CodeInvalidKey, "control character")
	wantError(t, CheckDerivedKey("a\n"), CodeInvalidKey, "control character")
	wantError(t, CheckDerivedKey("a\u009f"), CodeInvalidKey, "control character")
	wantError(t, CheckDerivedKey("a\xff"), CodeInvalidKey, "UTF-8")
}

func TestKeyFromValue(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ raw, key, code string }{
		"string":                     {`"evt_1"`, "evt_1", ""},
		"escapes":                    {`"\u0065vt\/\"1\\\""`, `evt/"1\"`, ""},
		"F017 not normalised":        {`"cafe\u0301"`, "cafe\u0301", ""},
		"F092 surrogate pair":        {`"\ud83d\ude00"`, "😀", ""},
		"F092 text like an escape":   {`"\\u0000"`, `\u0000`, ""},
		"number":                     {`42`, "42", ""},
		"F016 number beyond 2^53":    {`9314159265358979`, "9314159265358979", ""},
		"F016 number beyond 64 bits": {`931415926535897932384`, "931415926535897932384", ""},
		"number as written":          {`1.0`, "1.0", ""},
		"exponent as written":        {`1E+2`, "1E+2", ""},
		"negative":                   {`-7`, "-7", ""},
		"zero":                       {`0`, "0", ""},
		"white space around":         {" \"evt_1\"\n", "evt_1", ""},
		"absent":                     {``, "", CodeMissingKey},
		"null":                       {`null`, "", CodeMissingKey},
		"empty":                      {`""`, "", CodeMissingKey},
		"true":                       {`true`, "", CodeInvalidKey},
		"false":                      {`false`, "", CodeInvalidKey},
		"object":                     {`{"a":1}`, "", CodeInvalidKey},
		"array":                      {`["a"]`, "", CodeInvalidKey},
		"F014 padded":                {`"k1\u00a0"`, "", CodeInvalidKey},
		"F005 text null":             {`"null"`, "", CodeInvalidKey},
		"F092 NUL":                   {`"a\u0000b"`, "", CodeInvalidKey},
		"F092 lone surrogate":        {`"a\ud800"`, "", CodeInvalidKey},
		"F092 lone low surrogate":    {`"\udc00\ud800"`, "", CodeInvalidKey},
		"F013 long number":           {strings.Repeat("9", 256), "", CodeInvalidKey},
		"not JSON":                   {`evt_1`, "", CodeInvalidJSON},
		"two values":                 {`"a" "b"`, "", CodeInvalidJSON},
		"not UTF-8":                  {"\"\xff\"", "", CodeInvalidJSON},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err := KeyFromValue(jsontext.Value(row.raw))
			if key != row.key {
				t.Errorf("key %q, want %q", key, row.key)
			}
			if row.code != "" {
				wantError(t, err, row.code, "")
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	if key, err := KeyFromValue(nil); key != "" || err == nil {
		t.Errorf("nil: %q, %v", key, err)
	}
}

func FuzzCheckKey(f *testing.F) {
	for _, row := range keyRows {
		f.Add(row.key)
	}
	f.Add("")
	f.Fuzz(func(t *testing.T, key string) {
		err := CheckKey(key)
		if err != nil {
			code := CodeInvalidKey
			if key == "" {
				code = CodeMissingKey
			}
			wantError(t, err, code, "")
			if msg := err.Error(); len(key) > 20 && strings.Contains(msg, key) {
				t.Fatalf("the message repeats the key: %s", msg)
			}
			return
		}
		switch {
		case key == "", len(key) > MaxKeyBytes, !utf8.ValidString(key), strings.TrimSpace(key) != key,
			strings.ContainsFunc(key, unicode.IsControl), strings.Contains(key, "{{"), strings.Contains(key, "}}"),
			strings.HasPrefix(key, "\ufeff"), strings.HasSuffix(key, "\ufeff"):
			t.Fatalf("CheckKey passes %q", key)
		}
		parts := strings.FieldsFunc(key, func(r rune) bool { return strings.ContainsRune("-_:./|", r) })
		for _, part := range parts {
			switch part {
			case "undefined", "null", "NaN", "[object Object]", "[undefined]":
				t.Fatalf("CheckKey passes %q with the part %q", key, part)
			}
		}
		if err := CheckDerivedKey(key); err != nil {
			t.Fatalf("CheckDerivedKey is stricter than CheckKey: %v", err)
		}
		// A key that passes means the same when it comes as JSON.
		quoted, err := jsontext.AppendQuote(nil, key)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := KeyFromValue(quoted); err != nil || again != key {
			t.Fatalf("KeyFromValue(%s) = %q, %v", quoted, again, err)
		}
	})
}
