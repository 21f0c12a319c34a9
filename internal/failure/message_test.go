package failure_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   failure.Input
		want string
	}{
		{"422", failure.Input{Error: capture(t, "error-trigger-status-422")}, "422 at Call: destination says 422"},
		{"429, whose raw text n8n lost", failure.Input{Error: capture(t, "error-trigger-status-429")}, "429 at Call: destination says 429"},
		{"a page", failure.Input{Error: capture(t, "error-trigger-status-502-html")}, "502 at Call: Bad Gateway"},
		{"an empty answer", failure.Input{Error: capture(t, "http-node-ne-full-503-empty")}, "503: Service Unavailable"},
		{"a code", failure.Input{Error: capture(t, "error-trigger-conn-refused")}, "ECONNREFUSED at Call: connect ECONNREFUSED 127.0.0.1:1"},
		{"a child", failure.Input{Error: capture(t, "error-trigger-subworkflow-all")}, "422 at Run Sub: destination says 422"},
		{"a node that the caller knows", failure.Input{Error: jsontext.Value(`"boom"`), Node: "Charge"}, "unclassified at Charge: boom"},
		{"the caller's node wins", failure.Input{Error: capture(t, "error-trigger-status-422"), Node: "Charge"}, "422 at Charge: destination says 422"},
		{"lines and controls", failure.Input{Error: jsontext.Value(`"a\n\tb\u0000\u001b[31mc\u202e"`)}, "unclassified: a b[31mc"},
		{"secrets", failure.Input{Error: jsontext.Value(`"token=abc for joe"`), HTTPStatus: 401}, "401: token=[redacted] for joe"},
		{"further secrets", failure.Input{Error: jsontext.Value(`"phone: 0712345678"`), Redact: []string{"phone"}}, "unclassified: phone: [redacted]"},
		{"a body's first field error", failure.Input{Error: jsontext.Value(`{"errors":[{"field":"a","message":"a is missing"}]}`), HTTPStatus: 400}, "400: a is missing"},
		{"axios with an answer", failure.Input{Error: jsontext.Value(`{"name":"AxiosError","message":"Request failed with status code 402","response":{"status":402,"data":{"error":{"message":"card declined"}}}}`)}, "402: card declined"},
		{"a cause says more", failure.Input{Error: jsontext.Value(`{"message":"fetch failed","cause":{"code":"ENOTFOUND","message":"getaddrinfo ENOTFOUND a"}}`)}, "ENOTFOUND: getaddrinfo ENOTFOUND a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := failure.Summary(tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := failure.Classify(tt.in).Summary; got != tt.want {
				t.Errorf("Classify: %q, want %q", got, tt.want)
			}
		})
	}
}

func TestSummaryIsCut(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("é日", 500), strings.Repeat("word ", 500), strings.Repeat("😀", 300)} {
		quoted, err := jsontext.AppendQuote(nil, text)
		if err != nil {
			t.Fatal(err)
		}
		got := failure.Summary(failure.Input{Error: quoted})
		if n := utf8.RuneCountInString(got); n > 200 || n < 190 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("%d characters: %q", n, got)
		}
	}
	// The secret is masked before the cut, not halved by it.
	quoted, _ := jsontext.AppendQuote(nil, strings.Repeat("x", 170)+" sk_live_abcdefghijklmnop")
	if got := failure.Summary(failure.Input{Error: quoted}); strings.Contains(got, "sk_live") {
		t.Errorf("half a secret: %q", got)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, raw string
		limit     int
		want      string
	}{
		{"plain", `"boom"`, 100, "boom"},
		{"nothing", "", 100, ""},
		{"null", "null", 100, ""},
		{"empty", "{}", 100, ""},
		{"NUL", `{"message":"bad\u0000byte"}`, 100, `bad\u0000byte`},
		{"a text that looks like an escape", `{"message":"literal \\u0000 text"}`, 100, `literal \u0000 text`},
		{"other controls", `"a\u001b[31mb\u007f\u0085c\rd"`, 100, `a\u001b[31mb\u007f\u0085c\u000dd`},
		{"newline and tab stay", `"a\n\tb"`, 100, "a\n\tb"},
		{"bidirectional controls", `"a\u202eb\u2066"`, 100, `a\u202eb\u2066`},
		{"lone surrogates", `"\ud800 and \udc00\ud800"`, 100, `\ud800 and \udc00\ud800`},
		{"a pair", `"\ud83d\ude00"`, 100, "😀"},
		{"invalid UTF-8", "\"a\xffb\xc3\"", 100, `a\xffb\xc3`},
		{"an honest replacement character", `"a\ufffdb"`, 100, "a\ufffdb"},
		{"cut with a mark", `"` + strings.Repeat("a", 100) + `"`, 60, strings.Repeat("a", 51) + " …[cut]"},
		{"cut between characters", `"` + strings.Repeat("é", 100) + `"`, 60, strings.Repeat("é", 25) + " …[cut]"},
		{"no room for a mark", `"abcdef"`, 3, "abc"},
		{"no room", `"abcdef"`, 0, ""},
		{"no room at all", `"abcdef"`, -1, ""},
		{"no message: the object", `{"weird":1,"token":"abc"}`, 100, `{"weird":1,"token":"[redacted]"}`},
		{"not JSON", "Error: it broke", 100, "Error: it broke"},
		{"a number", "42", 100, "42"},
		{"true", "true", 100, "true"},
		{"problem document", `{"type":"about:blank","title":"Conflict","status":409,"detail":"problem detail"}`, 100, "problem detail"},
		{"our own error", `{"status":422,"code":"missing_key","message":"no key","details":{},"request_id":"r"}`, 100, "no key"},
		{"n8n's raw text", `"422 - \"{\\\"error\\\":{\\\"message\\\":\\\"no e-mail\\\"}}\""`, 100, "no e-mail"},
		{"a page", `"<html><head><title>502</title></head><body><h1>Bad\n Gateway</h1></body></html>"`, 100, "502 Bad Gateway"},
		{"Daraja", `{"requestId":"1","errorCode":"404.001.03","errorMessage":"Invalid Access Token"}`, 100, "Invalid Access Token"},
		{"secret", `"https://user:SECRET4@api.example/?token=SECRET5"`, 100, "https://user:[redacted]@api.example/?token=[redacted]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := failure.Text(jsontext.Value(tt.raw), tt.limit)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if len(got) > max(tt.limit, 0) || !utf8.ValidString(got) {
				t.Errorf("%d bytes of %d, valid %t", len(got), tt.limit, utf8.ValidString(got))
			}
		})
	}
	if got := failure.Text(jsontext.Value(`"email: a@b.c"`), 100, "email"); got != "email: [redacted]" {
		t.Errorf("further names: %q", got)
	}
}
