package why

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clrsnap/internal/testenv"
)

// clients are visitors of a service that behave alike: each asks, waits for the answer, pauses, and asks again.
type clients struct {
	name  string
	count int
	pause time.Duration
	path  string // "{n}" stands for a number, different in each request

	answers atomic.Int64 // all, of any status
}

// A load is the clients of a service, until the end of the test.
type load []*clients

// startLoad starts the clients that the program asks for.
func startLoad(t *testing.T, a *testenv.App) load {
	t.Helper()
	var l load
	for _, line := range a.Ask("load") {
		c, err := parseClients(line)
		if err != nil {
			t.Fatal(err)
		}
		l = append(l, c)
	}
	l.start(t, a)
	return l
}

// start starts clients of a service, until the end of the test.
func (l load) start(t *testing.T, a *testenv.App) {
	t.Helper()
	url := a.Ask("url")[0]
	ctx, cancel := context.WithCancel(context.Background())
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	var all sync.WaitGroup
	for _, c := range l {
		for i := range c.count {
			all.Go(func() { c.visit(ctx, transport, url, 1_000_000*i) })
		}
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
		transport.CloseIdleConnections()
	})
}

func parseClients(line string) (*clients, error) {
	c := &clients{}
	var pause int
	if _, err := fmt.Sscan(line, &c.name, &c.count, &pause, &c.path); err != nil {
		return nil, fmt.Errorf("%q: %w", line, err)
	}
	c.pause = time.Duration(pause) * time.Millisecond
	return c, nil
}

// visit is the loop of a client until ctx ends. The client never gives up a request.
func (c *clients) visit(ctx context.Context, transport http.RoundTripper, url string, n int) {
	for ; ctx.Err() == nil; n++ {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet,
			url+strings.ReplaceAll(c.path, "{n}", fmt.Sprint(n)), nil)
		if err != nil {
			panic(err) // the program's own path
		}
		if answer, err := transport.RoundTrip(request); err == nil {
			_, _ = io.Copy(io.Discard, answer.Body) // any status was an answer
			answer.Body.Close()
			c.answers.Add(1)
		} else {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(c.pause)
	}
}

// During is how many answers each kind of clients has got while f ran.
func (l load) during(f func()) map[string]int64 {
	got := map[string]int64{}
	for _, c := range l {
		got[c.name] = -c.answers.Load()
	}
	f()
	for _, c := range l {
		got[c.name] += c.answers.Load()
	}
	return got
}

// silentServer accepts connections, and never answers. The test's end closes the server.
func silentServer(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			open = append(open, c)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
		for _, c := range open {
			c.Close()
		}
	})
	return listener.Addr().String()
}

// quickServer answers each request after some milliseconds, until the end of the test.
func quickServer(t *testing.T) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(5 * time.Millisecond)
		fmt.Fprintln(w, "42")
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}
