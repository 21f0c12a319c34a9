package failure

import "github.com/go-json-experiment/json/jsontext"

// The loose readers of this package, for those who read more of a report than its error.

// Members are the members of one JSON object, their values unparsed. Of equal names the last wins. They can be read
// of anything that begins like an object, however broken or deep it is; what cannot be read is absent.
type Members map[string]jsontext.Value

// ReadMembers reads one level of v. What is not an object has none.
func ReadMembers(v jsontext.Value) Members { return Members(readObject(v)) }

// Members reads the members of a member.
func (m Members) Members(name string) Members { return ReadMembers(m[name]) }

// Text is a member that is a string, else "". Lone surrogates stand in it as the escapes they were.
func (m Members) Text(name string) string { return object(m).text(name) }

// Number is a member that is a whole number, or text of one.
func (m Members) Number(name string) (int64, bool) { return object(m).number(name) }

// True tells whether a member is true, or the text of it.
func (m Members) True(name string) bool { return object(m).isTrue(name) }

// Elements calls f with each element of an array until f says false.
func Elements(v jsontext.Value, f func(jsontext.Value) bool) { elements(v, f) }

// Kind names a value by its first byte: '{', '[', '"', 't', 'f', 'n', '0' for a number, 0 for nothing, and '?' for
// what is not JSON.
func Kind(v jsontext.Value) byte { return kindOf(v) }

// Unquote decodes a JSON string, however broken it is.
func Unquote(v jsontext.Value) string { return unquote(trim(v)) }

// Place finds the value at a path of member names: v[start:end].
func Place(v jsontext.Value, path ...string) (start, end int, found bool) {
	end = len(v)
	for _, name := range path {
		outer := start
		found = false
		members(v[outer:end], func(member string, from, to int) {
			if member == name {
				start, end, found = outer+from, outer+to, true
			}
		})
		if !found {
			return 0, 0, false
		}
	}
	return start, end, found
}

// Visible makes text fit for any database and terminal, as Text does: what cannot be stored or seen becomes an escape
// that can.
func Visible(s string) string { return visible(s) }
