package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// load sends one request after another on each of its connections for a while and counts the answers.
type load struct {
	addr    string
	callers int
	fresh   bool // a new connection for each call, as n8n does it
	time    time.Duration
	status  int // what is a good answer
	// request writes the nth request of a caller, or nothing when it has no more; answer, if set, is shown what
	// came back.
	request func(b *bytes.Buffer, caller, n int)
	answer  func(caller int, body []byte)
}

// result is what a load came to.
type result struct {
	answers  int
	rate     float64 // answers a second
	p50, p99 time.Duration
	bad      int64 // answers of another status
}

func (l *load) run() (result, error) {
	var (
		wg    sync.WaitGroup
		bad   atomic.Int64
		mu    sync.Mutex
		took  []time.Duration
		first error
	)
	begin := time.Now()
	end := begin.Add(l.time)
	for caller := range l.callers {
		wg.Go(func() {
			mine, err := l.caller(caller, end, &bad)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
			if err != nil && first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(begin)
	if first != nil || len(took) == 0 {
		return result{}, fmt.Errorf("no load: %w", first)
	}
	slices.Sort(took)
	return result{
		answers: len(took), rate: float64(len(took)) / elapsed.Seconds(), p50: took[len(took)/2], p99: took[len(took)*99/100], bad: bad.Load(),
	}, nil
}

func (l *load) caller(caller int, end time.Time, bad *atomic.Int64) (took []time.Duration, err error) {
	var c *client
	defer func() {
		if c != nil {
			_ = c.conn.Close()
		}
	}()
	var req bytes.Buffer
	for n := 0; ; n++ {
		begin := time.Now()
		if begin.After(end) {
			return took, nil
		}
		if c == nil {
			if c, err = dial(l.addr); err != nil {
				return took, err
			}
		}
		req.Reset()
		if l.request(&req, caller, n); req.Len() == 0 {
			return took, nil
		}
		status, body, err := c.call(req.Bytes())
		if err != nil {
			return took, err
		}
		if status != l.status {
			bad.Add(1)
		}
		if l.answer != nil {
			l.answer(caller, body)
		}
		took = append(took, time.Since(begin))
		if l.fresh {
			_ = c.conn.Close()
			c = nil
		}
	}
}

// client speaks just enough HTTP/1.1 to cost next to nothing: the load shares the machine with what it measures.
type client struct {
	conn net.Conn
	r    *bufio.Reader
	body []byte
}

func dial(addr string) (*client, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, r: bufio.NewReader(conn)}, nil
}

func (c *client) call(request []byte) (status int, body []byte, err error) {
	if _, err := c.conn.Write(request); err != nil {
		return 0, nil, err
	}
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if len(line) < 12 {
		return 0, nil, fmt.Errorf("not an answer: %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, err
	}
	length := 0
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, nil, err
		}
		if len(line) <= 2 {
			break
		}
		if name, value, ok := bytes.Cut(line, []byte(": ")); ok && string(name) == "Content-Length" {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, nil, err
			}
		}
	}
	c.body = slices.Grow(c.body[:0], length)[:length]
	_, err = io.ReadFull(c.r, c.body)
	return status, c.body, err
}

// post writes a request with a JSON body.
func post(b *bytes.Buffer, path string, closing bool, body []byte) {
	b.WriteString("POST " + path + " HTTP/1.1\r\nHost: holdfast.test\r\nContent-Type: application/json\r\nContent-Length: ")
	b.WriteString(strconv.Itoa(len(body)))
	if closing {
		b.WriteString("\r\nConnection: close")
	}
	b.WriteString("\r\n\r\n")
	b.Write(body)
}
