package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// atOnce takes the stacks of the chosen threads at one instant. If threads wait for CPUs, none has a
// CPU for a moment, and the kernel tells registers, then the moment is the instant, and no thread is
// stopped. Otherwise every running thread is stopped at the instant. The other threads are proved to
// have been blocked, and not to have run from before the copy of their stacks until after the
// instant.
//
// If an attempt lacks a stack, for example because a thread got no CPU to stop on, a few more
// instants are tried. The last attempt counts in any case: a missing thread has the reason.
func (g *gathering) atOnce(ctx context.Context) (*snapshot.Snapshot, error) {
	if g.Walking {
		return nil, NestedError(0)
	}
	out := g.out
	defer g.note()()
	defer g.Live.FreeAll()
	defer g.Live.FreeLook()
	g.beginLate()
	defer g.names.EndLate()
	inGroups := g.watchGroups()
	a := atOnce{g: g}
	for _, limit := range instantLimits {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		g.Live.AllLimit = limit
		if err := a.attempt(); err != nil {
			return nil, err
		}
		if !a.again {
			break
		}
	}
	g.Live.FreeAll()
	g.Live.FreeLook()
	out.Threads = make([]snapshot.Thread, 0, len(a.members))
	for i := range a.members {
		if m := &a.members[i]; !m.ended {
			g.add(m.stack)
		}
	}
	a.members = nil
	g.addHolds()
	g.relate(nil)
	inGroups(out.Threads)
	g.complete(ctx)
	return out, g.Live.Alive()
}

// instantLimits bound how long each attempt waits for the running threads to stop, while the first
// of the threads already stand still. A thread that has got no CPU by then may well have a CPU at
// the next attempt.
var instantLimits = []time.Duration{
	20 * time.Millisecond, 50 * time.Millisecond, live.DefaultAllLimit, live.DefaultAllLimit,
}

// atOnce is the search for one instant.
type atOnce struct {
	g       *gathering
	members []member
	listed  int  // threads of the process when members were listed
	waits   bool // threads wait for CPUs: perhaps no thread has a CPU for a moment
	again   bool // another attempt may have what the latest attempt lacks
	extra   int  // bytes of stack that the members ask for, beyond the first part of each
	beyond  int  // bound of extra
}

// member is a thread on its way to the common instant.
type member struct {
	thread Thread
	proof  target.Proof   // that the thread is blocked with the stack below; "": the thread has to be stopped
	stack  taken          // of the latest capture
	cost   int            // of the frames, in bytes of gathering.room
	extra  []target.Range // pieces of stack to copy when the thread is stopped
	ended  bool
	owner  []target.Region // the memory read to find the owner of the awaited lock
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
	a.g.beginPacking()
	if !a.g.Options.AlwaysStop {
		for n := 0; n < looks && a.look() > 0; n++ {
		}
	}
	return a.capture()
}

// list lists the threads, and keeps the findings of earlier attempts.
func (a *atOnce) list() error {
	list, err := a.g.Threads()
	if err != nil {
		return err
	}
	known := make(map[int]*member, len(a.members))
	for i := range a.members {
		known[a.members[i].thread.OSThreadID] = &a.members[i]
	}
	members := make([]member, 0, len(list))
	for i := range list {
		if filter := a.g.o.Filter; filter != nil && !filter(&list[i]) {
			continue
		}
		m := member{thread: list[i]}
		if old := known[m.thread.OSThreadID]; old != nil && old.thread.ID == m.thread.ID {
			m = *old
			m.thread, m.ended = list[i], false
		}
		members = append(members, m)
	}
	a.members, a.listed, a.waits = members, len(list), a.g.waitForCPUs(countRunning(list))
	return nil
}

// look captures and walks, without a stop, the blocked threads that have run since the last look.
// The result is the number of these threads.
func (a *atOnce) look() (moved int) {
	for i := range a.members {
		m := &a.members[i]
		if a.g.Live.Holds(m.thread.OSThreadID, m.proof) {
			continue
		}
		a.forget(m)
		s := a.g.visit(&m.thread)
		r, ok := s.WalkBlocked(s.frames)
		if !ok {
			continue
		}
		moved++
		m.proof = s.Capture.Proof
		a.describe(m, s, r)
	}
	return moved
}

// forget makes room for the next walk of a thread's stack.
func (a *atOnce) forget(m *member) {
	a.g.room += m.cost
	m.proof, m.cost = "", 0
}

// describe describes the thread just walked.
func (a *atOnce) describe(m *member, s *visit, r walk.Result) {
	m.stack = s.finish(r)
	m.stack.Pause, m.cost = s.Capture.Pause, a.g.stack.cost
	m.owner = s.restsOn
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
		reqs[i] = a.g.Request(&m.thread, slices.Concat(a.g.AlsoBlocking(&m.thread), m.extra))
		reqs[i].StackLimit, reqs[i].Proof = limit, m.proof
		for _, r := range m.extra {
			a.extra += r.Len
		}
	}
	a.askOwners(reqs)
	a.g.captures++
	captures, errs := make([]target.Capture, len(reqs)), make([]error, len(reqs))
	threads, err := a.captureAll(reqs, captures, errs)
	if err != nil {
		return err
	}
	out := a.g.out
	out.CapturedAt = time.Now()
	a.again = false
	a.g.Engine.Begin()
	ended := 0
	for i := range a.members {
		m := &a.members[i]
		if m.isNew(&captures[i]) || errs[i] != nil {
			a.captured(m, &captures[i], errs[i])
		}
		if m.ended && m.thread.OSThreadID != a.g.from.PID() { // the main thread stays listed until all have ended
			ended++
		}
	}
	a.checkOwners(captures, errs)
	out.Unlisted = 0
	if len(a.members) == a.listed { // else the number of ended threads among the others is unknown
		out.Unlisted = max(threads-(a.listed-ended), 0)
	}
	a.again = a.again || out.Unlisted > 0
	return nil
}

// captureAll captures all members as of one instant: without a stop if no member has a CPU for a moment, and
// otherwise with stops. The result is the process's number of threads at the instant.
func (a *atOnce) captureAll(reqs []target.Request, captures []target.Capture, errs []error) (threads int, err error) {
	g := a.g
	if !g.Options.AlwaysStop && a.waits {
		threads, ok, err := g.Live.LookAtOnce(reqs, captures, errs)
		switch {
		case errors.Is(err, live.ErrUnavailable):
		case err != nil:
			return 0, err
		case ok:
			g.out.Registers.From = snapshot.RegistersKernel
			return threads, nil
		}
	}
	g.out.Registers.From = ""
	err = g.Live.Trace(func(t *live.Tracer) (err error) {
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
	s := &visit{Suspension: Suspension{
		Process: a.g.Process, Thread: m.thread, Capture: c, Stops: a.g.stops, extra: m.extra,
	}, g: a.g}
	if err := a.g.FinishCapture(&s.Suspension, err); err != nil {
		m.ended = errors.Is(err, target.ErrThreadExited)
		if m.stack = a.g.without(&m.thread, err); errors.Is(err, live.ErrNotStopping) {
			s.ofKernel(&m.stack.Thread)
		}
		for _, passing := range []error{live.ErrNotStopping, live.ErrWatchdog, live.ErrTracerLost} {
			a.again = a.again || errors.Is(err, passing)
		}
		return
	}
	before := m.stack.Thread
	r := s.frames()
	a.describe(m, s, r)
	switch {
	case s.metRuntime(r), s.Walk.Gap != nil, m.thread.ID != 0 && s.Walk.Info.Address == 0:
		a.again = true // the runtime's thread is not the listed thread any more, or has thrown since
	case r.Complete || isFull(r.Err) || sameEnd(&before, &m.stack.Thread):
	default:
		a.again = true
		if extra, ok := s.missing(r.Err); !ok {
			_ = a.g.updateModules() // on failure the walk reports the lack
		} else if a.extra += extra.Len; a.extra <= a.beyond {
			m.extra = append(m.extra, extra)
		}
	}
}

// sameEnd reports whether a thread's stack is lost at the same place as before.
func sameEnd(a, b *snapshot.Thread) bool {
	return a.Error == b.Error && a.Depth() > 0 && a.Depth() == b.Depth() && a.Frame(0).IP == b.Frame(0).IP
}
