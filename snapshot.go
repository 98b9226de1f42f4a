package clrsnap

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// Snapshot suspends a thread, finds the seed, walks managed and native frames
// and resumes the thread. Unlike DoStackSnapshot it reports methods without
// metadata and the runtime's exception machinery as well, by name, and it never
// is incomplete without saying so: Complete is true only if the walk reached the
// base of the thread's stack and nothing was skipped, and Error says why not.
func (p *Process) Snapshot(thread ThreadID) (*Stack, error) {
	p.eng.Begin()
	p.known = nil // as it is now
	t, err := p.find(thread)
	if err != nil {
		return nil, err
	}
	if d, ok := p.thread(t.OSThreadID); ok {
		t = d
	}
	s := p.snapshot(&t)
	return &s, nil
}

// Filter chooses threads by what the listing says of them.
type Filter func(*Thread) bool

// SnapshotAll takes a snapshot of every thread that filter accepts (nil: all),
// one after the other. Each thread is stopped only while it is copied.
func (p *Process) SnapshotAll(filter Filter) (*profile.Snapshot, error) {
	list, err := p.Threads()
	if err != nil {
		return nil, err
	}
	out := &profile.Snapshot{Process: p.info, CapturedAt: time.Now()}
	defer p.note(out)()
	for i := range list {
		if filter != nil && !filter(&list[i]) {
			continue
		}
		s := p.snapshot(&list[i])
		if s.Frames == nil && s.Error == errEnded {
			continue
		}
		out.Threads = append(out.Threads, s)
	}
	if err := p.live.Alive(); err != nil {
		// What could not be captured for that reason is not worth a mention.
		out.Threads = slices.DeleteFunc(out.Threads, func(t profile.Thread) bool { return len(t.Frames) == 0 })
		return out, err
	}
	return out, nil
}

// note begins to note what stops there are in out, until the result is called.
func (p *Process) note(out *profile.Snapshot) (end func()) {
	p.stops = &out.Stops
	before := p.live.Released()
	return func() {
		p.stops = nil
		out.Released = p.live.Released() - before
	}
}

// SnapshotAtOnce stops all threads that filter accepts (nil: all), copies them
// while all of them stand still, and lets them go: their stacks belong to one
// instant.
func (p *Process) SnapshotAtOnce(filter Filter) (*profile.Snapshot, error) {
	if p.walking {
		return nil, errNested(0)
	}
	list, err := p.Threads()
	if err != nil {
		return nil, err
	}
	chosen := list[:0]
	for i := range list {
		if filter == nil || filter(&list[i]) {
			chosen = append(chosen, list[i])
		}
	}
	out := &profile.Snapshot{Process: p.info}
	defer p.note(out)()
	reqs := make([]live.Request, len(chosen))
	for i := range chosen {
		reqs[i] = p.request(&chosen[i], nil)
		reqs[i].StackLimit = max(minStackAtOnce, min(p.opts.MaxStack, allStacksAtOnce/len(chosen)))
	}
	p.moment++
	captures, errs := make([]live.Capture, len(reqs)), make([]error, len(reqs))
	err = p.live.Trace(func(t *live.Tracer) error { return t.CaptureAll(reqs, captures, errs) })
	if err != nil {
		return nil, err
	}
	out.CapturedAt = time.Now()
	p.eng.Begin()
	for i := range chosen {
		s := Suspension{p: p, thread: chosen[i], capture: &captures[i]}
		st := p.describe(&s.thread)
		if err := p.taken(&s, errs[i]); err != nil {
			if errors.Is(err, live.ErrThreadExited) {
				continue
			}
			st.Error = err.Error()
		} else {
			s.fill(&st, s.frames(&st))
		}
		out.Threads = append(out.Threads, st)
	}
	return out, p.live.Alive()
}

// allStacksAtOnce bounds the memory for all threads' stacks together, in bytes, as
// far as each still gets the least.
const (
	allStacksAtOnce = 128 << 20
	minStackAtOnce  = 64 << 10
)

// errEnded marks a thread that ended before it could be captured.
const errEnded = "the thread has ended"

// snapshot captures and walks one thread, until the result is complete or trying
// again does not help.
func (p *Process) snapshot(t *Thread) profile.Thread {
	s := Suspension{p: p, thread: *t, capture: &p.capture}
	st := p.describe(t)
	if !p.opts.AlwaysStop && s.blocked(&st) {
		return st
	}
	s.extra = nil
	var pause time.Duration
	for attempt := 0; ; attempt++ {
		if err := s.stop(); err != nil {
			st.Error, st.Frames = err.Error(), nil
			if errors.Is(err, live.ErrThreadExited) {
				st.Error = errEnded
			}
			return st
		}
		pause = max(pause, s.capture.Pause)
		if s.thread.ID != 0 && s.walk.Info.Address == 0 {
			st.Error, st.Frames = errEnded, nil // its Thread object is another one's
			return st
		}
		r := s.frames(&st)
		last := attempt == maxAttempts
		if !last && s.metRuntime(&st, r) {
			continue
		}
		if r.Complete || last {
			s.fill(&st, r)
			st.Pause = pause
			return st
		}
		s.mend(r.Err, attempt)
	}
}

// metRuntime notices that a native thread has become one of the runtime's since
// it was listed, and describes it anew.
func (s *Suspension) metRuntime(st *profile.Thread, r walk.Result) bool {
	if s.thread.ID != 0 || s.p.rt == nil {
		return false
	}
	suspect := !r.Complete
	for i := range st.Frames {
		suspect = suspect || st.Frames[i].Kind == profile.Managed
	}
	if !suspect {
		return false
	}
	if s.p.readStore() != nil {
		return false
	}
	t, ok := s.p.thread(s.thread.OSThreadID)
	if !ok || t.ID == 0 {
		return false
	}
	s.thread, *st = t, s.p.describe(&t)
	return true
}

// blocked takes the snapshot without a stop, if the thread is provably blocked
// and its few known registers lead to the base of its stack.
func (s *Suspension) blocked(st *profile.Thread) bool {
	p := s.p
	for range maxAttempts {
		if s.peek() != nil || p.unsuited[s.walk.Context.IP] {
			return false
		}
		r := s.frames(st)
		if r.Complete {
			s.fill(st, r)
			return true
		}
		extra, ok := s.missing(r.Err)
		if !ok {
			if len(p.unsuited) < maxUnsuited {
				p.unsuited[s.walk.Context.IP] = true
			}
			return false
		}
		s.extra = append(s.extra, extra)
	}
	return false
}

const maxUnsuited = 4096

func (p *Process) describe(t *Thread) profile.Thread {
	return profile.Thread{
		OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedID, ThreadID: uint64(t.ID),
		Name: t.Name, Role: t.Role,
	}
}

// fill completes the description of a walked thread.
func (s *Suspension) fill(st *profile.Thread, r walk.Result) {
	st.Complete = r.Complete
	if r.Err != nil {
		st.Error = r.Err.Error()
	}
	if errors.Is(r.Err, walk.ErrMissing) && s.capture.Cut {
		st.Error = "the stack is deeper than what may be copied of it: " + st.Error
	}
	st.State = state(s.capture)
	if s.thread.halted {
		st.State = "stopped by a signal"
	}
	st.Pause = s.capture.Pause
	if s.walk.Info.Address != 0 {
		st.Mode = "preemptive"
		if s.walk.Info.Cooperative {
			st.Mode = "cooperative"
		}
	}
}

// frames walks the captured thread and names its frames.
func (s *Suspension) frames(st *profile.Thread) walk.Result {
	st.Frames = st.Frames[:0]
	ctx := s.walk.Context
	var unnamed error
	r := s.p.walker.Walk(&s.walk, &ctx, walk.ByUnwindInfo, func(f *walk.Frame) bool {
		fr, err := s.p.frame(f)
		if err != nil && unnamed == nil {
			unnamed = fmt.Errorf("%w: the method at %v cannot be named: %w", walk.ErrUnsafe, f.IP(), err)
		}
		st.Frames = append(st.Frames, fr)
		return true
	})
	if r.Complete && unnamed != nil {
		return walk.Result{Err: unnamed}
	}
	return r
}
