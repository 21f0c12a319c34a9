package identity

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// canonical returns the canonical text whose SHA-256 Hash is.
func canonical(raw string) (string, error) {
	var c canonicalizer
	if err := c.read([]byte(raw)); err != nil {
		return "", err
	}
	var out bytes.Buffer
	c.writeTo(&out)
	return out.String(), nil
}

func TestHashCanonicalText(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ raw, want string }{
		"scalars":                  {`[null,true,false,"x",1]`, `[null,true,false,"x",1]`},
		"empty containers":         {` { "a" : [ ] , "b" : { } } `, `{"a":[],"b":{}}`},
		"F019 member order":        {`{"b":{"y":2,"x":1},"a":1}`, `{"a":1,"b":{"x":1,"y":2}}`},
		"F019 escaped name":        {"{\n\t\"b\" : 1,\r\n \"\\u0061\":2}", `{"a":2,"b":1}`},
		"unsorted inside sorted":   {`{"a":{"d":1,"c":2},"b":[{"f":1,"e":{"h":1,"g":2}}]}`, `{"a":{"c":2,"d":1},"b":[{"e":{"g":2,"h":1},"f":1}]}`},
		"sorted inside unsorted":   {`{"b":{"c":[{"d":1},{"z":1,"y":2}]},"a":{}}`, `{"a":{},"b":{"c":[{"d":1},{"y":2,"z":1}]}}`},
		"name is a prefix":         {`{"ab":1,"a":2,"":3}`, `{"":3,"a":2,"ab":1}`},
		"RFC 8785 example of keys": {`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`, `{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`},
		"escapes sort as text":     {`{"]":1,"\\":2,"[":3,"\"":4,"\n":5,"!":6}`, `{"\n":5,"!":6,"\"":4,"[":3,"\\":2,"]":1}`},
		"halves sort as units":     {`{"\ue000":1,"\ud83d\ude00":2,"\ud83d":3,"\ud83da":4,"\udc00":5}`, `{"\ud83d":3,"\ud83da":4,"😀":2,"\udc00":5,"` + "\ue000" + `":1}`},
		"short escapes":            {`"\u0008\u000c\u000a\u000d\u0009\u0022\u005c\u002f\u0000\u001F\u007f"`, `"\b\f\n\r\t\"\\/\u0000\u001f` + "\x7f" + `"`},
		"F092 NUL":                 {`{"a\u0000":"x\u0000y"}`, `{"a\u0000":"x\u0000y"}`},
		"F092 lone surrogates":     {`["\uD800","\udc00\ud800","\uD83D\uDE00","\ud83d\ud83d\ude00"]`, `["\ud800","\udc00\ud800","😀","\ud83d😀"]`},
		"F092 looks like escape":   {`"literal \\u0000 text"`, `"literal \\u0000 text"`},
		"line separators":          {`"\u2028\u2029"`, "\"\u2028\u2029\""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := canonical(row.raw)
			if err != nil || got != row.want {
				t.Fatalf("canonical(%s) = %s, %v; want %s", row.raw, got, err, row.want)
			}
			if sum, err := Hash([]byte(row.raw)); err != nil || sum != sha256.Sum256([]byte(row.want)) {
				t.Fatalf("Hash(%s) = %x, %v: not the hash of the canonical text", row.raw, sum, err)
			}
		})
	}
}

func TestHashNumbers(t *testing.T) {
	t.Parallel()
	// Each row is one value: its canonical text first, then other spellings.
	nines := strings.Repeat("9", 40)
	rows := [][]string{
		{"0", "-0", "0.0", "-0.000", "0e5", "-0.0e-99999999999999999999", "0E+0"},
		{"1", "1.0", "1e0", "1E+00", "10e-1", "0.1e1", "100000e-5", "0.00001e5"},
		{"-1", "-1.0", "-10e-1"},
		{"1e1", "10", "1e01", "10.0", "0.1e2"},
		{"1e-1", "0.1", "0.10", "1E-1", "0.01e1"},
		{"9007199254740993", "9007199254740993.0", "9007199254740.993e3"},
		{"9007199254740992"},
		{"931415926535897932384"},
		{"1234567890123456789012345678901234567890123456789e-24", "1234567890123456789012345.6789012345678901234567890"},
		{"15e-1", "1.5", "1.50", "150e-2"},
		{"100001", "100001.000", "1000.01e2"},
		{"1001e2", "100100"},
		{"5e999999999", "5e+999999999", "0.5e1000000000", "50e999999998"},
		{"5e-999999999", "0.5e-999999998"},
		// Around the length at which exponents are added on paper.
		{"1e100000000000000000", "10e99999999999999999", "0.1e100000000000000001", "100e99999999999999998"},
		{"1e99999999999999999", "10e99999999999999998", "0.1e100000000000000000"},
		{"1e-100000000000000000", "0.1e-99999999999999999", "10e-100000000000000001"},
		{"1e-99999999999999999", "10e-100000000000000000", "0.1e-99999999999999998"},
		{"1e1" + strings.Repeat("0", 40), "10e" + nines, "0.01e1" + strings.Repeat("0", 39) + "2", "1e00001" + strings.Repeat("0", 40)},
		{"1e" + nines, "10e" + nines[:39] + "8", "100e" + nines[:39] + "7"},
		{"1e-" + nines, "10e-1" + strings.Repeat("0", 40), "0.1e-" + nines[:39] + "8"},
	}
	seen := make(map[[32]byte]string)
	for _, row := range rows {
		want, err := Hash([]byte(row[0]))
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[want]; ok {
			t.Errorf("%s and %s hash alike", row[0], other)
		}
		seen[want] = row[0]
		for _, spelling := range row {
			text, err := canonical(spelling)
			if err != nil || text != row[0] {
				t.Errorf("canonical(%s) = %s, %v; want %s", spelling, text, err, row[0])
			}
			if got, err := Hash([]byte(" " + spelling + "\n")); err != nil || got != want {
				t.Errorf("Hash(%s) differs from Hash(%s): %v", spelling, row[0], err)
			}
		}
	}
}

func TestHashTellsApart(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string][2]string{
		"F016 neighbours beyond 2^53": {`{"record":{"id":9314159265358979}}`, `{"record":{"id":9314159265358980}}`},
		"contract big integers":       {`9007199254740993`, `9007199254740992`},
		"F020 changed amount":         {`{"amount":500}`, `{"amount":900}`},
		"F022 counter":                {`{"id":"evt_5","pending_webhooks":2}`, `{"id":"evt_5","pending_webhooks":1}`},
		"F017 composed and not":       {`"caf\u00e9"`, `"cafe\u0301"`},
		"F017 case":                   {`"evt_1AbC"`, `"evt_1aBc"`},
		"F092 surrogate and U+FFFD":   {`{"a":"\ud800"}`, `{"a":"\ufffd"}`},
		"F092 two surrogates":         {`"\ud800"`, `"\ud801"`},
		"F092 escape and its text":    {`"\u0000"`, `"\\u0000"`},
		"F092 surrogate and its text": {`"\ud800"`, `"\\ud800"`},
		"number and string":           {`1`, `"1"`},
		"null and absent":             {`{"a":null}`, `{}`},
		"order of elements":           {`[1,2]`, `[2,1]`},
		"nesting":                     {`[[1],2]`, `[[1,2]]`},
		"name and value":              {`{"a":"b"}`, `{"b":"a"}`},
		"tiny difference":             {`0.1`, `0.1000000000000000000000000001`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, errA := Hash([]byte(pair[0]))
			b, errB := Hash([]byte(pair[1]))
			if errA != nil || errB != nil || a == b {
				t.Fatalf("Hash(%s) and Hash(%s): equal %t, %v, %v", pair[0], pair[1], a == b, errA, errB)
			}
		})
	}
}

func TestHashRefuses(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ raw, says string }{
		"empty":                      {``, "ends too early"},
		"white space":                {" \n", "ends too early"},
		"F023 duplicate":             {`{"amount":1,"amount":1000}`, `member "amount" stands twice`},
		"F023 duplicate after sort":  {`{"b":1,"a":2,"b":3}`, `member "b" stands twice`},
		"F023 duplicate deep":        {`[[{"x":{"a":1,"b":2,"a":1}}]]`, `member "a" stands twice`},
		"F023 duplicate by escape":   {`{"a":1,"\u0061":1}`, `member "a" stands twice`},
		"duplicate lone surrogate":   {`{"\ud800":1,"\uD800":1}`, "stands twice"},
		"duplicate with a bidi mark": {`{"a\u202eb":1,"a\u202eb":1}`, `"a\u202eb" stands twice`},
		"duplicate long name":        {`{"` + strings.Repeat("n", 100) + `":1,"` + strings.Repeat("n", 100) + `":1}`, `"` + strings.Repeat("n", 64) + `"… stands`},
		"two values":                 {`1 2`, "behind the value, at byte 2"},
		"closing too much":           {`{}}`, "behind the value"},
		"wrong bracket":              {`[1}`, "unexpected character at byte 2"},
		"trailing comma":             {`[1,]`, "unexpected"},
		"trailing comma in object":   {`{"a":1,}`, "unexpected"},
		"leading comma":              {`[,1]`, "unexpected"},
		"no colon":                   {`{"a" 1}`, "unexpected"},
		"no value":                   {`{"a":}`, "unexpected"},
		"name is no string":          {`{a:1}`, "unexpected"},
		"cut off":                    {`{"a":[1,`, "ends too early, at byte 8"},
		"cut off in a string":        {`"abc`, "ends too early"},
		"cut off in an escape":       {`"abc\`, "bad escape"},
		"cut off after a name":       {`{"a"`, "ends too early"},
		"half a literal":             {`tru`, "unexpected"},
		"long literal":               {`nullx`, "behind the value"},
		"wrong case":                 {`True`, "unexpected"},
		"F100 NaN":                   {`NaN`, "unexpected"},
		"leading zero":               {`01`, "unexpected"},
		"plus":                       {`+1`, "unexpected"},
		"bare point":                 {`1.`, "unexpected"},
		"point first":                {`.5`, "unexpected"},
		"empty exponent":             {`1e+`, "unexpected"},
		"minus alone":                {`-`, "unexpected"},
		"hexadecimal":                {`0x10`, "behind the value"},
		"raw line break":             {"\"a\nb\"", "control character"},
		"F092 raw NUL":               {"\"a\x00b\"", "control character"},
		"unknown escape":             {`"\x41"`, "bad escape"},
		"short escape":               {`"\u12"`, "bad escape"},
		"bad hex":                    {`"\u12g4"`, "bad escape"},
		"not UTF-8":                  {"\"\xff\"", "not UTF-8"},
		"surrogate as UTF-8":         {"\"\xed\xa0\x80\"", "not UTF-8"},
		"overlong":                   {"\"\xc0\x80\"", "not UTF-8"},
		"not UTF-8 outside":          {"\xff", "unexpected"},
		"byte order mark":            {"\ufeff{}", "byte order mark"},
		"form":                       {`id=tr_Invented01`, "unexpected"},
		"F118 201 objects":           {strings.Repeat(`{"a":`, 201) + `1` + strings.Repeat(`}`, 201), "deeper than 200 levels"},
		"F118 201 arrays":            {strings.Repeat(`[`, 201) + strings.Repeat(`]`, 201), "deeper than 200 levels"},
		"F118 1,000,000 arrays":      {strings.Repeat(`[`, 1_000_000), "deeper than 200 levels"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Hash([]byte(row.raw))
			wantError(t, err, CodeInvalidJSON, row.says)
		})
	}
}

// wantError fails unless err is an *Error of this code whose message has says
// in it.
func wantError(t *testing.T, err error, code, says string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Message, says) {
		t.Fatalf("error %v; want %s with %q", err, code, says)
	}
	if strings.Contains(e.Message, "%!") {
		t.Fatalf("message %q has a formatting error", e.Message)
	}
}

func TestHashDepth(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 64, MaxDepth} { // F118
		raw := strings.Repeat(`{"b":[`, n/2) + strings.Repeat(`[`, n%2) + `1` + strings.Repeat(`]`, n%2) + strings.Repeat(`],"a":0}`, n/2)
		if _, err := Hash([]byte(raw)); err != nil {
			t.Errorf("%d levels: %v", n, err)
		}
		if err := Depth([]byte(raw), MaxDepth); err != nil {
			t.Errorf("%d levels: %v", n, err)
		}
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		raw string
		max int
		ok  bool
	}{
		"F118 at the limit":       {strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 200), 200, true},
		"F118 over the limit":     {strings.Repeat(`{"a":`, 201) + `1` + strings.Repeat(`}`, 201), 200, false},
		"F118 never closed":       {strings.Repeat(`[`, 31_000), 200, false},
		"wide is not deep":        {`[` + strings.Repeat(`[],`, 1000) + `{}]`, 2, true},
		"brackets in a string":    {`["[[[[{{{{"]`, 1, true},
		"quote in a string":       {`["a\"[[[["]`, 1, true},
		"backslash ends a string": {`["a\\",[[]]]`, 2, false},
		"closing first":           {`]]]][[[`, 2, false},
		"string without an end":   {`["abc\`, 1, true},
		"not JSON":                {`a=1&b=[`, 1, true},
		"nothing":                 {``, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Depth([]byte(row.raw), row.max)
			if row.ok {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantError(t, err, CodeInvalidJSON, "deeper than")
		})
	}
}

// The worst shapes for a canonicalizer: each must cost time in proportion to
// its length, else this test runs into the time limit of the package.
func TestHashWorstShapes(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	// A large value inside many objects that are all out of order.
	deep := strings.Repeat(`{"b":`, 199) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat(`,"a":1}`, 199)
	var reversed, chain strings.Builder
	reversed.WriteByte('{')
	for i := size / 16; i > 0; i-- {
		fmt.Fprintf(&reversed, `"%c%08x":1,`, 'a'+i%26, i)
	}
	reversed.WriteString(`"":0}`)
	chain.WriteString(`[`)
	for range size / 24 {
		chain.WriteString(`{"b":{"d":1,"c":2},"a":3},`)
	}
	chain.WriteString(`0]`)
	for name, raw := range map[string]string{
		"deep":       deep,
		"reversed":   reversed.String(),
		"many":       chain.String(),
		"digits":     `1e` + strings.Repeat("9", size),
		"zeros":      `0.` + strings.Repeat("0", size) + `1e-` + strings.Repeat("1", size),
		"long names": `{"` + strings.Repeat("n", size) + `b":1,"` + strings.Repeat("n", size) + `a":2}`,
		"escapes":    `"` + strings.Repeat(`\u0061`, size/6) + `"`,
	} {
		if _, err := Hash([]byte(raw)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	shop := `{"id":450000001,"admin_graphql_api_id":"gid:\/\/shopify\/Order\/450000001","updated_at":"2026-01-01T03:00:00+03:00","total_price":"1250.00","currency":"KES"}`
	stripe := `{"id":"evt_1QaInventedEvent01","object":"event","account":"acct_1Invented00000001","api_version":"2025-11-17.clover","created":1767225598,"data":{"object":{"id":"pi_3QaInvented0000001","object":"payment_intent","amount":125000,"currency":"kes","status":"succeeded","metadata":{"order_id":"ORD-1001"}}},"livemode":false,"pending_webhooks":1,"request":{"id":"req_Invented01","idempotency_key":"ORD-1001-charge"},"type":"payment_intent.succeeded"}`
	for _, bench := range []struct{ name, raw string }{
		{"sorted", `{"amount":1250,"currency":"KES","id":"evt_1","status":"paid"}`},
		{"shuffled", `{"id":"evt_1","status":"paid","amount":1250,"currency":"KES"}`},
		{"shop", shop},
		{"stripe", stripe},
		{"1MB", `[` + strings.Repeat(stripe+",", 1<<20/len(stripe)) + `0]`},
	} {
		b.Run(bench.name, func(b *testing.B) {
			raw := []byte(bench.raw)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Hash(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
