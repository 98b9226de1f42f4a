package session

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/web"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

// webClasses are the classes of package web's objects.
var webClasses = map[web.Kind]taskClass{
	web.Server: serverClass, web.Pool: clientPoolClass, web.Connection: connectionClass, web.Stream: connectionClass,
}

// maxRequestWalks is how often the heap is walked, until the collector has moved nothing meanwhile.
const maxRequestWalks = 4

// Requests finds what the process's web server is serving, and its calls of HttpClient that are under way. Stacks are
// taken of all threads, and then the heap is walked without stopping the program. If ctx ends, the result has what was
// found until then, and is Partial.
func (p *Process) Requests(ctx context.Context, o HeapOptions) (*profile.Requests, error) {
	out, _, err := p.requests(ctx, o, true)
	return out, err
}

// RequestsAndTasks is Requests without the stacks of threads, and what Tasks finds in the same walk.
func (p *Process) RequestsAndTasks(ctx context.Context, o HeapOptions) (*profile.Requests, *profile.Tasks, error) {
	return p.requests(ctx, o, false)
}

func (p *Process) requests(ctx context.Context, o HeapOptions, stacks bool) (
	out *profile.Requests, tasks *profile.Tasks, err error,
) {
	if p.Runtime == nil {
		return nil, nil, p.NoRuntimeError()
	}
	if p.Walking {
		return nil, nil, NestedError(0)
	}
	start := time.Now()
	threads := servingThreads{}
	if stacks {
		if threads, err = p.servingThreads(ctx); err != nil && ctx.Err() == nil {
			return nil, nil, err
		}
	}
	for try := range maxRequestWalks {
		w := newRequestWalk(ctx, p, o, threads)
		before := p.stamp()
		census, err := w.walk()
		if err != nil {
			return nil, nil, p.noWalk(err)
		}
		last := try == maxRequestWalks-1
		if !w.read(before) && !last && !w.stopped() {
			continue
		}
		out = w.result(census)
		if !stacks {
			tasks = w.taskWalk.result(census)
		}
		break
	}
	out.Duration = time.Since(start)
	return out, tasks, p.Alive()
}

// stamp is that of the heap as it is now.
func (p *Process) stamp() heap.Stamp { return p.Runtime.Heap.Stamp(p.from) }

// stillSince reports whether the collector has certainly moved nothing since a stamp.
func (p *Process) stillSince(since heap.Stamp) bool {
	return !p.from.changes() || since != 0 && since == p.stamp()
}

// requestWalk is one walk of Requests.
type requestWalk struct {
	*taskWalk
	web     *web.Reader
	threads servingThreads
	roles   map[arch.Addr]web.Role // of async methods, by the type of the state machine

	requests map[string]*served  // by their id
	calls    map[arch.Addr]*sent // by their message
	pools    map[arch.Addr]*pooled
	starts   map[arch.Addr]time.Time      // of calls, by their message
	makes    map[*profile.TaskChain]*sent // the call that a chain makes
}

// served is a request and the chains of its async methods.
type served struct {
	web.Request
	chains []*profile.TaskChain
}

func newRequestWalk(ctx context.Context, p *Process, o HeapOptions, threads servingThreads) *requestWalk {
	w := &requestWalk{
		taskWalk: p.newTaskWalk(ctx, o), web: web.New(p.Runtime.Objects), threads: threads,
		roles: map[arch.Addr]web.Role{}, requests: map[string]*served{}, calls: map[arch.Addr]*sent{},
		pools: map[arch.Addr]*pooled{}, starts: map[arch.Addr]time.Time{},
		makes: map[*profile.TaskChain]*sent{},
	}
	w.also = func(c *object.Class) taskClass { return webClasses[web.KindOf(c)] }
	return w
}

// read reads the requests, the calls and their chains. false: the collector may have moved objects since a stamp. Then
// what is only known by an object that has been moved is left out, because what is left of such an object stays as it
// was.
func (w *requestWalk) read(since heap.Stamp) bool {
	w.seen = nil
	w.p.Engine.Cache.Invalidate()
	w.findRequests()
	w.findPools()
	w.findConnections()
	nodes := w.nodes()
	w.findCalls(nodes)
	if !w.p.stillSince(since) {
		maps.DeleteFunc(w.calls, func(_ arch.Addr, c *sent) bool { return !c.sending })
	}
	w.findSemaphores()
	if !w.eachChain(nodes, w.use) {
		w.ended = true
	}
	return w.p.stillSince(since)
}

// findRequests reads what Kestrel's objects serve.
func (w *requestWalk) findRequests() {
	for _, obj := range w.objects[serverClass] {
		if w.stopped() {
			return
		}
		r, ok := w.request(obj)
		switch {
		case !ok:
			w.unproven++
		case r != nil:
			w.requests[r.ID] = &served{Request: *r}
		}
	}
}

// request reads the request of one of Kestrel's objects. false: it changed all the time.
func (w *requestWalk) request(obj arch.Addr) (r *web.Request, ok bool) {
	ok = w.p.steadily(func() (err error) {
		if obj, err = w.web.Moved(obj); err != nil {
			return err
		}
		r, err = w.web.Request(obj)
		return err
	}, nil)
	return r, ok
}

// role says what an async method does for a request or a call.
func (w *requestWalk) role(b *async.Box) web.Role {
	if role, ok := w.roles[b.Machine.Table]; ok {
		return role
	}
	role := web.RoleOf(w.r.MachineName(b.Machine))
	if !b.Machine.Passing {
		w.roles[b.Machine.Table] = role
	}
	return role
}

// local reads a local variable of a suspended method: the first one of the name that is not null. 0: there is none.
func (w *requestWalk) local(b *async.Box, name string) arch.Addr {
	values, err := w.r.Locals(b, name)
	if err != nil {
		return 0
	}
	for _, v := range values {
		if v != 0 {
			return v
		}
	}
	return 0
}

// use notes for which request and for which call a chain is.
func (w *requestWalk) use(c *profile.TaskChain) (cost int) {
	var request string
	var call *sent
	for _, b := range w.boxes {
		switch w.role(b.Box) {
		case web.Sending:
			call = w.calls[w.local(b.Box, "request")]
		case web.Serving:
			request, _ = w.web.ID(w.local(b.Box, "this"))
			c.Frames = c.Frames[:max(b.frame, 1)] // what follows is the connection's, and the same for all
		}
		if request != "" {
			break
		}
	}
	if s := w.requests[request]; s != nil {
		s.chains = append(s.chains, c)
		cost = framesCost(c.Frames)
	} else {
		request = ""
	}
	if call != nil {
		w.makes[c] = call
		call.chains, call.request = append(call.chains, c), cmp.Or(call.request, request)
		cost = framesCost(c.Frames)
	}
	return cost
}

// result describes what was found.
func (w *requestWalk) result(c *heap.Census) *profile.Requests {
	out := &profile.Requests{
		Process: w.p.info, CapturedAt: w.capturedAt(), ConsistentShare: consistentShare(c),
		Partial: c.Stopped || w.full || w.ended,
	}
	out.Requests = w.requestGroups()
	out.Calls = w.callGroups()
	out.Pools = w.poolList()
	out.Unproven = w.unproven
	return out
}

// since is when something began. Zero: that is not known, or makes no sense.
func (w *requestWalk) since(s web.Start) time.Time {
	at := s.UTC
	if s.Ticks > 0 && w.now != 0 {
		at = time.Now().Add(time.Duration(s.Ticks) - live.Monotonic())
	}
	return w.believed(at)
}

// maxAhead is how far a clock of the target may seem to be ahead of ours.
const maxAhead = time.Second

// believed leaves out what cannot be: a time to come.
func (w *requestWalk) believed(at time.Time) time.Time {
	if at.After(time.Now().Add(maxAhead)) {
		return time.Time{}
	}
	return at
}

// doing describes what a request or a call does, by its chains.
func (w *requestWalk) doing(chains []*profile.TaskChain) profile.Doing {
	if len(chains) == 0 {
		return profile.Doing{}
	}
	best := slices.MaxFunc(chains, func(a, b *profile.TaskChain) int {
		return cmp.Or(cmp.Compare(tells(a), tells(b)), cmp.Compare(len(a.Frames), len(b.Frames)))
	})
	d := profile.Doing{State: best.State, WaitsFor: best.WaitsFor, Frames: best.Frames, Branches: len(chains) - 1}
	if c := w.makes[best]; c != nil && best.State == profile.TaskWaiting {
		d.Call = &profile.CallTo{Authority: w.server(c), Phase: c.phase}
	}
	return d
}

// tells orders chains: one that waits for something that is known tells most.
func tells(c *profile.TaskChain) int {
	switch {
	case c.State != profile.TaskWaiting:
		return 0
	case c.WaitsFor == nil || c.WaitsFor.Kind == profile.AwaitsYield:
		return 1
	}
	return 2
}

// requestGroups groups requests by their paths, and what they do.
func (w *requestWalk) requestGroups() []profile.RequestGroup {
	by := map[string]*profile.RequestGroup{}
	var list []*profile.RequestGroup
	for _, s := range w.requests {
		r, d := w.describe(s)
		path := cmp.Or(s.Route, s.Path)
		key := r.Method + "\x00" + path + "\x00" + doingKey(&d)
		g := by[key]
		if g == nil {
			g = &profile.RequestGroup{Method: r.Method, Path: path, Doing: d}
			by[key], list = g, append(list, g)
		} else {
			joinDoing(&g.Doing, &d)
		}
		g.Requests = append(g.Requests, r)
	}
	out := make([]profile.RequestGroup, len(list))
	for i, g := range list {
		slices.SortFunc(g.Requests, func(a, b profile.Request) int {
			return cmp.Or(compareSince(a.Since, b.Since), cmp.Compare(a.ID, b.ID))
		})
		out[i] = *g
	}
	slices.SortFunc(out, func(a, b profile.RequestGroup) int {
		return cmp.Or(cmp.Compare(len(b.Requests), len(a.Requests)), cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Method, b.Method), cmp.Compare(a.Requests[0].ID, b.Requests[0].ID))
	})
	return out
}

// compareSince orders times, those that are not known last.
func compareSince(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return a.Compare(b)
}

// doingKey is equal for what is shown together.
func doingKey(d *profile.Doing) string {
	key := chainKey(&profile.TaskChain{Frames: d.Frames, State: d.State, WaitsFor: d.WaitsFor}, true)
	if d.Call != nil {
		key += "\x00" + d.Call.Authority + "\x00" + string(d.Call.Phase)
	}
	return key
}

// joinDoing adds what another request or call of a group does.
func joinDoing(to, d *profile.Doing) {
	a, b := profile.TaskChain{WaitsFor: to.WaitsFor}, profile.TaskChain{WaitsFor: d.WaitsFor}
	merge(&a, &b)
	to.Branches = max(to.Branches, d.Branches)
}

// describe describes a request and what it does.
func (w *requestWalk) describe(s *served) (profile.Request, profile.Doing) {
	r := profile.Request{
		ID: s.ID, Method: s.Method, Path: s.Path, Query: s.Query, Protocol: s.Protocol, Remote: addressText(s.Remote),
		Since: w.since(s.Start), Aborted: s.Aborted,
	}
	d := w.doing(s.chains)
	if t := w.threads.by[s.ID]; t != nil && (d.State == "" || d.State == profile.TaskRunning) {
		d = profile.Doing{State: profile.TaskRunning, Frames: beforeServing(t.Frames), Branches: d.Branches}
		r.Thread = &profile.ThreadRef{OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, Name: t.Name}
	}
	return r, d
}

// beforeServing cuts off a thread's stack what is the same for all requests: from Kestrel's method on that serves them.
func beforeServing(frames []profile.Frame) []profile.Frame {
	i := slices.IndexFunc(frames, func(f profile.Frame) bool {
		machine, ok := strings.CutSuffix(f.Method, ".MoveNext")
		return ok && web.RoleOf(f.Module, machine) == web.Serving
	})
	if i < 1 {
		return frames
	}
	return frames[:i]
}

func addressText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
}
