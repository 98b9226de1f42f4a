package requests

import (
	"cmp"
	"slices"
	"strings"
	"unsafe"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/web"
	"clrsnap/internal/session"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// findPools reads the pools of connections. A call that is still on a thread's stack is known by
// the place in the queue.
func (w *walk) findPools() {
	for _, obj := range w.Objects[clientPoolClass] {
		if w.Stopped() {
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
			w.addCall(q.Message, obj, nil)
		}
	}
}

// answerPhase is the phase of a call with a connection, if no method is known to send the call.
func (w *walk) answerPhase() snapshot.CallPhase {
	if w.threads.blocking {
		return snapshot.CallOpen
	}
	return snapshot.CallBody
}

// findConnections finds the calls with a connection.
func (w *walk) findConnections() {
	for _, obj := range w.Objects[connectionClass] {
		if w.Stopped() {
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
		w.addCall(u.Message, u.Pool, u)
	}
}

// addCall adds a call by the call's object, or adds a connection to a known call.
func (w *walk) addCall(object, pool arch.Addr, u *web.Use) {
	c := w.found[object]
	if c == nil {
		c = &sent{object: object}
		if w.Full {
			return
		}
		if !w.patiently(func() (err error) { c.Message, err = w.web.Message(object); return err }) {
			w.Unproven++
			return
		}
		if !w.keep(int(unsafe.Sizeof(*c)), c.Method, c.Authority, c.Path, c.Query) {
			return
		}
		w.found[object] = c
	}
	if c.pool, c.phase = pool, snapshot.CallConnection; u != nil {
		c.use, c.phase = u, w.answered(c, u)
	}
}

// answered is the phase of a call whose answer is read from a connection.
func (w *walk) answered(c *sent, u *web.Use) snapshot.CallPhase {
	switch phase := w.answerPhase(); {
	case c.WebSocket && (u.Detached || u.HTTP2 && phase == snapshot.CallBody):
		return snapshot.CallWebSocket
	case u.Detached:
		return snapshot.CallUpgraded
	default:
		return phase
	}
}

// calling reads the call that a chain makes. The whole call is read at the same moment as the
// chain: once the collector has moved something, the parts of the chain lead to another call. nil:
// the chain makes no call.
func (w *walk) calling() (c *sent, err error) {
	if w.p.Runtime == nil {
		return nil, nil
	}
	var channel, carrier arch.Addr
	reads := 0
	for i := range w.Methods {
		switch s := w.Methods[i].Step; w.role(s) {
		case web.Reading: // the answer, below the method that sends the call
			if carrier == 0 {
				reads = i
				carrier, err = webLocal(w.p, s, web.CarrierVar)
			}
		case web.Exchanging:
			if channel == 0 {
				channel, err = webLocal(w.p, s, web.ChannelVar)
			}
		case web.Sending:
			if c, err = w.sendingBy(s, channel, carrier); err != nil || c == nil {
				return nil, err
			}
			c.since, err = w.begun(w.Methods[i+1:])
			return c, err
		}
		if err != nil {
			return nil, err
		}
	}
	if carrier == 0 {
		return nil, nil
	}
	u, err := w.web.Carrier(carrier)
	if err != nil || u == nil || u.Message == 0 {
		return nil, err
	}
	c = &sent{object: u.Message, pool: u.Pool, use: u}
	if c.Message, err = w.web.Message(c.object); err != nil {
		return nil, err
	}
	c.phase = w.answered(c, u)
	c.since, err = w.begun(w.Methods[reads+1:])
	return c, err
}

// sendingBy reads a call by the sending method, through a connection and a stream if these are not
// 0.
func (w *walk) sendingBy(s *async.Step, channel, stream arch.Addr) (c *sent, err error) {
	c = &sent{sending: true, phase: snapshot.CallConnection}
	if c.object, err = webLocal(w.p, s, web.MessageVar); err != nil || c.object == 0 {
		return nil, err
	}
	if c.Message, err = w.web.Message(c.object); err != nil {
		return nil, err
	}
	if c.pool, err = webLocal(w.p, s, web.PoolVar); err != nil {
		return nil, err
	}
	if channel == 0 {
		if channel, err = webLocal(w.p, s, web.RemoteVar); err != nil || channel == 0 {
			return c, err
		}
	}
	c.phase = snapshot.CallAnswer
	c.use, err = w.web.Connected(channel, stream)
	return c, err
}

// server returns the server of a call: the server of the call's pool, or the server in the URI.
// Another pool may have been moved to the place of the call's pool.
func (w *walk) server(c *sent) string {
	if p := w.pools[c.pool]; p != nil && !p.Proxied && (w.still || p.Authority == c.Authority) {
		return cmp.Or(p.Authority, c.Authority)
	}
	return c.Authority
}

// callGroups groups calls by destination and by the work of their callers.
func (w *walk) callGroups() []snapshot.CallGroup {
	by := map[string]*snapshot.CallGroup{}
	var list []*snapshot.CallGroup
	for _, c := range w.listed {
		g := snapshot.CallGroup{
			Method: c.Method, Authority: c.server, Path: c.Path, Phase: c.phase, Doing: w.doing(c.chains),
		}
		g.Doing.Call = &snapshot.CallTo{Authority: g.Authority, Phase: g.Phase}
		if p := w.poolOf(c); p != nil && c.use != nil && !c.use.Detached {
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
		same.Calls = append(same.Calls, w.clientCall(c))
	}
	return sortedCalls(list)
}

// andSo stands for the rest of several paths.
const andSo = "…"

// commonPath returns the common beginning of two paths, in whole segments. A path may be the result of commonPath.
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

func sortedCalls(list []*snapshot.CallGroup) []snapshot.CallGroup {
	out := make([]snapshot.CallGroup, len(list))
	for i, g := range list {
		slices.SortFunc(g.Calls, func(a, b snapshot.ClientCall) int {
			return cmp.Or(compareSince(a.Since, b.Since), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Query, b.Query),
				cmp.Compare(a.Request, b.Request))
		})
		out[i] = *g
	}
	slices.SortFunc(out, func(a, b snapshot.CallGroup) int {
		return cmp.Or(cmp.Compare(len(b.Calls), len(a.Calls)), cmp.Compare(a.Authority, b.Authority),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Method, b.Method))
	})
	return out
}

// clientCall describes a call.
func (w *walk) clientCall(c *sent) snapshot.ClientCall {
	out := snapshot.ClientCall{Path: c.Path, Query: c.Query, Since: w.believed(c.since), Request: c.request}
	if c.use != nil {
		out.Remote, out.Protocol = w.remote(c.use), "HTTP/1.1"
		if c.use.HTTP2 {
			out.Protocol = "HTTP/2"
		}
	}
	return out
}

// remote is the other end of a connection, from the kernel, or else as the program had it at the
// connect.
func (w *walk) remote(u *web.Use) string {
	if w.p.RunningProcess() != nil {
		if to := remoteOf(w.p, u.Socket); to != "" {
			return to
		}
	}
	return addressText(u.Remote)
}

// remoteOf returns the remote address of a descriptor's socket; "": no socket.
func remoteOf(p *session.Process, fd int32) string {
	if fd < 0 {
		return ""
	}
	_, to, ok := strings.Cut(p.Descriptor(fd), tasks.Arrow+" ")
	if !ok {
		return ""
	}
	to, _, _ = strings.Cut(to, " ")
	return to
}

// poolList describes the pools. Pools with the most waiting calls come first.
func (w *walk) poolList() []snapshot.CallPool {
	var out []snapshot.CallPool
	for _, p := range w.pools {
		if p.HTTP1.All+p.HTTP2.All+p.active+len(p.Queue) == 0 { // a pool made in vain by one of several threads
			continue
		}
		out = append(out, snapshot.CallPool{
			Authority: p.Authority, Secure: p.Secure, Proxied: p.Proxied, HTTP1: snapshot.PoolConnections(p.HTTP1),
			HTTP2: snapshot.PoolConnections(p.HTTP2), Queued: len(p.Queue), Active: p.active,
		})
	}
	slices.SortFunc(out, func(a, b snapshot.CallPool) int {
		return cmp.Or(cmp.Compare(b.Queued, a.Queued), cmp.Compare(b.Active, a.Active),
			cmp.Compare(a.Authority, b.Authority))
	})
	return out
}
