package gather

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/phrase"
	"clrsnap/internal/requests"
	"clrsnap/internal/session"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// FewRequests is the least number of requests in one place that is worth a word.
const FewRequests = 3

// shortWalk is how long the count of the heap may have taken, so that a second walk for requests and async methods is
// worth the time.
const shortWalk = 500 * time.Millisecond

// inFlight notes the requests and async methods in flight before samples are taken, if that is quick.
func (g *Gatherer) inFlight(ctx context.Context) {
	const unseen = "Whether requests and async methods go on was not found out: %v."
	if g.heapMissing || len(g.Heaps) == 0 {
		return
	}
	g.progress("requests and async methods")
	err := g.slow()
	if err == nil {
		err = g.flight(ctx)
	}
	if err != nil && ctx.Err() == nil {
		g.Miss(unseen, err)
	}
}

// slow says that the heap is too large for more walks; nil: the count of the heap was quick.
func (g *Gatherer) slow() error {
	if took := g.Heaps[len(g.Heaps)-1].Duration; took > shortWalk {
		return errors.New("a walk of the heap takes " + phrase.Seconds(took))
	}
	return nil
}

// movedLook is how long after the look at the end another look follows, if the collector has moved objects.
const movedLook = time.Second

// moved reports whether the collector has moved the objects of waits, most likely: there are as many waits of a chain
// as before, but none is known. A wait is known by the addresses of its objects.
func moved(before, after *FlightLook) bool {
	const few = 10 // waits that may be as many by chance
	if len(StoodStill(before, after)) > 0 {
		return false
	}
	is := WaitsOf(after)
	for key, n := range WaitsOf(before) {
		if n >= few && is[key] == n {
			return true
		}
	}
	return false
}

// inFlightAtEnd notes the requests and async methods in flight at the end. Where connections wait for an answer, the
// async methods are evidence of the calls.
func (g *Gatherer) inFlightAtEnd(ctx context.Context) {
	if g.heapMissing {
		return
	}
	g.progress("requests and async methods")
	err := g.flight(ctx)
	if err != nil {
		g.Flights = nil // the first look alone says nothing of the end
		if ctx.Err() == nil {
			g.Miss("What requests and async methods wait for was not found out: %v.", err)
		}
	}
	if n := len(g.Flights); n > 1 && moved(&g.Flights[0], &g.Flights[n-1]) && session.Sleep(ctx, movedLook) &&
		g.flight(ctx) == nil {
		g.Early, g.Flights = &g.Flights[0], g.Flights[n-1:]
	}
	g.readers()
	if n := len(g.Flights); n > 1 {
		m := &g.MethodsEnded
		m.Count, m.Exact, m.Known = tasks.MethodsEnded(g.s, g.Flights[0].Methods, g.Flights[n-1].Methods)
	}
	if err != nil || !slices.ContainsFunc(g.Sockets, func(s Socket) bool { return s.Unanswered() }) {
		return
	}
	l := g.LastFlight()
	g.Chains = l.Tasks.Chains
	if !l.Requests.Partial { // a part cannot be presented as all
		g.Web = l.Requests
	}
}

// readers notes the threads whose own methods take items from channels or BlockingCollections, complete
// TaskCompletionSources, or pulse the monitors that the methods wait for.
func (g *Gatherer) readers() {
	threads := g.Last().Snap.Threads
	g.Pulses, g.Takers = map[int]bool{}, map[int]bool{}
	queues := slices.ContainsFunc(threads, func(t snapshot.Thread) bool {
		return t.Wait != nil && t.Wait.Kind == snapshot.CollectionAdd
	})
	for i := range threads {
		t := &threads[i]
		if own := OwnFrame(t.Frames); own != nil && t.Wait != nil && t.Wait.Kind == snapshot.MonitorWait {
			g.Pulses[t.OSThreadID] = g.s.Pulses(own)
		}
		if queues && slices.ContainsFunc(t.Frames, func(f snapshot.Frame) bool { return g.s.TakesItems(&f) }) {
			g.Takers[t.OSThreadID] = true
		}
		if slices.ContainsFunc(t.Frames, func(f snapshot.Frame) bool { return g.s.ReadsChannel(&f) }) {
			g.Readers = append(g.Readers, t)
		}
		if slices.ContainsFunc(t.Frames, func(f snapshot.Frame) bool { return g.s.Completes(&f) }) {
			g.Completers = append(g.Completers, t)
		}
	}
}

// flight walks the heap for requests and for async methods.
func (g *Gatherer) flight(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, walkWithin)
	defer cancel()
	at := time.Since(g.start)
	f, err := requests.FindInFlight(bounded, g.s, session.WalkOptions{}, g.BlockingCalls() > 0, g.servesBlocked())
	if err == nil {
		g.Flights = append(g.Flights, FlightLook{at, f})
	}
	return err
}

// servesBlocked reports whether threads of a web server's process may run requests, and are blocked in the program's
// code. The stack alone does not tell that a thread runs a request: most often the pool has resumed a middleware.
func (e *Evidence) servesBlocked() bool {
	if len(e.Looks) == 0 {
		return false
	}
	n, kestrel := 0, false
	for i := range e.Last().Snap.Threads {
		t := &e.Last().Snap.Threads[i]
		kestrel = kestrel || t.Idle() == snapshot.IdleKestrel
		if t.Role == WorkerRole && Blocked(t) && OwnFrame(t.Frames) != nil {
			n++
		}
	}
	return kestrel && n >= FewRequests
}

// LastFlight is the look at the end; nil: there is none.
func (e *Evidence) LastFlight() *FlightLook {
	if len(e.Flights) == 0 {
		return nil
	}
	return &e.Flights[len(e.Flights)-1]
}

// RequestsNow lists the requests in flight.
func (l *FlightLook) RequestsNow() (out []snapshot.Request) {
	for i := range l.Requests.Requests {
		out = append(out, l.Requests.Requests[i].Requests...)
	}
	return out
}

// RequestsEnded is how many requests have ended between the two looks, by the numbers of the requests of connections.
// Requests of a connection that came and went in between are missing once the collector has freed the connection's
// object. -1: not known, or nothing is served.
func (e *Evidence) RequestsEnded() int {
	before, after, ok := e.Progressed()
	if !ok || len(before.Begun)+len(after.Begun) == 0 {
		return -1
	}
	earlier, serving, newest := servingOf(before), servingOf(after), ""
	for connection := range before.Begun {
		newest = max(newest, connection)
	}
	ended := 0
	for connection, begun := range after.Begun {
		had, known := before.Begun[connection]
		if !known && connection <= newest { // the first look has missed the connection: ids grow
			continue
		}
		ended += max(begun-serving[connection]-had+earlier[connection], 0)
	}
	return ended
}

// Progressed returns the looks at what was in flight, at the beginning and at the end. false: there are not both, or a
// look lacks something.
func (e *Evidence) Progressed() (before, after *FlightLook, ok bool) {
	if len(e.Flights) < 2 {
		return nil, nil, false
	}
	before, after = &e.Flights[0], &e.Flights[len(e.Flights)-1]
	return before, after, !before.Requests.Partial && !after.Requests.Partial
}

// servingOf counts the requests in flight of each connection.
func servingOf(l *FlightLook) map[string]int {
	out := map[string]int{}
	for _, r := range l.RequestsNow() {
		connection, _, _ := strings.Cut(r.ID, ":")
		out[connection]++
	}
	return out
}

// StoodStill counts the async methods that have been in one wait since the first look, by the key of their chain.
func StoodStill(before, after *FlightLook) map[uint64]int {
	out := map[uint64]int{}
	for object, wait := range before.Waiting {
		if after.Waiting[object] == wait {
			out[wait.Key]++
		}
	}
	return out
}

// WaitsOf counts the async methods that waited at a look, by the key of their chain.
func WaitsOf(l *FlightLook) map[uint64]int {
	out := map[uint64]int{}
	for _, wait := range l.Waiting {
		out[wait.Key]++
	}
	return out
}
