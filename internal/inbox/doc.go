// Package inbox knows the webhook providers: for each of them a row in one
// table, which says what a delivery of theirs looks like.
//
// So far the rows hold the identity of a delivery: which parts of body and
// headers make the key that is equal on every redelivery of the same event and
// different otherwise, and which part names the provider's account. The table
// is data, so that further columns (signature scheme, splitting, delivery) are
// further fields of a row.
//
// The package is pure: it knows no SQL and no HTTP.
package inbox
