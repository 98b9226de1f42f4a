package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// SnapshotAtOnce takes the stacks of every thread that filter accepts (nil: all), all of one
// instant. If threads wait for CPUs, none has a CPU for a moment, and the kernel tells registers, then
// the moment is the instant, and no thread is stopped. Otherwise every running thread is stopped at the instant. The
// other threads are proved to have been blocked, and not to have run from before the copy of their
// stacks until after the instant.
// If an attempt lacks a stack, for example because a thread got no CPU to stop on, SnapshotAtOnce
// tries a few more instants. The last attempt counts in any case: a missing thread has the reason.
// The stacks in a core dump always belong to one instant.
func (p *Process) SnapshotAtOnce(ctx context.Context, filter Filter) (*profile.Snapshot, error) {
	if !p.from.changes() {
		return p.SnapshotAll(ctx, filter)
	}
	if p.Walking {
		return nil, NestedError(0)
	}
	out := &profile.Snapshot{Process: p.info}
	defer p.from.note(p, out)()
	defer p.Live.FreeAll()
	defer p.Live.FreeLook()
	p.room = maxStacks
	p.beginLate()
	p.runs, p.stamps = nil, nil
	defer p.endLate()
	defer p.endPacking()
	inGroups := p.watchGroups()
	a := atOnce{p: p, filter: filter, out: out}
	for _, limit := range instantLimits {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p.Live.AllLimit = limit
		if err := a.attempt(); err != nil {
			return nil, err
		}
		if !a.again {
			break
		}
	}
	p.Live.FreeAll()
	p.Live.FreeLook()
	p.endPacking()
	out.Threads = make([]profile.Thread, 0, len(a.members))
	calls, waiting := callsByThread{}, awaitingByThread{}
	for i := range a.members {
		if m := &a.members[i]; !m.ended {
			out.Threads = append(out.Threads, m.stack)
			calls.keep(m.stack.OSThreadID, m.calls)
			waiting.keep(m.stack.OSThreadID, m.awaited)
		}
	}
	a.members = nil
	p.addHolds(out)
	p.relate(out.Threads, nil)
	inGroups(out.Threads)
	p.complete(ctx, out, calls, waiting)
	return out, p.Live.Alive()
}

// instantLimits bound how long each attempt waits for the running threads to stop, while the first
// of the threads already stand still. A thread that has got no CPU by then may well have a CPU at
// the next attempt.
var instantLimits = []time.Duration{
	20 * time.Millisecond, 50 * time.Millisecond, live.DefaultAllLimit, live.DefaultAllLimit,
}

// atOnce is the search for one instant.
type atOnce struct {
	p       *Process
	filter  Filter
	out     *profile.Snapshot
	members []member
	listed  int  // threads of the process when members were listed
	waits   bool // threads wait for CPUs: perhaps no thread has a CPU for a moment
	again   bool // another attempt may have what the latest attempt lacks
	extra   int  // bytes of stack that the members ask for, beyond the first part of each
	beyond  int  // bound of extra
}

// member is a thread on its way to the common instant.
type member struct {
	thread  Thread
	proof   target.Proof   // that the thread is blocked with the stack below; "": the thread has to be stopped
	stack   profile.Thread // of the latest capture
	calls   keptCalls      // of the frames in stack
	awaited []AwaitingAt   // likewise
	cost    int            // of the frames, in bytes of Process.room
	extra   []target.Range // pieces of stack to copy when the thread is stopped
	ended   bool
	owner   []target.Region // the memory read to find the owner of the awaited lock
}

// looks is the number of times that blocked threads are captured before the other threads are
// stopped. The first time takes as long as walking the blocked threads' stacks. Threads that have
// run meanwhile are captured again.
const looks = 3

// attempt takes all stacks of one instant.
func (a *atOnce) attempt() error {
	if err := a.list(); err != nil {
		return err
	}
	a.p.beginPacking()
	if !a.p.Options.AlwaysStop {
		for n := 0; n < looks && a.look() > 0; n++ {
		}
	}
	return a.capture()
}

// list lists the threads, and keeps the findings of earlier attempts.
func (a *atOnce) list() error {
	list, err := a.p.Threads()
	if err != nil {
		return err
	}
	known := make(map[int]*member, len(a.members))
	for i := range a.members {
		known[a.members[i].thread.OSThreadID] = &a.members[i]
	}
	members := make([]member, 0, len(list))
	for i := range list {
		if a.filter != nil && !a.filter(&list[i]) {
			continue
		}
		m := member{thread: list[i]}
		if old := known[m.thread.OSThreadID]; old != nil && old.thread.ID == m.thread.ID {
			m = *old
			m.thread, m.ended = list[i], false
		}
		members = append(members, m)
	}
	a.members, a.listed, a.waits = members, len(list), a.p.waitForCPUs(list)
	return nil
}

// look captures and walks, without a stop, the blocked threads that have run since the last look.
// The result is the number of these threads.
func (a *atOnce) look() (moved int) {
	for i := range a.members {
		m := &a.members[i]
		if a.p.Live.Holds(m.thread.OSThreadID, m.proof) {
			continue
		}
		a.forget(m)
		s := Suspension{
			Process: a.p, Thread: m.thread, Capture: &a.p.Capture, Also: a.p.AlsoBlocking(&m.thread),
		}
		r, ok := s.WalkBlocked(func() walk.Result { return s.frames(&a.p.walked) })
		if !ok {
			continue
		}
		moved++
		m.proof = s.Capture.Proof
		a.describe(m, &s, r)
	}
	return moved
}

// forget makes room for the next walk of a thread's stack.
func (a *atOnce) forget(m *member) {
	a.p.room += m.cost
	m.proof, m.cost = "", 0
}

// describe describes the thread just walked.
func (a *atOnce) describe(m *member, s *Suspension, r walk.Result) {
	m.stack = a.p.Summary(&s.Thread)
	m.stack.Frames = a.p.takeWalked()
	m.cost = s.cost
	a.p.room -= m.cost
	s.fill(&m.stack, r)
	s.explain(&m.stack)
	m.owner = s.restsOn
	m.awaited = slices.Clone(s.awaiting(m.stack.Frames))
	m.calls = a.p.keepStack(&m.stack)
}

// Bounds on the memory for the stacks of all threads together, in bytes. Each thread gets
// minStackAtOnce in any case: minStackAtOnce and the head of the Thread object take a page.
const (
	allStacksAtOnce = 64 << 20
	minStackAtOnce  = 2 << 10
)

// shareStacks divides allStacksAtOnce among n threads. first is each thread's share for the first
// part of the stack: at most half of the memory together. beyond is the rest, for the further parts
// of deep stacks.
func shareStacks(n int) (first, beyond int) {
	first = max(minStackAtOnce, min(FirstStack, allStacksAtOnce/2/max(n, 1)))
	return first, max(allStacksAtOnce-n*first, 0)
}

// capture captures all members as of one instant, and walks the members without an earlier stack.
func (a *atOnce) capture() error {
	reqs := make([]target.Request, len(a.members))
	var limit int
	limit, a.beyond = shareStacks(len(reqs))
	a.extra = 0
	for i := range a.members {
		m := &a.members[i]
		reqs[i] = a.p.Request(&m.thread, slices.Concat(a.p.AlsoBlocking(&m.thread), m.extra))
		reqs[i].StackLimit, reqs[i].Proof = limit, m.proof
		for _, r := range m.extra {
			a.extra += r.Len
		}
	}
	a.askOwners(reqs)
	a.p.moment++
	captures, errs := make([]target.Capture, len(reqs)), make([]error, len(reqs))
	threads, err := a.captureAll(reqs, captures, errs)
	if err != nil {
		return err
	}
	a.out.CapturedAt = time.Now()
	a.again = false
	a.p.Engine.Begin()
	ended := 0
	for i := range a.members {
		m := &a.members[i]
		if m.isNew(&captures[i]) || errs[i] != nil {
			a.captured(m, &captures[i], errs[i])
		}
		if m.ended && m.thread.OSThreadID != a.p.from.PID() { // the main thread stays listed until all have ended
			ended++
		}
	}
	a.checkOwners(captures, errs)
	a.out.Unlisted = 0
	if len(a.members) == a.listed { // else the number of ended threads among the others is unknown
		a.out.Unlisted = max(threads-(a.listed-ended), 0)
	}
	a.again = a.again || a.out.Unlisted > 0
	return nil
}

// captureAll captures all members as of one instant: without a stop if no member has a CPU for a moment, and
// otherwise with stops. The result is the process's number of threads at the instant.
func (a *atOnce) captureAll(reqs []target.Request, captures []target.Capture, errs []error) (threads int, err error) {
	p := a.p
	if !p.Options.AlwaysStop && a.waits {
		threads, ok, err := p.Live.LookAtOnce(reqs, captures, errs)
		switch {
		case errors.Is(err, live.ErrUnavailable):
		case err != nil:
			return 0, err
		case ok:
			a.out.Registers.From = profile.RegistersKernel
			return threads, nil
		}
	}
	a.out.Registers.From = ""
	err = p.Live.Trace(func(t *live.Tracer) (err error) {
		threads, err = t.CaptureAll(reqs, captures, errs)
		return err
	})
	return threads, err
}

// isNew reports whether a capture at the instant replaces the member's earlier capture.
func (m *member) isNew(c *target.Capture) bool { return c.Stopped || c.Proof != m.proof }

// captured walks a member captured at the instant, and sets again if another attempt may bring more.
func (a *atOnce) captured(m *member, c *target.Capture, err error) {
	a.forget(m)
	s := Suspension{Process: a.p, Thread: m.thread, Capture: c, extra: m.extra}
	if err := a.p.FinishCapture(&s, err); err != nil {
		m.ended = errors.Is(err, target.ErrThreadExited)
		m.stack = a.p.Summary(&m.thread)
		m.stack.Error = err.Error()
		if p := a.p; p.Live != nil && errors.Is(err, live.ErrNotStopping) {
			s.ofKernel(&m.stack)
		}
		for _, passing := range []error{live.ErrNotStopping, live.ErrWatchdog, live.ErrTracerLost} {
			a.again = a.again || errors.Is(err, passing)
		}
		return
	}
	before := m.stack
	r := s.frames(&a.p.walked)
	a.describe(m, &s, r)
	switch {
	case s.metRuntime(r), s.Walk.Gap != nil, m.thread.ID != 0 && s.Walk.Info.Address == 0:
		a.again = true // the runtime's thread is not the listed thread any more, or has thrown since
	case r.Complete || isFull(r.Err) || sameEnd(&before, &m.stack):
	default:
		a.again = true
		if extra, ok := s.missing(r.Err); !ok {
			_ = a.p.updateModules() // on failure the walk reports the lack
		} else if a.extra += extra.Len; a.extra <= a.beyond {
			m.extra = append(m.extra, extra)
		}
	}
}

// sameEnd reports whether a thread's stack is lost at the same place as before.
func sameEnd(a, b *profile.Thread) bool {
	return a.Error == b.Error && a.Depth() > 0 && a.Depth() == b.Depth() && a.Frame(0).IP == b.Frame(0).IP
}
