package session

import (
	"slices"
	"time"

	"clrsnap/internal/clr/web"
)

// list fixes what this walk knows of its calls: objects of another walk may be elsewhere. A call that was read twice is
// listed once.
func (w *requestWalk) list() {
	w.listed = make([]*sent, 0, len(w.calls))
	at, equal := map[line]int{}, map[web.Message][]int{}
	var unplaced []*sent
	add := func(c *sent) {
		equal[c.Message] = append(equal[c.Message], len(w.listed))
		w.listed = append(w.listed, c)
	}
	for message, c := range w.calls {
		c.since, c.server = w.starts[message], w.server(c)
		p, ok := lineOf(c)
		i, twice := at[p]
		switch {
		case !ok:
			unplaced = append(unplaced, c)
		case !twice:
			at[p] = len(w.listed)
			add(c)
		case len(w.listed[i].chains) == 0:
			w.listed[i] = c
		}
	}
	for _, c := range unplaced {
		if !slices.ContainsFunc(equal[c.Message], func(i int) bool { return w.same(w.listed[i], c) }) {
			add(c)
		}
	}
	for _, c := range w.strays {
		c.server = w.server(c)
	}
}

// same reports whether two equal calls, of which the second has no place, are one that was read twice: they began at the
// same time. If that is not known, the collector has most likely moved the call.
func (w *requestWalk) same(a, b *sent) bool {
	if a.since.IsZero() || b.since.IsZero() {
		return !w.still
	}
	return a.since.Equal(b.since)
}

// line is where a call is sent: the same in several walks, wherever the collector moves its objects.
type line struct {
	socket int32  // of the connection
	stream uint32 // of HTTP/2; 0: a connection of HTTP/1 has one call at a time
}

// lineOf returns the place of a call; false: it has none, or that is not known.
func lineOf(c *sent) (p line, ok bool) {
	if c.use == nil || c.use.Socket < 0 || c.use.HTTP2 && c.use.Stream == 0 {
		return p, false
	}
	return line{c.use.Socket, c.use.Stream}, true
}

// mostMissed is how many walks in a row may miss a call. One that more of them miss has ended.
const mostMissed = 3

// inheritCalls takes over the calls that earlier walks have proved and this one has missed, unless they have certainly
// ended: this walk has missed nothing, or another call is in their place.
func (w *requestWalk) inheritCalls(from *requestWalk) {
	w.takeOver(different(w.strays))
	if from != nil && (!w.whole || w.missing() > 0) {
		var before []*sent
		for _, c := range from.listed {
			if c.missed < mostMissed {
				again := *c
				again.missed++
				before = append(before, &again)
			}
		}
		w.takeOver(before)
	}
	w.dropTwice()
}

// dropTwice leaves out all but one of equal calls that began at the same time: of the others, a wrong place was read
// from what the collector has left behind.
func (w *requestWalk) dropTwice() {
	type start struct {
		web.Message
		at time.Time
	}
	seen := map[start]bool{}
	w.listed = slices.DeleteFunc(w.listed, func(c *sent) bool {
		s := start{c.Message, c.since}
		twice := !c.since.IsZero() && seen[s]
		seen[s] = true
		return twice
	})
}

// different leaves out all but one of equal calls without a place: each was read twice, more likely than not.
func different(calls []*sent) (out []*sent) {
	seen := map[web.Message]bool{}
	for _, c := range calls {
		if _, ok := lineOf(c); !ok {
			if seen[c.Message] {
				continue
			}
			seen[c.Message] = true
		}
		out = append(out, c)
	}
	return out
}

// takeOver adds those of some calls that are not listed yet. A call without a place that is known is told from equal
// ones by their number.
func (w *requestWalk) takeOver(calls []*sent) {
	taken, placed, unplaced := map[line]bool{}, map[web.Message]int{}, map[web.Message]int{}
	here, there := map[web.Message]int{}, map[web.Message]int{}
	for _, c := range calls {
		there[c.Message]++
	}
	for _, c := range w.listed {
		here[c.Message]++
		if p, ok := lineOf(c); ok {
			taken[p] = true
			placed[c.Message]++
		} else {
			unplaced[c.Message]++
		}
	}
	var left []*sent
	for _, c := range calls {
		if p, ok := lineOf(c); !ok || !taken[p] {
			left = append(left, c)
		} else {
			placed[c.Message]--
		}
	}
	for _, c := range left {
		p, ok := lineOf(c)
		switch {
		case ok && taken[p]: // it was among the calls twice
		case here[c.Message] == 1 && there[c.Message] == 1: // of a connection that was moved another place was read
		case unplaced[c.Message] > 0:
			unplaced[c.Message]--
		case !ok && placed[c.Message] > 0: // it has got its place since
			placed[c.Message]--
		case !w.keep(callCost(c)):
			return
		default:
			w.listed = append(w.listed, c)
			taken[p] = taken[p] || ok
		}
	}
}

// callCost is how many bytes are kept of a call and its chains.
func callCost(c *sent) int {
	cost := len(c.Method) + len(c.Authority) + len(c.Path) + len(c.Query)
	for _, chain := range c.chains {
		cost += framesCost(chain.Frames)
	}
	return cost
}

// poolOf is the pool of a call; nil: it is not known. That of a call of an earlier walk may have been moved since: it is
// the only one to the call's server.
func (w *requestWalk) poolOf(c *sent) (found *pooled) {
	if p := w.pools[c.pool]; p != nil && w.server(c) == c.server {
		return p
	}
	for _, p := range w.pools {
		if p.Authority != c.server {
			continue
		}
		if found != nil {
			return nil
		}
		found = p
	}
	return found
}
