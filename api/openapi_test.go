package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"holdfast/api"
)

func TestDocumentIsValid(t *testing.T) {
	t.Parallel()
	if err := contract(t).Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Fatal(err)
	}
}

// Every route that is served stands in the document, and the reverse, with the same role.
func TestDocumentAndRoutesAgree(t *testing.T) {
	t.Parallel()
	doc := contract(t)
	served := map[string]string{}
	for _, r := range api.Routes() {
		var parts []string
		for _, part := range strings.Split(r.Path, "/") {
			if name, ok := strings.CutPrefix(part, ":"); ok {
				part = "{" + name + "}"
			}
			parts = append(parts, part)
		}
		served[r.Method+" "+strings.Join(parts, "/")] = r.Role
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			at := method + " " + path
			role, ok := served[at]
			if !ok {
				t.Errorf("%s is in the document and not served", at)
				continue
			}
			delete(served, at)
			documented, _ := op.Extensions["x-role"].(string)
			if documented != role {
				t.Errorf("%s: the document says role %q, the route needs %q", at, documented, role)
			}
			if open := op.Security != nil && len(*op.Security) == 0; open != (role == "") {
				t.Errorf("%s: open to all in the document: %v; role %q", at, open, role)
			}
			checkOperation(t, at, op, role)
		}
	}
	for at := range served {
		t.Errorf("%s is served and not in the document", at)
	}
}

// checkOperation demands the answers that a role and a body bring with them.
func checkOperation(t *testing.T, at string, op *openapi3.Operation, role string) {
	t.Helper()
	if op.Summary == "" || op.OperationID == "" || len(op.Tags) == 0 {
		t.Errorf("%s lacks a summary, an operationId or a tag", at)
	}
	want := []string{"200"}
	if role != "" {
		want = append(want, "401")
	}
	if role == "operator" {
		want = append(want, "403")
	}
	if op.RequestBody != nil {
		want = append(want, "400", "413", "415")
	}
	for _, status := range want {
		if op.Responses.Value(status) == nil {
			t.Errorf("%s does not say what a %s means", at, status)
		}
	}
	person := at == "POST /dlq/{id}/resolve" // without a token it is an operator's
	if op.Responses.Value("403") != nil && role != "operator" && !person {
		t.Errorf("%s has a 403 and needs no operator", at)
	}
}

// Answers name all their members, so that drift on either side fails.
func TestSchemasAreStrict(t *testing.T) {
	t.Parallel()
	doc := contract(t)
	for name, ref := range doc.Components.Schemas {
		s := ref.Value
		if len(s.Properties) == 0 {
			continue
		}
		if s.AdditionalProperties.Has == nil || *s.AdditionalProperties.Has {
			t.Errorf("%s lets unknown members pass", name)
		}
		if strings.HasSuffix(name, "Request") || strings.HasSuffix(name, "Details") || name == "Selector" { // which repeats what was given
			continue
		}
		for property := range s.Properties {
			if !slices.Contains(s.Required, property) {
				t.Errorf("%s.%s may be missing from the answer", name, property)
			}
		}
	}
}

// The contract's tables, copied by hand: the document must hold just these names.
func TestDocumentHasTheContractsNames(t *testing.T) {
	t.Parallel()
	for schema, names := range map[string]string{
		"ClaimRequest": "source account step kind idempotency_key key_template claim_id payload headers owner lease_seconds workflow_id workflow_name " +
			"execution_id node entity version destination",
		"ClaimAnswer": "decision claimed claim_id source account idempotency_key key_basis step kind status attempt reentrant lease_token lease_expires_at " +
			"retry_after_seconds payload_hash payload_matches provider_key result_id result reference first_seen_at",
		"CompleteRequest":    "lease_token source account idempotency_key step reference result_id result http_status force",
		"MarkUnknownRequest": "lease_token error http_status reference",
		"MarkFailedRequest":  "lease_token outcome tries error http_status retry_after",
		"ExtendRequest":      "lease_token lease_seconds reference",
		"EndingAnswer":       "claim_id source account idempotency_key step status changed attempt result_id result completed_at",
		"FailedAnswer": "claim_id source account idempotency_key step status changed attempt result_id result completed_at " +
			"error_class retryable outcome backoff_seconds",
		"ExtendAnswer":         "claim_id source account idempotency_key step status changed attempt result_id result completed_at lease_expires_at",
		"ResolveRequest":       "status result_id new_provider_key authorized_by reason",
		"ReconcileRequest":     "source owner limit lease_seconds",
		"ClassifyAnswer":       "error_class retryable outcome next_status backoff_seconds escalate summary http_status",
		"LetterLeaseRequest":   "workflow_id source destination owner limit lease_seconds",
		"LetterResolveRequest": "lease_token result authorized_by reason",
		"LetterFailRequest":    "lease_token error http_status retry_after",
		"LetterExtendRequest":  "lease_token lease_seconds",
		"PersonRequest":        "authorized_by reason",
		"ReportAnswer": "id status reason duplicate error_class retryable outcome attempt_count max_attempts next_retry_at backoff_seconds escalated summary workflow_id " +
			"workflow_name execution_id failed_node http_status source account idempotency_key destination play provider_key replay_id replay_url",
		"LetterEnding":    "id status reason changed attempt_count next_retry_at backoff_seconds",
		"PauseRequest":    "authorized_by reason until",
		"ReplayRequest":   "authorized_by reason expected_effects selector limit sample_size max_concurrency rate_per_minute dry_run",
		"SelectorRequest": "ids workflow_id source destination error_class status from to",
		"Selector":        "ids workflow_id source destination error_class status from to",
		"Replay":          "id status matched held authorized_by approved_by reason expected_effects selector limit sample_size max_concurrency rate_per_minute counts created_at updated_at ended_at",
		"ReplayCounts":    "waiting queued replaying resolved dead",
		"Forecast":        "matched would_run held",
		"HeldCounts":      "unknown superseded completed",
		"HistoryEntry":    "at from to attempt owner execution_id http_status error_class message by reason",
		"Error":           "status code message details request_id",
	} {
		ref := contract(t).Components.Schemas[schema]
		if ref == nil {
			t.Errorf("there is no schema %s", schema)
			continue
		}
		var got []string
		for property := range ref.Value.Properties {
			got = append(got, property)
		}
		want := strings.Fields(names)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s has\n%v, want\n%v", schema, got, want)
		}
	}
}
