package templates

import (
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"testing"
)

func TestTemplates(t *testing.T) {
	t.Parallel()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no templates are embedded")
	}
	// n8n refuses a path that another published workflow has, and an import replaces a workflow with the same id.
	owner := map[string]string{}
	for _, tmpl := range all {
		for _, problem := range lint(tmpl.JSON) {
			t.Errorf("%s: %s", tmpl.Name, problem)
		}
		var wf workflow
		if err := json.Unmarshal(tmpl.JSON, &wf); err != nil {
			t.Fatalf("%s: %v", tmpl.Name, err)
		}
		shared := []string{"id " + wf.ID}
		for _, n := range wf.Nodes {
			if n.Type == "n8n-nodes-base.webhook" {
				var p parameters
				if err := json.Unmarshal(n.Parameters, &p); err != nil {
					t.Fatalf("%s: %v", tmpl.Name, err)
				}
				shared = append(shared, "webhook path "+p.Path, "webhook id "+n.WebhookID)
			}
		}
		for _, thing := range shared {
			if other, taken := owner[thing]; taken {
				t.Errorf("%s and %s share the %s", other, tmpl.Name, thing)
			}
			owner[thing] = tmpl.Name
		}
		if tmpl.Title == "" || !strings.HasPrefix(tmpl.Title, "Holdfast: ") {
			t.Errorf("%s: its title %q does not begin with Holdfast", tmpl.Name, tmpl.Title)
		}
	}
}

func TestReadUnknown(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "no-such-template", "../n8n-templates/webhook-idempotency-gate", "webhook-idempotency-gate.json"} {
		if _, err := Read(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Read(%q): %v, want fs.ErrNotExist", name, err)
		}
	}
}

// TestLintNotices makes the mistakes that the lint is there for. Each replaces
// text of a good template, so a rule that no longer bites is found here.
func TestLintNotices(t *testing.T) {
	t.Parallel()
	type mistake = struct{ old, new, want string }
	lintNotices(t, "webhook-idempotency-gate", map[string]mistake{
		"broken":             {`"nodes": [`, `"nodes": `, "does not parse"},
		"no id":              {`"id": "holdfastGate"`, `"id": ""`, "needs a name and an id"},
		"instance data":      {`"connections": {`, `"pinData": {}, "connections": {`, `"pinData" belongs to one n8n`},
		"saved progress":     {`"saveExecutionProgress": false`, `"saveExecutionProgress": true`, "saveExecutionProgress must be off"},
		"old order":          {`"executionOrder": "v1"`, `"executionOrder": "v0"`, "executionOrder must be v1"},
		"foreign address":    {`http://holdfast:8088`, `http://10.1.2.3:8088`, "neither Holdfast's nor an example"},
		"secret":             {`Nothing was done:`, `Bearer abcdefgh12345`, "looks like a secret"},
		"never error":        {`"timeout": 10000`, `"timeout": 10000, "neverError": true`, "neverError turns"},
		"same name":          {`"name": "Answer 200: done"`, `"name": "Settings"`, "used twice"},
		"same id":            {`"id": "settings"`, `"id": "event"`, "used twice"},
		"lost connection":    {`"node": "Settings"`, `"node": "Setings"`, "which is no node"},
		"no webhook id":      {`"webhookId": "holdfast-gate"`, `"webhookId": ""`, "needs a webhookId"},
		"open switch":        {`"fallbackOutput": "extra"`, `"fallbackOutput": "none"`, "no fallback output"},
		"word only":          {`"={{ $json.lease_token }}"`, `"={{ $json.claimed }}"`, "without asking for the lease_token"},
		"goes on":            {`"onError": "continueErrorOutput"`, `"onError": "continueRegularOutput"`, "goes on after an error"},
		"always output":      {`"onError": "continueErrorOutput"`, `"onError": "continueErrorOutput", "alwaysOutputData": true`, "a success of each error"},
		"community node":     {`n8n-nodes-base.set`, `n8n-nodes-other.set`, "not one of n8n's own"},
		"wrong route":        {`}}/complete`, `}}/completed`, "no call of the contract"},
		"two addresses":      {callPrefix + "/claim", `={{ $json.address }}/claim`, "by another address"},
		"no retry":           {`"retryOnFail": true`, `"retryOnFail": false`, "a lost answer is lost"},
		"no timeout":         {`"timeout": 10000`, `"timeout": 300000`, "needs a timeout"},
		"any credential":     {`{"id": null, "name": "Holdfast"}`, `{"name": "Holdfast"}`, "its id there and null"},
		"someone's id":       {`{"id": null, "name": "Holdfast"}`, `{"id": "Ab1", "name": "Holdfast"}`, "its id there and null"},
		"body as text":       {`={{ JSON.stringify({ source`, `={ {{ JSON.stringify({ source`, "the body must be written"},
		"key per run":        {`$json.key_template ||`, `$execution.id ||`, "differs for each run"},
		"key per run, set":   {`"name": "key_template", "value": ""`, `"name": "key_template", "value": "={{ $now }}"`, "differs for each run"},
		"no owner":           {`owner: $execution`, `asker: $execution`, "the body has no owner"},
		"no lease token":     {`lease_token: $(`, `token: $(`, "the body has no lease_token"},
		"notes gone":         {`n8n-nodes-base.stickyNote`, `n8n-nodes-base.noOp`, "no sticky note"},
		"nothing leads here": {`"node": "Stop, so that this run shows as failed"`, `"node": "Settings"`, "nothing leads to it"},
	})
	lintNotices(t, "error-workflow-to-dlq", map[string]mistake{
		"report rewritten": {`={{ JSON.stringify($json) }}`, `={{ $json }}`, "the body must be written"},
		"wrong route":      {`8088/dlq"`, `8088/dlq/report"`, "no call of the contract"},
		"goes on":          {`"retryOnFail": true`, `"onError": "continueRegularOutput", "retryOnFail": true`, "goes on after an error"},
		"no retry":         {`"retryOnFail": true`, `"retryOnFail": false`, "a lost answer is lost"},
		"two addresses":    {`"When a workflow fails"`, `"Settings"`, "in more than one place"},
	})
	lintNotices(t, "dlq-retry-worker", map[string]mistake{
		"many at a time":   {`limit: 1,`, `limit: 25,`, "more than one letter or claim"},
		"no owner":         {`owner: $(`, `worker: $(`, "the body has no owner"},
		"says nothing":     {`error: $json.error, http_status: $json.http_status, retry_after: $json.retry_after`, `why: $json`, "neither what went wrong"},
		"wrong verb":       {`json.id }}/resolve`, `json.id }}/complete`, "no call of the contract"},
		"own tries":        {`"onError": "continueErrorOutput"`, `"onError": "continueErrorOutput", "retryOnFail": true`, "does not count"},
		"follows":          {`"followRedirects": false`, `"followRedirects": true`, "follows redirects"},
		"too patient":      {`"timeout": 120000`, `"timeout": 300000`, "the lease outlasts"},
		"header unseen":    {`"fullResponse": true, `, ``, "the Retry-After of a 429"},
		"status unseen":    {`$json.statusCode`, `$json.status`, "does not ask for the status"},
		"error unseen":     {`"onError": "continueErrorOutput"`, `"onError": "stopWorkflow"`, "needs an error output"},
		"our key to all":   {`"url": "={{ $json.address }}"`, `"url": "={{ $json.address }}", "genericAuthType": "httpBearerAuth"`, "sends a credential"},
		"open switch":      {`"fallbackOutput": "extra"`, `"fallbackOutput": "none"`, "no fallback output"},
		"fallback is lost": {`[{"node": "Say what went wrong", "type": "main", "index": 0}]`, `[]`, "outputs are connected"},
	})
}

// TestLintNoticesPaidCalls makes the mistakes that would pay twice, or lose what was paid for.
func TestLintNoticesPaidCalls(t *testing.T) {
	t.Parallel()
	type mistake = struct{ old, new, want string }
	const keyHeader = `"Idempotency-Key", "value": "={{ $('Claim the charge').first().json.provider_key }}"`
	lintNotices(t, "paid-api-charge", map[string]mistake{
		"tries without key": {`"name": "Idempotency-Key"`, `"name": "X-Key"`, "where no Idempotency-Key"},
		"key per run":       {keyHeader, `"Idempotency-Key", "value": "={{ $execution.id }}"`, "where no Idempotency-Key"},
		"short lease":       {`"name": "lease_seconds", "value": 900`, `"name": "lease_seconds", "value": 200`, "longer than the lease"},
		"longer tries":      {`"maxTries": 3,`, `"maxTries": 30,`, "longer than the lease"},
		"saved progress":    {`"saveExecutionProgress": false`, `"saveExecutionProgress": true`, "saveExecutionProgress must be off"},
		"error unseen":      {`"onError": "continueErrorOutput"`, `"onError": "stopWorkflow"`, "needs an error output"},
		"error goes on":     {`"onError": "continueErrorOutput"`, `"onError": "continueRegularOutput"`, "goes on after an error"},
		"error lost":        {`, [{"node": "Say what went wrong", "type": "main", "index": 0}]`, ``, "its error output is not connected"},
		"refusal unseen":    {`"timeout": 60000`, `"timeout": 60000, "response": {"response": {"neverError": true}}`, "switches Retry On Fail off"},
		"follows":           {`"followRedirects": false`, `"followRedirects": true`, "follows redirects"},
		"all items":         {`"executeOnce": true`, `"executeOnce": false`, "all its items at once"},
		"no effect":         {`kind: 'effect'`, `kind: 'event'`, "has no kind: 'effect'"},
		"amount unseen":     {`payload: $('What is charged').first().json, `, ``, "has no payload"},
		"order per run":     {`"value": "order-{order_id}"`, `"value": "order-{{ $execution.id }}"`, "differs for each run"},
		"wrong verb":        {`/mark-unknown`, `/mark-lost`, "no call of the contract"},
	})
	lintNotices(t, "paid-api-charge-no-key", map[string]mistake{
		"tries":        {`"retryOnFail": false`, `"retryOnFail": true, "maxTries": 3`, "where no Idempotency-Key"},
		"error unseen": {`"onError": "continueErrorOutput"`, `"onError": "stopWorkflow"`, "needs an error output"},
	})
	lintNotices(t, "reconciler", map[string]mistake{
		"many at a time": {`limit: 1,`, `limit: 25,`, "more than one letter or claim"},
		"no owner":       {`owner: $(`, `worker: $(`, "the body has no owner"},
		"tries":          {`"onError": "continueErrorOutput"`, `"onError": "continueErrorOutput", "retryOnFail": true`, "does not count"},
		"status unseen":  {`$json.statusCode`, `$json.status`, "does not ask for the status"},
		"lost access":    {`(at ?? {})[part]`, `at?.[part]`, "n8n reads nothing"},
		"not told":       {`, [{"node": "Tell Holdfast: it could not be asked", "type": "main", "index": 0}]`, ``, "its error output is not connected"},
	})
}

// lintNotices makes each mistake in a template and expects what the lint says.
func lintNotices(t *testing.T, name string, mistakes map[string]struct{ old, new, want string }) {
	t.Helper()
	good, err := Read(name)
	if err != nil {
		t.Fatal(err)
	}
	for mistake, tc := range mistakes {
		t.Run(name+"/"+mistake, func(t *testing.T) {
			t.Parallel()
			changed := strings.ReplaceAll(string(good.JSON), tc.old, tc.new)
			if changed == string(good.JSON) {
				t.Fatalf("the template has no %s", tc.old)
			}
			problems := strings.Join(lint([]byte(changed)), "\n")
			if !strings.Contains(problems, tc.want) {
				t.Errorf("lint says %q, want %q", problems, tc.want)
			}
		})
	}
}
