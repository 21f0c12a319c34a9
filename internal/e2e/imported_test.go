//go:build e2e

package e2e

import (
	"net/http"
	"testing"
)

// TestImportedTemplates looks at the templates as n8n's own import left them: the
// credential was found by its name, and each can be published as it is.
func TestImportedTemplates(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]struct {
		connected int
		path      string
	}{
		"holdfastGate":   {3, "holdfast-gate"},
		"holdfastErrors": {1, ""},
		"holdfastWorker": {4, ""},

		"holdfastCharge":      {7, "holdfast-charge"},
		"holdfastChargeNoKey": {7, "holdfast-charge-no-key"},
		"holdfastReconciler":  {4, ""},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			var imported struct {
				Nodes []struct {
					Name        string `json:"name"`
					Credentials map[string]struct{ ID, Name string }
				} `json:"nodes"`
			}
			if err := shared.n8n.api(ctx, http.MethodGet, "/workflows/"+id, nil, &imported); err != nil {
				t.Fatal(err)
			}
			connected := 0
			for _, n := range imported.Nodes {
				for kind, c := range n.Credentials {
					if kind != "httpBearerAuth" || c.ID != credentialID || c.Name != credentialName {
						t.Errorf("%s: %s is %+v, want the credential %s", n.Name, kind, c, credentialID)
					}
					connected++
				}
			}
			if connected != want.connected {
				t.Errorf("%d nodes carry the credential, want %d", connected, want.connected)
			}
			var err error
			if want.path != "" {
				err = shared.n8n.publish(ctx, id, want.path)
			} else {
				err = shared.n8n.activate(ctx, id)
			}
			if err != nil {
				t.Fatal(err)
			}
			// The worker would go on asking for an address that is not there.
			if err := shared.n8n.api(ctx, http.MethodPost, "/workflows/"+id+"/deactivate", map[string]any{}, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
}
