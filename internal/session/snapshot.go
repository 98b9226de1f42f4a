package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/moment"
	"clrsnap/internal/naming"
	"clrsnap/internal/origin"
	"clrsnap/internal/priority"
	"clrsnap/internal/target"
	"clrsnap/internal/waits"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// SnapshotOptions say what a snapshot is of. The zero value takes the stacks of all threads, one after the other.
type SnapshotOptions struct {
	// Filter chooses threads by their entries in the list of threads; nil: all.
	Filter Filter
	// AtOnce takes all stacks at one instant. The stacks in a core dump always belong to one instant.
	AtOnce bool
	// Observe returns the snapshot's Observer, before the first thread is captured; nil: there is none. Not together
	// with AtOnce.
	Observe func(*Observed) Observer
	// Async adds async methods also without Options.Async.
	Async bool
	// Unpacked leaves stacks unpacked also with Options.PackStacks, for callers that read the frames.
	Unpacked bool
	// Inspect is called with each thread and the thread's capture; nil: no call. Not together with AtOnce.
	Inspect func(*Inspection)
}

// Filter chooses threads by their entries in the list of threads.
type Filter func(*Thread) bool

// Inspection is a captured and walked thread of a snapshot. It is valid during the call of Inspect.
type Inspection struct {
	Thread  *snapshot.Thread
	Stack   *target.Stack
	Context *arch.Context
	Sites   []awaits.Site
}

// Snapshot takes a snapshot of threads. Each thread is stopped only for the copy. When ctx ends, the result has the
// threads captured by then, and the error is the error of ctx. When the process exits, the result has everything
// captured until then, and the error says that the process has exited.
func (p *Process) Snapshot(ctx context.Context, o SnapshotOptions) (*snapshot.Snapshot, error) {
	g := p.gather(o)
	if o.AtOnce && p.moments.Changes() {
		return g.atOnce(ctx)
	}
	return g.oneByOne(ctx)
}

// SnapshotThread suspends a thread, finds the seed, walks managed and native frames and resumes the thread. The result
// also has methods without metadata and the runtime's exception machinery, by name. Complete is true only if the walk
// reached the base of the thread's stack and nothing was skipped; if not, Error says why. When ctx ends, no more
// symbols are fetched.
func (p *Process) SnapshotThread(ctx context.Context, thread arch.Addr) (*snapshot.Thread, error) {
	p.Engine.Begin()
	p.known = nil // as it is now
	t, err := p.Find(thread)
	if err != nil {
		return nil, err
	}
	if d, ok := p.Describe(t.OSThreadID); ok {
		t = d
	}
	ctx, cancel := context.WithTimeout(ctx, fetchAlone)
	defer cancel()
	g := p.gather(SnapshotOptions{})
	g.beginLate()
	g.add(g.take(&t))
	g.addHolds()
	g.complete(ctx)
	return &g.out.Threads[0], nil
}

// gathering is what one snapshot gathers.
type gathering struct {
	*Process
	o     SnapshotOptions
	names naming.Stacks // how frames are named
	async bool          // async methods are wanted
	out   *snapshot.Snapshot
	found found // besides the frames in out

	stops   *[]time.Duration // where to note the duration of stops; nil: nowhere
	lacks   lacks            // thread data that a dump lacks
	quota   float64          // CPUs, by the control groups; 0: none
	room    int              // bytes of frames that may still be kept
	packing *packing         // nil: stacks are not packed

	// Of the thread that is visited. The next thread uses the memory again.
	stack  walkedStack
	second target.Capture // see again

	// By thread.
	runs   map[int][]waits.Run  // the tasks that the thread runs
	epochs map[int]moment.Epoch // of the addresses of objects that were read of the thread

	observer Observer // nil: none
}

// found is the information found at the calls of threads' stacks, besides frames.
type found struct {
	calls   callsByThread
	waiting awaitingByThread
}

func (p *Process) gather(o SnapshotOptions) *gathering {
	return &gathering{
		Process: p, o: o, names: p.Stacks(), async: o.Async || p.Options.Async, room: maxStacks,
		found: found{callsByThread{}, awaitingByThread{}}, out: &snapshot.Snapshot{Process: p.info},
	}
}

// fetchAlone is how long symbols are fetched for the snapshot of one thread. Nobody can end that fetch earlier.
const fetchAlone = time.Minute

// beginLate begins to note missing symbols. Nothing is fetched while threads are held: an earlier look has fetched
// what this look needs.
func (g *gathering) beginLate() {
	if _, held := g.from.(*origin.Standing); !held {
		g.names.BeginLate()
	}
}

// oneByOne takes the stacks one after the other.
func (g *gathering) oneByOne(ctx context.Context) (*snapshot.Snapshot, error) {
	if g.Live != nil {
		defer priority.Hurry()()
	}
	out := g.out
	g.Engine.Begin()
	list, lacking, err := g.list()
	if err != nil {
		return nil, err
	}
	out.CapturedAt, g.lacks.names = g.from.CapturedAt(time.Now()), lacking
	defer g.note()()
	g.beginLate()
	g.beginPacking()
	defer g.complete(ctx)
	inGroups := g.watchGroups()
	if g.o.Observe != nil {
		g.observer = g.o.Observe(&Observed{g})
	}
	if err := g.takeAll(ctx, list); err != nil {
		return out, err
	}
	g.addHolds()
	g.relate(nil)
	if g.observer != nil {
		g.observer.Find(ctx)
	}
	inGroups(out.Threads)
	if err := g.from.Alive(); err != nil {
		// Threads without frames could not be captured because the process has exited: leave them out.
		out.Threads = slices.DeleteFunc(out.Threads, func(t snapshot.Thread) bool { return t.Depth() == 0 })
		return out, err
	}
	return out, nil
}

// complete adds fetched symbols to captured stacks. Then it adds inlined methods at calls and the awaiters of async
// methods, because both move frames.
func (g *gathering) complete(ctx context.Context) {
	g.packing = nil
	g.names.Fetch(ctx, g.out.Threads)
	g.addInlined(g.out.Threads, g.found.calls)
	addAwaiting(g.out.Threads, g.found.waiting)
}

// taken is a thread of a snapshot, as it was captured and walked.
type taken struct {
	snapshot.Thread
	calls   keptCalls
	waiting []AwaitingAt
	sites   []awaits.Site // valid until the next thread is walked
	proof   target.Proof  // that the thread is blocked; "": no proof
}

// add adds a thread to the snapshot.
func (g *gathering) add(t taken) {
	g.out.Threads = append(g.out.Threads, t.Thread)
	g.keep(t)
}

// keep keeps the information found at the calls of a thread's stack.
func (g *gathering) keep(t taken) {
	delete(g.found.calls, t.OSThreadID)
	delete(g.found.waiting, t.OSThreadID)
	g.found.calls.keep(t.OSThreadID, t.calls)
	g.found.waiting.keep(t.OSThreadID, t.waiting)
}

// ErrThreadEnded marks a thread that ended before the capture.
var ErrThreadEnded = errors.New("the thread has ended")

// maxStackFrames bounds the frames of one thread. Few stacks of 8 MB have more: an overflowed stack has some 260,000
// frames of 32 bytes.
const maxStackFrames = 300_000

// errManyFrames: the stack has more frames than are kept. Another capture would not help.
var errManyFrames = fmt.Errorf("the frames from here on are left out: clrsnap keeps at most %d of a thread",
	maxStackFrames)

// visit is a thread of a snapshot on its way.
type visit struct {
	Suspension
	g     *gathering
	queue arch.Addr // see Observer.Walked
}

// visit begins with a thread.
func (g *gathering) visit(t *Thread) *visit {
	return &visit{Suspension: Suspension{
		Process: g.Process, Thread: *t, Capture: &g.Capture, Also: g.AlsoBlocking(t), Stops: g.stops,
	}, g: g}
}

// take takes the stack of one thread.
func (g *gathering) take(t *Thread) taken {
	if g.room <= 0 {
		return g.without(t, errRoom)
	}
	defer g.lacks.watch(g.from, t.OSThreadID)()
	v := g.visit(t)
	r, err := v.takeAndWalk(v.frames)
	if err != nil {
		if out, ok := v.inDeepWait(err); ok {
			return out
		}
		return g.without(&v.Thread, err)
	}
	return v.finish(r)
}

// without describes a thread without a stack.
func (g *gathering) without(t *Thread, why error) taken {
	out := taken{Thread: g.Summary(t)}
	out.Error = why.Error()
	return out
}

// takeBlocked takes the stack of a blocked thread without a stop. ok is false if this fails; blocked then says whether
// the thread was blocked.
func (g *gathering) takeBlocked(t *Thread) (out taken, blocked, ok bool) {
	v := g.visit(t)
	r, ok := v.WalkBlocked(v.frames)
	if !ok {
		return out, v.FoundBlocked, false
	}
	return v.finish(r), true, true
}

// finish describes a thread that has been captured and walked.
func (v *visit) finish(r walk.Result) taken {
	g := v.g
	out := taken{Thread: g.Summary(&v.Thread), sites: g.stack.asyncs.Sites}
	out.Frames = g.takeWalked()
	g.room -= g.stack.cost
	v.fill(&out.Thread, r)
	v.explain(&out.Thread)
	out.waiting = v.awaiting(out.Frames)
	if g.observer != nil {
		g.observer.Walked(out.OSThreadID, v.queue)
	}
	if g.o.Inspect != nil && v.Walk.Stack != nil {
		g.o.Inspect(&Inspection{&out.Thread, v.Walk.Stack, &v.Walk.Context, out.sites})
	}
	out.Pause, out.proof = v.pause, v.Capture.Proof // the thread may have been captured once more: see again
	out.calls = g.keepStack(&out.Thread, len(out.waiting) > 0)
	return out
}

// largeStack is the least number of frames of a large stack.
const largeStack = 1 << 14

// takeWalked returns the frames of the latest walk. If stacks are packed, the frames are valid until keepStack.
func (g *gathering) takeWalked() []snapshot.Frame {
	walked := g.stack.frames
	if len(walked) < largeStack {
		if g.packing != nil {
			return walked
		}
		return slices.Clone(walked)
	}
	g.stack.frames = nil
	return slices.Clip(walked)
}

// takeAndWalk captures and walks the thread, until the result is complete or another try does not help. It stops the
// thread only if necessary. The error says why there is no capture: ErrThreadEnded if the thread has ended.
func (s *Suspension) takeAndWalk(walked func() walk.Result) (walk.Result, error) {
	if !s.Process.Options.AlwaysStop {
		if r, ok := s.WalkBlocked(walked); ok {
			return r, nil
		}
	}
	return s.StopAndWalk(walked)
}

// StopAndWalk is takeAndWalk for a thread that has to be stopped.
func (s *Suspension) StopAndWalk(walked func() walk.Result) (walk.Result, error) {
	s.extra, s.copies = nil, nil
	for attempt := 0; ; attempt++ {
		if err := s.stop(); err != nil {
			if errors.Is(err, target.ErrThreadExited) {
				err = ErrThreadEnded
			}
			return walk.Result{}, err
		}
		if s.Thread.ID != 0 && s.Walk.Info.Address == 0 {
			return walk.Result{}, ErrThreadEnded // the Thread object is another thread's now
		}
		if r := walked(); !s.lacksMore(r, attempt) {
			return r, nil
		}
	}
}

// lacksMore reports whether another capture may bring missing parts of a walk. attempt is the number of further
// captures so far.
func (s *Suspension) lacksMore(r walk.Result, attempt int) bool {
	switch {
	case attempt >= maxAttempts:
		return false
	case s.metRuntime(r):
		return true
	case isFull(r.Err):
		return false
	case s.askObjects():
		return true
	}
	return !r.Complete && s.mend(r.Err, attempt)
}

// metRuntime reports whether a listed native thread has become a thread of the runtime, and then describes it again.
func (s *Suspension) metRuntime(r walk.Result) bool {
	if s.Thread.ID != 0 || s.Process.Managed == nil || !s.Process.moments.Changes() || r.Complete && !s.Managed {
		return false
	}
	if s.Process.ReadThreadStore() != nil {
		return false
	}
	t, ok := s.Process.Describe(s.Thread.OSThreadID)
	if !ok || t.ID == 0 {
		return false
	}
	s.Thread = t
	return true
}

// WalkBlocked captures the thread without a stop, and calls walked for the walk, if the thread is provably blocked
// and the few known registers lead to the base of the stack.
func (s *Suspension) WalkBlocked(walked func() walk.Result) (walk.Result, bool) {
	p := s.Process
	for range maxAttempts {
		if s.peek() != nil {
			return walk.Result{}, false
		}
		s.FoundBlocked = true
		if p.unsuited[s.Walk.Context.IP] && (s.Unchanged == nil || !s.Unchanged()) {
			return walk.Result{}, false
		}
		r := walked()
		if r.Complete || isFull(r.Err) {
			return r, true
		}
		extra, ok := s.missing(r.Err)
		if !ok {
			if len(p.unsuited) < maxUnsuited {
				p.unsuited[s.Walk.Context.IP] = true
			}
			return r, false
		}
		s.extra = append(s.extra, extra)
	}
	return walk.Result{}, false
}

const maxUnsuited = 4096

// Summary describes a thread, without its frames.
func (p *Process) Summary(t *Thread) snapshot.Thread {
	return snapshot.Thread{
		OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedID, ThreadID: uint64(t.ID),
		Name: t.Name, Role: t.Role, Background: t.Background,
	}
}

// fill completes the description of a walked thread.
func (s *visit) fill(st *snapshot.Thread, r walk.Result) {
	st.Complete = r.Complete
	if r.Err != nil {
		st.Error = r.Err.Error()
	}
	if errors.Is(r.Err, walk.ErrMissing) && s.Capture.Truncated {
		st.Error = "the stack is deeper than the part that clrsnap copies: " + st.Error
	}
	st.State = state(s.Capture)
	st.Kernel = s.kernel()
	switch {
	case s.Thread.Halted:
		st.State = bySignal
	case s.Thread.Traced:
		st.State = byDebugger
	}
	st.Pause = s.Capture.Pause
	st.Crashed = s.Process.from.Crashed() == s.Thread.OSThreadID
	s.exception(st)
	if st.Crashed {
		s.failFast(st)
		st.State = s.Process.crashState()
	}
	if s.Walk.Info.Address != 0 {
		st.Mode = "preemptive"
		if s.Walk.Info.Cooperative {
			st.Mode = "cooperative"
		}
	}
}

// nameless is why the method of a frame cannot be named. A running process has everything that names need; a dump may
// have gaps.
func nameless(ip arch.Addr, err error) error {
	var missing *target.ReadError
	if errors.As(err, &missing) || errors.Is(err, name.ErrLimit) {
		return fmt.Errorf("the method at %v cannot be named: %w", ip, err)
	}
	return fmt.Errorf("%w: the method at %v cannot be named: %w", walk.ErrUnsafe, ip, err)
}

// maxStacks bounds the frames of one snapshot, in bytes: 400,000 frames have room.
const maxStacks = 64 << 20

var errRoom = fmt.Errorf("the frames of the process take more memory than clrsnap's limit of %d MB: "+
	"look at fewer threads at a time", maxStacks>>20)

// isFull reports whether a part of a snapshot is left out for lack of room.
func isFull(err error) bool {
	return errors.Is(err, errRoom) || errors.Is(err, errManyFrames) || errors.Is(err, name.ErrLimit)
}

// frameCost is the number of bytes of fr, the named frame of the walked frame f. Names of methods that cannot be
// unloaded are cached anyway, and not counted.
func frameCost(f *walk.Frame, fr *naming.NamedFrame) int {
	n := int(unsafe.Sizeof(fr.Frame)) + len(fr.Nearest)
	if fr.Kind == snapshot.Managed && (f.Code.Collectible || fr.Module == "" || fr.Passing) {
		n += len(fr.Method) + len(fr.Display) + len(fr.Short) + len(fr.Signature)
	}
	return n
}

// walkedStack is what a walk has found on a stack.
type walkedStack struct {
	frames []snapshot.Frame
	calls  []naming.Call // at which other methods may be inlined
	asyncs awaits.Asyncs
	cost   int // of frames, in bytes
}

// begin begins another walk.
func (w *walkedStack) begin() {
	w.frames, w.calls, w.cost = w.frames[:0], w.calls[:0], 0
	w.asyncs.Begin()
}

// frames walks the captured thread and names the frames.
func (s *visit) frames() walk.Result {
	g, w := s.g, &s.g.stack
	s.Managed, s.generics = false, s.generics[:0]
	w.begin()
	if g.observer != nil {
		g.observer.Begin()
	}
	ctx := s.Walk.Context
	var unnamed error
	above := "" // the method of the latest frame, if the frame is managed
	r := g.Walker.Walk(&s.Walk, &ctx, walk.ByUnwindInfo, func(f *walk.Frame) bool {
		n := len(w.frames)
		if n >= maxStackFrames {
			return false
		}
		fr, err := g.names.Frame(f, above)
		if above = ""; f.Kind == walk.Managed {
			above = fr.Method
		}
		if w.cost += frameCost(f, &fr); w.cost > g.room {
			return false
		}
		if later := fr.Later; later != nil && len(s.generics) < maxGenerics {
			later.Frame = n
			s.generics = append(s.generics, *later)
		}
		if err != nil && unnamed == nil {
			unnamed = nameless(f.IP(), err)
		}
		if n > 0 && f.Kind == walk.Managed {
			g.NameCallee(&w.frames[n-1], f)
			if g.Options.Inlined || len(w.calls) < callsForWaits {
				if c, ok := g.Call(f, n, &w.frames[n-1]); ok {
					w.calls = append(w.calls, c)
				}
			}
		}
		if f.Kind == walk.Native && fr.Method == "" && unnamed == nil {
			unnamed = f.Module.SymbolError()
		}
		if g.async {
			g.NoteFrame(&w.asyncs, f, &fr, n)
		}
		if g.observer != nil && f.Kind == walk.Managed && fr.Of.HasPlace() {
			g.observer.Frame(f, fr.Of.Method, fr.Module, w.frames)
		}
		w.frames = append(w.frames, fr.Frame)
		s.Managed = s.Managed || f.Kind == walk.Managed
		return true
	})
	if w.cost <= g.room {
		s.objects()
	}
	switch {
	case w.cost > g.room:
		w.cost = g.room
		return walk.Result{Err: errRoom}
	case errors.Is(r.Err, walk.ErrStopped):
		return walk.Result{Err: errManyFrames}
	case r.Complete && unnamed != nil:
		return walk.Result{Err: unnamed}
	case r.Complete && s.Managed && s.Thread.ID == 0 && g.unlisted != nil:
		return walk.Result{Err: fmt.Errorf("frames may be missing or stale, because the runtime's Thread object "+
			"was not found: %w", g.unlisted)}
	}
	return r
}

// Named walks the suspended thread's stack once, and names the frames and the calls by which others may have been
// inlined. Named is for tests with a moment of their own; SnapshotThread captures the thread by itself.
func (s *Suspension) Named() (snapshot.Thread, []naming.Call) {
	v := visit{Suspension: *s, g: s.Process.gather(SnapshotOptions{})}
	st := s.Process.Summary(&s.Thread)
	r := v.frames()
	st.Frames = v.g.stack.frames
	v.fill(&st, r)
	return st, v.g.stack.calls
}
