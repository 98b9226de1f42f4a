package remote

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Thresholds of calls that get no answer.
const (
	manyCallers     = 3    // threads and async calls that wait for one address
	manyConnections = 4    // waiting connections to one address, without a known caller
	mostConnections = 0.75 // of the connections to the address

	fewWaiters       = 2 // threads or clients
	shownConnections = 8
)

// called is an awaited remote address.
type called struct {
	remote      string
	threads     []*gather.Watched
	chains      []*snapshot.TaskChain
	connections []*gather.Socket // have sent something, and got no answer
	all         int              // connections to the address
	connecting  int              // connections not yet made
	own         bool             // the process itself listens at the address
}

// Silent looks for a remote address that does not answer.
func Silent(of *gather.Evidence) []profile.Verdict {
	e := &evidence{of}
	list := slices.DeleteFunc(e.called(), func(c *called) bool { return !c.harmful(e) })
	if len(list) == 0 {
		return nil
	}
	return []profile.Verdict{list[0].verdict(e)}
}

// called are the awaited remote addresses, the addresses with the most waits first.
func (e *evidence) called() []*called {
	by := map[string]*called{}
	get := func(remote string) *called {
		if by[remote] == nil {
			by[remote] = &called{remote: remote}
		}
		return by[remote]
	}
	for i := range e.Sockets {
		if s := &e.Sockets[i]; s.Ours {
			get(s.Remote).add(s)
		}
	}
	if len(e.Looks) >= 2 {
		threads := e.Threads()
		for i := range threads {
			if local, to := endsOf(&threads[i]); to != "" && e.mayBeUnanswered(local, to) {
				get(to).threads = append(get(to).threads, &threads[i])
			}
		}
	}
	for i := range e.Chains {
		c := &e.Chains[i]
		if c.WaitsFor == nil || c.WaitsFor.Kind != snapshot.AwaitsSocket {
			continue
		}
		if _, to := endsIn(c.WaitsFor.Target); to != "" && by[to] != nil {
			by[to].chains = append(by[to].chains, c)
		}
	}
	return slices.SortedFunc(maps.Values(by), func(a, b *called) int {
		return cmp.Or(cmp.Compare(len(b.threads)+len(b.connections), len(a.threads)+len(a.connections)),
			cmp.Compare(a.remote, b.remote))
	})
}

func (c *called) add(s *gather.Socket) {
	c.all, c.own = c.all+1, c.own || s.Own
	if s.State == "syn-sent" {
		c.connecting++
	}
	if s.Unanswered() {
		c.connections = append(c.connections, s)
	}
}

// mayBeUnanswered reports whether a connection may wait for an answer, as far as connections are known: a thread that
// waits for news need not have sent a request.
func (e *evidence) mayBeUnanswered(local, remote string) bool {
	return e.Sockets == nil || slices.ContainsFunc(e.Sockets, func(s gather.Socket) bool {
		return s.Local == local && s.Remote == remote && s.Unanswered()
	})
}

// endsOf are the addresses of the connection that a thread has waited for in all looks; "": none.
func endsOf(w *gather.Watched) (local, remote string) {
	if !w.Unmoved || !w.Waits() || gather.OwnFrame(w.Last().Frames) == nil {
		return "", ""
	}
	for _, t := range w.Looks {
		if t.Wait == nil || t.Wait.Kind != snapshot.WaitIO {
			return "", ""
		}
		from, to := endsIn(t.Wait.Target)
		if to == "" || remote != "" && (from != local || to != remote) {
			return "", ""
		}
		local, remote = from, to
	}
	return local, remote
}

// endsIn are the addresses in the target of a wait: "recv tcp 10.1.2.3:41234 → 10.1.2.9:5432 established". The target
// of several waits lacks the local address.
func endsIn(target string) (local, remote string) {
	verb, rest, _ := strings.Cut(target, " ")
	left, right, ok := strings.Cut(rest, "→ ")
	if !ok || verb == "accept" {
		return "", ""
	}
	_, local, _ = strings.Cut(strings.TrimSpace(left), " ")
	remote, _, _ = strings.Cut(right, " ")
	return local, remote
}

func (c *called) harmful(e *evidence) bool {
	if c.own && e.RequestsEnded() > 0 {
		return false // the process answers requests, however slowly
	}
	if len(c.threads) >= manyCallers && e.Span() >= gather.Enough {
		return true
	}
	n := len(c.connections)
	if n == 0 {
		return false
	}
	if h := e.httpCalls(c); h != nil && h.exhausted(c) {
		return true
	}
	// Some programs keep a request open at all times, to hear of news. So nearly all connections have to wait.
	if c.own || float64(n) < mostConnections*float64(c.all) {
		return false
	}
	q := e.queueing()
	return n >= manyConnections || c.callers()+q.sum() >= manyCallers
}

// callers is how many threads and async calls wait for the address.
func (c *called) callers() int {
	n := len(c.threads)
	for _, t := range c.chains {
		n += t.Count
	}
	return n
}

// queue is the calls that wait for a connection of an HttpClient at its connection limit.
type queue struct {
	threads []*snapshot.Thread
	chains  []*snapshot.TaskChain
}

// queueing finds the queue: calls of HttpClient without a connection, in the last look.
func (e *evidence) queueing() (q queue) {
	if len(e.Looks) > 0 {
		for i := range e.Last().Snap.Threads {
			t := &e.Last().Snap.Threads[i]
			if gather.Blocked(t) && callsHTTP(t.Frames) && (t.Wait == nil || t.Wait.Kind != snapshot.WaitIO) {
				q.threads = append(q.threads, t)
			}
		}
	}
	for i := range e.Chains {
		c := &e.Chains[i]
		if c.State == snapshot.TaskWaiting && callsHTTP(c.Frames) && c.WaitsFor != nil &&
			c.WaitsFor.Kind != snapshot.AwaitsSocket && gather.OwnFrame(c.Frames) != nil {
			q.chains = append(q.chains, c)
		}
	}
	return q
}

func callsHTTP(frames []snapshot.Frame) bool {
	return slices.ContainsFunc(frames, func(f snapshot.Frame) bool { return f.Module == "System.Net.Http" })
}

func (q *queue) sum() int {
	n := len(q.threads)
	for _, c := range q.chains {
		n += c.Count
	}
	return n
}

// frames are the frames of one waiter.
func (q *queue) frames() []snapshot.Frame {
	if len(q.threads) > 0 {
		return q.threads[0].Frames
	}
	return q.chains[0].Frames
}

func (c *called) verdict(e *evidence) profile.Verdict {
	v := profile.Verdict{
		Cause: profile.CauseRemoteCall, Certainty: c.certainty(e),
		Commands: []string{"clrsnap requests " + e.Again(), "clrsnap tasks " + e.Again(), "ss -tnpi dst " + c.remote},
	}
	var words []string
	if n := len(c.connections); n > 0 {
		words = append(words,
			fmt.Sprintf("%d of %s to the address %s", n, phrase.Counted(c.all, "connection", "connections"),
				c.silence()))
	}
	if n := len(c.threads); n > 0 {
		t := c.threads[0].Last()
		words = append(words, fmt.Sprintf("%s for the address in %s, for at least %s", phrase.ThreadsWait(n),
			gather.Place(t.Frames),
			phrase.Seconds(e.Span())))
		v.Evidence = append(v.Evidence, c.waiting(t))
	}
	if n := c.callers() - len(c.threads); n > 0 {
		chain := c.chains[0]
		words = append(words, fmt.Sprintf("%s for the address, in %s", asyncCalls(n),
			gather.Place(chain.Frames)))
		v.Evidence = append(v.Evidence,
			profile.Evidence{Text: asyncCalls(n) + " for the address, as async methods:", Frames: chain.Frames})
	}
	v.Text = fmt.Sprintf("%s does not answer: %s.", c.name(), strings.Join(words, "; "))
	if v.Certainty == profile.Possible {
		v.Text = fmt.Sprintf("%s may not answer: %s. Programs that wait for news, or only send, look the same.",
			c.name(), strings.Join(words, "; "))
	}
	if h := e.httpCalls(c); h != nil {
		h.tell(&v, c)
	} else if q := e.queueing(); q.sum() > 0 && len(c.connections) > 0 {
		c.addQueue(&v, &q)
	}
	texts := gather.Texts(c.connections)
	for _, text := range texts[:min(len(texts), shownConnections)] {
		v.Evidence = append(v.Evidence, profile.Evidence{Text: text})
	}
	return v
}

// OfItself is behind the address in a verdict on an address of the process itself.
const OfItself = ", where this process listens itself,"

// name is the address, and whose address it is.
func (c *called) name() string {
	if c.own {
		return c.remote + OfItself
	}
	return c.remote
}

// AsksItself reports whether a verdict is about an address of the process itself.
func AsksItself(v *profile.Verdict) bool {
	return v.Cause == profile.CauseRemoteCall && strings.Contains(v.Text, OfItself)
}

// certainty: an answer is certainly due if a connection cannot be made, or if calls of HttpClient have all
// connections and other calls queue. If calls of other clients queue, the calls with a connection most likely keep
// the connection against their will.
func (c *called) certainty(e *evidence) profile.Certainty {
	n, q := len(c.connections), e.queueing()
	switch h := e.httpCalls(c); {
	case h != nil && h.exhausted(c):
		return profile.Certain
	case n > 0 && c.connecting == n && n >= manyCallers && len(c.threads) >= manyCallers:
		return profile.Certain
	case n > 0 && (c.connecting == n || q.sum() > 0 || h != nil && len(h.queue) > 0):
		return profile.Likely
	}
	return profile.Possible
}

func asyncCalls(n int) string {
	if n == 1 {
		return "1 async call waits"
	}
	return fmt.Sprintf("%d async calls wait", n)
}

// waiting is the evidence of the waiting threads, with t as example.
func (c *called) waiting(t *snapshot.Thread) profile.Evidence {
	e := profile.Evidence{
		Text: fmt.Sprintf("%s have not moved in all looks, such as %s, which %s:", phrase.ThreadsOf(len(c.threads)),
			phrase.ThreadName(gather.Ref(t)), phrase.Doing(t)),
		Frames: t.Frames,
	}
	for _, w := range c.threads {
		e.Threads = append(e.Threads, gather.Ref(w.Last()))
	}
	return e
}

// addQueue adds how many calls wait for a connection.
func (c *called) addQueue(v *profile.Verdict, q *queue) {
	e := profile.Evidence{Frames: q.frames()}
	var words []string
	if n := len(q.threads); n > 0 {
		words = append(words, phrase.ThreadsOf(n))
	}
	if n := q.sum() - len(q.threads); n > 0 {
		words = append(words, phrase.Counted(n, "async call", "async calls"))
	}
	for _, t := range q.threads {
		e.Threads = append(e.Threads, gather.Ref(t))
	}
	own := gather.Place(e.Frames)
	v.Text += fmt.Sprintf(" %s of HttpClient more, in %s, have no connection: as many as there may be are in use.",
		phrase.List(words), own)
	e.Text = fmt.Sprintf("%s for a connection:", phrase.ThreadsWait(q.sum()))
	if len(q.threads) == 0 {
		e.Text = asyncCalls(q.sum()) + " for a connection:"
	}
	v.Evidence = append(v.Evidence, e)
}

func (c *called) silence() string {
	if c.connecting == len(c.connections) {
		return "are still being made: the address does not accept connections"
	}
	longest := time.Duration(0)
	for _, s := range c.connections {
		longest = max(longest, s.Sent)
	}
	return fmt.Sprintf("have sent something, and got nothing back for up to %s", phrase.Seconds(longest))
}
