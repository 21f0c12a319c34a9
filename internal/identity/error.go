package identity

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// The codes of [Error]. They are the codes of the HTTP contract.
const (
	// CodeInvalidJSON says that bytes are no JSON text this service accepts:
	// bad syntax, bad UTF-8, a member twice, or nested too deep.
	CodeInvalidJSON = "invalid_json"
	// CodeMissingKey says that there is no key: absent, null, or empty.
	CodeMissingKey = "missing_key"
	// CodeInvalidKey says that there is a key, but one that must not be used.
	CodeInvalidKey = "invalid_key"
)

// Error is the only error type of this package. Message is public: it is
// written for the person who has to change something, and holds nothing of a
// payload but member names.
type Error struct {
	Code    string // one of the Code constants
	Message string
}

// Error returns the code and the message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

func invalidKey(format string, args ...any) *Error {
	return &Error{Code: CodeInvalidKey, Message: fmt.Sprintf(format, args...)}
}

func missingKey(format string, args ...any) *Error {
	return &Error{Code: CodeMissingKey, Message: fmt.Sprintf(format, args...)}
}

func invalidJSON(format string, args ...any) *Error {
	return &Error{Code: CodeInvalidJSON, Message: fmt.Sprintf(format, args...)}
}

// maxShown is how many characters of a member name or path go into a message.
const maxShown = 64

// shown makes a name from outside safe to print: cut, quoted, and with
// everything unprintable (bidi marks too) escaped.
func shown(name string) string {
	count := 0
	for i := range name {
		if count == maxShown {
			return strconv.Quote(name[:i]) + "…"
		}
		count++
	}
	return strconv.Quote(name)
}

// validText reports whether s can be stored as text in any database: valid
// UTF-8, which leaves no room for a lone surrogate.
func validText(s string) bool { return utf8.ValidString(s) }
