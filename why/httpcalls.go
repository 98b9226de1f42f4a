package why

import (
	"fmt"
	"slices"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
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
	*profile.CallGroup
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
		case profile.CallAnswer:
		case profile.CallOpen: // for some calls, the head of the answer has come, and the body is being read
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
		if g := &e.Web.Calls[i]; g.Phase == profile.CallConnection && servers[g.Authority] {
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
func callsTo(g *profile.CallGroup, remote string) (n int) {
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
		of := "to it"
		if c.all > h.maximum { // there are other clients
			of = "that an HttpClient may have to it"
		}
		v.Text = fmt.Sprintf("%s does not answer: %s %s %s, and %s%s.", c.remote, allOf(h.maximum), of,
			c.waited(h.maximum), queueText(queued), h.caller())
	} else {
		v.Text += fmt.Sprintf(" %s of HttpClient %s for the answer", phrase.Counted(n, "call", "calls"),
			verb(n, "waits", "wait"))
		if queued > 0 {
			v.Text += ", and " + queueText(queued)
		}
		v.Text += "."
	}
	if h.held > 0 {
		v.Text += fmt.Sprintf(" %s of its own clients %s for that.", phrase.Counted(h.held, "request", "requests"),
			verb(h.held, "waits", "wait"))
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
		return verb(n, "waits", "wait") + " for an answer"
	}
	return verb(n, "has", "have") + " waited for up to " + phrase.Seconds(longest)
}

func queueText(n int) string {
	return fmt.Sprintf("%s %s for them", phrase.Counted(n, "call", "calls"), verb(n, "queues", "queue"))
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// callText describes calls.
func callText(g someCalls) string {
	what := "the answer"
	if g.Phase == profile.CallConnection {
		what = "a connection"
	}
	return fmt.Sprintf("%s of HttpClient to %s%s %s for %s", phrase.Counted(g.n, "call", "calls"), g.Authority, g.Path,
		verb(g.n, "waits", "wait"), what)
}
