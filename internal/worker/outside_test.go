package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
)

func TestReachable(t *testing.T) {
	t.Parallel()
	allowed := prefixes("10.1.0.0/16", "127.0.0.1/32", "fd00:1::/32", "64:ff9b::/96")
	for want, texts := range map[bool][]string{
		true: {
			"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
			"::ffff:8.8.8.8", "2606:4700:4700::1111", "2001:200::1", "2003::", "3ffe:ffff::1",
			"10.1.2.3", "127.0.0.1", "::ffff:10.1.2.3", "fd00:1::5", "64:ff9b::8.8.8.8", // allowed besides
		},
		false: {
			"0.0.0.0", "0.1.2.3", "10.0.0.5", "10.2.0.0", "100.64.0.1", "100.127.255.255", "127.0.0.2", "127.255.255.255", "169.254.169.254", "172.16.0.1", "172.31.255.255",
			"192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
			"::", "::1", "::7f00:1", "::ffff:10.0.0.1", "::ffff:127.0.0.2", "::ffff:169.254.169.254", "64:ff9b:1::10.1.2.3", "100::1", "2001::1", "2001:0:4136:e378::1", "2001:2::1", "2001:10::1", "2001:20::1",
			"2001:db8::1", "2002:7f00:1::1", "2002:a01:203::", "3fff::1", "4000::1", "5f00::1", "fc00::1", "fd00:2::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
			"2606:4700::1%eth0",
		},
	} {
		for _, text := range texts {
			if got := reachable(netip.MustParseAddr(text), allowed); got != want {
				t.Errorf("%s: %v", text, got)
			}
		}
	}
}

// The address is judged when it is dialled, whatever the name; nothing is followed, and nothing large is read.
func TestOutside(t *testing.T) {
	t.Parallel()
	var calls, elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/large":
			_, _ = w.Write(bytes.Repeat([]byte("x"), outsideAnswer+1))
		case "/fits":
			_, _ = w.Write(bytes.Repeat([]byte("x"), outsideAnswer))
		case "/never":
			<-r.Context().Done()
		case "/cut":
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "half")
		}
	})
	server, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	t.Cleanup(secure.Close)
	ask := func(o *outside, ctx context.Context, address string) (int, int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		status, body, err := o.do(req)
		return status, len(body), err
	}
	for _, private := range [][]netip.Prefix{nil, prefixes("10.0.0.0/8", "128.0.0.0/1", "::/1")} {
		for _, address := range []string{server.URL, secure.URL, strings.Replace(server.URL, "127.0.0.1", "localhost", 1), strings.Replace(server.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1)} {
			if _, _, err := ask(newOutside(private), t.Context(), address); !errors.Is(err, errNotPublic) {
				t.Errorf("%s: %v", address, err)
			}
		}
	}
	if _, _, err := ask(newOutside(nil), t.Context(), strings.Replace(server.URL, "127.0.0.1", "2130706433", 1)); err == nil {
		t.Error("a number led to a private address")
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d requests reached a private address", n)
	}
	o := newOutside(prefixes("127.0.0.0/8", "::1/128"))
	gone, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	for _, test := range []struct {
		ctx          context.Context
		address      string
		status, size int
		err          string
	}{
		{t.Context(), strings.Replace(server.URL, "127.0.0.1", "localhost", 1), 200, 0, ""},
		{t.Context(), server.URL + "/away", 307, 0, ""},
		{t.Context(), server.URL + "/fits", 200, outsideAnswer, ""},
		{t.Context(), server.URL + "/large", 200, 0, errOversize.Error()},
		{t.Context(), server.URL + "/cut", 200, 0, "the connection failed"},
		{t.Context(), secure.URL, 0, 0, "its certificate is not valid"},
		{t.Context(), "http://no-such-host.invalid/", 0, 0, "its name cannot be resolved"},
		{t.Context(), "http://127.0.0.1:1/", 0, 0, "it refuses the connection"},
		{gone, server.URL + "/never", 0, 0, "no answer came in time"},
	} {
		status, size, err := ask(o, test.ctx, test.address)
		if status != test.status || test.err == "" && (err != nil || size < test.size) || test.err != "" && (err == nil || err.Error() != test.err) {
			t.Errorf("%s: %d, %d bytes, %v", test.address, status, size, err)
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Error("a redirect was followed")
	}
}
