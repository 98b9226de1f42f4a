package requests

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// silent is a server that answers nothing, or only the head of an answer. It speaks HTTP/1, and HTTP/2 by prior
// knowledge.
type silent struct {
	address string

	mu   sync.Mutex
	seen map[string]bool // requested paths
}

func newSilent(t *testing.T) *silent {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &silent{address: l.Addr().String(), seen: map[string]bool{}}
	srv := &http.Server{Handler: s, Protocols: protocols(true, true)}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return s
}

func protocols(one, two bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(one)
	p.SetUnencryptedHTTP2(two)
	return p
}

func (s *silent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/stream/") {
		w.WriteHeader(http.StatusOK)
		w.Write([]byte("the beginning"))
		w.(http.Flusher).Flush()
	}
	ended := r.Context().Done()
	if strings.HasPrefix(r.URL.Path, "/socket/") {
		ended = accept(w, r)
	}
	s.mu.Lock()
	s.seen[r.URL.Path] = true
	s.mu.Unlock()
	<-ended
}

// accept accepts a WebSocket (RFC 6455, 4.2.2), and says nothing. The channel is closed with the connection.
func accept(w http.ResponseWriter, r *http.Request) <-chan struct{} {
	ended := make(chan struct{})
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		close(ended)
		return ended
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
	go func() {
		defer close(ended)
		io.Copy(io.Discard, c)
		c.Close()
	}()
	return ended
}

func (s *silent) has(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[path]
}

// TestCalls makes calls of each kind to a server that never answers, more than the allowed connections, and ends some
// calls. Each running call is listed once, with its progress as the server knows it; no ended call is listed.
func TestCalls(t *testing.T) {
	layer.Proof(t)
	for _, runtime := range callRuntimes(t) {
		t.Run(testenv.Name(runtime), func(t *testing.T) { testCalls(t, runtime) })
	}
}

// callRuntimes are the newest of each version, in the short form only supported versions: installed beside the kit, or
// else the kit's own.
func callRuntimes(t *testing.T) (out []string) {
	supported := []string{"10.0.14", "11.0.0"}
	for _, version := range layer.Size(supported, append([]string{"8.0.33", "9.0.22"}, supported...)) {
		runtime, err := testenv.Installed(version)
		if err != nil {
			t.Logf("NOTHING WAS TESTED ON %s: %v", version, err)
			runtime = "net" + version[:strings.IndexByte(version, '.')]
		}
		out = append(out, runtime)
	}
	return out
}

const connections = 4

func testCalls(t *testing.T, runtime string) {
	s := newSilent(t)
	a := testenv.Start(t, "calls", testenv.Options{
		Runtime: runtime, Args: []string{"--server", s.address, "--connections", fmt.Sprint(connections)},
	})
	n := layer.Size(9, 200)
	c := &callCheck{t: t, a: a, s: s, ended: map[string]bool{}}
	for _, kind := range []string{"get", "stream", "two", "socket"} {
		a.Ask(fmt.Sprintf("%s %d", kind, n))
		c.settle()
		c.check(false)
	}
	for round := range layer.Size(1, 20) {
		a.Ask("collect")
		c.end(round)
		c.check(false)
	}
	a.Ask("get " + fmt.Sprint(n))
	a.Ask("send " + fmt.Sprint(n))
	c.settle()
	c.check(true)
}

// TestCallsMoved looks at calls while the collector moves all of them, again and again. Every statement about a call is
// right, above all its age. No call is listed twice. A look without some calls says that some may be missing. Sooner or
// later each call is listed, and its age is known.
func TestCallsMoved(t *testing.T) {
	layer.Proof(t)
	for _, runtime := range callRuntimes(t) {
		t.Run(testenv.Name(runtime), func(t *testing.T) { testCallsMoved(t, runtime) })
	}
}

func testCallsMoved(t *testing.T, runtime string) {
	s := newSilent(t)
	a := testenv.Start(t, "calls", testenv.Options{
		Runtime: runtime,
		Args:    []string{"--server", s.address, "--connections", fmt.Sprint(connections), "--between", "600"},
	})
	c := &callCheck{t: t, a: a, s: s, ended: map[string]bool{}}
	const each = 50
	for range 3 { // so that another call's age is wrong
		for _, kind := range []string{"get", "two", "stream", "socket"} {
			a.Ask(fmt.Sprintf("%s %d", kind, each))
		}
		c.settle()
		time.Sleep(3 * tolerance)
	}
	truth, under := c.begun(), c.under()
	t.Logf("all calls are moved %s times", a.Ask("slide 10")[0])
	unlisted, ageless := maps.Clone(truth), map[string]time.Duration{} // not in any look so far
	for path, at := range truth {
		if strings.HasPrefix(path, "/get/") || strings.HasPrefix(path, "/two/") { // their age can be known
			ageless[path] = at
		}
	}
	aged := len(ageless)
	listed, known, looks, lacking, warned := 0, 0, 0, 0, 0
	for least := layer.Size(10, 60); looks < least || len(unlisted)+len(ageless) > 0 && looks < 10*least; looks++ {
		times := map[string]int{}
		r := look(t, a.PID)
		for i := range r.Calls {
			for k := range r.Calls[i].Calls {
				x := &r.Calls[i].Calls[k]
				if times[x.Path]++; times[x.Path] > 1 {
					t.Errorf("%s is listed twice", x.Path)
				}
				if want := c.phase(x.Path, false); r.Calls[i].Phase != want {
					t.Errorf("%s: phase %q, want %q", x.Path, r.Calls[i].Phase, want)
				}
				listed++
				delete(unlisted, x.Path)
				if x.Since.IsZero() {
					continue
				}
				known++
				delete(ageless, x.Path)
				c.began(x, truth, under)
			}
		}
		warns := r.Unproven > 0 || r.ConsistentShare < 1 || r.Partial
		if warns {
			warned++
		}
		if n := len(truth) - len(times); n > 0 {
			lacking++
			if !warns {
				t.Errorf("%d of %d calls are missing in %v without a word", n, len(truth), r.Duration)
			}
		}
	}
	t.Logf("%d looks: %d of %d calls are listed, %d of %d with their age; %d looks lack some, %d say so",
		looks, listed, len(truth)*looks, known, aged*looks, lacking, warned)
	if len(unlisted)+len(ageless) > 0 {
		t.Errorf("in %d looks %d of %d calls are never listed, and %d of %d ages are never known",
			looks, len(unlisted), len(truth), len(ageless), aged)
	}
}

// callCheck checks the listed calls.
type callCheck struct {
	t     *testing.T
	a     *testenv.App
	s     *silent
	ended map[string]bool
}

// settle waits until all calls that can have a connection have reached the server.
func (c *callCheck) settle() {
	deadline := time.Now().Add(testenv.Hang)
	for {
		one, waiting := 0, 0
		for path := range c.begun() {
			switch {
			case c.s.has(path):
				if strings.HasPrefix(path, "/get/") || strings.HasPrefix(path, "/send/") {
					one++
				}
			case !strings.HasPrefix(path, "/get/") && !strings.HasPrefix(path, "/send/"):
				waiting = 1 << 20
			default:
				waiting++
			}
		}
		if waiting == 0 || waiting < 1<<20 && one >= connections {
			time.Sleep(100 * time.Millisecond) // until the server's bytes have arrived
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%d calls have reached the server, %d have not", one, waiting)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// begun asks the program for its calls, and when each began.
func (c *callCheck) begun() map[string]time.Duration { return begun(c.t, c.a.Ask("begun")) }

// under asks the program when calls were under way.
func (c *callCheck) under() map[string]time.Duration { return begun(c.t, c.a.Ask("under")) }

// end ends every third call.
func (c *callCheck) end(round int) {
	i := 0
	for path := range c.begun() {
		if i++; i%3 != round%3 {
			continue
		}
		c.ended[path] = true
		c.a.Ask("end " + path[strings.LastIndexByte(path, '/')+1:])
	}
	deadline := time.Now().Add(testenv.Hang)
	for time.Now().Before(deadline) {
		left := 0
		for path := range c.begun() {
			if c.ended[path] {
				left++
			}
		}
		if left == 0 {
			c.settle()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.t.Fatal("calls do not end")
}

// check compares the listed calls with the knowledge of the program and the server. blocking: threads are in calls
// as well.
func (c *callCheck) check(blocking bool) {
	c.t.Helper()
	truth, under := c.begun(), c.under()
	r := look(c.t, c.a.PID)
	times := map[string]int{}
	queued := 0
	for i := range r.Calls {
		g := &r.Calls[i]
		if g.Authority != c.s.address || g.Method != "GET" {
			c.t.Errorf("%s %s%s, want GET %s", g.Method, g.Authority, g.Path, c.s.address)
		}
		for k := range g.Calls {
			x := &g.Calls[k]
			times[x.Path]++
			if want := c.phase(x.Path, blocking); g.Phase != want {
				c.t.Errorf("%s: phase %q, want %q", x.Path, g.Phase, want)
			}
			if !strings.HasPrefix(x.Path, strings.TrimSuffix(g.Path, "…")) {
				c.t.Errorf("%s is in the group of %s", x.Path, g.Path)
			}
			c.call(g, x, truth, under)
		}
		if g.Phase == snapshot.CallConnection {
			queued += len(g.Calls)
		}
	}
	for path := range truth {
		if times[path] != 1 {
			c.t.Errorf("%s is listed %d times", path, times[path])
		}
	}
	for path, n := range times {
		if _, ok := truth[path]; !ok {
			c.t.Errorf("%s is listed %d times, and has ended", path, n)
		}
	}
	waiting := 0
	for i := range r.Pools {
		if p := &r.Pools[i]; p.Active > p.HTTP1.All+p.HTTP2.All && p.HTTP2.All == 0 {
			c.t.Errorf("more calls than connections: %+v", p)
		}
		if p := &r.Pools[i]; p.HTTP1.Maximum == connections {
			waiting += p.Queued
			if p.HTTP1.All > connections || p.Active > connections || queued > 0 && p.Active != connections {
				c.t.Errorf("%+v", p)
			}
		}
	}
	if waiting != queued {
		c.t.Errorf("%d calls wait for a connection, and %d are in the queue", queued, waiting)
	}
	c.t.Logf("%d calls in %v, %d wait for a connection; %d unproven", len(truth), r.Duration, queued, r.Unproven)
}

// phase is a call's progress, as the server knows it.
func (c *callCheck) phase(path string, blocking bool) snapshot.CallPhase {
	switch {
	case !c.s.has(path):
		return snapshot.CallConnection
	case blocking && (strings.HasPrefix(path, "/send/") || strings.HasPrefix(path, "/stream/")):
		return snapshot.CallOpen
	case strings.HasPrefix(path, "/stream/"):
		return snapshot.CallBody
	case strings.HasPrefix(path, "/socket/"):
		return snapshot.CallWebSocket
	}
	return snapshot.CallAnswer
}

// call checks one listed call.
func (c *callCheck) call(g *snapshot.CallGroup, x *snapshot.ClientCall, begun, under map[string]time.Duration) {
	if x.Query != "?key=secret" {
		c.t.Errorf("%s: query %q", x.Path, x.Query)
	}
	if has := g.Phase != snapshot.CallConnection; has != (x.Remote == c.s.address) || has != (x.Protocol != "") {
		c.t.Errorf("%s: %s, to %q by %q", x.Path, g.Phase, x.Remote, x.Protocol)
	}
	if x.Since.IsZero() {
		if strings.HasPrefix(x.Path, "/get/") || strings.HasPrefix(x.Path, "/two/") {
			c.t.Errorf("%s: its age is not known", x.Path)
		}
		return
	}
	c.began(x, begun, under)
}

// began checks when a call began: between two moments noted by the program. The second moment is unknown for a call
// with a waiting thread.
func (c *callCheck) began(x *snapshot.ClientCall, begun, under map[string]time.Duration) {
	at := since(x.Since)
	if end, ok := under[x.Path]; at < begun[x.Path]-tolerance || ok && at > end+tolerance {
		c.t.Errorf("%s is said to have begun at %v, and did between %v and %v", x.Path, at, begun[x.Path], end)
	}
}
