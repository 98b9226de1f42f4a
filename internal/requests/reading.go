package requests

import (
	"context"
	"time"
	"unsafe"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/web"
	"clrsnap/internal/moment"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

func newWalk(ctx context.Context, p *session.Process, o session.WalkOptions, threads servingThreads) *walk {
	w := &walk{
		Walk: tasks.NewWalk(ctx, p, o), p: p, ctx: ctx, web: web.New(p.Managed.Objects), threads: threads,
		roles: map[arch.Addr]web.Role{}, requests: map[string]*served{}, found: map[arch.Addr]*sent{},
		pools: map[arch.Addr]*pooled{}, makes: map[*snapshot.TaskChain]*sent{}, servers: map[arch.Addr]bool{},
		room: maxRequestBytes, boot: time.Now().Add(-live.Monotonic().Truncate(time.Millisecond)),
	}
	w.About, w.Prove = w.relate, w.patiently
	w.Also = func(c *object.Class) tasks.Class { return webClasses[web.KindOf(c)] }
	if p.Runtime == nil {
		w.Also = w.webClassAhead
	}
	return w
}

// read reads the requests, the calls and their chains. Calls known only from their objects count if the collector has
// moved nothing since a GC epoch: the old copy of a moved object does not change.
func (w *walk) read(since moment.Epoch) {
	w.Seen = nil
	w.p.Engine.Cache.Invalidate()
	w.findRequests()
	w.findPools()
	w.findConnections()
	if !w.EachChain(w.use) {
		w.Ended = true
	}
	w.still = w.p.Moments().Unmoved(since)
	w.list()
}

// findRequests reads the requests of Kestrel's objects.
func (w *walk) findRequests() {
	for _, obj := range w.Objects[serverClass] {
		if w.Stopped() {
			return
		}
		r, ok := w.request(obj)
		switch {
		case !ok:
			w.lost++
		case r != nil && !w.addRequest(r):
			return
		}
	}
	for id, s := range w.known { // the walk may have missed an object that was moved
		if w.requests[id] != nil {
			continue
		}
		if w.Stopped() {
			return
		}
		if r, ok := w.request(s.Object); ok && r != nil && r.ID == id && !w.addRequest(r) {
			return
		}
	}
}

// addRequest adds a request. false: there is no room for it.
func (w *walk) addRequest(r *web.Request) bool {
	if !w.keep(int(unsafe.Sizeof(served{})), r.ID, r.Method, r.Path, r.Query, r.Route) {
		return false
	}
	w.requests[r.ID] = &served{Request: *r}
	return true
}

// request reads the request of one of Kestrel's objects. false: the object changed all the time.
func (w *walk) request(obj arch.Addr) (r *web.Request, ok bool) {
	var connection string
	var begun int
	ok = w.patiently(func() (err error) {
		if obj, err = w.serverNow(obj); err != nil {
			return err
		}
		if r, err = w.web.Request(obj); err == nil && w.counts != nil {
			connection, begun, _ = w.web.Begun(obj, r != nil)
		}
		return err
	})
	if ok {
		w.servers[obj] = true
	}
	if begun > 0 && (w.counts[connection] > 0 || w.keep(int(unsafe.Sizeof(connection))+16, connection)) {
		w.counts[connection] = max(w.counts[connection], begun)
	}
	return r, ok
}

// serverNow follows one of Kestrel's objects to its current address: the object may have been moved more than once.
func (w *walk) serverNow(obj arch.Addr) (arch.Addr, error) {
	for range tasks.MaxMoves {
		at, err := w.web.Moved(obj)
		if err != nil || at == obj {
			return at, err
		}
		obj = at
	}
	return 0, async.ErrMoved
}

// relate finds the request and the call of a chain. The methods that make a call follow the sending method.
func (w *walk) relate() (err error) {
	w.of = chainOf{}
	if w.of.call, err = w.calling(); err != nil {
		return err
	}
	if w.of.call != nil {
		w.of.call.epoch = w.p.Moments().Epoch()
	}
	for _, m := range w.Methods {
		if w.role(m.Step) != web.Serving {
			continue
		}
		if w.of.server, err = webLocal(w.p, m.Step, web.ProtocolVar); err != nil || w.of.server == 0 {
			return err
		}
		w.of.frame = max(m.Frame, 1)
		w.of.id, err = w.web.ID(w.of.server)
		return err
	}
	return nil
}

// begun returns when a call began: the earliest time known to any method behind the method that makes the call.
func (w *walk) begun(methods []tasks.ChainMethod) (out time.Time, err error) {
	for _, m := range methods {
		role := w.role(m.Step)
		if role == web.Serving {
			break
		}
		if role != web.Calling && role != web.Tracing {
			continue
		}
		at, err := w.began(m.Step, role)
		if err != nil {
			return out, err
		}
		if !at.IsZero() && (out.IsZero() || at.Before(out)) {
			out = at
		}
		if role == web.Calling { // the methods behind may make another call, and this call is a part of the other
			break
		}
	}
	return out, nil
}

// use notes the request and the call of a chain.
func (w *walk) use(c *snapshot.TaskChain) (cost int) {
	of := w.of
	if of.frame > 0 {
		c.Frames = c.Frames[:of.frame] // the further methods are the connection's, and the same for all requests
	}
	if w.requests[of.id] == nil && of.server != 0 && !w.servers[of.server] {
		w.lateRequest(of)
	}
	if s := w.requests[of.id]; s != nil {
		s.chains = append(s.chains, c)
		cost = tasks.FramesCost(c.Frames)
	} else {
		of.id = ""
	}
	if w.waiting != nil && c.State == snapshot.TaskWaiting && of.frame == 0 && len(w.waiting) < maxWaiting {
		w.waiting[uint64(w.First)] = WaitingChain{tasks.ChainKey(c), uint64(w.Waited)}
	}
	if call := of.call; call != nil && w.keep(int(unsafe.Sizeof(*call))+callCost(call)) {
		if !w.p.Moments().Unmoved(call.epoch) {
			call.epoch = 0 // the collector has moved something meanwhile
		}
		call.chains, call.request = []*snapshot.TaskChain{c}, of.id
		w.makes[c] = call
		w.made = append(w.made, call)
		cost = tasks.FramesCost(c.Frames)
	}
	return cost
}

// lateRequest reads the request of a chain, if the object of Kestrel was moved before the first read.
func (w *walk) lateRequest(of chainOf) {
	if r, ok := w.request(of.server); ok && r != nil && r.ID == of.id {
		w.addRequest(r)
	}
}
