// Package identity decides what a key is and when two payloads are the same.
//
// It finds and checks idempotency keys (given, built from a template, or found
// at the standard paths of a payload) and hashes payloads over canonical JSON.
// Everything here is pure: bytes in, text or an [*Error] out. It knows no SQL
// and no HTTP.
//
// # Why it reads JSON by hand
//
// Identity must not depend on what a decoder does to a value on the way: 64-bit
// ids must not pass through a float, a lone surrogate must not become U+FFFD,
// 1e999999999 must not be expanded, and a member that is there twice must not
// be silently settled by position. One tokenizer in this package reads the
// bytes; the hash and the path look-ups both stand on it, so they cannot
// disagree about what a payload says. It never recurses, and it refuses more
// than [MaxDepth] levels.
package identity
