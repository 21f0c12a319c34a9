package identity

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// The values of this file are a second, slow idea of what a JSON value is:
// nil, bool, []uint16 (a string), *big.Rat, []any, and object. Hash is right if
// it agrees with it.
type object []named

type named struct {
	name  []uint16
	value any
}

func drawValue(t *rapid.T, depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return drawText(t)
	case 1:
		return drawNumber(t)
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return nil
	case 4:
		list := make([]any, rapid.IntRange(0, 4).Draw(t, "elements"))
		for i := range list {
			list[i] = drawValue(t, depth-1)
		}
		return list
	}
	var members object
	for range rapid.IntRange(0, 5).Draw(t, "members") {
		name := drawText(t)
		if !slices.ContainsFunc(members, func(m named) bool { return slices.Equal(m.name, name) }) {
			members = append(members, named{name, drawValue(t, depth-1)})
		}
	}
	return members
}

// drawText draws few units, so that names collide in their beginnings, and
// those that sort or spell in a special way.
func drawText(t *rapid.T) []uint16 {
	unit := rapid.SampledFrom([]uint16{0, 'a', 'b', 'n', '"', '\\', '/', '\n', 0x1f, 0x7f, 0x80, 0xe9, 0x2028, 0xd83d, 0xde00, 0xd800, 0xdfff, 0xe000, 0xfffd, 0xffff})
	return rapid.SliceOfN(unit, 0, 4).Draw(t, "text")
}

func drawNumber(t *rapid.T) *big.Rat {
	digits := rapid.Int64Range(-2000, 2000).Draw(t, "digits")
	exponent := rapid.Int64Range(-30, 30).Draw(t, "exponent")
	power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(max(exponent, -exponent)), nil))
	if exponent < 0 {
		power.Inv(power)
	}
	return power.Mul(power, big.NewRat(digits, 1))
}

// spell writes v in one of its many spellings.
func spell(t *rapid.T, out *strings.Builder, v any) {
	space := func() { out.WriteString(rapid.SampledFrom([]string{"", "", "", " ", "\n\t"}).Draw(t, "space")) }
	space()
	switch v := v.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(v))
	case []uint16:
		spellText(t, out, v)
	case *big.Rat:
		spellNumber(t, out, v)
	case []any:
		out.WriteByte('[')
		for i, element := range v {
			if i > 0 {
				out.WriteByte(',')
			}
			spell(t, out, element)
		}
		space()
		out.WriteByte(']')
	case object:
		out.WriteByte('{')
		space()
		for i, m := range rapid.Permutation(v).Draw(t, "order") {
			if i > 0 {
				out.WriteByte(',')
				space()
			}
			spellText(t, out, m.name)
			space()
			out.WriteByte(':')
			spell(t, out, m.value)
		}
		out.WriteByte('}')
	}
	space()
}

func spellText(t *rapid.T, out *strings.Builder, units []uint16) {
	out.WriteByte('"')
	for i := 0; i < len(units); i++ {
		u := rune(units[i])
		pair := rune(0xfffd)
		if i+1 < len(units) {
			pair = utf16.DecodeRune(u, rune(units[i+1]))
		}
		must := u < ' ' || u == '"' || u == '\\' || utf16.IsSurrogate(u)
		switch {
		case pair != 0xfffd && rapid.Bool().Draw(t, "pair as it is"):
			out.WriteRune(pair)
			i++
		case must || rapid.Bool().Draw(t, "escape"):
			format := rapid.SampledFrom([]string{`\u%04x`, `\u%04X`}).Draw(t, "hex")
			if u == '/' || u == '"' || u == '\\' {
				format = `\%c`
			}
			fmt.Fprintf(out, format, u)
		default:
			out.WriteRune(u)
		}
	}
	out.WriteByte('"')
}

func spellNumber(t *rapid.T, out *strings.Builder, v *big.Rat) {
	text := v.FloatString(40) // exact: no exponent goes below -30
	if v.Sign() == 0 && rapid.Bool().Draw(t, "minus zero") {
		out.WriteByte('-')
	}
	switch rapid.IntRange(0, 3).Draw(t, "number") {
	case 0:
		out.WriteString(text)
	case 1:
		out.WriteString(text + "e+00")
	case 2: // the same, with the point moved to the end
		minus, rest := "", text
		if strings.HasPrefix(text, "-") {
			minus, rest = "-", text[1:]
		}
		rest = strings.TrimLeft(strings.Replace(rest, ".", "", 1), "0")
		if rest == "" {
			rest = "0"
		}
		out.WriteString(minus + rest + "E-040")
	case 3:
		text = strings.TrimRight(text, "0")
		out.WriteString(strings.TrimRight(text, "."))
	}
}

func spelled(t *rapid.T, v any) string {
	var out strings.Builder
	spell(t, &out, v)
	return out.String()
}

// exact writes v so that equal values have equal texts, in a way that has
// nothing in common with the canonical form.
func exact(v any) string {
	switch v := v.(type) {
	case []uint16:
		return fmt.Sprintf("s%x", v)
	case *big.Rat:
		return "n" + v.RatString()
	case []any:
		var parts []string
		for _, element := range v {
			parts = append(parts, exact(element))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case object:
		var parts []string
		for _, m := range v {
			parts = append(parts, exact(m.name)+"="+exact(m.value))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, " ") + "}"
	}
	return fmt.Sprint(v)
}

func TestHashIsOfTheValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := drawValue(t, 3)
		first, second := spelled(t, value), spelled(t, value)
		a, err := Hash([]byte(first))
		if err != nil {
			t.Fatalf("Hash(%s): %v", first, err)
		}
		b, err := Hash([]byte(second))
		if err != nil || a != b {
			t.Fatalf("one value, two hashes (%v):\n%s\n%s", err, first, second)
		}
		text, err := canonical(first)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := canonical(text); err != nil || again != text {
			t.Fatalf("the canonical text of %s is not its own: %s, %v", text, again, err)
		}

		other := drawValue(t, 3)
		third := spelled(t, other)
		c, err := Hash([]byte(third))
		if err != nil {
			t.Fatalf("Hash(%s): %v", third, err)
		}
		if (a == c) != (exact(value) == exact(other)) {
			t.Fatalf("hashes equal: %t, values equal: %t\n%s\n%s", a == c, !(a == c), first, third)
		}
	})
}

// The plainest values are where two draws are often equal, or nearly so.
func TestHashTellsScalarsApart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func() any {
			if rapid.Bool().Draw(t, "number") {
				return drawNumber(t)
			}
			return object{{drawText(t), drawText(t)}}
		}
		a, b := draw(), draw()
		first, second := spelled(t, a), spelled(t, b)
		x, errX := Hash([]byte(first))
		y, errY := Hash([]byte(second))
		if errX != nil || errY != nil || (x == y) != (exact(a) == exact(b)) {
			t.Fatalf("%s and %s: equal hashes %t, %v, %v", first, second, x == y, errX, errY)
		}
	})
}

// Exponents of any length: adding on paper must agree with math/big.
func TestExponents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		exponent := rapid.StringMatching(`[-+]?[0-9]{1,30}`).Draw(t, "exponent")
		shift := rapid.IntRange(-1_000_000, 1_000_000).Draw(t, "shift")
		sum, ok := new(big.Int).SetString(exponent, 10)
		if !ok {
			t.Fatal(exponent)
		}
		want := ""
		if sum.Add(sum, big.NewInt(int64(shift))); sum.Sign() != 0 {
			want = "e" + sum.String()
		}
		if got := string(appendExponent(nil, []byte(exponent), shift)); got != want {
			t.Fatalf("%s + %d = %s, want %s", exponent, shift, got, want)
		}
	})
}

func FuzzHash(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"b":{"x":1,"y":2}}`, `{"b":{"y":2,"x":1},"a":1}`, // F019
		`{"amount":1,"amount":1000}`, `{"key":"a","Key":"b"}`, // F023
		`{"record":{"id":9314159265358979}}`, `{"record":{"id":931415926535897932384}}`, // F016
		`{"a":"x\u0000y"}`, `{"a\u0000":1}`, `{"a":"\ud800"}`, `{"a":"\udc00\ud800"}`, `{"a":"literal \\u0000 text"}`, `"\ud83d\ude00"`, // F092
		`{"id":"evt_5","pending_webhooks":2,"data":{"amount":100}}`,                                                      // F022
		strings.Repeat(`{"a":`, 201) + `1` + strings.Repeat(`}`, 201), strings.Repeat(`[`, 64) + strings.Repeat(`]`, 64), // F118
		`1e999999999`, `-0.0e-99999999999999999999`, `0.10`, `[1.0,1e0]`, "\ufeff{}", "{\"\xff\":1}", `tru`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		sum, err := Hash(raw)
		if want := accepted(raw); (err == nil) != want {
			t.Fatalf("Hash: %v; acceptable: %t", err, want)
		}
		if err != nil {
			wantError(t, err, CodeInvalidJSON, "")
			return
		}
		if err := Depth(raw, MaxDepth); err != nil {
			t.Fatalf("Hash takes what Depth refuses: %v", err)
		}
		text, err := canonical(string(raw))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Hash([]byte(text)); err != nil || again != sum {
			t.Fatalf("the canonical text has another hash: %s, %v", text, err)
		}
		if value := jsontext.Value(text); !value.IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)) {
			t.Fatalf("the canonical text is no JSON: %s", text)
		}
	})
}

// accepted asks another parser. It mangles lone surrogates, so it can take two
// names for one that differ in them; those are left to Hash.
func accepted(raw []byte) bool {
	value := jsontext.Value(raw)
	if !value.IsValid(jsontext.AllowDuplicateNames(true)) {
		// The strict parser refuses lone surrogates too. The lenient one lets
		// bytes that are not UTF-8 pass, so ask for those apart.
		if !value.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) || !isUTF8(raw) {
			return false
		}
		_, err := Hash(raw)
		return Depth(raw, MaxDepth) == nil && (err == nil || strings.Contains(err.Error(), "stands twice"))
	}
	return value.IsValid() && Depth(raw, MaxDepth) == nil
}

func isUTF8(raw []byte) bool { return validText(string(raw)) }

// The hash that people see: a golden value, so that it never changes by
// accident. Stored hashes are compared with new ones.
func TestHashGolden(t *testing.T) {
	t.Parallel()
	const raw = `{"id":"evt_1","amount":1250.50,"currency":"KES","tags":["a","\u00e9",null,true],"count":100}`
	const text = `{"amount":12505e-1,"count":1e2,"currency":"KES","id":"evt_1","tags":["a","é",null,true]}`
	const want = "6370d623d85930557c492c5176ae924ef43a88ac4ecf53fa1dbc4b8cb746de67"
	if got, err := canonical(raw); err != nil || got != text {
		t.Fatalf("canonical text %s, %v", got, err)
	}
	if sum, err := Hash([]byte(raw)); err != nil || hex.EncodeToString(sum[:]) != want {
		t.Fatalf("hash %x, %v", sum, err)
	}
}
