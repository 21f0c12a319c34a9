package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	outsideTime   = 10 * time.Second
	outsideAnswer = 1 << 20
)

// outside sends the requests that leave the sidecar, to addresses that the configuration names and nowhere else: no
// redirect is followed and no proxy asked, TLS is verified, and the IP address is judged when it is dialled, so that
// no name can lead inside, whatever it resolved to before.
type outside struct{ client *http.Client }

func newOutside(private []netip.Prefix) *outside {
	dialer := &net.Dialer{Timeout: outsideTime, Control: func(_, address string, _ syscall.RawConn) error {
		ip, err := netip.ParseAddrPort(address)
		if err != nil || !reachable(ip.Addr(), private) {
			return errNotPublic
		}
		return nil
	}}
	return &outside{&http.Client{
		Timeout:       outsideTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: outsideTime, MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second,
		},
	}}
}

var (
	errNotPublic = errors.New("its address is not public; one that is meant belongs in allow_private")
	errOversize  = errors.New("its answer is larger than 1 MiB")
)

// do sends a request once and reads its answer whole. An error says what happened without the address and without
// what was sent or received.
func (o *outside) do(req *http.Request) (status int, body []byte, err error) {
	resp, err := o.client.Do(req)
	if err != nil {
		return 0, nil, plainly(err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, outsideAnswer+1))
	switch {
	case err != nil:
		return resp.StatusCode, nil, plainly(err)
	case len(body) > outsideAnswer:
		return resp.StatusCode, nil, errOversize
	}
	return resp.StatusCode, body, nil
}

// plainly says what kind of fault it was; the texts of libraries quote addresses and answers.
func plainly(err error) error {
	var (
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		network     net.Error
	)
	switch {
	case errors.Is(err, errNotPublic):
		return errNotPublic
	case errors.As(err, &certificate):
		return errors.New("its certificate is not valid")
	case errors.As(err, &name):
		return errors.New("its name cannot be resolved")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("it refuses the connection")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return errors.New("no answer came in time")
	}
	return errors.New("the connection failed")
}

// notPublic are the networks among 2000::/3 and IPv4 that are no public unicast, or that carry another address inside.
var notPublic = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", // with Teredo; documentation; 6to4; documentation
)

var globalUnicast = netip.MustParsePrefix("2000::/3") // all else of IPv6 is local, multicast, or translated to IPv4

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// reachable tells whether requests may go to an address: it is public unicast, or among what is allowed besides.
func reachable(ip netip.Addr, private []netip.Prefix) bool {
	ip = ip.Unmap()
	return among(ip, private) || (ip.Is4() || globalUnicast.Contains(ip)) && !among(ip, notPublic)
}

func among(ip netip.Addr, networks []netip.Prefix) bool {
	for _, n := range networks {
		if n.Contains(ip) {
			return true
		}
	}
	return false
}

// mayGo refuses a host that no request could reach: an address, or the name of this machine for itself.
func mayGo(host string, private []netip.Prefix) error {
	var ips []netip.Addr
	if ip, err := netip.ParseAddr(host); err == nil {
		ips = append(ips, ip)
	}
	if host = "." + strings.ToLower(strings.TrimSuffix(host, ".")); strings.HasSuffix(host, ".localhost") {
		ips = append(ips, netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback())
	}
	if len(ips) > 0 && !slices.ContainsFunc(ips, func(ip netip.Addr) bool { return reachable(ip, private) }) {
		return errors.New("the host is no public address: list it in allow_private if it is meant, such as \"127.0.0.0/8\" for localhost")
	}
	return nil
}
