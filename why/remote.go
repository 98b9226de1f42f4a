package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"clrsnap/profile"
)

// Thresholds of calls that get no answer.
const (
	manyCallers     = 3               // threads and async calls that wait for one address
	manyConnections = 4               // waiting connections to one address, without a known caller
	mostConnections = 0.75            // of the connections to the address
	noAnswer        = 3 * time.Second // since a request was sent
)

// called is an awaited remote address.
type called struct {
	remote      string
	threads     []*watched
	chains      []*profile.TaskChain
	connections []*socket // have sent something, and got no answer
	all         int       // connections to the address
	connecting  int       // connections not yet made
	own         bool      // the process itself listens at the address
}

// judgeRemote looks for a remote address that does not answer.
func judgeRemote(e *evidence) []profile.Verdict {
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
	for i := range e.sockets {
		if s := &e.sockets[i]; s.ours {
			get(s.remote).add(s)
		}
	}
	if len(e.looks) >= 2 {
		threads := e.threads()
		for i := range threads {
			if local, to := endsOf(&threads[i]); to != "" && e.mayBeUnanswered(local, to) {
				get(to).threads = append(get(to).threads, &threads[i])
			}
		}
	}
	for i := range e.chains {
		c := &e.chains[i]
		if c.WaitsFor == nil || c.WaitsFor.Kind != profile.AwaitsSocket {
			continue
		}
		if _, to := endsIn(c.WaitsFor.Target); to != "" && by[to] != nil {
			by[to].chains = append(by[to].chains, c)
		}
	}
	return sortedBy(by, func(a, b *called) int {
		return cmp.Or(cmp.Compare(len(b.threads)+len(b.connections), len(a.threads)+len(a.connections)),
			cmp.Compare(a.remote, b.remote))
	})
}

func (c *called) add(s *socket) {
	c.all, c.own = c.all+1, c.own || s.own
	if s.state == "syn-sent" {
		c.connecting++
	}
	if s.unanswered() {
		c.connections = append(c.connections, s)
	}
}

// unanswered reports whether an outgoing connection waits for an answer, or has not been accepted.
func (s *socket) unanswered() bool {
	return s.ours && (s.state == "syn-sent" || s.sent >= noAnswer && s.received > s.sent)
}

// mayBeUnanswered reports whether a connection may wait for an answer, as far as connections are known: a thread that
// waits for news need not have sent a request.
func (e *evidence) mayBeUnanswered(local, remote string) bool {
	return e.sockets == nil || slices.ContainsFunc(e.sockets, func(s socket) bool {
		return s.local == local && s.remote == remote && s.unanswered()
	})
}

// endsOf are the addresses of the connection that a thread has waited for in all looks; "": none.
func endsOf(w *watched) (local, remote string) {
	if !w.unmoved || !w.waits() || ownFrame(w.last().Frames) == nil {
		return "", ""
	}
	for _, t := range w.looks {
		if t.Wait == nil || t.Wait.Kind != profile.WaitIO {
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
	if len(c.threads) >= manyCallers && e.span() >= enough {
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
	threads []*profile.Thread
	chains  []*profile.TaskChain
}

// queueing finds the queue: calls of HttpClient without a connection, in the last look.
func (e *evidence) queueing() (q queue) {
	if len(e.looks) > 0 {
		for i := range e.last().snap.Threads {
			t := &e.last().snap.Threads[i]
			if blocked(t) && callsHTTP(t.Frames) && (t.Wait == nil || t.Wait.Kind != profile.WaitIO) {
				q.threads = append(q.threads, t)
			}
		}
	}
	for i := range e.chains {
		c := &e.chains[i]
		if c.State == profile.TaskWaiting && callsHTTP(c.Frames) && c.WaitsFor != nil &&
			c.WaitsFor.Kind != profile.AwaitsSocket && ownFrame(c.Frames) != nil {
			q.chains = append(q.chains, c)
		}
	}
	return q
}

func callsHTTP(frames []profile.Frame) bool {
	return slices.ContainsFunc(frames, func(f profile.Frame) bool { return f.Module == "System.Net.Http" })
}

func (q *queue) sum() int {
	n := len(q.threads)
	for _, c := range q.chains {
		n += c.Count
	}
	return n
}

// frames are the frames of one waiter.
func (q *queue) frames() []profile.Frame {
	if len(q.threads) > 0 {
		return q.threads[0].Frames
	}
	return q.chains[0].Frames
}

func (c *called) verdict(e *evidence) profile.Verdict {
	v := profile.Verdict{
		Cause: profile.CauseRemoteCall, Certainty: c.certainty(e),
		Commands: []string{"clrsnap requests " + e.again(), "clrsnap tasks " + e.again(), "ss -tnpi dst " + c.remote},
	}
	var words []string
	if n := len(c.connections); n > 0 {
		words = append(words,
			fmt.Sprintf("%d of %s to it %s", n, counted(c.all, "connection", "connections"), c.silence()))
	}
	if n := len(c.threads); n > 0 {
		t := c.threads[0].last()
		words = append(words, fmt.Sprintf("%s for it in %s, for at least %s", waitNow(n), method(ownFrame(t.Frames)),
			seconds(e.span())))
		v.Evidence = append(v.Evidence, c.waiting(t))
	}
	if n := c.callers() - len(c.threads); n > 0 {
		chain := c.chains[0]
		words = append(words, fmt.Sprintf("%s for it, in %s", asyncCalls(n), method(ownFrame(chain.Frames))))
		v.Evidence = append(v.Evidence,
			profile.Evidence{Text: asyncCalls(n) + " for it, as async methods:", Frames: chain.Frames})
	}
	v.Text = fmt.Sprintf("%s does not answer: %s.", c.remote, strings.Join(words, "; "))
	if v.Certainty == profile.Possible {
		v.Text = fmt.Sprintf("%s may not answer: %s. Programs that wait for news, or only send, look the same.",
			c.remote, strings.Join(words, "; "))
	}
	if h := e.httpCalls(c); h != nil {
		h.tell(&v, c)
	} else if q := e.queueing(); q.sum() > 0 && len(c.connections) > 0 {
		c.addQueue(&v, &q)
	}
	for _, s := range c.connections[:min(len(c.connections), maxShown)] {
		v.Evidence = append(v.Evidence, profile.Evidence{Text: s.text()})
	}
	return v
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
func (c *called) waiting(t *profile.Thread) profile.Evidence {
	e := profile.Evidence{
		Text: fmt.Sprintf("%s have not moved in all looks, such as %s, which %s:", threadsOf(len(c.threads)),
			threadName(ref(t)), doing(t)),
		Frames: t.Frames,
	}
	for _, w := range c.threads {
		e.Threads = append(e.Threads, ref(w.last()))
	}
	return e
}

// addQueue adds how many calls wait for a connection.
func (c *called) addQueue(v *profile.Verdict, q *queue) {
	e := profile.Evidence{Frames: q.frames()}
	var words []string
	if n := len(q.threads); n > 0 {
		words = append(words, threadsOf(n))
	}
	if n := q.sum() - len(q.threads); n > 0 {
		words = append(words, counted(n, "async call", "async calls"))
	}
	for _, t := range q.threads {
		e.Threads = append(e.Threads, ref(t))
	}
	own := method(ownFrame(e.Frames))
	v.Text += fmt.Sprintf(" %s of HttpClient more, in %s, have no connection: as many as there may be are in use.",
		list(words), own)
	e.Text = fmt.Sprintf("%s for a connection:", waitNow(q.sum()))
	if len(q.threads) == 0 {
		e.Text = asyncCalls(q.sum()) + " for a connection:"
	}
	v.Evidence = append(v.Evidence, e)
}

func (c *called) silence() string {
	if c.connecting == len(c.connections) {
		return "are still being made: it does not accept them"
	}
	longest := time.Duration(0)
	for _, s := range c.connections {
		longest = max(longest, s.sent)
	}
	return fmt.Sprintf("have sent something, and got nothing back for up to %s", seconds(longest))
}

func (s *socket) text() string {
	if s.state == "syn-sent" {
		return fmt.Sprintf("%s → %s: the connection is not made yet.", s.local, s.remote)
	}
	received := "nothing received"
	if s.heard {
		received = fmt.Sprintf("last received %s ago", seconds(s.received))
	}
	return fmt.Sprintf("%s → %s: last sent %s ago, %s.", s.local, s.remote, seconds(s.sent), received)
}
