package failure

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// report is what an error says, gathered from whatever shape it came in.
type report struct {
	layers []layer // the error and its causes, the most telling first

	status int // the first HTTP error status, 0 if there is none
	seen   int // the first status below 400: an answer had begun

	faults []fault // network codes
	parts  []fault // the members of an AggregateError: one per address tried

	method      string // of the failing request, upper case
	node        string // the failed node's name
	nodeType    string
	nodeRetries bool
	retryAfter  *int64
}

// layer is one error object, or one string.
type layer struct {
	name        string // the error's class
	message     string
	description string
	messages    []string       // n8n's raw texts
	words       []string       // codes and types in an API's own words
	body        jsontext.Value // the destination's answer
	replaced    bool           // n8n put its own text into message
}

// maxLayers bounds how far causes are followed.
const maxLayers = 12

func readReport(v jsontext.Value) *report {
	r := &report{}
	r.read(v, 0)
	return r
}

// read finds the error in any of the known envelopes.
func (r *report) read(v jsontext.Value, depth int) {
	if depth > maxLayers {
		return
	}
	switch kindOf(v) {
	case '"':
		r.readString(unquote(trim(v)), depth)
	case '[': // n8n's items: the first is the report
		elements(v, func(item jsontext.Value) bool {
			r.read(item, depth+1)
			return false
		})
	case '{':
		r.readEnvelope(v, readObject(v), depth)
	case '0', '?': // a number, or text that nobody quoted
		r.readString(string(trim(v)), depth)
	}
}

func (r *report) readString(s string, depth int) {
	inside := jsontext.Value(strings.TrimSpace(s))
	if k := kindOf(inside); (k == '{' || k == '[') && inside.IsValid(lenient...) {
		r.read(inside, depth+1)
		return
	}
	if s != "" {
		r.layers = append(r.layers, layer{message: s})
	}
}

// lenient accepts what JavaScript makes: equal names and lone surrogates.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// readEnvelope unwraps what n8n puts around an error.
func (r *report) readEnvelope(v jsontext.Value, o object, depth int) {
	result := o.object("data").object("resultData")
	switch {
	case kindOf(o["execution"]) == '{': // the Error Trigger's item
		r.readRun(o.object("execution"), depth)
	case kindOf(o["trigger"]) == '{': // the same, when the trigger itself failed
		r.readRun(o.object("trigger"), depth)
	case result != nil: // an execution of n8n's API
		r.readRun(result, depth)
		r.readWorkflow(o.object("workflowData"))
		r.readEnd(o.text("status"))
	case kindOf(o["json"]) == '{' && !o.isError():
		r.read(o["json"], depth+1)
	case o.wrapsError():
		r.readItem(o, depth)
	default:
		r.readError(v, o, depth)
	}
}

// isError tells an error object from an object that carries one.
func (o object) isError() bool {
	return o["stack"] != nil || o["httpCode"] != nil || strings.HasSuffix(o.text("name"), "Error")
}

// wrapsError says whether the object is a carrier: an item of an error output,
// or a body of the form {"error": …}.
func (o object) wrapsError() bool {
	k := kindOf(o["error"])
	return !o.isError() && (k == '{' || k == '[' || k == '"' && o.text("error") != "")
}

// readRun reads {error, lastNodeExecuted}.
func (r *report) readRun(run object, depth int) {
	r.read(run["error"], depth+1)
	if last := run.text("lastNodeExecuted"); last != "" {
		r.node = last // error.node is the child's where a sub-workflow failed
	}
}

// readWorkflow looks up the failed node, whose settings n8n's API shows even
// where the error does not name it.
func (r *report) readWorkflow(workflow object) {
	elements(workflow["nodes"], func(v jsontext.Value) bool {
		node := readObject(v)
		if node.text("name") != r.node {
			return true
		}
		r.nodeRetries = r.nodeRetries || node.isTrue("retryOnFail")
		return false
	})
}

// readEnd reads how an execution ended. A time-out or a stop is "canceled" and
// leaves no error; its request may still be under way.
func (r *report) readEnd(status string) {
	if len(r.layers) == 0 && (status == "canceled" || status == "crashed") {
		r.layers = append(r.layers, layer{message: "the execution was " + status})
	}
}

// readItem reads an item of an error output. The other members are the node's
// input, and may hold the status of an earlier answer: they are not evidence.
func (r *report) readItem(o object, depth int) {
	if status, ok := o.reasonedStatus(); ok {
		r.noteStatus(status)
	}
	r.read(o["error"], depth+1)
	if details := o.object("details"); details["httpCode"] != nil || details["body"] != nil {
		before := len(r.layers)
		r.readError(o["details"], details, depth+1)
		for i := before; i < len(r.layers); i++ {
			r.layers[i].replaced = true
		}
	}
}

// reasonedStatus reads {"status":404,"error":"Not Found",…}, the body that
// Spring, Nest and Fastify make. The phrase must fit the number, else the
// number may belong to the input of the failed node.
func (o object) reasonedStatus() (int, bool) {
	for _, name := range []string{"statusCode", "status"} {
		n, ok := o.number(name)
		if ok && n >= 400 && n <= 599 && strings.EqualFold(o.text("error"), reason(int(n))) {
			return int(n), true
		}
	}
	return 0, false
}

// readError reads an error object, or a body that says what is wrong.
func (r *report) readError(v jsontext.Value, o object, depth int) {
	if kindOf(o["errorResponse"]) == '{' {
		// A sub-workflow failed: the child's error comes first, the parent's
		// own says less.
		r.read(o["errorResponse"], depth+1)
	}

	l := layer{
		name:        o.text("name"),
		message:     o.firstText("message", "error_message", "errorMessage", "detail", "error_description", "msg", "Message", "title", "statusMessage"),
		description: o.firstText("description"),
		replaced:    o.text("name") == "NodeApiError",
	}
	elements(o["messages"], func(m jsontext.Value) bool {
		if kindOf(m) == '"' {
			l.messages = append(l.messages, unquote(m))
		}
		return true
	})
	for _, name := range []string{"type", "code", "errorCode", "error_code", "errno"} {
		if s := o.text(name); s != "" {
			l.words = append(l.words, s)
		}
	}

	r.readStatus(o)
	r.addFault(o)
	r.readRequest(o)
	r.readNode(o)
	l.body = r.readAnswer(o)
	if l.message == "" && l.body == nil {
		l.body = v // no member says it plainly: the object is the message
	}
	r.layers = append(r.layers, l)

	for _, name := range []string{"cause", "error", "originalError"} {
		if kindOf(o[name]) == '{' {
			r.read(o[name], depth+1)
		}
	}
	r.readParts(o)
}

func (r *report) readStatus(o object) {
	for _, name := range []string{"httpCode", "statusCode", "status", "http_status", "httpStatus", "httpStatusCode", "status_code"} {
		if n, ok := o.number(name); ok && n >= 100 && n <= 599 {
			r.noteStatus(int(n))
		}
	}
	// A code is a status only where it can be nothing else: other APIs count
	// their own errors in small numbers.
	for _, name := range []string{"code", "errorCode", "error_code"} {
		if n, ok := o.number(name); ok && n >= 400 && n <= 599 {
			r.noteStatus(int(n))
		}
	}
}

func (r *report) noteStatus(status int) {
	switch {
	case status >= 400 && r.status == 0:
		r.status = status
	case status < 400 && r.seen == 0:
		r.seen = status
	}
}

// addFault notes the object's network code. The causes repeat it, often with
// the system call that the outer error lost.
func (r *report) addFault(o object) {
	for _, name := range []string{"code", "httpCode", "errno"} {
		f := fault{code: o.text(name), syscall: o.text("syscall"), bytesWritten: -1}
		if _, ok := timing(f.code); !ok {
			continue
		}
		if n, ok := o.object("socket").number("bytesWritten"); ok {
			f.bytesWritten = n
		}
		r.mergeFault(f)
	}
}

func (r *report) mergeFault(f fault) {
	for i := range r.faults {
		old := &r.faults[i]
		if old.code != f.code {
			continue
		}
		if old.syscall == "" {
			old.syscall = f.syscall
		}
		old.bytesWritten = max(old.bytesWritten, f.bytesWritten)
		return
	}
	r.faults = append(r.faults, f)
}

// readParts reads the errors of an AggregateError, which Node makes when it
// has tried all addresses of a name. Other APIs call their field errors
// "errors" too: those have no network code.
func (r *report) readParts(o object) {
	if o.text("name") != "AggregateError" && len(r.faults) == 0 {
		return
	}
	elements(o["errors"], func(v jsontext.Value) bool {
		each := readObject(v)
		f := fault{code: each.text("code"), syscall: each.text("syscall"), bytesWritten: -1}
		if f.code == "" {
			inText := (&report{layers: []layer{{message: each.text("message")}}}).faultsInTexts()
			if len(inText) == 1 {
				f = inText[0]
			}
		}
		r.parts = append(r.parts, f)
		return true
	})
}

// readRequest reads the method of the failing request: n8n's context.request,
// or axios' config.
func (r *report) readRequest(o object) {
	for _, request := range []object{o.object("context").object("request"), o.object("config"), o.object("request"), o} {
		if method := request.text("method"); r.method == "" && method != "" {
			r.method = strings.ToUpper(strings.TrimSpace(method))
		}
	}
}

func (r *report) readNode(o object) {
	node := o.object("node")
	if r.node == "" {
		r.node = node.text("name")
	}
	if r.node == "" {
		r.node = o.text("failed_node")
	}
	if r.nodeType == "" {
		r.nodeType = node.text("type")
	}
	r.nodeRetries = r.nodeRetries || node.isTrue("retryOnFail")
}

// readWait reads Retry-After: seconds, or a date, which is held against the
// answer's own Date since no other clock is known here.
func (r *report) readWait(headers object) {
	var date, wait string
	for name := range headers {
		switch {
		case strings.EqualFold(name, "date"):
			date = headers.text(name)
		case strings.EqualFold(name, "retry-after"):
			wait = headers.text(name)
			if n, ok := headers.number(name); ok && n >= 0 {
				r.retryAfter = &n
			}
		}
	}
	at, known := httpDate(date)
	if r.retryAfter != nil || !known {
		return
	}
	if n, ok := RetryAfter(wait, at); ok {
		r.retryAfter = &n
	}
}

// readAnswer reads what the destination answered: axios' response, or an item
// with "full response". It returns the body.
func (r *report) readAnswer(o object) jsontext.Value {
	answer := o
	if response := o.object("response"); response != nil {
		r.readStatus(response)
		answer = response
	}
	if r.retryAfter == nil {
		r.readWait(answer.object("headers"))
	}
	for _, name := range []string{"body", "data"} {
		switch kindOf(answer[name]) {
		case '{', '[', '"':
			return answer[name]
		}
	}
	return nil
}

// eachText calls f with the texts that are the error's own, the first reported
// first, until f says false. n8n's replacements are left out where it kept the
// raw text: they were chosen by substring and may be wrong.
func (r *report) eachText(f func(string) bool) {
	for i, l := range r.layers {
		texts := append([]string{}, l.messages...)
		if !l.replaced || len(l.messages) == 0 && i == 0 {
			texts = append(texts, l.message)
		}
		texts = append(texts, l.description)
		for _, s := range texts {
			if s != "" && !f(s) {
				return
			}
		}
	}
}

// saysAny says whether a text of the report, or the destination's answer,
// contains one of the phrases, which are in lower case.
func (r *report) saysAny(phrases []string) bool {
	found := false
	look := func(s string) bool {
		s = strings.ToLower(head(s, maxScan))
		for _, phrase := range phrases {
			found = found || strings.Contains(s, phrase)
		}
		return !found
	}
	r.eachText(look)
	for _, l := range r.layers {
		look(string(l.body[:min(len(l.body), maxScan)]))
	}
	return found
}
