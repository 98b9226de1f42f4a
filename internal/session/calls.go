package session

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unsafe"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
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

// carrier is a connection, or one of its streams, wherever the collector moves it.
type carrier struct {
	socket int32
	stream uint32
}

func carrierOf(u *web.Use) carrier { return carrier{u.Socket, u.Stream} }

// answerPhase is how far a call has come that has a connection, and that no method is known to send.
func (w *requestWalk) answerPhase() profile.CallPhase {
	if w.threads.blocking {
		return profile.CallOpen
	}
	return profile.CallBody
}

// carried reads from what a method reads the answer to a call; nil: there is none.
func (w *requestWalk) carried(s *async.Step) (*web.Use, error) {
	obj, err := w.p.webLocal(s, web.CarrierVar)
	if err != nil || obj == 0 {
		return nil, err
	}
	u, err := w.web.Carrier(obj)
	if err != nil || u == nil || u.Message == 0 {
		return nil, err
	}
	return u, nil
}

// readCall returns the message of the call whose answer a chain reads, as it was when the call was read.
func (w *requestWalk) readCall(u *web.Use) arch.Addr {
	if w.calls[u.Message] != nil {
		return u.Message
	}
	if message := w.carries[carrierOf(u)]; w.calls[message] != nil && u.Socket >= 0 {
		return message
	}
	w.addCall(u.Message, u.Pool, w.answerPhase(), u)
	if w.calls[u.Message] != nil && w.dropped > 0 {
		w.dropped--
		w.unproven--
	}
	return u.Message
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
		w.addCall(u.Message, u.Pool, w.answerPhase(), u)
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
	switch answered := phase == profile.CallBody || phase == profile.CallOpen; {
	case answered && c.WebSocket && u != nil && (u.Detached || u.HTTP2 && phase == profile.CallBody):
		phase = profile.CallWebSocket
	case answered && u != nil && u.Detached:
		phase = profile.CallUpgraded
	}
	c.pool, c.phase = pool, phase
	if u != nil {
		c.use = u
		w.carries[carrierOf(u)] = message
	}
}

// findCalls reads the async methods that send calls. A method that has not ended has not got the head of the answer.
func (w *requestWalk) findCalls(nodes []node) {
	for i := range nodes {
		if i%1024 == 0 && w.stopped() {
			return
		}
		steps, _, err := w.r.Methods(nodes[i].obj)
		if err != nil {
			continue
		}
		if slices.ContainsFunc(steps, func(s async.Step) bool { return w.role(&s) == web.Sending }) {
			w.sending(nodes[i].obj)
		}
	}
}

// sending reads a call by the method that sends it, or by the RuntimeAsyncTask that the method is suspended in.
func (w *requestWalk) sending(obj arch.Addr) {
	var s sender
	ok := w.patiently(func() (err error) { s, err = w.senderAt(obj); return err })
	if !ok {
		w.unproven++
	}
	if !ok || s.message == 0 {
		return
	}
	phase := profile.CallConnection
	if c := w.calls[s.message]; s.use != nil || c != nil && c.use != nil {
		phase = profile.CallAnswer
	}
	w.addCall(s.message, s.pool, phase, s.use)
	if c := w.calls[s.message]; c != nil {
		c.sender = s.obj
	}
}

// sender is a method that sends a call.
type sender struct {
	obj           arch.Addr // where it is now; 0: it has ended
	message, pool arch.Addr
	use           *web.Use // nil: it has no connection
}

// senderAt reads the method that sends a call.
func (w *requestWalk) senderAt(obj arch.Addr) (out sender, err error) {
	if out.obj, err = w.current(obj); err != nil || out.obj == 0 {
		return out, err
	}
	steps, alive, err := w.r.Methods(out.obj)
	if err != nil || !alive {
		return sender{}, err
	}
	connection := arch.Addr(0)
	for i := range steps {
		switch s := &steps[i]; w.role(s) {
		case web.Exchanging:
			if connection, err = w.p.webLocal(s, web.ChannelVar); err != nil {
				return out, err
			}
		case web.Sending:
			if out.message, err = w.p.webLocal(s, web.MessageVar); err != nil {
				return out, err
			}
			if out.pool, err = w.p.webLocal(s, web.PoolVar); err != nil {
				return out, err
			}
			if connection == 0 {
				if connection, err = w.p.webLocal(s, web.RemoteVar); err != nil || connection == 0 {
					return out, err
				}
			}
			out.use, err = w.web.Connected(connection)
			return out, err
		}
	}
	return out, nil
}

// callOf returns the message of the call that a chain makes, as it was when the call was read; 0: the chain makes none.
func (w *requestWalk) callOf(of *chainOf) arch.Addr {
	if of.use != nil {
		return w.readCall(of.use)
	}
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
		c.sender = at
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

// messageNow returns where a method is now that sends a call, and the message that it has. at is 0 if the method has
// ended. false: it changed all the time.
func (w *requestWalk) messageNow(method arch.Addr) (at, message arch.Addr, ok bool) {
	var s sender
	ok = w.patiently(func() (err error) { s, err = w.senderAt(method); return err })
	return s.obj, s.message, ok
}

// started notes when a call began: at the earliest time that any of its methods knows.
func (w *requestWalk) started(message arch.Addr, at time.Time) {
	if known, ok := w.starts[message]; !at.IsZero() && (!ok || at.Before(known)) {
		w.starts[message] = at
	}
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
		if p := w.pools[c.pool]; p != nil && c.use != nil && !c.use.Detached {
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
	if w.p.Live != nil {
		if to := w.p.remoteOf(u.Socket); to != "" {
			return to
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
