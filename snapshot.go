package clrsnap

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/target"
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
	p.known, p.room = nil, maxStacks // as it is now
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
	out := &profile.Snapshot{Process: p.info, CapturedAt: p.now()}
	p.room = maxStacks
	defer p.note(out)()
	for i := range list {
		if filter != nil && !filter(&list[i]) {
			continue
		}
		s := p.snapshot(&list[i])
		if s.Frames == nil && s.Error == errThreadEnded.Error() {
			continue
		}
		out.Threads = append(out.Threads, s)
	}
	if err := p.from.Alive(); err != nil {
		// What could not be captured for that reason is not worth a mention.
		out.Threads = slices.DeleteFunc(out.Threads, func(t profile.Thread) bool { return len(t.Frames) == 0 })
		return out, err
	}
	return out, nil
}

// now is the time of what is being read.
func (p *Process) now() time.Time {
	if p.core != nil {
		return p.core.Written()
	}
	return time.Now()
}

// note begins to note in out what stops there are, or what a core dump lacks, until the
// result is called.
func (p *Process) note(out *profile.Snapshot) (end func()) {
	if p.core != nil {
		return func() {
			core := *p.info.Core
			if core.Missing = p.core.Missing(); p.unlisted != nil {
				core.Missing = append(core.Missing, fmt.Sprintf("the runtime has %d threads or more: %v", len(p.known), p.unlisted))
			}
			out.Process.Core = &core
		}
	}
	p.stops = &out.Stops
	before := p.live.Released()
	return func() {
		p.stops = nil
		out.Released = p.live.Released() - before
	}
}

// errThreadEnded marks a thread that ended before it could be captured.
var errThreadEnded = errors.New("the thread has ended")

// maxStackFrames bounds the frames of one thread, which a stack of 8 MB seldom has: one that
// has overflowed has some 260,000 of 32 bytes.
const maxStackFrames = 300_000

// errManyFrames: more frames than are kept. To take the stack again would not help.
var errManyFrames = fmt.Errorf("the frames from here on are left out: there are more than the %d that are kept of a thread", maxStackFrames)

// snapshot takes the snapshot of one thread.
func (p *Process) snapshot(t *Thread) profile.Thread {
	if p.room <= 0 {
		st := p.describe(t)
		st.Error = errRoom.Error()
		return st
	}
	s := Suspension{p: p, thread: *t, capture: &p.capture}
	r, err := s.takeAndWalk(func() walk.Result { return s.frames(&p.walked) })
	st := p.describe(&s.thread)
	if err != nil {
		st.Error = err.Error()
		return st
	}
	st.Frames = p.takeWalked()
	p.room -= s.cost
	s.fill(&st, r)
	st.Pause = s.pause
	return st
}

// takeWalked returns the frames that were walked last.
func (p *Process) takeWalked() []profile.Frame {
	const large = 1 << 14
	if len(p.walked) < large {
		return slices.Clone(p.walked)
	}
	frames := slices.Clip(p.walked)
	p.walked = nil
	return frames
}

// takeAndWalk captures the thread, without a stop if that is enough, and has it
// walked, until the result is complete or trying again does not help. Its error
// is why there is no capture: errThreadEnded where the thread has ended.
func (s *Suspension) takeAndWalk(walked func() walk.Result) (walk.Result, error) {
	if s.p.core == nil && !s.p.opts.AlwaysStop {
		if r, ok := s.blocked(walked); ok {
			return r, nil
		}
	}
	return s.stopAndWalk(walked)
}

// stopAndWalk is takeAndWalk for a thread that has to be stopped.
func (s *Suspension) stopAndWalk(walked func() walk.Result) (walk.Result, error) {
	s.extra = nil
	for attempt := 0; ; attempt++ {
		if err := s.stop(); err != nil {
			if errors.Is(err, target.ErrThreadExited) {
				err = errThreadEnded
			}
			return walk.Result{}, err
		}
		if s.thread.ID != 0 && s.walk.Info.Address == 0 {
			return walk.Result{}, errThreadEnded // its Thread object is another one's
		}
		r := walked()
		last := attempt == maxAttempts
		if !last && s.metRuntime(r) {
			continue
		}
		if r.Complete || last || isFull(r.Err) || !s.mend(r.Err, attempt) {
			return r, nil
		}
	}
}

// metRuntime notices that a native thread has become one of the runtime's since
// it was listed, and describes it anew.
func (s *Suspension) metRuntime(r walk.Result) bool {
	if s.thread.ID != 0 || s.p.rt == nil || s.p.core != nil || r.Complete && !s.managed {
		return false
	}
	if s.p.readStore() != nil {
		return false
	}
	t, ok := s.p.thread(s.thread.OSThreadID)
	if !ok || t.ID == 0 {
		return false
	}
	s.thread = t
	return true
}

// blocked captures the thread without a stop and has it walked, if it is
// provably blocked and its few known registers lead to the base of its stack.
func (s *Suspension) blocked(walked func() walk.Result) (walk.Result, bool) {
	p := s.p
	for range maxAttempts {
		if s.peek() != nil {
			return walk.Result{}, false
		}
		s.waits = true
		if p.unsuited[s.walk.Context.IP] && (s.known == nil || !s.known()) {
			return walk.Result{}, false
		}
		r := walked()
		if r.Complete || isFull(r.Err) {
			return r, true
		}
		extra, ok := s.missing(r.Err)
		if !ok {
			if len(p.unsuited) < maxUnsuited {
				p.unsuited[s.walk.Context.IP] = true
			}
			return r, false
		}
		s.extra = append(s.extra, extra)
	}
	return walk.Result{}, false
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
	if s.p.core != nil && s.p.core.Crashed() == s.thread.OSThreadID {
		st.Crashed, st.Exception = true, s.p.exception(&s.walk.Info)
		if st.State == running {
			st.State = ""
		}
	}
	if s.walk.Info.Address != 0 {
		st.Mode = "preemptive"
		if s.walk.Info.Cooperative {
			st.Mode = "cooperative"
		}
	}
}

// nameless is why the method of a frame cannot be named. A running process has
// everything that its methods need; a dump may lack it.
func nameless(ip arch.Addr, err error) error {
	var missing *target.ReadError
	if errors.As(err, &missing) || errors.Is(err, name.ErrRoom) {
		return fmt.Errorf("the method at %v cannot be named: %w", ip, err)
	}
	return fmt.Errorf("%w: the method at %v cannot be named: %w", walk.ErrUnsafe, ip, err)
}

// maxStacks bounds the frames of one snapshot, in bytes: 400,000 of them have room.
const maxStacks = 64 << 20

var errRoom = fmt.Errorf("the stacks of the process have more than the %d MB of frames that are kept of them: look at fewer threads at a time", maxStacks>>20)

// isFull reports whether something is left out of a snapshot because there is no room for it.
func isFull(err error) bool {
	return errors.Is(err, errRoom) || errors.Is(err, errManyFrames) || errors.Is(err, name.ErrRoom)
}

// frameCost is how many bytes a frame takes that was made of a walked one. Names of what stays
// in the process are kept anyway.
func frameCost(f *walk.Frame, fr *profile.Frame) int {
	n := int(unsafe.Sizeof(*fr))
	if fr.Kind == profile.Managed && (f.Code.Collectible || fr.Module == "") {
		n += len(fr.Method) + len(fr.Display) + len(fr.Short) + len(fr.Signature)
	}
	return n
}

// frames walks the captured thread and names its frames.
func (s *Suspension) frames(into *[]profile.Frame) walk.Result {
	*into, s.managed = (*into)[:0], false
	ctx := s.walk.Context
	var unnamed error
	s.cost = 0
	r := s.p.walker.Walk(&s.walk, &ctx, walk.ByUnwindInfo, func(f *walk.Frame) bool {
		if len(*into) >= maxStackFrames {
			return false
		}
		fr, err := s.p.frame(f)
		if s.cost += frameCost(f, &fr); s.cost > s.p.room {
			return false
		}
		if err != nil && unnamed == nil {
			unnamed = nameless(f.IP(), err)
		}
		if f.Kind == walk.Native && fr.Method == "" && unnamed == nil {
			unnamed = f.Module.Nameless()
		}
		*into = append(*into, fr)
		s.managed = s.managed || f.Kind == walk.Managed
		return true
	})
	switch {
	case s.cost > s.p.room:
		s.cost = s.p.room
		return walk.Result{Err: errRoom}
	case errors.Is(r.Err, walk.ErrStopped):
		return walk.Result{Err: errManyFrames}
	case r.Complete && unnamed != nil:
		return walk.Result{Err: unnamed}
	case r.Complete && s.managed && s.thread.ID == 0 && s.p.unlisted != nil:
		return walk.Result{Err: fmt.Errorf("frames may be missing, or be there no more, because the runtime's Thread object was not found: %w", s.p.unlisted)}
	}
	return r
}
