package api_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/api"
)

func nested(open, inner, end string, depth int) string {
	return strings.Repeat(open, depth) + inner + strings.Repeat(end, depth)
}

// One limit on nesting, on all stores, before anything else (F118).
func TestDepth(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for _, shape := range [][3]string{{`{"a":`, `1`, `}`}, {`[`, `1`, `]`}, {`[`, ``, `]`}} {
			for _, depth := range []int{1, 64, 200} {
				body := func(k string) string {
					return fmt.Sprintf(`{"source":"shop","idempotency_key":"deep-%s-%d-%x","payload":%s}`, k, depth, shape, nested(shape[0], shape[1], shape[2], depth))
				}
				w.decides(t, "proceed", body("ok"))
			}
			for _, depth := range []int{201, 1000, 10_000, 10_001, 1_000_000} {
				body := `{"source":"shop","idempotency_key":"deep","payload":` + nested(shape[0], shape[1], shape[2], depth)
				w.post(t, "/claim", body+`}`).refused(t, 400, "invalid_json")
				if depth > 1000 {
					w.post(t, "/claim", body).refused(t, 400, "invalid_json") // never closed
					w.post(t, "/complete", `{"lease_token":"`+aToken+`","result":`+nested(shape[0], shape[1], shape[2], depth)+`}`).refused(t, 400, "invalid_json")
				}
			}
		}
		w.get(t, "/healthz").ok(t)
	})
}

// sized is a claim of exactly n bytes.
func sized(k string, n int) string {
	head := `{"source":"shop","idempotency_key":"` + k + `","payload":"`
	return head + strings.Repeat("x", n-len(head)-2) + `"}`
}

func TestSizes(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	both(t, func(t *testing.T, w *world) {
		chunked := func(r *http.Request) { r.ContentLength, r.Body = -1, io.NopCloser(struct{ io.Reader }{r.Body}) }
		for name, edits := range map[string][]edit{"declared": nil, "chunked": {chunked}} {
			for _, n := range []int{1000, limit - 1, limit} {
				w.post(t, "/claim", sized(fmt.Sprintf("size-%s-%d", name, n), n), edits...).ok(t)
			}
			for _, n := range []int{limit + 1, 3 * limit} {
				w.post(t, "/claim", sized("size-over", n), edits...).refused(t, 413, "too_large")
				w.post(t, "/classify", sized("size-over", n), edits...).refused(t, 413, "too_large")
			}
		}
		w.get(t, "/claims?idempotency_key=size-over").ok(t).has(t, obj{"items": "[]"})
	}, withMaxBody(limit))
}

// 16 MiB is the default, as n8n's own.
func TestDefaultSize(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		w.post(t, "/claim", sized("event-of-16-mib", 16<<20)).ok(t)
	})
}

// raw sends bytes as they are and reads one answer.
func raw(t *testing.T, w *world, request string, closeWrite bool) (int, http.Header, string) {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if closeWrite {
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// A Content-Length that lies is refused, early where it says too much.
func TestLyingContentLength(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withMaxBody(4096))
	send := func(length, body string, closeWrite bool) (int, string) {
		status, _, answer := raw(t, w, "POST /claim HTTP/1.1\r\nHost: holdfast.test\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: "+length+"\r\n\r\n"+body, closeWrite)
		return status, answer
	}
	body := text(t, key("order-lying"))
	// Longer than anything allowed: refused before a byte of the body is waited for.
	if status, answer := send("5000000000", body, false); status != 413 || !strings.Contains(answer, `"too_large"`) {
		t.Errorf("announced 5 GB: %d %s", status, answer)
	}
	if status, answer := send(fmt.Sprint(len(body)+100), body, true); status != 400 || !strings.Contains(answer, `"invalid_json"`) {
		t.Errorf("broke off: %d %s", status, answer)
	}
	if status, answer := send(fmt.Sprint(len(body)-3), body, false); status != 400 || !strings.Contains(answer, `"invalid_json"`) {
		t.Errorf("announced too little: %d %s", status, answer)
	}
	for _, length := range []string{"-1", "abc", "1, 2"} {
		if status, _ := send(length, body, false); status != 400 {
			t.Errorf("Content-Length %s: %d, want 400", length, status)
		}
	}
	w.get(t, "/claims").ok(t).has(t, obj{"items": "[]"})
}

// Every route that takes a body refuses one that is too large, of another type, packed, or not there.
func TestBodiesOnEveryRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withMaxBody(1024))
	for _, r := range api.Routes() {
		if r.Method != http.MethodPost && r.Method != http.MethodPut {
			continue
		}
		path := strings.NewReplacer(":id", anID, ":scope", "all").Replace(r.Path)
		body := text(t, good[r.Path])
		w.send(t, r.Method, path, body+strings.Repeat(" ", 4*1024)).refused(t, 413, "too_large")
		w.send(t, r.Method, path, body, header("Content-Type", "text/plain")).refused(t, 415, "unsupported_media_type")
		w.send(t, r.Method, path, body, header("Content-Encoding", "gzip")).refused(t, 415, "unsupported_media_type")
		switch r.Path {
		case "/classify":
		case "/dlq":
			w.send(t, r.Method, path, "").refused(t, 400, "invalid_json")
			w.send(t, r.Method, path, `{"nobody_knows_this":1}`).refused(t, 400, "invalid_request")
		case "/replays/:id/pause", "/replays/:id/cancel":
			w.send(t, r.Method, path, "").refused(t, 404, "not_found") // and no fault of the body
			w.send(t, r.Method, path, `{"nobody_knows_this":1}`).refused(t, 400, "invalid_request").names(t, "nobody_knows_this")
		default:
			w.send(t, r.Method, path, "").refused(t, 400, "invalid_json")
			w.send(t, r.Method, path, `{"nobody_knows_this":1}`).refused(t, 400, "invalid_request").names(t, "nobody_knows_this")
		}
	}
}

func TestContentEncoding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := io.WriteString(z, text(t, key("order-zipped"))); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, encoding := range []string{"gzip", "GZIP", "deflate", "br", "gzip, gzip"} {
		w.post(t, "/claim", zipped.String(), header("Content-Encoding", encoding)).refused(t, 415, "unsupported_media_type")
	}
	w.get(t, "/claims").ok(t).has(t, obj{"items": "[]"})
}

func TestContentTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, kind := range []string{"application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"} {
		w.post(t, "/claim", key(fmt.Sprint("typed-", i)), header("Content-Type", kind)).ok(t)
	}
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "application/octet-stream", "json", "application/json;;", "text/html"} {
		w.post(t, "/claim", key("typed-wrong"), header("Content-Type", kind)).refused(t, 415, "unsupported_media_type")
	}
	w.get(t, "/claims?idempotency_key=typed-wrong").ok(t).has(t, obj{"items": "[]"})
}
