package requests

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unsafe"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/web"
	"clrsnap/internal/moment"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/internal/tasks"
	"clrsnap/profile"
)

// The classes of objects that are read besides the objects of async methods.
const (
	serverClass = tasks.OtherClasses + iota
	clientPoolClass
	connectionClass
)

// webClasses are the classes of package web's objects.
var webClasses = map[web.Kind]tasks.Class{
	web.Server: serverClass, web.Pool: clientPoolClass, web.Connection: connectionClass, web.Stream: connectionClass,
}

// Find finds the requests that the process's web server is serving, and the HttpClient calls in progress.
// Find captures the stacks of all threads, and then walks the heap without stopping the program. With WalkOptions.Stop
// all this is done once more while all threads stand still. If ctx ends, the result has everything found until then,
// and is Partial.
func Find(ctx context.Context, p *session.Process, o session.WalkOptions) (*profile.Requests, error) {
	look := func(ctx context.Context, o session.WalkOptions) (*profile.Requests, error) {
		out, err := findAll(ctx, p, o, servingThreads{}, wanted{stacks: true})
		if out == nil {
			return nil, err
		}
		return out.Requests, err
	}
	before, err := look(ctx, o)
	if err != nil || !o.Stop || !p.Moments().Changes() {
		return before, err
	}
	held := before
	o.Progress, o.Doing, o.MaxCPU = nil, nil, 0
	stop := p.AtRest(ctx, o.MaxPause, func(ctx context.Context) error {
		out, err := look(ctx, o)
		if err == nil {
			held = out
		}
		return err
	})
	if !stop.Exact {
		held = before
	}
	held.Stop = stop
	return held, p.Alive()
}

// InFlight is what a process had begun and not ended, at one moment.
type InFlight struct {
	Requests *profile.Requests
	Tasks    *profile.Tasks
	Begun    map[string]int // requests that each connection has begun since its start, by the connection's id
	// Waiting has the ChainKey of each waiting chain without a request, by the address of the innermost method's
	// object. At most maxWaiting.
	Waiting map[uint64]uint64
	Sources []tasks.SourceWait // methods that wait for a TaskCompletionSource: some of each

	Methods *tasks.MethodObjects // nil: not known
}

// maxWaiting bounds InFlight.Waiting.
const maxWaiting = 200_000

// FindInFlight is Find together with the async methods of the same walk. blocking: a thread may be in a call of
// HttpClient that SendsBlocking reports. stacks: the stacks of threads are captured, for requests that threads run.
func FindInFlight(ctx context.Context, p *session.Process, o session.WalkOptions, blocking, stacks bool) (
	*InFlight, error,
) {
	return findAll(ctx, p, o, servingThreads{blocking: blocking}, wanted{stacks: stacks, progress: true})
}

// wanted says what to read besides requests and calls.
type wanted struct {
	stacks   bool // of all threads, for requests that threads run
	progress bool // tasks, and what two looks are compared by
}

func findAll(ctx context.Context, p *session.Process, o session.WalkOptions, threads servingThreads, how wanted) (
	out *InFlight, err error,
) {
	if p.Managed == nil || p.Managed.Objects == nil {
		return nil, p.NoRuntimeError("requests")
	}
	if p.Walking {
		return nil, session.NestedError(0)
	}
	start := time.Now()
	if how.stacks {
		if threads, err = findServingThreads(ctx, p); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
	within := tasks.RewalkWithin
	if how.progress {
		within = rewalkShortly
	}
	p.Engine.Begin()
	l := looks{p: p, ctx: ctx, o: o, threads: threads, progress: how.progress}
	if err := l.walk(within); err != nil {
		return nil, p.WalkError(err)
	}
	out = &InFlight{Requests: l.best.result(l.census), Begun: l.best.counts, Waiting: l.best.waiting}
	if how.progress {
		l.best.Walk.Notes = true
		out.Tasks = l.best.Walk.Result(l.census)
		out.Sources = l.best.Walk.Sources
		if out.Methods = l.best.Walk.Noted; out.Methods != nil {
			t := out.Tasks
			out.Methods.Whole = out.Methods.Whole && !t.Partial && t.Unread == 0 && t.ConsistentShare == 1
		}
	}
	out.Requests.Duration = time.Since(start)
	return out, p.Alive()
}

// walk is one walk of Find.
type walk struct {
	*tasks.Walk
	p       *session.Process
	ctx     context.Context
	web     *web.Reader
	threads servingThreads
	roles   map[arch.Addr]web.Role // of async methods, by roleKey

	requests map[string]*served  // by their id
	waiting  map[uint64]uint64   // as InFlight.Waiting; nil: not asked for
	counts   map[string]int      // as InFlight.Begun; nil: not asked for
	known    map[string]*served  // likewise, of earlier walks
	servers  map[arch.Addr]bool  // Kestrel's objects of requests, at their current addresses
	found    map[arch.Addr]*sent // calls by HttpRequestMessage: pools and connections lead to the message
	made     []*sent             // calls of chains; a call may have been read several times
	pools    map[arch.Addr]*pooled
	room     int                          // bytes left for requests and calls
	rests    int                          // how often reading has waited for the collector
	makes    map[*profile.TaskChain]*sent // the call of a chain
	of       chainOf                      // of the latest chain
	listed   []*sent                      // calls, also calls of earlier walks that this walk may have missed
	own      int                          // how many calls of listed this walk has read
	fresh    int                          // calls missed by earlier walks, though begun before
	ageless  int                          // likewise, calls with an unknown begin
	boot     time.Time                    // when the machine began, by the wall clock: the same for all walks

	callsUnread bool // there is HttpClient, and its objects are not read

	lost  int  // Kestrel's objects that could not be read
	gone  int  // other objects that were moved before the read, and cannot be found any more
	still bool // nothing was moved from before the walk until after reading
	whole bool // the walk has certainly met all existing objects
}

// chainOf is the purpose of a chain.
type chainOf struct {
	server arch.Addr
	id     string // of the request
	frame  int    // of the serving method
	call   *sent  // nil: the chain makes no call
}

// served is a request and the chains of its async methods.
type served struct {
	web.Request
	chains []*profile.TaskChain
}

func newWalk(ctx context.Context, p *session.Process, o session.WalkOptions, threads servingThreads) *walk {
	w := &walk{
		Walk: tasks.NewWalk(ctx, p, o), p: p, ctx: ctx, web: web.New(p.Managed.Objects), threads: threads,
		roles: map[arch.Addr]web.Role{}, requests: map[string]*served{}, found: map[arch.Addr]*sent{},
		pools: map[arch.Addr]*pooled{}, makes: map[*profile.TaskChain]*sent{}, servers: map[arch.Addr]bool{},
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

// maxRequestBytes bounds the kept requests, calls and queues, in bytes: 500,000 requests have room.
const maxRequestBytes = 256 << 20

// keep takes the room for some texts and further bytes. false: there is not enough room.
func (w *walk) keep(bytes int, texts ...string) bool {
	for _, s := range texts {
		bytes += len(s)
	}
	w.room -= bytes
	w.Full = w.Full || w.room < 0
	return !w.Full
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

// Reading is tried patience times, and waits for the end of a collection: a collection of the youngest objects takes
// some ms. In one walk there are mostRests waits at most, 5 s in all.
const (
	patience  = 10
	restFor   = 2 * time.Millisecond
	mostRests = 2500
	longest   = 50 // waits for one collection; the collector may have to wait for a processor
)

// patiently is moment.Reader.Read, with further tries after a collection in progress.
func (w *walk) patiently(read func() error) bool {
	for try := range patience {
		w.settle()
		if w.p.Moments().Read(read, nil) {
			return true
		}
		if !w.p.Moments().Changes() || w.Stopped() || w.p.Moments().Settled() && try > 0 {
			break // the collector is not the reason
		}
	}
	return false
}

// settle waits for the end of a collection that moves objects.
func (w *walk) settle() {
	w.p.Moments().Calm(longest, func() bool {
		if w.rests >= mostRests || w.Stopped() {
			return false
		}
		w.rests++
		session.Sleep(w.ctx, restFor)
		return true
	})
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
func (w *walk) use(c *profile.TaskChain) (cost int) {
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
	if w.waiting != nil && c.State == profile.TaskWaiting && of.frame == 0 && len(w.waiting) < maxWaiting {
		w.waiting[uint64(w.First)] = tasks.ChainKey(c)
	}
	if call := of.call; call != nil && w.keep(int(unsafe.Sizeof(*call))+callCost(call)) {
		if !w.p.Moments().Unmoved(call.epoch) {
			call.epoch = 0 // the collector has moved something meanwhile
		}
		call.chains, call.request = []*profile.TaskChain{c}, of.id
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

// result describes the requests and calls.
func (w *walk) result(c *heap.Census) *profile.Requests {
	out := &profile.Requests{
		Process: w.p.Info(), CapturedAt: w.p.CapturedAt(w.Begin), ConsistentShare: tasks.ConsistentShare(c),
		Partial: c.Stopped || w.Full || w.Ended,
	}
	out.Requests = w.requestGroups()
	out.Calls = w.callGroups()
	out.Pools = w.poolList()
	out.Unproven, out.CallsUnread = w.Unproven+w.lost, w.callsUnread
	return out
}

// since is when something began. Zero: the time is not known, or makes no sense.
func (w *walk) since(s web.Start) time.Time {
	at := s.UTC
	if s.Ticks > 0 && w.p.RunningProcess() != nil {
		at = time.Now().Add(time.Duration(s.Ticks) - live.Monotonic())
	}
	return w.believed(at)
}

// maxAhead is how far a clock of the target may seem to be ahead of ours.
const maxAhead = time.Second

// believed leaves out impossible times, after the moment of the look or of the dump.
func (w *walk) believed(at time.Time) time.Time {
	if at.After(w.p.CapturedAt(time.Now()).Add(maxAhead)) {
		return time.Time{}
	}
	return at
}

// doing describes what a request or a call does, by its chains.
func (w *walk) doing(chains []*profile.TaskChain) profile.Doing {
	if len(chains) == 0 {
		return profile.Doing{}
	}
	best := slices.MaxFunc(chains, func(a, b *profile.TaskChain) int {
		return cmp.Or(cmp.Compare(tells(a), tells(b)), cmp.Compare(len(a.Frames), len(b.Frames)),
			// requests with the same action show the same chain
			cmp.Compare(tasks.KeyOf(b, true), tasks.KeyOf(a, true)))
	})
	d := profile.Doing{State: best.State, WaitsFor: best.WaitsFor, Frames: best.Frames, Branches: len(chains) - 1}
	if c := w.makes[best]; c != nil && best.State == profile.TaskWaiting {
		d.Call = &profile.CallTo{Authority: c.server, Phase: c.phase}
	}
	return d
}

// tells orders chains: a chain that waits for something known tells most.
func tells(c *profile.TaskChain) int {
	switch {
	case c.State != profile.TaskWaiting:
		return 0
	case c.WaitsFor == nil || c.WaitsFor.Kind == profile.AwaitsYield:
		return 1
	}
	return 2
}

// requestGroups groups requests by their paths and actions.
func (w *walk) requestGroups() []profile.RequestGroup {
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

// compareSince orders times, unknown times last.
func compareSince(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return a.Compare(b)
}

const httpAssembly = "System.Net.Http"

// doingKey is equal for actions in one group.
func doingKey(d *profile.Doing) string {
	if c := d.Call; c != nil { // the methods of HttpClient make no difference
		own := slices.IndexFunc(d.Frames, func(f profile.Frame) bool { return f.Module != httpAssembly })
		if own < 0 {
			own = len(d.Frames)
		}
		key := tasks.KeyOf(&profile.TaskChain{Frames: d.Frames[own:], State: d.State}, false)
		return key + "\x00" + c.Authority + "\x00" + string(c.Phase)
	}
	if d.Wait != nil { // the methods of .NET make no difference
		own := slices.IndexFunc(d.Frames, func(f profile.Frame) bool { return f.Module != coreLib })
		frames := unnumbered(d.Frames[max(own, 0):])
		return tasks.KeyOf(&profile.TaskChain{Frames: frames, State: d.State}, false) + "\x00" + waitKey(d.Wait)
	}
	return tasks.KeyOf(&profile.TaskChain{Frames: unnumbered(d.Frames), State: d.State, WaitsFor: d.WaitsFor}, true)
}

// unnumbered leaves out the numbers of methods made at run time: an action of a controller may have several methods,
// if the first requests come together.
func unnumbered(frames []profile.Frame) []profile.Frame {
	out := slices.Clone(frames)
	for i := range out {
		if f := &out[i]; f.Module == "" {
			f.Display = strings.TrimRight(f.Display, "0123456789")
		}
	}
	return out
}

// joinDoing adds the action of another request or call of a group.
func joinDoing(to, d *profile.Doing) {
	a, b := profile.TaskChain{WaitsFor: to.WaitsFor}, profile.TaskChain{WaitsFor: d.WaitsFor}
	tasks.Merge(&a, &b)
	if to.Wait != nil && d.Wait != nil {
		joinWait(to.Wait, d.Wait)
	}
	to.Branches = max(to.Branches, d.Branches)
}

// describe describes a request and its action.
func (w *walk) describe(s *served) (profile.Request, profile.Doing) {
	r := profile.Request{
		ID: s.ID, Method: s.Method, Path: s.Path, Query: s.Query, Protocol: s.Protocol, Remote: addressText(s.Remote),
		Since: w.since(s.Start), Aborted: s.Aborted, Answering: s.Answering,
	}
	d := w.doing(s.chains)
	if t := w.threads.by[s.ID]; t != nil && (d.State == "" || d.State == profile.TaskRunning || awaitsRunning(&d)) {
		branches := d.Branches
		d = threadDoing(t)
		d.Branches = branches
		r.Thread = &profile.ThreadRef{OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, Name: t.Name}
	}
	return r, d
}

// awaitsRunning reports whether a request, as far as known, waits for something that a thread may run: a task that
// runs code, or an unknown method. A running method after a suspension by the runtime is unknown.
func awaitsRunning(d *profile.Doing) bool {
	w := d.WaitsFor
	return d.State == profile.TaskWaiting && w != nil &&
		(w.Kind == profile.AwaitsTask || w.Kind == profile.AwaitsMethod && w.Target == "")
}

func addressText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
}
