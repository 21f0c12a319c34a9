package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/api"
)

// Chat previews and mail scanners open every link in an alert before a person sees it, and follow forms with GET. No
// GET and no HEAD changes anything, whoever's key it brings and whatever it adds.
func TestLinksNeverAct(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		dead := w.reports(t, failing("kT4bS0qX", "1", "422", posting(nil))).has(t, obj{"status": "dead"})
		_, lease := w.dueLetter(t, "3")
		w.refusing(t, "2")
		claim := w.decides(t, "proceed", holding("order-1", "4"))
		w.send(t, "PUT", "/pauses/source.other", text(t, person)).ok(t)
		rep := w.starts(t, asking(obj{"selector": obj{"ids": []string{dead.text("id")}}, "sample_size": 0})).has(t, obj{"status": "awaiting_approval"})
		state := func() map[string]string {
			out := map[string]string{}
			for _, path := range []string{"/dlq", "/dlq/stats", "/claims", "/history", "/pauses", "/replays", "/replays/" + rep.text("id"), "/dlq/" + dead.text("id"), "/dlq/" + fmt.Sprint(lease["id"]), "/claims/" + claim.text("claim_id")} {
				out[path] = fmt.Sprint(w.get(t, path).ok(t).body)
			}
			return out
		}
		before := state()
		w.clock.advance(time.Second) // what is written now would show

		page, err := url.Parse(dead.text("replay_url"))
		if err != nil {
			t.Fatal(err)
		}
		form := url.Values{"authorized_by": {"asha@example.test"}, "reason": {"a preview"}, "lease_token": {fmt.Sprint(lease["lease_token"])}, "lease_seconds": {"60"}, "status": {"completed"}, "_method": {"POST"}}.Encode()
		paths := []string{page.EscapedPath(), page.EscapedPath() + "/requeue", page.EscapedPath() + "?action=requeue"}
		for _, r := range api.Routes() {
			for _, id := range []string{dead.text("id"), fmt.Sprint(lease["id"]), claim.text("claim_id"), rep.text("id")} {
				paths = append(paths, strings.NewReplacer(":id", id, ":scope", "all").Replace(r.Path))
			}
		}
		browsers := [][]edit{
			nil,
			{header("User-Agent", "Slackbot-LinkExpanding 1.0 (+https://api.slack.example.test/robots)"), header("Range", "bytes=0-32768")},
			{header("Purpose", "prefetch"), header("Sec-Purpose", "prefetch;prerender"), header("X-Moz", "prefetch")},
			{header("X-HTTP-Method-Override", "POST"), header("X-HTTP-Method", "POST"), header("X-Method-Override", "DELETE"), header("Content-Type", "application/json")},
		}
		var both sync.WaitGroup
		for _, path := range paths {
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				for _, browser := range browsers {
					query, body := "", ""
					if !strings.Contains(path, "?") && (strings.Contains(path, "/dlq/") || strings.Contains(path, "/console/")) {
						query = "?" + form
					}
					if browser != nil && method == http.MethodGet {
						body = text(t, and(person, token(lease)))
					}
					both.Go(func() {
						a, err := w.try(t, method, path+query, body, browser...)
						if err != nil || a.status >= 500 {
							t.Errorf("%s %s: %d %v", method, path+query, a.status, err)
							return
						}
						if got := a.header.Get("Cache-Control"); got != "no-store" {
							t.Errorf("%s %s may be kept: %q", method, path, got)
						}
						if strings.Contains(string(a.raw), fmt.Sprint(lease["lease_token"])) || strings.Contains(string(a.raw), claim.text("lease_token")) {
							t.Errorf("%s %s shows a token", method, path)
						}
					})
				}
			}
			both.Wait()
		}
		for path, after := range state() {
			if after != before[path] {
				t.Errorf("a GET changed %s from\n%s to\n%s", path, before[path], after)
			}
		}
	})
}

// Where a letter is sent again stands in the configuration of its worker and nowhere else: no call takes an address.
func TestNoCallTakesAnAddress(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		id, lease := w.dueLetter(t, "1042")
		for _, address := range []string{
			"http://169.254.169.254/latest/", "http://127.0.0.1:5432", "http://[::ffff:10.0.0.1]", "http://2130706433", "file:///etc/passwd", "http://internal.example.test/",
		} {
			for _, member := range []string{"target", "url", "webhook_url", "deliver_to"} {
				w.post(t, "/dlq/"+id+"/requeue", and(person, obj{member: address})).refused(t, 400, "invalid_request").names(t, member)
				w.post(t, "/dlq/"+id+"/resolve", and(token(lease), obj{member: address})).refused(t, 400, "invalid_request").names(t, member)
				w.post(t, "/dlq/lease", obj{member: address}).refused(t, 400, "invalid_request").names(t, member)
			}
		}
		w.letter(t, id).has(t, obj{"status": "replaying"})
	})
}
