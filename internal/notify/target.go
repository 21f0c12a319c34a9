package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/nicholas-fedor/shoutrrr/pkg/router"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"
)

// sendTime is how long one message may take to one target.
const sendTime = 10 * time.Second

// Target is one address that alerts go to.
type Target struct {
	ID      string // a hash of the address, under which the outbox keeps its messages
	Service string // the address's scheme, which is all of it that is ever shown

	address string
	hanging chan struct{} // a place for each send that goes on after its time was up
}

// maxHanging is how many sends to one target may hang at once; until one ends, more are refused.
const maxHanging = 4

// Targets reads the addresses of `notify`. An error names the place in the list and never the address, which holds
// the secret.
func Targets(addresses []string) ([]*Target, error) {
	limitDefaultClient()
	var out []*Target
	seen := map[string]int{}
	for i, address := range addresses {
		service, err := (&router.ServiceRouter{}).Locate(address)
		switch {
		case errors.Is(err, router.ErrUnknownService):
			return nil, fmt.Errorf("notify[%d]: names no service that is known: use one such as slack://, telegram://, smtp://, or generic+https:// for a webhook", i)
		case err != nil:
			return nil, fmt.Errorf("notify[%d]: is no address that its service understands: a part is missing or wrong", i)
		}
		sum := sha256.Sum256([]byte(address))
		id := hex.EncodeToString(sum[:16])
		if first, twice := seen[id]; twice {
			return nil, fmt.Errorf("notify[%d]: is the same as notify[%d]", i, first)
		}
		seen[id] = i
		out = append(out, &Target{ID: id, Service: service.GetID(), address: address, hanging: make(chan struct{}, maxHanging)})
	}
	return out, nil
}

// limitDefaultClient sets limits to the client by which the library sends to many services. As it comes it waits for
// ever, and follows a redirect with a GET without the message, whose answer would look like success. Nobody else in
// this program may use that client.
var limitDefaultClient = sync.OnceFunc(func() {
	client := http.DefaultClient //nolint:forbidigo // the library uses it; this is what makes that bearable
	client.Timeout = sendTime
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return errors.New("redirects are not followed")
	}
})

var (
	errTime    = errors.New("no answer within " + sendTime.String())
	errHanging = errors.New("earlier messages are still being sent")
	errStopped = errors.New("the program stopped before the answer came")
)

// send sends one message. The library takes no context: what takes too long goes on by itself, and may arrive.
func (t *Target) send(stop <-chan struct{}, title, text string) error {
	select {
	case t.hanging <- struct{}{}:
	default:
		return errHanging
	}
	sent := make(chan error, 1)
	go func() {
		defer func() { <-t.hanging }()
		sent <- t.sendNow(title, text)
	}()
	timer := time.NewTimer(sendTime)
	defer timer.Stop()
	select {
	case err := <-sent:
		return err
	case <-timer.C:
		return errTime
	case <-stop:
	}
	timer.Reset(stopGrace)
	select {
	case err := <-sent:
		return err
	case <-timer.C:
		return errStopped
	}
}

// stopGrace is how long a message under way may still take when the program stops.
const stopGrace = time.Second

func (t *Target) sendNow(title, text string) (err error) {
	defer func() {
		// Whatever an address or an answer does to the library, the program goes on.
		if r := recover(); r != nil {
			err = errors.New("the service's code failed")
		}
	}()
	service, err := (&router.ServiceRouter{}).Locate(t.address)
	if err != nil {
		return errors.New("the address cannot be used")
	}
	params := types.Params{}
	if t.Service == "smtp" {
		params.SetTitle(title) // the subject; elsewhere the title is the text's first line, and some refuse the parameter
	}
	if err := service.Send(text, &params); err != nil {
		return errors.New(t.mask(err.Error()))
	}
	return nil
}

// mask takes out of an error what tells of the address: libraries put it into their errors, whole or taken apart.
func (t *Target) mask(text string) string {
	return maskAddress(strings.ReplaceAll(text, "\n", " "), t.address)
}
