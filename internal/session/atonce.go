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
// instant. At that instant every thread that was running is stopped. Of the others it is proved
// that they were blocked, and did not run from before their stacks were copied until after the
// instant. If an attempt lacks a stack, because a thread got no CPU to stop on, for example, a few
// more instants are tried. The last attempt counts as it is: a thread that is missing says why.
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
	p.room = maxStacks
	p.beginLate()
	p.runs, p.stamps = nil, nil
	defer p.endLate()
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
	calls, waiting := callsByThread{}, awaitingByThread{}
	for i := range a.members {
		if m := &a.members[i]; !m.ended {
			out.Threads = append(out.Threads, m.stack)
			calls.keep(m.stack.OSThreadID, m.calls)
			waiting.keep(m.stack.OSThreadID, m.awaited)
		}
	}
	p.addHolds(out)
	p.relate(out.Threads, nil)
	inGroups(out.Threads)
	p.complete(ctx, out, calls, waiting)
	return out, p.Live.Alive()
}

// instantLimits are how long each attempt waits for the running threads to stop, while
// the first of them stand still already. A thread that has got no CPU by then may well have
// one at the next attempt.
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
	again   bool // the latest attempt lacks something that another may have
	extra   int  // bytes of stack that the members ask for, beyond the first part of each
	beyond  int  // bytes that they may have there
}

// member is a thread on its way to the common instant.
type member struct {
	thread  Thread
	proof   target.Proof   // that the thread is blocked with this stack; "": it has to be stopped
	stack   profile.Thread // of the latest capture
	calls   []Call         // of its frames
	awaited []AwaitingAt   // likewise
	cost    int            // of its frames, in bytes of Process.room
	extra   []target.Range // pieces of stack to be copied when it is stopped
	ended   bool
	owner   []target.Region // what the owner of the lock that it waits for was read from
}

// looks is how many times blocked threads are looked at before the others are stopped. The first
// time takes as long as walking their stacks does. Threads that have run meanwhile are looked at
// again.
const looks = 3

// attempt takes all stacks of one instant.
func (a *atOnce) attempt() error {
	if err := a.list(); err != nil {
		return err
	}
	if !a.p.Options.AlwaysStop {
		for n := 0; n < looks && a.look() > 0; n++ {
		}
	}
	return a.capture()
}

// list lists the threads, and keeps what earlier attempts have found out about them.
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
	a.members, a.listed = members, len(list)
	return nil
}

// look captures and walks threads without stopping them: those that are blocked and have
// run since they were last looked at. It returns how many these were.
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

// forget makes room for another stack of a thread, which is going to be walked.
func (a *atOnce) forget(m *member) {
	a.p.room += m.cost
	m.proof, m.cost = "", 0
}

// describe describes a thread that has just been walked.
func (a *atOnce) describe(m *member, s *Suspension, r walk.Result) {
	m.stack = a.p.Summary(&s.Thread)
	m.stack.Frames = a.p.takeWalked()
	m.calls = slices.Clone(a.p.calls)
	m.cost = s.cost
	a.p.room -= m.cost
	s.fill(&m.stack, r)
	s.explain(&m.stack)
	m.owner = s.restsOn
	m.awaited = slices.Clone(s.awaiting(m.stack.Frames))
}

// Bounds on the memory for the stacks of all threads together, in bytes. Each thread gets
// minStackAtOnce in any case: that and the head of its Thread object take a page.
const (
	allStacksAtOnce = 64 << 20
	minStackAtOnce  = 2 << 10
)

// shareStacks shares allStacksAtOnce out: each of n threads gets so much for the first part of its
// stack, half of the memory at most together. The rest is for what deep stacks have beyond that.
func shareStacks(n int) (first, beyond int) {
	first = max(minStackAtOnce, min(FirstStack, allStacksAtOnce/2/max(n, 1)))
	return first, max(allStacksAtOnce-n*first, 0)
}

// capture has all members stand still at one instant, and walks those that had to be
// stopped for it.
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
	threads := 0
	err := a.p.Live.Trace(func(t *live.Tracer) (err error) {
		threads, err = t.CaptureAll(reqs, captures, errs)
		return err
	})
	if err != nil {
		return err
	}
	a.out.CapturedAt = time.Now()
	a.again = false
	a.p.Engine.Begin()
	ended := 0
	for i := range a.members {
		m := &a.members[i]
		if captures[i].Stopped || errs[i] != nil {
			a.stopped(m, &captures[i], errs[i])
		}
		if m.ended && m.thread.OSThreadID != a.p.from.PID() { // the main thread is there until all have ended
			ended++
		}
	}
	a.checkOwners(captures, errs)
	a.out.Unlisted = 0
	if len(a.members) == a.listed { // else it is not known how many of the others have ended
		a.out.Unlisted = max(threads-(a.listed-ended), 0)
	}
	a.again = a.again || a.out.Unlisted > 0
	return nil
}

// stopped walks a member that had to be stopped, and sets again if another attempt may
// bring more.
func (a *atOnce) stopped(m *member, c *target.Capture, err error) {
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
		a.again = true // it is another thread for the runtime than when it was listed, or has thrown since
	case r.Complete || isFull(r.Err) || sameEnd(&before, &m.stack):
	default:
		a.again = true
		if extra, ok := s.missing(r.Err); !ok {
			_ = a.p.updateModules() // else the walk says what it lacks
		} else if a.extra += extra.Len; a.extra <= a.beyond {
			m.extra = append(m.extra, extra)
		}
	}
}

// sameEnd reports whether a thread's stack is lost at the same place as before.
func sameEnd(a, b *profile.Thread) bool {
	return a.Error == b.Error && len(a.Frames) > 0 && len(a.Frames) == len(b.Frames) && a.Frames[0].IP == b.Frames[0].IP
}
