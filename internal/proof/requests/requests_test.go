// Package requests proves that exactly the requests and calls in flight are listed, according to the clients and
// servers at their other ends. docs/correctness.md, Requests in flight, has the results.
//
// A server on Kestrel (testdata/apps/requests) has a collection every 2 MB. Four clients ask the server without a
// pause, two by HTTP/1 and two by HTTP/2. Meanwhile other requests hang in nine ways, by both protocols. A request
// begins between the sending and the first line of the application's code; where the server notes no time, none
// is shown. The program testdata/apps/calls makes calls to a server that never answers, or sends only the head of an
// answer. The server knows which calls have arrived, and the program knows the time of each call.
package requests

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

const (
	tolerance = 100 * time.Millisecond // of ages
	patience  = 20 * time.Second
)

// look takes a look with a Process of its own, as the command does.
func look(t *testing.T, pid int) *snapshot.Requests {
	t.Helper()
	p, err := clrsnap.Open(context.Background(), pid, clrsnap.Options{Lines: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r, err := p.Requests(context.Background(), clrsnap.RequestsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Partial {
		t.Error("the result is partial")
	}
	return r
}

// begun parses the programs' answers: a name, and CLOCK_MONOTONIC in ns.
func begun(t *testing.T, lines []string) map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, line := range lines {
		name, ns, _ := strings.Cut(line, " ")
		v, err := strconv.ParseInt(ns, 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out[name] = time.Duration(v)
	}
	return out
}

// since is a time by CLOCK_MONOTONIC.
func since(at time.Time) time.Duration { return live.Monotonic() - time.Since(at) }

// TestRequests has a server under load serve requests that hang in nine ways, by HTTP/1 and HTTP/2, and lets some
// requests go on from time to time. Each request in flight before and after a look is listed once; no request that
// had ended before the look is listed.
func TestRequests(t *testing.T) {
	layer.Proof(t)
	clocks := []string{"activity", "none", "timestamp"}
	for i, b := range testenv.AspNetRuntimes(t) {
		t.Run(b.Version, func(t *testing.T) { testRequests(t, b.Runtime, clocks[i%len(clocks)]) })
	}
}

// way is how a request hangs, and its expected state.
type way struct {
	name  string
	state snapshot.TaskState
	kind  snapshot.AwaitedKind // empty: any
	call  bool
	wait  snapshot.WaitKind // of its thread; empty: no thread runs the request
}

var ways = []way{
	{"source", snapshot.TaskWaiting, snapshot.AwaitsCompletion, false, ""},
	{"semaphore", snapshot.TaskWaiting, snapshot.AwaitsSemaphore, false, ""},
	{"thread", snapshot.TaskWaiting, "", false, snapshot.EventWait},
	{"thread-later", snapshot.TaskWaiting, "", false, snapshot.EventWait},
	{"delay", snapshot.TaskWaiting, snapshot.AwaitsTimer, false, ""},
	{"upstream", snapshot.TaskWaiting, "", true, ""},
	{"several", snapshot.TaskWaiting, "", false, ""},
	{"body", snapshot.TaskWaiting, snapshot.AwaitsPipe, false, ""},
	{answering, snapshot.TaskWaiting, snapshot.AwaitsCompletion, false, ""},
}

// answering is the way of requests whose answer has begun.
const answering = "answering"

// hung is a hanging request.
type hung struct {
	way    *way
	id     string
	sent   time.Duration // CLOCK_MONOTONIC, when the client began
	two    bool          // HTTP/2
	left   bool          // the client has gone
	cancel context.CancelFunc
	head   chan struct{} // the client has the head of the answer
	done   chan struct{} // the client has the whole answer
}

// load is a server and its clients.
type load struct {
	t     *testing.T
	a     *testenv.App
	clock string
	urls  []string
	one   *http.Client
	two   *http.Client
	rnd   *rand.Rand
	next  int
	hangs map[string]*hung
	ended map[string]bool // ids of hanging requests that have ended
	again int             // repeated looks

	mu    sync.Mutex
	quick map[string]bool // ids of quick requests that have ended
	count atomic.Int64
}

func testRequests(t *testing.T, runtime, clock string) {
	s := newSilent(t)
	a := testenv.Start(t, "requests", testenv.Options{
		Runtime: runtime, Args: []string{"--clock", clock, "--upstream", s.address, "--connections", "2"},
		Env: []string{"DOTNET_GCgen0size=0x200000"}, // a collection every 2 MB
	})
	l := &load{
		t: t, a: a, clock: clock, urls: a.Ask("urls"), rnd: rand.New(rand.NewPCG(19, 6)), hangs: map[string]*hung{},
		ended: map[string]bool{}, quick: map[string]bool{},
		one: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		two: &http.Client{Transport: &http.Transport{Protocols: protocols(false, true)}},
	}
	ctx, stop := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() { l.hurry(ctx, i%2 == 1, i) })
	}
	for range layer.Size(3, 60) {
		l.change(layer.Size(9, 40))
		l.check()
	}
	stop()
	clients.Wait()
	t.Logf("%d quick requests meanwhile; %d looks were taken once more", l.count.Load(), l.again)
	if l.count.Load() < 100 {
		t.Error("the server had no load")
	}
}

func (l *load) client(two bool) (*http.Client, string) {
	if two {
		return l.two, l.urls[1]
	}
	return l.one, l.urls[0]
}

// hurry sends one quick request after the other.
func (l *load) hurry(ctx context.Context, two bool, client int) {
	c, url := l.client(two)
	for i := 1; ctx.Err() == nil; i++ {
		id := fmt.Sprint(client*1_000_000 + i)
		r, err := c.Get(url + "/quick/" + id)
		if err != nil {
			l.t.Errorf("quick: %v", err)
			return
		}
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
		l.mu.Lock()
		l.quick["/quick/"+id] = true
		l.mu.Unlock()
		l.count.Add(1)
	}
}

// change lets some requests go on, and begins others, until so many hang; each in one of the ways.
func (l *load) change(most int) {
	for id, h := range l.hangs {
		if l.rnd.IntN(3) == 0 {
			l.end(id, h)
		}
	}
	for len(l.hangs) < most {
		l.begin(&ways[l.next%len(ways)], l.next/len(ways)%2 == 1 != (l.next%2 == 1))
	}
	deadline := time.Now().Add(patience)
	for {
		has, missing := begun(l.t, l.a.Ask("begun")), 0
		for id := range l.hangs {
			if _, ok := has[id]; !ok {
				missing++
			}
		}
		if missing == 0 {
			break
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%d requests do not reach the application", missing)
		}
		time.Sleep(5 * time.Millisecond)
	}
	for _, h := range l.hangs {
		if h.way.name == answering {
			<-h.head
		}
	}
	for _, h := range l.hangs {
		if !h.left && h.way.name != "body" && l.rnd.IntN(12) == 0 { // the client hangs up: the application goes on
			h.cancel()
			<-h.done
			h.left = true
		}
	}
	time.Sleep(50 * time.Millisecond) // until the requests wait as planned
}

// begin begins a request.
func (l *load) begin(w *way, two bool) {
	l.next++
	ctx, cancel := context.WithCancel(context.Background())
	h := &hung{
		way: w, id: fmt.Sprintf("%s-%d", w.name, l.next), two: two, cancel: cancel, sent: live.Monotonic(),
		head: make(chan struct{}), done: make(chan struct{}),
	}
	l.hangs[h.id] = h
	c, url := l.client(two)
	method, body := http.MethodGet, io.Reader(nil)
	if w.name == "body" {
		r, _ := io.Pipe() // nothing comes
		method, body = http.MethodPost, r
	}
	q, err := http.NewRequestWithContext(ctx, method, url+"/"+w.name+"/"+h.id+"?key=secret", body)
	if err != nil {
		l.t.Fatal(err)
	}
	go func() {
		defer close(h.done)
		r, err := c.Do(q)
		close(h.head)
		if err == nil {
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}
	}()
}

// end lets a request go on, until the client has the answer and the application has ended the request.
func (l *load) end(id string, h *hung) {
	l.a.Ask("go " + id)
	if h.way.name == "body" {
		h.cancel()
	}
	select {
	case <-h.done:
	case <-time.After(patience):
		l.t.Fatalf("%s does not end", id)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if _, ok := begun(l.t, l.a.Ask("begun"))[id]; !ok {
			break
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%s does not end", id)
		}
	}
	h.cancel()
	delete(l.hangs, id)
	l.ended[id] = true
}

// check compares the listed requests with the clients' knowledge.
func (l *load) check() {
	l.t.Helper()
	time.Sleep(20 * time.Millisecond) // until the server has finished the requests that its clients have finished
	begun := begun(l.t, l.a.Ask("begun"))
	l.mu.Lock()
	quick := l.quick
	l.quick = map[string]bool{}
	l.mu.Unlock()
	r := l.look()
	times, unknown, upstream, blocked, spinning := map[string]int{}, 0, 0, 0, 0
	for i := range r.Requests {
		g := &r.Requests[i]
		for k := range g.Requests {
			x := &g.Requests[k]
			_, id, _ := strings.Cut(strings.TrimPrefix(x.Path, "/"), "/")
			times[x.Path]++
			if quick[x.Path] || l.ended[id] {
				l.t.Errorf("%s is listed, and has ended", x.Path)
			}
			h := l.hangs[id]
			if h == nil {
				continue
			}
			l.line(h, x, begun[id])
			switch {
			case g.Doing.State == "", h.way.kind != "" && g.Doing.WaitsFor == nil:
				unknown++
			case h.way.wait != "" && g.Doing.State == snapshot.TaskRunning: // before the thread blocks
				spinning++
			default:
				l.doing(h, g)
			}
		}
	}
	for id, h := range l.hangs {
		if n := times["/"+h.way.name+"/"+id]; n != 1 {
			l.t.Errorf("%s is listed %d times", id, n)
		}
		if h.way.call {
			upstream++
		}
		if h.way.wait != "" {
			blocked++
		}
	}
	for path, n := range times {
		if n > 1 {
			l.t.Errorf("%s is listed %d times", path, n)
		}
	}
	l.calls(r, upstream)
	l.t.Logf("%d requests that hang, %d listed in %v; of %d it is not known what they do; %d unproven", len(l.hangs),
		len(times), r.Duration, unknown, r.Unproven)
	if spinning > (blocked+1)/2 {
		l.t.Errorf("of %d requests whose threads are blocked, %d are said to run", blocked, spinning)
	}
	if unknown > len(l.hangs)/4 {
		l.t.Errorf("of %d requests it is not known what they do", unknown)
	}
}

// look takes a look. If the look lacks something, and says so itself, look takes another, as any reader of the
// message would.
func (l *load) look() *snapshot.Requests {
	const most = 3
	r := look(l.t, l.a.PID)
	for n := 0; n < most && r.Unproven > 0 && l.lacks(r); n++ {
		l.again++
		r = look(l.t, l.a.PID)
	}
	return r
}

// lacks reports whether a look lacks a hanging request, or a call of a hanging request.
func (l *load) lacks(r *snapshot.Requests) bool {
	listed, calls, upstream := map[string]bool{}, 0, 0
	for i := range r.Requests {
		for k := range r.Requests[i].Requests {
			listed[r.Requests[i].Requests[k].Path] = true
		}
	}
	for i := range r.Calls {
		calls += len(r.Calls[i].Calls)
	}
	lacks := false
	for id, h := range l.hangs {
		lacks = lacks || !listed["/"+h.way.name+"/"+id]
		if h.way.call {
			upstream++
		}
	}
	return lacks || calls < upstream
}

// line checks the description of a request.
func (l *load) line(h *hung, x *snapshot.Request, begun time.Duration) {
	method, protocol := http.MethodGet, "HTTP/1.1"
	if h.way.name == "body" {
		method = http.MethodPost
	}
	if h.two {
		protocol = "HTTP/2"
	}
	if x.Method != method || x.Protocol != protocol || x.Query != "?key=secret" ||
		!strings.HasPrefix(x.Remote, "127.0.0.1:") {
		l.t.Errorf("%s: %s %s %s from %s", h.id, x.Method, x.Query, x.Protocol, x.Remote)
	}
	if x.Aborted && !h.left {
		l.t.Errorf("%s: its client has not gone", h.id)
	}
	if x.Answering != (h.way.name == answering) {
		l.t.Errorf("%s: its answer has begun: %v", h.id, x.Answering)
	}
	if x.Since.IsZero() != (l.clock == "none") {
		l.t.Errorf("%s: since %v with the clock %s", h.id, x.Since, l.clock)
	}
	if x.Since.IsZero() {
		return
	}
	if at := since(x.Since); at < h.sent-tolerance || at > begun+tolerance {
		l.t.Errorf("%s: sent at %v, begun at %v, and said to have begun at %v", h.id, h.sent, begun, at)
	}
}

// doing checks the stated activity of a request.
func (l *load) doing(h *hung, g *snapshot.RequestGroup) {
	d := &g.Doing
	if want := "/" + h.way.name + "/{id}"; g.Path != want {
		l.t.Errorf("%s: path %s, want %s", h.id, g.Path, want)
	}
	if wait := d.Wait; wait == nil && h.way.wait != "" ||
		wait != nil && wait.Kind != h.way.wait && !inlinedEvent(h, wait) {
		l.t.Errorf("%s: its thread waits for %+v, want %s", h.id, wait, h.way.wait)
	}
	if d.State != h.way.state || h.way.kind != "" && d.WaitsFor.Kind != h.way.kind || h.way.call != (d.Call != nil) {
		l.t.Errorf("%s: %+v", h.id, d)
	}
	for i := range d.Frames {
		if strings.HasPrefix(d.Frames[i].Method, "Requests.Hanging") {
			return
		}
	}
	l.t.Errorf("%s: none of its %d frames is its own", h.id, len(d.Frames))
}

// inlinedEvent reports whether a wait is for the monitor inside the event that a request waits for: .NET 10 inlines
// ManualResetEventSlim.Wait into an often called method, and the inlining is not always proved (docs/limits.md).
func inlinedEvent(h *hung, wait *snapshot.Wait) bool {
	return layer.Size(0, 1) == 1 && h.way.wait == snapshot.EventWait && wait.Kind == snapshot.MonitorWait
}

// calls checks the calls that requests wait for: two have a connection.
func (l *load) calls(r *snapshot.Requests, want int) {
	n, answer := 0, 0
	for i := range r.Calls {
		g := &r.Calls[i]
		n += len(g.Calls)
		if g.Phase == snapshot.CallAnswer {
			answer += len(g.Calls)
		}
	}
	if n != want || answer != min(want, 2) {
		l.t.Errorf("%d calls, of which %d wait for the answer, want %d and %d", n, answer, want, min(want, 2))
	}
}
