package templates

import (
	"fmt"
	"slices"
	"strings"
)

// lintCall looks at an HTTP Request node that calls Holdfast.
func lintCall(n node, p parameters, lease int) []string {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	route, ours := strings.CutPrefix(p.URL, callPrefix)
	if !ours {
		route, ours = strings.CutPrefix(p.URL, ownPrefix)
	}
	if !ours {
		return lintRequest(n, p, lease)
	}
	route = idInPath.ReplaceAllString(route, "{id}")
	if !slices.Contains(routes, route) || p.Method != "POST" {
		bad("%s %s is no call of the contract", p.Method, route)
	}
	if strings.Contains(string(n.Parameters), `"neverError"`) {
		bad("neverError turns an error into an answer")
	}
	if !n.RetryOnFail || n.MaxTries < 2 {
		bad("Retry On Fail is off, so a lost answer is lost")
	}
	if p.Options.Timeout == 0 || p.Options.Timeout > 60_000 {
		bad("needs a timeout of at most a minute; n8n's own is five")
	}
	// A null id lets n8n find the credential by its name; an absent one lets it take any of the type.
	credential, found := n.Credentials["httpBearerAuth"]
	if p.AuthType != "httpBearerAuth" || !found || string(credential.ID) != "null" || credential.Name != "Holdfast" || len(n.Credentials) != 1 {
		bad("needs the one credential httpBearerAuth named Holdfast, its id there and null")
	}
	// Any other way of writing the body breaks on quotes, or sends a bare value.
	// A failure report is handed on as it came, whatever is in it.
	if !strings.HasPrefix(p.JSONBody, "={{ JSON.stringify({ ") && (route != "/dlq" || p.JSONBody != "={{ JSON.stringify($json) }}") {
		bad("the body must be written as JSON.stringify({ ... })")
	}
	for _, m := range keyMember.FindAllStringSubmatch(p.JSONBody, -1) {
		if perRun.MatchString(m[1]) {
			bad("a key that differs for each run: %s", m[0])
		}
	}
	for _, member := range required(route) {
		if !strings.Contains(p.JSONBody, member+": ") {
			bad("the body has no %s", member)
		}
	}
	if (route == "/dlq/{id}/fail" || route == "/mark-failed") && !strings.Contains(p.JSONBody, "error: ") && !strings.Contains(p.JSONBody, "retry_after: ") {
		bad("the body says neither what went wrong nor when to come back")
	}
	// Of several the last would wait for all the others, under one lease.
	if strings.HasSuffix(route, "/lease") && !strings.Contains(p.JSONBody, "limit: 1,") {
		bad("takes more than one letter or claim at a time")
	}
	if route == "/claim" && strings.Contains(p.JSONBody, "step: ") {
		for _, member := range []string{"kind: 'effect'", "key_template: ", "payload: ", "destination: "} {
			if !strings.Contains(p.JSONBody, member) {
				bad("the claim of an effect has no %s", member)
			}
		}
	}
	return problems
}

// lintRequest looks at an HTTP Request node that calls somebody else.
func lintRequest(n node, p parameters, lease int) []string {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if strings.Contains(p.URL, "json.address }}/") || strings.Contains(p.URL, "8088") || strings.Contains(p.URL, "/dlq") {
		bad("calls Holdfast by another address than the one in Settings")
	}
	if strings.Contains(string(n.Parameters), "httpBearerAuth") || len(n.Credentials) > 0 {
		bad("sends a credential to somebody else")
	}
	if p.Options.Timeout == 0 || p.Options.Timeout > 120_000 {
		bad("needs a timeout of at most two minutes, which the lease outlasts")
	}
	// n8n makes a GET of a POST that is redirected.
	if p.Options.Redirect == nil || p.Options.Redirect.Redirect.FollowRedirects {
		bad("follows redirects")
	}
	if n.OnError != "continueErrorOutput" {
		bad("needs an error output: a retry by hand would go on at this call, without asking Holdfast")
	}
	answers := p.Options.Response.Response
	if lease == 0 {
		if n.RetryOnFail {
			bad("Retry On Fail makes tries that Holdfast does not count")
		}
		if !answers.NeverError || !answers.FullResponse {
			bad("needs Never Error and the full response: else the Retry-After of a 429 is not seen")
		}
		return problems
	}
	// Here the call is made under a claim of its own, and its error output is where it failed.
	if answers.NeverError {
		bad("neverError would show a refusal as an answer, and switches Retry On Fail off")
	}
	if n.RetryOnFail && !strings.Contains(string(n.Parameters), `{"name": "Idempotency-Key", "value": "={{ $('Claim the charge').first().json.provider_key }}"}`) {
		bad("Retry On Fail may do it twice where no Idempotency-Key, the claim's provider_key, is sent")
	}
	// What follows the last try takes up to a minute: Holdfast must be told while the lease lasts.
	if took := max(1, n.MaxTries)*(p.Options.Timeout+n.WaitBetweenTries) + 60_000; took > lease*1000 {
		bad("may take %d s, which is longer than the lease of its claim", took/1000)
	}
	if !n.ExecuteOnce {
		bad("sends all its items at once, under one claim")
	}
	return problems
}

// required names what a call must carry to do its part.
func required(route string) []string {
	switch route {
	case "/dlq":
		return nil
	case "/dlq/lease", "/reconcile/lease":
		return []string{"owner", "limit", "lease_seconds"}
	case "/claim":
		return []string{"source", "owner", "lease_seconds", "workflow_id", "execution_id", "node"}
	case "/mark-unknown":
		return []string{"lease_token", "error"}
	}
	return []string{"lease_token"}
}
