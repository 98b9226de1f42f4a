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
	manyCallers     = 3               // threads that wait for one address
	manyConnections = 3               // that wait for one address, without a thread
	noAnswer        = 3 * time.Second // since a request was sent
)

// called is a remote address that is waited for.
type called struct {
	remote      string
	threads     []*watched
	connections []*socket // that have sent something, and got no answer
	all         int       // connections to there
	refused     int       // connections that are not made yet
	own         bool      // the process itself listens there
}

// judgeRemote looks for a remote address that does not answer.
func judgeRemote(e *evidence) []profile.Verdict {
	by := map[string]*called{}
	get := func(remote string) *called {
		if by[remote] == nil {
			by[remote] = &called{remote: remote}
		}
		return by[remote]
	}
	if len(e.looks) >= 2 {
		threads := e.threads()
		for i := range threads {
			if to := remoteOf(&threads[i]); to != "" {
				c := get(to)
				c.threads = append(c.threads, &threads[i])
			}
		}
	}
	for i := range e.sockets {
		s := &e.sockets[i]
		if !s.ours {
			continue
		}
		c := get(s.remote)
		c.all, c.own = c.all+1, c.own || s.own
		switch {
		case s.state == "syn-sent":
			c.refused++
			c.connections = append(c.connections, s)
		case s.state == "established" && s.sent >= noAnswer && s.received > s.sent:
			c.connections = append(c.connections, s)
		}
	}
	var list []*called
	for _, c := range by {
		if c.harmful(e) {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *called) int {
		return cmp.Or(cmp.Compare(len(b.threads)+len(b.connections), len(a.threads)+len(a.connections)),
			cmp.Compare(a.remote, b.remote))
	})
	if len(list) == 0 {
		return nil
	}
	return []profile.Verdict{list[0].verdict(e)}
}

// remoteOf is the address that a thread has waited for in all looks, without having run; "": it has not.
func remoteOf(w *watched) string {
	if !w.unmoved || !w.waits() {
		return ""
	}
	to := ""
	for _, t := range w.looks {
		if t.Wait == nil || t.Wait.Kind != profile.WaitIO {
			return ""
		}
		verb, rest, _ := strings.Cut(t.Wait.Target, " ")
		_, remote, ok := strings.Cut(rest, " → ")
		if !ok || verb == "accept" {
			return ""
		}
		remote, _, _ = strings.Cut(remote, " ")
		if to != "" && remote != to {
			return ""
		}
		to = remote
	}
	if ownFrame(w.last().Frames) == nil {
		return ""
	}
	return to
}

func (c *called) harmful(e *evidence) bool {
	switch {
	case len(c.threads) >= manyCallers:
		return e.span() >= enough
	case c.own:
		return len(c.threads) > 0 && len(c.connections) >= manyConnections
	}
	// Some programs keep a request open at all times, to be told of news. So all connections have to wait.
	return len(c.connections) >= manyConnections && len(c.connections)*4 >= c.all*3
}

func (c *called) verdict(e *evidence) profile.Verdict {
	v := profile.Verdict{Cause: profile.CauseRemoteCall, Certainty: profile.Likely}
	var words []string
	if n := len(c.threads); n > 0 {
		own := method(ownFrame(c.threads[0].last().Frames))
		words = append(words, fmt.Sprintf("%s for it in %s, and none has run for at least %s", waitNow(n), own, seconds(e.span())))
	}
	if n := len(c.connections); n > 0 {
		words = append(words, fmt.Sprintf("%d of %s to it %s", n, counted(c.all, "connection", "connections"), c.silence()))
	}
	v.Text = fmt.Sprintf("%s does not answer: %s.", c.remote, strings.Join(words, "; "))
	if len(c.threads) >= manyCallers && len(c.connections) >= min(len(c.threads), manyConnections) {
		v.Certainty = profile.Certain
	}
	v.Text += c.queue(e, &v)
	if len(c.threads) > 0 {
		t := c.threads[0].last()
		ev := profile.Evidence{
			Text:   fmt.Sprintf("%s%s, in all looks, such as %s:", threadsOf(len(c.threads)), waitPhrase(t), threadName(ref(t))),
			Frames: t.Frames,
		}
		for _, w := range c.threads {
			ev.Threads = append(ev.Threads, ref(w.last()))
		}
		v.Evidence = append(v.Evidence, ev)
	}
	for i, s := range c.connections {
		if i == maxShown {
			break
		}
		v.Evidence = append(v.Evidence, profile.Evidence{Text: s.text()})
	}
	v.Commands = []string{fmt.Sprintf("clrsnap tasks %s", e.again()), "ss -tnpi dst " + c.remote}
	return v
}

func (c *called) silence() string {
	if c.refused == len(c.connections) {
		return "are still being made: it does not accept them"
	}
	longest := time.Duration(0)
	for _, s := range c.connections {
		longest = max(longest, s.sent)
	}
	return fmt.Sprintf("have sent a request and got no answer, for up to %s", seconds(longest))
}

func (s *socket) text() string {
	if s.state == "syn-sent" {
		return fmt.Sprintf("%s → %s: the connection is not made yet.", s.local, s.remote)
	}
	return fmt.Sprintf("%s → %s: last sent %s ago, last received %s ago.", s.local, s.remote, seconds(s.sent), seconds(s.received))
}

// queue says how many threads wait for a connection, or for a task, besides.
func (c *called) queue(e *evidence, v *profile.Verdict) string {
	if len(e.looks) == 0 {
		return ""
	}
	in := tally{}
	var example *profile.Thread
	var refs []profile.ThreadRef
	n := 0
	for i := range e.last().snap.Threads {
		t := &e.last().snap.Threads[i]
		if !callsHTTP(t) || t.Wait != nil && t.Wait.Kind == profile.WaitIO {
			continue
		}
		n++
		refs = append(refs, ref(t))
		if m := blockedIn(t); m != "" {
			in[m]++
		}
		if example == nil {
			example = t
		}
	}
	if n == 0 {
		return ""
	}
	v.Evidence = append(v.Evidence, profile.Evidence{
		Text:   fmt.Sprintf("%s for an HttpClient without having a connection, such as %s:", waitNow(n), threadName(ref(example))),
		Frames: example.Frames, Threads: refs,
	})
	name, _ := in.top()
	return fmt.Sprintf(" %s for a connection of HttpClient meanwhile, in %s.", more(n), name)
}

// callsHTTP reports whether a thread is blocked in a call of HttpClient.
func callsHTTP(t *profile.Thread) bool {
	return blocked(t) && slices.ContainsFunc(t.Frames, func(f profile.Frame) bool {
		return f.Module == "System.Net.Http"
	})
}
