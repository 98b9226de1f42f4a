package requests

import (
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/web"
	"clrsnap/internal/moment"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// A call is read as a whole at one moment. Addresses of different moments must not decide whether
// two readings are of the same call: the collector moves objects to the places of others. At one
// moment the object identifies a call. Over time the place where the call is sent identifies a
// call, or else the request and the start time.

// line is the place where a call is sent. The collector does not change the line.
type line struct {
	socket int32  // of the connection
	stream uint32 // of HTTP/2; 0: a connection of HTTP/1 has one call at a time
}

// lineOf returns the line of a call; false: none, or unknown.
func lineOf(c *sent) (p line, ok bool) {
	if c.use == nil || c.use.Socket < 0 || c.use.HTTP2 && c.use.Stream == 0 {
		return p, false
	}
	return line{c.use.Socket, c.use.Stream}, true
}

// kind is equal for calls with the same request and the same start time.
type kind struct {
	web.Message
	since int64 // Unix time in ns; 0: unknown
}

func kindOf(c *sent) kind {
	k := kind{Message: c.Message}
	if !c.since.IsZero() {
		k.since = c.since.UnixNano()
	}
	return k
}

// list lists each call of this walk once.
func (w *walk) list() {
	if w.still {
		w.addFound()
	}
	calls, most := w.distinct()
	at, count, like := map[line]int{}, map[kind]int{}, map[kind]*sent{}
	var loose []*sent
	for _, c := range calls {
		p, ok := lineOf(c)
		i, twice := at[p]
		switch {
		case !ok:
			loose = append(loose, c)
			continue
		case !twice:
			at[p] = len(w.listed)
			w.listed = append(w.listed, c)
		case w.listed[i].Message == c.Message:
			w.join(w.listed[i], c)
			continue
		default: // the earlier call on the line has ended
			count[kindOf(w.listed[i])]--
			w.listed[i] = c
		}
		count[kindOf(c)]++
		like[kindOf(c)] = c
	}
	for _, c := range loose {
		k := kindOf(c)
		if count[k] < max(most[k], 1) {
			count[k]++
			like[k] = c
			w.listed = append(w.listed, c)
			continue
		}
		if k.since == 0 {
			w.Unproven++ // a call that was read twice, or another call
		}
		w.join(like[k], c)
	}
	for _, c := range w.listed {
		c.server, c.seen = w.server(c), time.Now()
	}
	if !w.still {
		w.doubtFound(at)
	}
}

// doubtFound counts the calls known only by their objects. The remains of a moved object look like
// a live object.
func (w *walk) doubtFound(at map[line]int) {
	known := map[web.Message]bool{}
	for _, c := range w.listed {
		known[c.Message] = true
	}
	for _, f := range w.found {
		p, _ := lineOf(f)
		if _, placed := at[p]; !placed && !known[f.Message] {
			w.Unproven++
		}
	}
}

// addFound joins the findings from chains with the findings from pools and connections: nothing has
// been moved meanwhile.
func (w *walk) addFound() {
	known := map[arch.Addr]bool{}
	for _, c := range w.made {
		known[c.object], c.epoch = true, unmoved
		f := w.found[c.object]
		switch {
		case f == nil || f.use == nil:
		case c.use == nil:
			c.use, c.phase = f.use, w.answered(f, f.use)
			if c.sending {
				c.phase = snapshot.CallAnswer
			}
		case c.use.Socket == f.use.Socket && c.use.Stream == 0: // the sender of a call may know only the connection
			c.use = f.use
		}
	}
	for object, f := range w.found {
		if !known[object] {
			f.epoch = unmoved
			w.made = append(w.made, f)
		}
	}
}

// unmoved is the GC epoch of all calls of a walk without moved objects.
const unmoved moment.Epoch = 1

// distinct joins calls that were read several times at one moment. most is the number of calls of a
// kind at one moment.
func (w *walk) distinct() (calls []*sent, most map[kind]int) {
	type sight struct {
		epoch  moment.Epoch
		object arch.Addr
	}
	type together struct {
		kind
		epoch moment.Epoch
	}
	seen, count := map[sight]*sent{}, map[together]int{}
	most = map[kind]int{}
	for _, c := range w.made {
		if c.epoch != 0 {
			s := sight{c.epoch, c.object}
			if first := seen[s]; first != nil {
				w.join(first, c)
				continue
			}
			k := together{kindOf(c), c.epoch}
			seen[s] = c
			count[k]++
			most[k.kind] = max(most[k.kind], count[k])
		}
		calls = append(calls, c)
	}
	return calls, most
}

// join adds the findings of another reading of the same call.
func (w *walk) join(c, other *sent) {
	for _, chain := range other.chains {
		w.makes[chain] = c
	}
	if len(c.chains) == 0 || c.epoch != 0 && c.epoch == other.epoch { // else the chain may be the same
		c.chains = append(c.chains, other.chains...)
	}
	if other.sending && !c.sending {
		c.phase, c.sending = other.phase, true
	}
	if _, ok := lineOf(c); !ok && other.use != nil {
		c.use = other.use
	}
	if c.since.IsZero() {
		c.since = other.since
	}
	if c.request == "" {
		c.request = other.request
	}
}

const (
	// mostMissed is how many walks in a row may miss a call with a known start time.
	mostMissed = 3
	// coarse is how much too early a call may seem to begin: the runtime's clock goes in steps.
	coarse = 20 * time.Millisecond
)

// inheritCalls takes over the calls that earlier walks have listed and this walk has missed. A call
// has certainly ended, and is left out, if this walk has missed nothing, or if another call has
// taken the line.
func (w *walk) inheritCalls(from *walk) {
	if w.own = len(w.listed); from == nil {
		return
	}
	at, placed, loose := map[line]*sent{}, map[kind]int{}, map[kind]int{}
	for _, c := range w.listed {
		if p, ok := lineOf(c); ok {
			at[p] = c
			placed[kindOf(c)]++
		} else {
			loose[kindOf(c)]++
		}
	}
	var missed []*sent
	for _, c := range from.listed {
		p, ok := lineOf(c)
		switch same := at[p]; {
		case !ok || same == nil:
			missed = append(missed, c)
		case same.Message == c.Message:
			placed[kindOf(same)]--
		}
	}
	for _, c := range missed {
		k := kindOf(c)
		_, ok := lineOf(c)
		switch {
		case ok && k.since == 0: // the lines tell equal calls apart
		case loose[k] > 0:
			loose[k]--
			continue
		case placed[k] > 0: // the call has got a line since
			placed[k]--
			continue
		}
		w.inheritCall(c, 10*w.met() >= 9*from.met())
	}
	for _, left := range []map[kind]int{placed, loose} {
		for k, n := range left {
			switch {
			case k.since == 0:
				w.ageless += n
			case k.since < from.Begin.Add(-coarse).UnixNano():
				w.fresh += n
			}
		}
	}
}

// inheritCall takes over a call that this walk has missed. counts: this walk would most likely have
// met a call that goes on.
func (w *walk) inheritCall(c *sent, counts bool) {
	again := *c
	if counts {
		again.missed++
	}
	if w.whole && w.missing() == 0 || counts && again.ended() || !w.keep(callCost(c)) {
		return
	}
	w.listed = append(w.listed, &again)
}

// ended reports whether a call has most likely ended since the last reading: too many walks have
// missed the call, or the call has been missed for longer than the call had lasted before.
func (c *sent) ended() bool {
	if c.since.IsZero() {
		return c.missed > 1
	}
	return c.missed > mostMissed || time.Since(c.seen) > c.seen.Sub(c.since)
}

// callCost is the size in bytes of a call and the call's chains.
func callCost(c *sent) int {
	cost := len(c.Method) + len(c.Authority) + len(c.Path) + len(c.Query)
	for _, chain := range c.chains {
		cost += tasks.FramesCost(chain.Frames)
	}
	return cost
}

// poolOf returns the pool of a call; nil: unknown. The pool of a call of an earlier walk may have
// been moved since: then the result is the only pool to the call's server.
func (w *walk) poolOf(c *sent) (found *pooled) {
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
