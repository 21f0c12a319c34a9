package failure

// throwers are the error classes that say who threw, whatever the text: their
// texts are the workflow's own and must not be taken for a client's.
var throwers = map[string]finding{
	// A parameter could not be evaluated: the node never acted.
	"ExpressionError":          misuse,
	"ExpressionExtensionError": misuse,
	// A Code node. It may have called a destination itself before it threw.
	"WrappedExecutionError":       ownCode,
	"TaskRunnerTimeoutError":      ownCode,
	"TaskRunnerDisconnectedError": ownCode,
	"TaskRunnerOomError":          ownCode,
	// The process died or was told to stop, with the request under way.
	"WorkflowCrashedError":                  nobodyKnows,
	"ManualExecutionCancelledError":         nobodyKnows,
	"SystemShutdownExecutionCancelledError": nobodyKnows,
	"TimeoutExecutionCancelledError":        nobodyKnows,
	"ExecutionCancelledError":               nobodyKnows,
}

// classNames are the error classes that say something when nothing else does.
var classNames = map[string]finding{
	"NodeOperationError":     ownCode,
	"WorkflowOperationError": ownCode,
	"SyntaxError":            ownCode,
	"TypeError":              ownCode,
	"ReferenceError":         ownCode,
	"RangeError":             ownCode,
	"URIError":               ownCode,
	"NodeSslError":           certificate,
	"AbortError":             maybeSent,
	"CanceledError":          maybeSent,
	"TimeoutError":           maybeSent,
}

const (
	codeThrower  = "WrappedExecutionError"
	stopNodeType = "n8n-nodes-base.stopAndError"
)

// thrower is the first layer whose class is in the table.
func (r *report) thrower() (layer, bool) {
	for _, l := range r.layers {
		if _, ok := throwers[l.name]; ok {
			return l, true
		}
	}
	return layer{}, false
}

// thrownByCode says whether a Code node threw.
func (r *report) thrownByCode() bool {
	l, ok := r.thrower()
	return ok && throwers[l.name] == ownCode
}

// textsAreTheClients says whether the texts come from the HTTP client and not
// from the workflow's author. n8n keeps the class of what a Code node did not
// catch in the description, so that a client's error there is known by it.
func (r *report) textsAreTheClients() bool {
	if r.nodeType == stopNodeType {
		return false
	}
	l, ok := r.thrower()
	return !ok || l.name == codeThrower && l.description == "AxiosError"
}

// judgeThrower judges by who threw. A Stop and Error node sends nothing itself,
// but it stands where the workflow met something it did not expect, often
// right behind a request: what that did is not known here.
func (r *report) judgeThrower() (finding, bool) {
	if r.nodeType == stopNodeType {
		return ownCode, true
	}
	l, ok := r.thrower()
	if !ok {
		return finding{}, false
	}
	if l.name != codeThrower {
		return throwers[l.name], true
	}
	// A network fault that the Code node's own request met, in libuv's form.
	for _, f := range r.faultsInTexts() {
		if found, ok := r.judgeOne(f); ok && !f.mentioned {
			found.outcome = Unknown
			return found, true
		}
	}
	if r.textsAreTheClients() {
		if found, ok := r.judgeWording(); ok {
			found.outcome = Unknown
			return found, true
		}
	}
	return ownCode, true
}

func (r *report) judgeName() (finding, bool) {
	for _, l := range r.layers {
		if f, ok := classNames[l.name]; ok {
			return f, true
		}
	}
	return finding{}, false
}
