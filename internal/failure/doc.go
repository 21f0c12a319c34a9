// Package failure says what an error means: may the work be tried again, when,
// and can it have happened already?
//
// The questions are answered from what n8n sends about a failure. That is never
// one shape: the Error Trigger's item, the error output of an HTTP Request node
// (an object or a bare string), an execution read from n8n's API, an axios
// error, a problem document, the body of a destination, or our own API's error.
// The facts about those shapes were measured on n8n 2.41 (Node 24); the reports
// themselves stand in testdata/captures.
//
// Three rules run through the package:
//
//   - Class by code first (an HTTP status or a network code), by text last. n8n
//     replaces texts by friendlier ones, and matches them by substring.
//   - Outcome "not_executed" is a promise that the destination did nothing. It
//     is given only where the report proves it; everything else is "unknown".
//   - A failure report is always taken. No function here returns an error or
//     panics, whatever the bytes: cut in the middle, nested ten thousand deep,
//     with NUL, lone surrogates or invalid UTF-8.
//
// [Classify] judges, [Summary] and [Text] put it into words that are safe to
// store and to show, [Redact] and [RedactJSON] take the secrets out, [Backoff],
// [Jitter] and [RetryAfter] say when to try again. The package is pure: it
// reads no clock and does no input or output.
package failure
