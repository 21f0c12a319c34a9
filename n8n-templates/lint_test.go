package templates

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// routes are the calls of the HTTP contract that a workflow may make.
var routes = []string{
	"/claim", "/complete", "/mark-failed", "/mark-unknown", "/extend", "/reconcile/lease",
	"/dlq", "/dlq/lease", "/dlq/{id}/resolve", "/dlq/{id}/fail", "/dlq/{id}/extend",
}

// callPrefix is how a call to Holdfast begins: the address stands in one place only.
const callPrefix = "={{ $('Settings').first().json.address }}"

// ownPrefix is for a workflow that makes one call and needs no Settings.
const ownPrefix = "http://holdfast:8088"

type workflow struct {
	ID          string                     `json:"id"`
	Name        string                     `json:"name"`
	Nodes       []node                     `json:"nodes"`
	Connections map[string]nodeOutputs     `json:"connections"`
	Settings    map[string]any             `json:"settings"`
	Rest        map[string]json.RawMessage `json:"-"`
}

type nodeOutputs struct {
	Main [][]struct {
		Node string `json:"node"`
	} `json:"main"`
}

type node struct {
	ID               string          `json:"id"`
	Name             string          `json:"name"`
	Type             string          `json:"type"`
	TypeVersion      float64         `json:"typeVersion"`
	Position         []float64       `json:"position"`
	Parameters       json.RawMessage `json:"parameters"`
	WebhookID        string          `json:"webhookId"`
	OnError          string          `json:"onError"`
	RetryOnFail      bool            `json:"retryOnFail"`
	MaxTries         int             `json:"maxTries"`
	WaitBetweenTries int             `json:"waitBetweenTries"`
	ExecuteOnce      bool            `json:"executeOnce"`
	AlwaysOutputData bool            `json:"alwaysOutputData"`
	Credentials      map[string]struct {
		ID   json.RawMessage `json:"id"`
		Name string          `json:"name"`
	} `json:"credentials"`
}

type parameters struct {
	URL          string `json:"url"`
	Method       string `json:"method"`
	Path         string `json:"path"`
	ResponseMode string `json:"responseMode"`
	AuthType     string `json:"genericAuthType"`
	JSONBody     string `json:"jsonBody"`
	Content      string `json:"content"`
	Rules        struct {
		Values []json.RawMessage `json:"values"`
	} `json:"rules"`
	Options struct {
		Timeout        int    `json:"timeout"`
		FallbackOutput string `json:"fallbackOutput"`
		Redirect       *struct {
			Redirect struct {
				FollowRedirects bool `json:"followRedirects"`
			} `json:"redirect"`
		} `json:"redirect"`
		Response struct {
			Response struct {
				FullResponse bool `json:"fullResponse"`
				NeverError   bool `json:"neverError"`
			} `json:"response"`
		} `json:"response"`
	} `json:"options"`
}

var (
	keyMember    = regexp.MustCompile(`\b(?:idempotency_key|key_template): *([^,}]+)`)
	keySetting   = regexp.MustCompile(`"name": *"[a-z_]*(idempotency_key|key_template)"[^}]*`)
	leaseSetting = regexp.MustCompile(`"name": "lease_seconds", "value": (\d{1,6}),`)
	// n8n's expressions read nothing through ?.[name], whatever is there.
	lostAccess = regexp.MustCompile(`\?\.\[[^'"0-9]`)
	perRun     = regexp.MustCompile(`\$execution|\$now|\$today|\$runIndex|\$itemIndex|Math\.random|Date\.now|DateTime`)
	address    = regexp.MustCompile(`https?://[^\s"'/\\]+`)
	idInPath   = regexp.MustCompile(`{{ [^{}]*\.json\.id }}`)
	ownAddress = regexp.MustCompile(`^https?://(holdfast:8088|([a-z0-9-]+\.)*example\.test(:\d+)?)$`)
	secretText = regexp.MustCompile(`(?i)bearer [a-z0-9_-]{8,}|(password|secret|api_?key)\\?" *: *\\?"[^"]`)
)

// lint says what is wrong with a template. A user meets these mistakes late, or
// as work that was done twice: n8n itself accepts all of them at import.
func lint(raw []byte) []string {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }

	var wf workflow
	if err := json.Unmarshal(raw, &wf); err != nil {
		return []string{"does not parse: " + err.Error()}
	}
	if err := json.Unmarshal(raw, &wf.Rest); err != nil {
		return []string{"does not parse: " + err.Error()}
	}

	// n8n's CLI refuses a workflow without an id; the rest belongs to the instance that exported it.
	if wf.ID == "" || len(wf.ID) > 36 || wf.Name == "" {
		bad("needs a name and an id of at most 36 characters")
	}
	for _, key := range []string{"active", "meta", "pinData", "tags", "versionId", "staticData"} {
		if _, found := wf.Rest[key]; found {
			bad("%q belongs to one n8n, not to a template", key)
		}
	}
	if wf.Settings["executionOrder"] != "v1" {
		bad("executionOrder must be v1")
	}
	// With saved progress a crashed run goes on at the interrupted node, past the question to Holdfast.
	if wf.Settings["saveExecutionProgress"] != false {
		bad("saveExecutionProgress must be off")
	}
	for _, found := range address.FindAllString(string(raw), -1) {
		if !ownAddress.MatchString(found) {
			bad("address %s is neither Holdfast's nor an example", found)
		}
	}
	if found := secretText.FindString(string(raw)); found != "" {
		bad("looks like a secret: %s", found)
	}

	names, ids, notes := map[string]bool{}, map[string]bool{}, 0
	asked := slices.ContainsFunc(wf.Nodes, func(n node) bool { return n.Type == "n8n-nodes-base.webhook" })
	lease := 0
	if found := leaseSetting.FindSubmatch(raw); found != nil && strings.Contains(string(raw), "json.address }}/claim\"") {
		lease, _ = strconv.Atoi(string(found[1])) // digits only
	}
	calls := 0
	for _, n := range wf.Nodes {
		if n.Name == "" || names[n.Name] {
			bad("node name %q is empty or used twice", n.Name)
		}
		if n.ID == "" || ids[n.ID] {
			bad("node id %q is empty or used twice", n.ID)
		}
		names[n.Name], ids[n.ID] = true, true
		for _, problem := range lintNode(n, wf.Connections[n.Name], asked, lease) {
			bad("%s: %s", n.Name, problem)
		}
		if strings.Contains(string(n.Parameters), ownPrefix+"/") {
			calls++
		}
		if n.Type == "n8n-nodes-base.stickyNote" {
			notes++
		}
	}
	if notes == 0 {
		bad("has no sticky note that explains it")
	}
	if calls > 1 || calls == 1 && names["Settings"] {
		bad("the address of Holdfast stands in more than one place")
	}
	problems = append(problems, lintAnswers(&wf)...)

	targets := map[string]bool{}
	for from, outputs := range wf.Connections {
		if !names[from] {
			bad("connection from %q, which is no node", from)
		}
		for _, output := range outputs.Main {
			for _, to := range output {
				targets[to.Node] = true
				if !names[to.Node] {
					bad("connection to %q, which is no node", to.Node)
				}
			}
		}
	}
	for _, n := range wf.Nodes {
		if !isTrigger(n) && n.Type != "n8n-nodes-base.stickyNote" && !targets[n.Name] {
			bad("%s: nothing leads to it", n.Name)
		}
	}
	return problems
}

// lintAnswers looks at the calls to others whose failures come as answers: what
// follows must look at the status before anything else.
func lintAnswers(wf *workflow) []string {
	var problems []string
	reads := map[string]bool{}
	for _, n := range wf.Nodes {
		reads[n.Name] = (n.Type == "n8n-nodes-base.switch" || n.Type == "n8n-nodes-base.set") && strings.Contains(string(n.Parameters), "$json.statusCode")
	}
	for _, n := range wf.Nodes {
		var p parameters
		if json.Unmarshal(n.Parameters, &p) != nil || !p.Options.Response.Response.NeverError {
			continue
		}
		for _, output := range wf.Connections[n.Name].Main {
			for _, to := range output {
				if !reads[to.Node] {
					problems = append(problems, fmt.Sprintf("%s: neverError turns an error into an answer, and %s does not ask for the status", n.Name, to.Node))
				}
			}
		}
	}
	return problems
}

func isTrigger(n node) bool {
	return n.Type == "n8n-nodes-base.webhook" || strings.HasSuffix(n.Type, "Trigger")
}

// lintNode looks at one node and at where its outputs lead; asked says that somebody waits for the workflow's answer,
// lease for how many seconds it claims what it does; 0: it claims nothing.
func lintNode(n node, out nodeOutputs, asked bool, lease int) []string {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }

	if !strings.HasPrefix(n.Type, "n8n-nodes-base.") {
		bad("%s is not one of n8n's own nodes", n.Type)
	}
	if n.TypeVersion == 0 || len(n.Position) != 2 {
		bad("needs a typeVersion and a position")
	}
	var p parameters
	if err := json.Unmarshal(n.Parameters, &p); err != nil {
		bad("parameters: %v", err)
	}

	if found := lostAccess.FindString(string(n.Parameters)); found != "" {
		bad("n8n reads nothing through %s", found)
	}

	connected := 0
	for _, output := range out.Main {
		if len(output) > 0 {
			connected++
		}
	}
	switch n.Type {
	case "n8n-nodes-base.webhook":
		// Without a webhookId n8n serves the node at an address of its own making.
		if n.WebhookID == "" || p.Path == "" {
			bad("needs a webhookId and a path")
		}
	case "n8n-nodes-base.switch":
		if p.Options.FallbackOutput != "extra" {
			bad("has no fallback output, so an unknown value ends the run silently")
		}
		// An allow-list: the word and the token that proves it.
		if raw := string(n.Parameters); strings.Contains(raw, "$json.decision") && !strings.Contains(raw, "$json.lease_token") {
			bad("goes on without asking for the lease_token")
		}
		if connected != len(p.Rules.Values)+1 {
			bad("%d of %d outputs are connected", connected, len(p.Rules.Values)+1)
		}
	case "n8n-nodes-base.if":
		if connected != 2 {
			bad("both outputs must be connected")
		}
	case "n8n-nodes-base.httpRequest":
		problems = append(problems, lintCall(n, p, lease)...)
		if connected == 0 && asked {
			bad("the flow ends here without an answer to the sender")
		}
	case "n8n-nodes-base.stickyNote":
		if strings.TrimSpace(p.Content) == "" {
			bad("is empty")
		}
	case "n8n-nodes-base.respondToWebhook", "n8n-nodes-base.stopAndError":
	default:
		// A run that ends without an answer is answered by n8n with 200.
		if connected == 0 && asked {
			bad("the flow ends here without an answer to the sender")
		}
	}
	switch n.OnError {
	case "", "stopWorkflow":
	case "continueErrorOutput":
		if connected != 2 {
			bad("its error output is not connected")
		}
		// n8n would put an empty item on the success output beside the error.
		if n.AlwaysOutputData {
			bad("alwaysOutputData makes a success of each error")
		}
	default:
		bad("onError %s goes on after an error as if nothing had happened", n.OnError)
	}
	if n.Type == "n8n-nodes-base.set" {
		for _, m := range keySetting.FindAllString(string(n.Parameters), -1) {
			if perRun.MatchString(m) {
				bad("a key that differs for each run: %s", m)
			}
		}
	}
	return problems
}
