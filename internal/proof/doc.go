// Package proof checks the claim ledger against its contract from the outside. It holds nothing but tests:
//
//   - a sequential model of claims, endings, reconciliation, pauses and settling by hand, written from the contract
//     and not from the code, and random histories in which every answer of a real store must be the model's;
//   - invariants that are judged from the answers alone, without the model;
//   - linearizability of what many callers saw at once through real replicas that are killed in between;
//   - stores that are broken on purpose, which all of this must find;
//   - random schedules of a workflow that pays, with workers, reconcilers, retry workers, replays and persons, losses,
//     kills and late arrivals, against a destination that counts its charges: never two for one order, and in the end
//     nothing that it could have told is undecided; with one rule left out they must find what it prevents;
//   - the traces that broke the first draft of the rules, against the real program and a destination over HTTP.
//
// The default run is short. More histories: -rapid.checks=N, one of them again: -rapid.seed=N. A longer concurrent
// part: HOLDFAST_PROOF_SECONDS=N.
package proof
