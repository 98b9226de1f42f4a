package remote

import (
	"fmt"
	"slices"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// httpCalls is what HttpClient's pools of connections to one address say.
type httpCalls struct {
	waiting []someCalls // have a connection to the address, and no answer
	queue   []someCalls // have no connection
	maximum int         // connections that all pools with a queue may have
	active  int         // connections with a call, in pools with a queue
	held    int         // requests of the process's own clients that wait for one of these calls
}

// someCalls are some calls of a group: other calls may have a connection to another address.
type someCalls struct {
	*snapshot.CallGroup
	n int
}

// httpCalls finds the calls to an address whose connections got no answer. nil: no calls, or calls were not looked
// for.
func (e *evidence) httpCalls(c *called) *httpCalls {
	if e.Web == nil {
		return nil
	}
	h := &httpCalls{}
	servers := map[string]bool{} // as in the pools
	open := e.BlockingCalls()
	for i := range e.Web.Calls {
		g := &e.Web.Calls[i]
		n := callsTo(g, c.remote)
		switch g.Phase {
		case snapshot.CallAnswer:
		case snapshot.CallOpen: // for some calls, the head of the answer has come, and the body is being read
			n = min(n, open)
			open -= n
		default:
			n = 0
		}
		if n > 0 {
			h.waiting = append(h.waiting, someCalls{g, n})
			servers[g.Authority] = true
		}
	}
	if len(h.waiting) == 0 {
		return nil
	}
	for i := range e.Web.Calls {
		if g := &e.Web.Calls[i]; g.Phase == snapshot.CallConnection && servers[g.Authority] {
			h.queue = append(h.queue, someCalls{g, len(g.Calls)})
		}
	}
	for i := range e.Web.Pools {
		if p := &e.Web.Pools[i]; servers[p.Authority] && p.Queued > 0 && p.HTTP1.Maximum > 0 {
			h.maximum, h.active = h.maximum+p.HTTP1.Maximum, h.active+p.Active
		}
	}
	for i := range e.Web.Requests {
		if g := &e.Web.Requests[i]; g.Doing.Call != nil && servers[g.Doing.Call.Authority] {
			h.held += len(g.Requests)
		}
	}
	return h
}

// callsTo is how many calls of a group have a connection to an address. A server may have several addresses.
func callsTo(g *snapshot.CallGroup, remote string) (n int) {
	for i := range g.Calls {
		if g.Calls[i].Remote == remote {
			n++
		}
	}
	return n
}

func callsIn(groups []someCalls) (n int) {
	for _, g := range groups {
		n += g.n
	}
	return n
}

// exhausted reports whether calls queue because every allowed connection waits for an answer, for some time already.
func (h *httpCalls) exhausted(c *called) bool {
	return callsIn(h.queue) > 0 && h.maximum > 0 && h.active >= h.maximum && callsIn(h.waiting) >= h.maximum &&
		len(c.connections) >= h.maximum
}

// tell adds HttpClient's calls to the verdict on an address.
func (h *httpCalls) tell(v *profile.Verdict, c *called) {
	n, queued := callsIn(h.waiting), callsIn(h.queue)
	if h.exhausted(c) {
		of := "to the address"
		if c.all > h.maximum { // there are other clients
			of = "that an HttpClient may have to the address"
		}
		v.Text = fmt.Sprintf("%s does not answer: %s %s %s, and %s%s.", c.name(), allOf(h.maximum), of,
			c.waited(h.maximum), queueText(queued), h.caller())
	} else {
		v.Text += fmt.Sprintf(" %s of HttpClient %s for the answer", phrase.Counted(n, "call", "calls"),
			phrase.Verb(n, "waits", "wait"))
		if queued > 0 {
			v.Text += ", and " + queueText(queued)
		}
		v.Text += "."
	}
	if h.held > 0 {
		v.Text += fmt.Sprintf(" %s to this program %s for these calls.", phrase.Counted(h.held, "request", "requests"),
			phrase.Verb(h.held, "waits", "wait"))
	}
	for _, g := range slices.Concat(firstGroup(h.waiting), firstGroup(h.queue)) {
		if len(g.Doing.Frames) > 0 {
			v.Evidence = append(v.Evidence, profile.Evidence{Text: callText(g) + ":", Frames: g.Doing.Frames})
		}
	}
}

// caller names the program's method with the queued calls, for the end of a sentence; "": not known.
func (h *httpCalls) caller() string {
	for _, g := range slices.Concat(firstGroup(h.queue), firstGroup(h.waiting)) {
		if own := gather.OwnFrame(g.Doing.Frames); own != nil {
			return ", in " + phrase.Method(own)
		}
	}
	return ""
}

func allOf(connections int) string {
	switch connections {
	case 1:
		return "the only connection"
	case 2:
		return "both connections"
	}
	return fmt.Sprintf("all %d connections", connections)
}

func firstGroup(groups []someCalls) []someCalls {
	return groups[:min(len(groups), 1)]
}

// waited says how long n connections have been silent after sending.
func (c *called) waited(n int) string {
	longest := time.Duration(0)
	for _, s := range c.connections {
		longest = max(longest, s.Sent)
	}
	if longest == 0 {
		return phrase.Verb(n, "waits", "wait") + " for an answer"
	}
	return phrase.Verb(n, "has", "have") + " waited for up to " + phrase.Seconds(longest)
}

func queueText(n int) string {
	return fmt.Sprintf("%s %s for them", phrase.Counted(n, "call", "calls"), phrase.Verb(n, "queues", "queue"))
}

// callText describes calls.
func callText(g someCalls) string {
	does := phrase.Verb(g.n, "waits", "wait") + " for the answer"
	switch g.Phase {
	case snapshot.CallConnection:
		does = phrase.Verb(g.n, "waits", "wait") + " for a connection"
	case snapshot.CallBody:
		does = phrase.Verb(g.n, "has", "have") + " got the beginning of the answer, and the rest has not been read"
	}
	return fmt.Sprintf("%s of HttpClient to %s%s %s", phrase.Counted(g.n, "call", "calls"), g.Authority, g.Path, does)
}

// Thresholds of a queue for connections.
const (
	fewQueued = 10 // calls without a connection
	deepQueue = 5  // calls without a connection, for each connection that there may be
)

// Queue looks for calls of HttpClient that queue for connections. There are many calls, at both looks: the
// server may answer, and then each call waits for many others. Or no call has got a connection since the first look.
func Queue(of *gather.Evidence) []profile.Verdict {
	e := &evidence{of}
	if len(e.Flights) < 2 || len(Silent(of)) > 0 {
		return nil
	}
	before, after := e.Flights[0].Requests, e.LastFlight().Requests
	for i := range after.Pools {
		p := &after.Pools[i]
		k := slices.IndexFunc(before.Pools, func(b snapshot.CallPool) bool {
			return b.Authority == p.Authority && b.Secure == p.Secure
		})
		if k < 0 || !isFull(p) {
			continue
		}
		b := &before.Pools[k]
		stands := b.Queued <= p.Queued && e.queueStands(p)
		if stands || hasQueue(p) && hasQueue(b) {
			return []profile.Verdict{callQueue(e, after, p, stands)}
		}
	}
	return nil
}

// isFull reports whether calls wait for a connection, and the pool may make no more connections.
func isFull(p *snapshot.CallPool) bool {
	return p.HTTP1.Maximum > 0 && p.Active >= p.HTTP1.Maximum && p.Queued > 0
}

// hasQueue reports whether many calls wait for a connection, and the pool may make no more connections.
func hasQueue(p *snapshot.CallPool) bool {
	return isFull(p) && p.Queued >= max(fewQueued, deepQueue*p.HTTP1.Maximum)
}

// queueStands reports whether all calls without a connection have waited since the first look.
func (e *evidence) queueStands(p *snapshot.CallPool) bool {
	n, since := 0, e.Began.Add(e.Flights[0].At)
	for i := range e.LastFlight().Requests.Calls {
		g := &e.LastFlight().Requests.Calls[i]
		if g.Authority != p.Authority || g.Phase != snapshot.CallConnection {
			continue
		}
		for k := range g.Calls {
			if g.Calls[k].Since.IsZero() || g.Calls[k].Since.After(since) {
				return false
			}
		}
		n += len(g.Calls)
	}
	return n >= gather.FewRequests
}

func callQueue(e *evidence, r *snapshot.Requests, p *snapshot.CallPool, stands bool) profile.Verdict {
	h := httpCalls{}
	for i := range r.Calls {
		if g := &r.Calls[i]; g.Authority != p.Authority {
			continue
		} else if g.Phase == snapshot.CallConnection {
			h.queue = append(h.queue, someCalls{g, len(g.Calls)})
		} else {
			h.waiting = append(h.waiting, someCalls{g, len(g.Calls)})
		}
	}
	v := profile.Verdict{
		Cause: profile.CauseRemoteCall, Certainty: profile.Likely,
		Text: fmt.Sprintf("Calls queue for connections: %s of HttpClient to %s wait for a connection%s. HttpClient "+
			"may have %s to the server (MaxConnectionsPerServer), and no connection is free.",
			phrase.Counted(p.Queued, "call", "calls"),
			p.Authority, h.caller(), phrase.Counted(p.HTTP1.Maximum, "connection", "connections")),
		Commands: []string{"clrsnap requests " + e.Again()},
	}
	if stands {
		v.Text += fmt.Sprintf(" No call has got a connection in %s.", phrase.Seconds(e.LastFlight().At-e.Flights[0].At))
	}
	unread := 0
	for _, g := range h.waiting {
		if g.Phase == snapshot.CallBody {
			unread += g.n
		}
	}
	if unread >= p.HTTP1.Maximum {
		v.Text += " All connections have an answer that has begun and is not read to the end: an " +
			"HttpResponseMessage keeps the connection until the message is read or disposed of."
	}
	for _, g := range slices.Concat(firstGroup(h.queue), firstGroup(h.waiting)) {
		v.Evidence = append(v.Evidence, profile.Evidence{Text: callText(g) + ":", Frames: g.Doing.Frames})
	}
	return v
}
