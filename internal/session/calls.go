package session

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unsafe"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/web"
	"clrsnap/profile"
)

// sent is a call of HttpClient.
type sent struct {
	web.Message
	pool    arch.Addr
	phase   profile.CallPhase
	use     *web.Use // nil: it has no connection, or that is not known
	chains  []*profile.TaskChain
	request string
	sender  arch.Addr // the method that sends it; 0: it is not known by that
	place   arch.Addr // of its message, when that was last looked for
}

func (c *sent) sending() bool { return c.sender != 0 }

// pooled is a pool, and how many calls have a connection of it.
type pooled struct {
	web.PoolState
	active int
}

// findPools reads the pools of connections. Calls that no thread has left are known by their place in the queue.
func (w *requestWalk) findPools() {
	for _, obj := range w.objects[clientPoolClass] {
		if w.stopped() {
			return
		}
		var pool *web.PoolState
		if !w.patiently(func() (err error) { pool, err = w.web.Pool(obj); return err }) {
			w.gone++
			continue
		}
		if pool == nil {
			continue
		}
		if !w.keep(int(unsafe.Sizeof(*pool))+len(pool.Queue)*int(unsafe.Sizeof(web.Queued{})), pool.Authority) {
			return
		}
		w.pools[obj] = &pooled{PoolState: *pool}
		for _, q := range pool.Queue {
			w.addCall(q.Message, obj, profile.CallConnection, nil)
		}
	}
}

// findConnections reads which calls have a connection.
func (w *requestWalk) findConnections() {
	for _, obj := range w.objects[connectionClass] {
		if w.stopped() {
			return
		}
		var u *web.Use
		if !w.patiently(func() (err error) { u, err = w.web.Connection(obj); return err }) {
			w.gone++
			continue
		}
		if u == nil || u.Message == 0 {
			continue
		}
		phase := profile.CallBody
		if w.threads.blocking {
			phase = profile.CallOpen
		}
		w.addCall(u.Message, u.Pool, phase, u)
	}
}

// addCall adds a call, or what else is known of one.
func (w *requestWalk) addCall(message, pool arch.Addr, phase profile.CallPhase, u *web.Use) {
	c := w.calls[message]
	if c == nil {
		c = &sent{}
		if w.full {
			return
		}
		if !w.patiently(func() (err error) { c.Message, err = w.web.Message(message); return err }) {
			w.unproven++
			return
		}
		if !w.keep(int(unsafe.Sizeof(*c)), c.Method, c.Authority, c.Path, c.Query) {
			return
		}
		w.calls[message] = c
	}
	c.pool, c.phase = pool, phase
	if u != nil {
		c.use = u
	}
}

// findCalls reads the async methods that make calls. A method that has not ended has not got the head of the answer.
func (w *requestWalk) findCalls(nodes []node) {
	for i := range nodes {
		if i%1024 == 0 && w.stopped() {
			return
		}
		b, err := w.r.Box(nodes[i].obj)
		if err != nil {
			continue
		}
		switch w.role(b) {
		case web.Sending:
			w.sending(nodes[i].obj)
		case web.Calling, web.Tracing:
			w.begun(nodes[i].obj)
		}
	}
}

// sending reads a call by the method that sends it.
func (w *requestWalk) sending(obj arch.Addr) {
	var message, pool arch.Addr
	var u *web.Use
	alive := false
	ok := w.patiently(func() (err error) {
		at, err := w.current(obj)
		if alive = at != 0; err != nil || !alive {
			return err
		}
		obj = at
		b, err := w.r.Box(obj)
		if err != nil {
			return err
		}
		message, pool, u = w.local(b, "request"), w.local(b, "this"), nil
		if c := w.local(b, "connection"); c != 0 {
			u, err = w.web.Connected(c)
		}
		return err
	})
	if !ok {
		w.unproven++
	}
	if !ok || !alive || message == 0 {
		return
	}
	phase := profile.CallConnection
	if u != nil {
		phase = profile.CallAnswer
	}
	w.addCall(message, pool, phase, u)
	if c := w.calls[message]; c != nil {
		c.sender = obj
	}
}

// callOf returns the message of the call that a chain makes, as it was when the call was read; 0: the chain makes none.
func (w *requestWalk) callOf(of chainOf) arch.Addr {
	if c := w.calls[of.message]; of.message == 0 || c != nil && c.sender == of.sender {
		return of.message
	}
	w.followSenders()
	if message, ok := w.moved[of.message]; ok {
		return message
	}
	w.sending(of.sender)
	return of.message
}

// dropTwins leaves out calls that were read twice, because the collector had moved them in between: the chain that
// makes such a call has been found for one of the two.
func (w *requestWalk) dropTwins() {
	for _, c := range w.calls {
		if c.sending() && len(c.chains) == 0 {
			w.followSenders()
			return
		}
	}
}

// followSenders finds out where the messages of calls are now, if the collector may have moved some since it was last
// called. Calls that have ended by now, or of which it is not known, are left out, and of twins one.
func (w *requestWalk) followSenders() {
	now := w.p.stamp()
	if now != 0 && now == w.followed {
		return
	}
	w.followed = now
	w.moved = map[arch.Addr]arch.Addr{}
	for key, c := range w.calls {
		if !c.sending() {
			continue
		}
		at, message, ok := w.messageNow(c.sender)
		if !ok {
			w.unproven++
		}
		if !ok || at == 0 {
			delete(w.calls, key)
			continue
		}
		c.sender, c.place = at, message
		if twin, ok := w.moved[message]; ok && message != 0 {
			key = w.dropTwin(twin, key)
		}
		w.moved[message] = key
	}
}

// dropTwin leaves out one of two that are the same call, and returns the other one.
func (w *requestWalk) dropTwin(a, b arch.Addr) (kept arch.Addr) {
	if len(w.calls[a].chains) > 0 {
		a, b = b, a
	}
	if at, ok := w.starts[a]; ok {
		w.started(b, at)
	}
	delete(w.calls, a)
	return b
}

// messageNow returns where a method is now that makes or sends a call, and the message that it has. at is 0 if the
// method has ended. false: it changed all the time.
func (w *requestWalk) messageNow(method arch.Addr) (at, message arch.Addr, ok bool) {
	ok = w.patiently(func() (err error) {
		message = 0
		if at, err = w.current(method); err != nil || at == 0 {
			return err
		}
		b, err := w.r.Box(at)
		if err == nil {
			message = w.local(b, "request")
		}
		return err
	})
	return at, message, ok
}

// beginning is when a call began.
type beginning struct {
	method  arch.Addr // that makes the call
	message arch.Addr
	at      time.Time
}

// begun reads when a call began: HttpClient's timeout is measured from then on, and an activity begins with it.
func (w *requestWalk) begun(obj arch.Addr) {
	var b beginning
	ok := w.patiently(func() error {
		at, err := w.current(obj)
		if b = (beginning{method: at}); err != nil || at == 0 {
			return err
		}
		method, err := w.r.Box(at)
		if err != nil {
			return err
		}
		b.message = w.local(method, "request")
		if w.role(method) == web.Tracing {
			if activity := w.local(method, "activity"); activity != 0 {
				b.at, err = w.web.Activity(activity)
			}
			return err
		}
		b.at, err = w.timed(method)
		return err
	})
	if ok && b.message != 0 && !b.at.IsZero() && w.keep(int(unsafe.Sizeof(b))) {
		w.begins = append(w.begins, b)
	}
}

// findStarts finds out which calls began when. If the collector may have moved messages since calls were read, a call
// is known by the message that the methods that make and send it have now. Calls of which that is not certain have no
// age.
func (w *requestWalk) findStarts() {
	if w.still {
		for _, b := range w.begins {
			w.started(b.message, b.at)
		}
		return
	}
	left := w.begins
	for round := 0; round < maxMoves && len(left) > 0 && !w.stopped(); round++ {
		left = w.matchStarts(left)
	}
}

// holding is a message that a method has, between two collections.
type holding struct {
	message arch.Addr
	stamp   heap.Stamp
}

// matchStarts finds the calls of beginnings, and returns those whose calls it has not found. The methods that make and
// send a call must have the same message between the same two collections. They are read in the order of where their
// messages were last, so that those of a call are read one soon after the other.
func (w *requestWalk) matchStarts(begins []beginning) (left []beginning) {
	type method struct {
		near  arch.Addr
		call  arch.Addr // that it sends; 0: it begins one
		begin int
	}
	var all []method
	for key, c := range w.calls {
		if c.sending() {
			all = append(all, method{near: cmp.Or(c.place, key), call: key})
		}
	}
	for i := range begins {
		all = append(all, method{near: begins[i].message, begin: i})
	}
	slices.SortFunc(all, func(a, b method) int { return cmp.Compare(a.near, b.near) })
	calls, made := map[holding]arch.Addr{}, make([]holding, len(begins))
	for _, m := range all {
		if m.call == 0 {
			b := &begins[m.begin]
			made[m.begin], _ = w.holds(&b.method, &b.message)
		} else if c := w.calls[m.call]; c != nil {
			h, ok := w.holds(&c.sender, &c.place)
			if !c.sending() { // any more
				delete(w.calls, m.call)
			}
			if twin, known := calls[h]; ok && known {
				m.call = w.dropTwin(twin, m.call)
			}
			if ok {
				calls[h] = m.call
			}
		}
	}
	for i, h := range made {
		if key, ok := calls[h]; ok {
			w.started(key, begins[i].at)
		} else if begins[i].method != 0 {
			left = append(left, begins[i])
		}
	}
	return left
}

// holds reads the message of a method that makes or sends a call, and notes where both are: at 0 if the method has
// ended. false: it has no message, or the collector may have moved something meanwhile.
func (w *requestWalk) holds(method, place *arch.Addr) (holding, bool) {
	before := w.p.stamp()
	at, message, ok := w.messageNow(*method)
	if !ok {
		return holding{}, false
	}
	*method, *place = at, message
	if at == 0 || message == 0 || !w.p.stillSince(before) {
		return holding{}, false
	}
	return holding{message, before}, true
}

// started notes when a call began: at the earliest time that any of its methods knows.
func (w *requestWalk) started(message arch.Addr, at time.Time) {
	if known, ok := w.starts[message]; !ok || at.Before(known) {
		w.starts[message] = at
	}
}

// timed returns when the timeout of a method of HttpClient began. Zero: it has none. One that CancelPendingRequests
// shares with others is none of its own.
func (w *requestWalk) timed(b *async.Box) (time.Time, error) {
	source := w.local(b, "cts")
	if source == 0 || source == w.local(b, "pendingRequestsCts") || w.now == 0 {
		return time.Time{}, nil
	}
	timer, err := w.web.Timer(source)
	if err != nil || timer == 0 {
		return time.Time{}, err
	}
	class, err := w.p.Runtime.Objects.Class(timer)
	if err != nil {
		return time.Time{}, err
	}
	ticks, err := w.p.Runtime.Objects.Pointer(timer, class, "_startTicks")
	if err != nil || ticks == 0 {
		return time.Time{}, err
	}
	return time.Now().Add(-time.Duration(tickCount()-int64(ticks)) * time.Millisecond), nil
}

// server is the server that a call goes to: its pool's, or that of its URI.
func (w *requestWalk) server(c *sent) string {
	if p := w.pools[c.pool]; p != nil && !p.Proxied {
		return cmp.Or(p.Authority, c.Authority)
	}
	return c.Authority
}

// callGroups groups calls by where they go, and what they do.
func (w *requestWalk) callGroups() []profile.CallGroup {
	by := map[string]*profile.CallGroup{}
	var list []*profile.CallGroup
	for message, c := range w.calls {
		g := profile.CallGroup{
			Method: c.Method, Authority: w.server(c), Path: c.Path, Phase: c.phase, Doing: w.doing(c.chains),
		}
		g.Doing.Call = &profile.CallTo{Authority: g.Authority, Phase: g.Phase}
		if p := w.pools[c.pool]; p != nil && c.use != nil {
			p.active++
		}
		key := strings.Join([]string{g.Method, g.Authority, string(g.Phase), doingKey(&g.Doing)}, "\x00")
		same := by[key]
		if same == nil {
			same = &g
			by[key], list = same, append(list, same)
		} else {
			joinDoing(&same.Doing, &g.Doing)
			same.Path = commonPath(same.Path, g.Path)
		}
		same.Doing.Call = nil
		same.Calls = append(same.Calls, w.clientCall(message, c))
	}
	return sortedCalls(list)
}

// andSo stands for the rest of several paths.
const andSo = "…"

// commonPath is what two paths have in common: whole segments of them.
func commonPath(a, b string) string {
	if a == b {
		return a
	}
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return a[:strings.LastIndexByte(a[:n], '/')+1] + andSo
}

func sortedCalls(list []*profile.CallGroup) []profile.CallGroup {
	out := make([]profile.CallGroup, len(list))
	for i, g := range list {
		slices.SortFunc(g.Calls, func(a, b profile.ClientCall) int {
			return cmp.Or(compareSince(a.Since, b.Since), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Query, b.Query),
				cmp.Compare(a.Request, b.Request))
		})
		out[i] = *g
	}
	slices.SortFunc(out, func(a, b profile.CallGroup) int {
		return cmp.Or(cmp.Compare(len(b.Calls), len(a.Calls)), cmp.Compare(a.Authority, b.Authority),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Method, b.Method))
	})
	return out
}

// clientCall describes a call.
func (w *requestWalk) clientCall(message arch.Addr, c *sent) profile.ClientCall {
	out := profile.ClientCall{Path: c.Path, Query: c.Query, Since: w.believed(w.starts[message]), Request: c.request}
	if c.use != nil {
		out.Remote, out.Protocol = w.remote(c.use), "HTTP/1.1"
		if c.use.HTTP2 {
			out.Protocol = "HTTP/2"
		}
	}
	return out
}

// remote is the other end of a connection: as the kernel has it, or as the program had it when it connected.
func (w *requestWalk) remote(u *web.Use) string {
	if u.Handle != 0 && w.p.Live != nil {
		class, err := w.p.Runtime.Objects.Class(u.Handle)
		if err == nil {
			if fd, err := w.p.Runtime.Objects.Uint32(u.Handle, class, "handle"); err == nil {
				if to := w.p.remoteOf(int32(fd)); to != "" {
					return to
				}
			}
		}
	}
	return addressText(u.Remote)
}

// remoteOf is the remote address of the socket that a descriptor leads to; "": it is none.
func (p *Process) remoteOf(fd int32) string {
	if fd < 0 {
		return ""
	}
	_, to, ok := strings.Cut(p.descriptor(fd), arrow+" ")
	if !ok {
		return ""
	}
	to, _, _ = strings.Cut(to, " ")
	return to
}

// poolList describes the pools: those that the most calls wait for come first.
func (w *requestWalk) poolList() []profile.CallPool {
	var out []profile.CallPool
	for _, p := range w.pools {
		if p.HTTP1.All+p.HTTP2.All+p.active+len(p.Queue) == 0 { // one that is made in vain, as several threads did
			continue
		}
		out = append(out, profile.CallPool{
			Authority: p.Authority, Secure: p.Secure, Proxied: p.Proxied, HTTP1: profile.PoolConnections(p.HTTP1),
			HTTP2: profile.PoolConnections(p.HTTP2), Queued: len(p.Queue), Active: p.active,
		})
	}
	slices.SortFunc(out, func(a, b profile.CallPool) int {
		return cmp.Or(cmp.Compare(b.Queued, a.Queued), cmp.Compare(b.Active, a.Active),
			cmp.Compare(a.Authority, b.Authority))
	})
	return out
}
