package identity

import (
	"crypto/sha256"
	"hash"
	"io"
	"slices"
	"sort"
	"sync"
)

// maxText keeps every position in a canonical text within 32 bits. It is far
// above any request body that is let in.
const maxText = 1 << 30

// Hash returns the SHA-256 of raw's canonical JSON. Two payloads have the same
// hash exactly when they are the same JSON value:
//
//   - members are sorted by the UTF-16 code units of their names, strings are
//     written as in RFC 8785, and white space is dropped;
//   - lone surrogates, which RFC 8785 refuses, are written as lower-case \udxxx
//     escapes, so that "\ud800" differs from "\ufffd";
//   - numbers are written by exact decimal value, unlike RFC 8785, which takes
//     them through a float: see appendNumber for the form.
//
// Refused with the code invalid_json: what is not JSON or not UTF-8, a member
// name that stands twice in one object (names are compared unescaped, at any
// depth), and more than [MaxDepth] levels. The time is linear in len(raw), but
// for sorting the members of an object whose names are not in order.
func Hash(raw []byte) ([32]byte, error) {
	c := canonicalizers.Get().(*canonicalizer)
	defer c.release()
	if err := c.read(raw); err != nil {
		return [32]byte{}, err
	}
	if len(c.unsorted) == 0 {
		return sha256.Sum256(c.text), nil
	}
	c.sum.Reset()
	c.writeTo(c.sum)
	c.sum.Sum(c.digest[:0])
	return c.digest, nil
}

// canonicalizer turns a JSON text into its canonical form in two steps. read
// writes every token in canonical spelling, in the order of the document, and
// notes the objects whose members are out of order; writeTo puts those in order
// on the way out. Nothing is moved in between: a value deep inside many
// unsorted objects would be copied once for each of them.
type canonicalizer struct {
	text     []byte           // canonical, but for the order of members
	frames   [MaxDepth]frame  // the open containers
	members  []member         // of the open objects, innermost last
	unsorted []unsortedObject // the objects that writeTo puts in order
	ordered  []member         // their members, sorted
	sum      hash.Hash
	digest   [sha256.Size]byte // room for sum's result
}

type frame struct {
	open     uint32 // where its bracket is in the text
	first    int    // its first member in members
	unsorted bool
}

// member is text[name-1:end]; its name is text[name:colon-1], without quotes.
type member struct{ name, colon, end uint32 }

// unsortedObject is text[open:end]; its members are ordered[first:first+count].
type unsortedObject struct {
	open, end    uint32
	first, count int
}

var canonicalizers = sync.Pool{New: func() any { return &canonicalizer{sum: sha256.New()} }}

// release gives the buffers back, unless a large payload has blown them up.
func (c *canonicalizer) release() {
	const keep = 64 << 10
	if cap(c.text) <= keep && cap(c.members) <= keep/16 && cap(c.ordered) <= keep/16 && cap(c.unsorted) <= keep/16 {
		canonicalizers.Put(c)
	}
}

func (c *canonicalizer) read(raw []byte) error {
	if len(raw) > maxText {
		return invalidJSON("the JSON is larger than %d bytes", maxText)
	}
	c.text = slices.Grow(c.text[:0], len(raw))
	c.members, c.unsorted, c.ordered = c.members[:0], c.unsorted[:0], c.ordered[:0]
	t := tokens{raw: raw}
	for {
		tok, err := t.next()
		if err != nil {
			return err
		}
		switch tok.kind {
		case kindEnd:
			return nil
		case kindOpenObject, kindOpenArray:
			c.comma()
			c.frames[t.depth-1] = frame{open: uint32(len(c.text)), first: len(c.members)}
			c.text = append(c.text, byte(tok.kind))
		case kindCloseArray:
			c.text = append(c.text, ']')
		case kindCloseObject:
			if err := c.closeObject(&c.frames[t.depth]); err != nil {
				return err
			}
		case kindName:
			if err := c.addMember(&c.frames[t.depth-1], raw, tok); err != nil {
				return err
			}
		case kindString:
			c.comma()
			c.text = appendString(c.text, raw, tok)
		case kindNumber:
			c.comma()
			c.text = appendNumber(c.text, raw[tok.start:tok.end])
		default:
			c.comma()
			c.text = append(c.text, raw[tok.start:tok.end]...)
		}
	}
}

// comma separates what follows from what stands before it in the same
// container. No value ends in one of these three, so the last byte tells.
func (c *canonicalizer) comma() {
	if n := len(c.text); n > 0 {
		switch c.text[n-1] {
		case '{', '[', ':':
		default:
			c.text = append(c.text, ',')
		}
	}
}

func (c *canonicalizer) addMember(f *frame, raw []byte, tok token) error {
	c.endMember(f)
	c.comma()
	name := uint32(len(c.text)) + 1
	c.text = append(appendString(c.text, raw, tok), ':')
	c.members = append(c.members, member{name: name, colon: uint32(len(c.text)) - 1})
	if n := len(c.members); !f.unsorted && n-1 > f.first {
		order := c.compare(c.members[n-2], c.members[n-1])
		if order == 0 {
			return c.twice(c.members[n-1])
		}
		f.unsorted = order > 0
	}
	return nil
}

// endMember notes where the value of the newest member of f ends: here.
func (c *canonicalizer) endMember(f *frame) {
	if n := len(c.members); n > f.first {
		c.members[n-1].end = uint32(len(c.text))
	}
}

func (c *canonicalizer) closeObject(f *frame) error {
	c.endMember(f)
	c.text = append(c.text, '}')
	own := c.members[f.first:]
	c.members = c.members[:f.first]
	if !f.unsorted {
		return nil
	}
	slices.SortFunc(own, c.compare)
	for i := 1; i < len(own); i++ {
		if c.compare(own[i-1], own[i]) == 0 {
			return c.twice(own[i])
		}
	}
	c.unsorted = append(c.unsorted, unsortedObject{
		open: f.open, end: uint32(len(c.text)), first: len(c.ordered), count: len(own),
	})
	c.ordered = append(c.ordered, own...)
	return nil
}

func (c *canonicalizer) compare(a, b member) int {
	return compareNames(c.text[a.name:a.colon-1], c.text[b.name:b.colon-1])
}

func (c *canonicalizer) twice(m member) error {
	name, _ := unquote(c.text, token{start: int(m.name) - 1, end: int(m.colon), escaped: true})
	return invalidJSON("the member %s stands twice in one object", shown(name))
}

// writeTo writes the canonical text.
func (c *canonicalizer) writeTo(w io.Writer) {
	// They were noted when they closed; they are needed in the order in which
	// they open.
	slices.SortFunc(c.unsorted, func(a, b unsortedObject) int { return int(a.open) - int(b.open) })
	c.write(w, 0, uint32(len(c.text)))
}

// write writes text[from:to] with the objects in it put in order. It calls
// itself for each member, so never deeper than MaxDepth.
func (c *canonicalizer) write(w io.Writer, from, to uint32) {
	for {
		i := sort.Search(len(c.unsorted), func(i int) bool { return c.unsorted[i].open >= from })
		if i == len(c.unsorted) || c.unsorted[i].open >= to {
			_, _ = w.Write(c.text[from:to]) // a hash never fails
			return
		}
		object := c.unsorted[i]
		_, _ = w.Write(c.text[from : object.open+1])
		for n, m := range c.ordered[object.first : object.first+object.count] {
			if n > 0 {
				_, _ = w.Write(comma)
			}
			c.write(w, m.name-1, m.end)
		}
		from = object.end - 1 // its closing brace is written with what follows
	}
}

var comma = []byte{','}
