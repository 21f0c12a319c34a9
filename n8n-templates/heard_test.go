package templates

import (
	"encoding/json"
	"strings"
	"testing"
)

// n8n drops a failure without a word where the error workflow's settings do not let the failed workflow call it, where
// it is not published, and for runs that were started in the editor. The template lets everybody call it, and tells of
// all three, since an import in the editor leaves the settings out.
func TestErrorWorkflowIsHeard(t *testing.T) {
	t.Parallel()
	template, err := Read("error-workflow-to-dlq")
	if err != nil {
		t.Fatal(err)
	}
	var wf workflow
	if err := json.Unmarshal(template.JSON, &wf); err != nil {
		t.Fatal(err)
	}
	if wf.Settings["callerPolicy"] != "any" {
		t.Errorf("callerPolicy is %v, want any", wf.Settings["callerPolicy"])
	}
	notes := ""
	for _, n := range wf.Nodes {
		var p parameters
		if err := json.Unmarshal(n.Parameters, &p); err != nil {
			t.Fatal(err)
		}
		notes += p.Content + "\n"
	}
	for _, said := range []string{"can be called by", "Any workflow", "Publish this workflow", "Execute workflow", "production address"} {
		if !strings.Contains(notes, said) {
			t.Errorf("the notes do not say %q", said)
		}
	}
}
