// Package inbox knows the webhook providers: for each of them a row in one
// table, which says what a delivery of theirs looks like.
//
// A row holds the identity of a delivery (which parts of body and headers make
// the key that is equal on every redelivery of the same event and different
// otherwise, and which part names the provider's account), how the provider
// signs, where a body holds several events, what says how new an event is, and
// what the provider wants as an answer. The table is data: a provider is added
// by a row.
//
// [NewSource] joins a row with what the configuration says of a source, and
// [Source.Receive] checks a request over its exact bytes and takes it apart.
// [Signer] signs what is passed on.
//
// The package is pure: it knows no SQL and no HTTP, and takes the time as an
// argument.
package inbox
