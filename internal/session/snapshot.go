package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/priority"
	"clrsnap/internal/target"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// Snapshot suspends a thread, finds the seed, walks managed and native frames and resumes the thread. The result also
// has methods without metadata and the runtime's exception machinery, by name. Complete is true only if the walk
// reached the base of the thread's stack and nothing was skipped; if not, Error says why.
func (p *Process) Snapshot(thread arch.Addr) (*profile.Thread, error) {
	p.Engine.Begin()
	p.known, p.room = nil, maxStacks // as it is now
	t, err := p.Find(thread)
	if err != nil {
		return nil, err
	}
	if d, ok := p.Describe(t.OSThreadID); ok {
		t = d
	}
	p.beginLate()
	out := profile.Snapshot{Threads: []profile.Thread{p.snapshot(&t)}}
	calls, waiting := callsByThread{}, awaitingByThread{}
	calls.keep(t.OSThreadID, p.kept)
	waiting.keep(t.OSThreadID, p.awaited)
	p.addHolds(&out)
	ctx, cancel := context.WithTimeout(context.Background(), fetchAlone)
	defer cancel()
	p.complete(ctx, &out, calls, waiting)
	return &out.Threads[0], nil
}

// complete adds fetched symbols to captured stacks. Then it adds inlined methods at calls and the awaiters of async
// methods, because both move frames.
func (p *Process) complete(ctx context.Context, out *profile.Snapshot, calls callsByThread, waiting awaitingByThread) {
	p.fetch(ctx, out.Threads)
	p.addInlined(out.Threads, calls)
	addAwaiting(out.Threads, waiting)
}

// Filter chooses threads by their entries in the list of threads.
type Filter func(*Thread) bool

// SnapshotAll takes a snapshot of every thread that filter accepts (nil: all), one after the other. Each thread is
// stopped only for the copy. When ctx ends, the result has the threads captured by then, and the error is the error
// of ctx. When the process exits, the result has everything captured until then, and the error says that the process
// has exited.
func (p *Process) SnapshotAll(ctx context.Context, filter Filter) (*profile.Snapshot, error) {
	p.beginPacking()
	defer p.endPacking()
	return p.plainSnapshot(ctx, filter)
}

// plainSnapshot is SnapshotAll without packed stacks, for callers that read the frames.
func (p *Process) plainSnapshot(ctx context.Context, filter Filter) (*profile.Snapshot, error) {
	return p.snapshotAll(ctx, filter, func(*profile.Snapshot, found) {})
}

// found is the information found at the calls of threads' stacks, besides frames.
type found struct {
	calls   callsByThread
	waiting awaitingByThread
}

// keep keeps the information found for the thread that was captured last.
func (f found) keep(p *Process, tid int) {
	delete(f.calls, tid)
	delete(f.waiting, tid)
	f.calls.keep(tid, p.kept)
	f.waiting.keep(tid, p.awaited)
}

// snapshotAll is SnapshotAll. It calls the function also when all threads have been captured.
func (p *Process) snapshotAll(ctx context.Context, filter Filter, also func(*profile.Snapshot, found)) (
	*profile.Snapshot, error,
) {
	if p.Live != nil {
		defer priority.Hurry()()
	}
	list, err := p.Threads()
	if err != nil {
		return nil, err
	}
	out := &profile.Snapshot{Process: p.info, CapturedAt: p.from.capturedAt()}
	p.room = maxStacks
	defer p.from.note(p, out)()
	f := found{callsByThread{}, awaitingByThread{}}
	p.beginLate()
	p.runs, p.stamps = nil, nil
	defer func() {
		p.endPacking()
		p.complete(ctx, out, f.calls, f.waiting)
	}()
	inGroups := p.watchGroups()
	if err := p.takeAll(ctx, list, filter, out, f); err != nil {
		return out, err
	}
	p.addHolds(out)
	p.relate(out.Threads, nil)
	also(out, f)
	inGroups(out.Threads)
	if err := p.from.Alive(); err != nil {
		// Threads without frames could not be captured because the process has exited: leave them out.
		out.Threads = slices.DeleteFunc(out.Threads, func(t profile.Thread) bool { return t.Depth() == 0 })
		return out, err
	}
	return out, nil
}

// ErrThreadEnded marks a thread that ended before the capture.
var ErrThreadEnded = errors.New("the thread has ended")

// maxStackFrames bounds the frames of one thread. Few stacks of 8 MB have more: an overflowed stack has some 260,000
// frames of 32 bytes.
const maxStackFrames = 300_000

// errManyFrames: the stack has more frames than are kept. Another capture would not help.
var errManyFrames = fmt.Errorf("the frames from here on are left out: clrsnap keeps at most %d of a thread",
	maxStackFrames)

// snapshot takes the snapshot of one thread.
func (p *Process) snapshot(t *Thread) profile.Thread {
	p.calls, p.awaited, p.kept = p.calls[:0], p.awaited[:0], keptCalls{}
	if p.room <= 0 {
		st := p.Summary(t)
		st.Error = errRoom.Error()
		return st
	}
	defer p.lacks.watch(p.from, t.OSThreadID)()
	s := Suspension{Process: p, Thread: *t, Capture: &p.Capture, Also: p.AlsoBlocking(t)}
	r, err := s.takeAndWalk(func() walk.Result { return s.frames(&p.walked) })
	if err != nil {
		if st, ok := s.inDeepWait(err); ok {
			return st
		}
		st := p.Summary(&s.Thread)
		st.Error = err.Error()
		return st
	}
	return p.finish(&s, r)
}

// snapshotBlocked takes the snapshot of a blocked thread without a stop. ok is false if this fails; blocked then says
// whether the thread was blocked.
func (p *Process) snapshotBlocked(t *Thread) (st profile.Thread, blocked, ok bool) {
	p.calls, p.awaited, p.kept = p.calls[:0], p.awaited[:0], keptCalls{}
	s := Suspension{Process: p, Thread: *t, Capture: &p.Capture, Also: p.AlsoBlocking(t)}
	r, ok := s.WalkBlocked(func() walk.Result { return s.frames(&p.walked) })
	if !ok {
		return st, s.FoundBlocked, false
	}
	return p.finish(&s, r), true, true
}

// finish describes a thread that has been captured and walked.
func (p *Process) finish(s *Suspension, r walk.Result) profile.Thread {
	st := p.Summary(&s.Thread)
	st.Frames = p.takeWalked()
	p.room -= s.cost
	s.fill(&st, r)
	s.explain(&st)
	s.awaiting(st.Frames)
	p.duties.keep(p, st.OSThreadID)
	if p.Inspect != nil && s.Walk.Stack != nil {
		p.Inspect(&st, s.Walk.Stack)
	}
	st.Pause = s.pause
	p.kept = p.keepStack(&st)
	return st
}

// largeStack is the least number of frames of a large stack.
const largeStack = 1 << 14

// takeWalked returns the frames of the latest walk. If stacks are packed, the frames are valid until keepStack.
func (p *Process) takeWalked() []profile.Frame {
	if len(p.walked) < largeStack {
		if p.packing != nil {
			return p.walked
		}
		return slices.Clone(p.walked)
	}
	frames := slices.Clip(p.walked)
	p.walked = nil
	return frames
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
	if s.Thread.ID != 0 || s.Process.Managed == nil || !s.Process.from.changes() || r.Complete && !s.Managed {
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
func (p *Process) Summary(t *Thread) profile.Thread {
	return profile.Thread{
		OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedID, ThreadID: uint64(t.ID),
		Name: t.Name, Role: t.Role, Background: t.Background,
	}
}

// fill completes the description of a walked thread.
func (s *Suspension) fill(st *profile.Thread, r walk.Result) {
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
func frameCost(f *walk.Frame, fr *NamedFrame) int {
	n := int(unsafe.Sizeof(fr.Frame)) + len(fr.Nearest)
	if fr.Kind == profile.Managed && (f.Code.Collectible || fr.Module == "" || fr.passing) {
		n += len(fr.Method) + len(fr.Display) + len(fr.Short) + len(fr.Signature)
	}
	return n
}

// frames walks the captured thread and names its frames.
func (s *Suspension) frames(into *[]profile.Frame) walk.Result {
	*into, s.Managed, s.generics = (*into)[:0], false, s.generics[:0]
	s.Process.calls = s.Process.calls[:0]
	s.Process.asyncs.Begin()
	s.Process.duties.begin()
	ctx := s.Walk.Context
	var unnamed error
	above := "" // the method of the latest frame, if the frame is managed
	s.cost = 0
	r := s.Process.Walker.Walk(&s.Walk, &ctx, walk.ByUnwindInfo, func(f *walk.Frame) bool {
		if len(*into) >= maxStackFrames {
			return false
		}
		fr, err := s.Process.Frame(f, above)
		if above = ""; f.Kind == walk.Managed {
			above = fr.Method
		}
		if s.cost += frameCost(f, &fr); s.cost > s.Process.room {
			return false
		}
		if g := fr.later; g != nil && len(s.generics) < maxGenerics {
			g.frame = len(*into)
			s.generics = append(s.generics, *g)
		}
		if err != nil && unnamed == nil {
			unnamed = nameless(f.IP(), err)
		}
		if n := len(*into); n > 0 && f.Kind == walk.Managed {
			s.Process.NameCallee(&(*into)[n-1], f)
			if s.Process.Options.Inlined || len(s.Process.calls) < callsForWaits {
				if c, ok := s.Process.Call(f, n, &(*into)[n-1]); ok {
					s.Process.calls = append(s.Process.calls, c)
				}
			}
		}
		if f.Kind == walk.Native && fr.Method == "" && unnamed == nil {
			unnamed = f.Module.SymbolError()
		}
		if s.Process.Options.Async {
			s.Process.asyncFrame(f, &fr, len(*into))
		}
		s.Process.duties.frame(s.Process, f, &fr, *into)
		*into = append(*into, fr.Frame)
		s.Managed = s.Managed || f.Kind == walk.Managed
		return true
	})
	if s.cost <= s.Process.room {
		s.objects(*into)
	}
	switch {
	case s.cost > s.Process.room:
		s.cost = s.Process.room
		return walk.Result{Err: errRoom}
	case errors.Is(r.Err, walk.ErrStopped):
		return walk.Result{Err: errManyFrames}
	case r.Complete && unnamed != nil:
		return walk.Result{Err: unnamed}
	case r.Complete && s.Managed && s.Thread.ID == 0 && s.Process.unlisted != nil:
		return walk.Result{Err: fmt.Errorf("frames may be missing or stale, because the runtime's Thread object "+
			"was not found: %w", s.Process.unlisted)}
	}
	return r
}

// Named walks the suspended thread's stack once, and names the frames and the calls by which others may have been
// inlined. Named is for tests with a moment of their own; Snapshot captures the thread by itself.
func (s *Suspension) Named() (profile.Thread, []Call) {
	st := s.Process.Summary(&s.Thread)
	s.fill(&st, s.frames(&st.Frames))
	return st, slices.Clone(s.Process.calls)
}
