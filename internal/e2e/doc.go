// Package e2e runs the workflow templates in a real n8n against the real
// Holdfast binary and a destination that counts what reaches it. What a test
// believes is what the destination received and what Holdfast answers to
// GET /claims and GET /dlq, never what n8n shows.
//
// The tests need the n8n that .ci/n8n installs, and have the build tag e2e:
//
//	.ci/n8n
//	go test -tags e2e -count=1 ./internal/e2e/
//
// One n8n and one Holdfast serve the whole package; each test brings its own
// copy of a workflow, its own destination and its own wire between n8n and
// Holdfast, so that tests run side by side. HOLDFAST_E2E_BINARY names a binary
// to run instead of building cmd/holdfast.
package e2e
