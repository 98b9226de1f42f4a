package session

import (
	"context"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target"
	"clrsnap/internal/waits"
	"clrsnap/profile"
)

// maxRunners bounds the tasks of a snapshot whose threads are kept in mind.
const maxRunners = 1 << 16

// noteRuns notes which tasks a thread that has just been walked runs.
func (s *Suspension) noteRuns(subject *waits.Subject) {
	p := s.Process
	if len(p.runs) >= maxRunners {
		return
	}
	delete(p.runs, s.Thread.OSThreadID)
	if runs := p.waitReader().Runs(subject); len(runs) > 0 {
		if p.runs == nil {
			p.runs = map[int][]waits.Run{}
		}
		p.runs[s.Thread.OSThreadID] = runs
	}
}

// addRunners says of tasks that are waited for which thread runs them, and of static constructors.
func (p *Process) addRunners(threads []profile.Thread) {
	defer p.addReaders(threads)
	type runner struct {
		thread *profile.Thread
		run    waits.Run
	}
	byTask := map[uint64][]runner{}
	for i := range threads {
		for _, r := range p.runs[threads[i].OSThreadID] {
			list := byTask[uint64(r.Task)]
			if len(list) == 0 || list[len(list)-1].thread != &threads[i] {
				byTask[uint64(r.Task)] = append(list, runner{&threads[i], r})
			}
		}
	}
	for i := range threads {
		w := threads[i].Wait
		if w == nil || w.Kind != profile.TaskWait || w.Object == 0 || !w.Certain {
			continue
		}
		w.Owner = nil
		list := byTask[w.Object]
		if len(list) == 1 && p.waitReader().StillRuns(list[0].run, p.still(list[0].thread.OSThreadID)) {
			t := list[0].thread
			w.Owner = &profile.ThreadRef{
				OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, Name: t.Name,
			}
		}
	}
}

// addReaders says who holds a ReaderWriterLockSlim to read that somebody wants to write.
func (p *Process) addReaders(threads []profile.Thread) {
	for i := range threads {
		w := threads[i].Wait
		if w == nil || w.Kind != profile.WriteLock || w.Object == 0 || w.Owner != nil || !w.Certain ||
			!strings.Contains(w.Detail, "reader") {
			continue
		}
		w.Readers = nil
		for k := range threads {
			t := &threads[k]
			if k != i && t.ThreadID != 0 && p.waitReader().Reads(w, arch.Addr(t.ThreadID)) {
				w.Readers = append(w.Readers, profile.ThreadRef{
					OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, Name: t.Name,
				})
			}
		}
	}
}

// still reports whether a thread has not run since it was captured.
func (p *Process) still(tid int) bool {
	if p.Live == nil {
		return true
	}
	still, _ := p.Live.StillBlocked(tid)
	return still
}

// runtimeWait explains a wait in the runtime's native code.
func (s *Suspension) runtimeWait() *profile.Wait {
	if s.Walk.Info.Address != 0 {
		if w := s.Process.waitReader().Constructor(s.Capture.Head, s.Walk.Info.Address); w != nil {
			return w
		}
	}
	return &profile.Wait{Kind: profile.WaitRuntime, Certain: true}
}

// Operations of futex(2) that wait, and flags of them.
const (
	futexWait       = 0
	futexWaitBitset = 9
	futexFlags      = 128 | 256
)

// timeout says of a wait for something that another thread has to do whether it has a timeout, where the primitive
// itself does not tell: the system call in which the thread waits has none.
func (s *Suspension) timeout(st *profile.Thread) {
	w, c := st.Wait, s.Capture
	if w == nil || w.Timeout != 0 || c.SyscallNr != futexCall || c.SyscallArgs == [6]uint64{} {
		return
	}
	switch w.Kind {
	case profile.ThreadJoin, profile.ReadLock, profile.UpgradeableLock, profile.WriteLock, profile.LockEnter,
		profile.HandleOne, profile.HandleAny, profile.HandleAll:
	default:
		return
	}
	op := c.SyscallArgs[1] &^ futexFlags
	if (op == futexWait || op == futexWaitBitset) && c.SyscallArgs[3] == 0 {
		w.Timeout = profile.Forever
	}
}

const futexCall = 202 // on x86-64: see Syscalls

// SnapshotWaits is SnapshotAll for who wants to know who waits for whom. Threads that seem to wait for one another
// are looked at again until it is proved that they did (profile.Thread.Still), or until it turns out that they do not.
func (p *Process) SnapshotWaits(ctx context.Context, filter Filter) (*profile.Snapshot, error) {
	return p.snapshotAll(ctx, filter, func(out *profile.Snapshot, f found) {
		if p.from.changes() {
			p.proveWaits(ctx, out, f)
		}
	})
}

// proofs is how often threads that seem to wait for one another are looked at, to prove that they do.
const proofs = 6

// proveWaits proves the deadlocks of a snapshot.
//
// The members of a circle are captured, one after the other. Then each is captured again, and what it waits for is
// read again. If none has run from its first capture until after the last second one, then all that was read in
// the second round was true at the same time: a lock changes hands only if its owner runs, or who waits for it.
func (p *Process) proveWaits(ctx context.Context, out *profile.Snapshot, f found) {
	defer p.addHolds(out)
	for range proofs {
		if unsure := unsettled(out.Threads); len(unsure) > 0 {
			p.lookAgain(out, unsure, f)
			p.addRunners(out.Threads)
		}
		circles := suspects(out.WaitGraph())
		if len(circles) == 0 || ctx.Err() != nil {
			return
		}
		for _, members := range circles {
			first := p.lookAgain(out, members, f)
			second := p.lookAgain(out, members, f)
			p.addRunners(out.Threads)
			p.stood(out, members, first, second)
		}
	}
}

// maxUnsettled bounds the threads that are looked at again because their waits could not be read consistently.
const maxUnsettled = 256

// unsettled are the threads whose waits for others were not the same when they were read again: their locks changed
// hands, or the garbage collector moved them.
func unsettled(threads []profile.Thread) (out []int) {
	for i := range threads {
		w := threads[i].Wait
		if w == nil || w.Certain || len(out) == maxUnsettled {
			continue
		}
		switch profile.LockKindOf(w) {
		case profile.MonitorLock, profile.LockObject, profile.ReaderWriterLock, profile.TaskLock, profile.ThreadLock:
			out = append(out, i)
		}
	}
	return out
}

// suspects are the deadlocks that are not proved yet: of each its members, as indices in Snapshot.Threads.
func suspects(g *profile.WaitGraph) (out [][]int) {
	for _, d := range g.Suspected {
		if !d.Certain {
			out = append(out, d.Threads)
		}
	}
	return out
}

// look is what was found when a thread was looked at.
type look struct {
	proof target.Proof // that it is blocked; "": it is not proved
	wait  profile.WaitKind
	owner profile.ThreadRef
}

func lookOf(w *profile.Wait, proof target.Proof) look {
	if w == nil {
		return look{}
	}
	l := look{proof: proof, wait: w.Kind}
	if w.Owner != nil {
		l.owner = *w.Owner
	}
	return l
}

// stood marks the threads of a circle if none has run since it was first looked at.
func (p *Process) stood(out *profile.Snapshot, threads []int, first, second []look) {
	for i, at := range threads {
		l := &first[i]
		if l.proof == "" || *l != second[i] || !p.Live.Holds(out.Threads[at].OSThreadID, l.proof) {
			return
		}
	}
	for _, at := range threads {
		out.Threads[at].Still = true
	}
}

// lookAgain captures threads once more, and reads what they wait for with a new list of the runtime's threads.
func (p *Process) lookAgain(out *profile.Snapshot, threads []int, f found) []look {
	looks := make([]look, len(threads))
	p.Engine.Cache.Invalidate()
	if p.ReadThreadStore() != nil {
		return looks
	}
	for i, at := range threads {
		old := &out.Threads[at]
		t, ok := p.Describe(old.OSThreadID)
		if !ok {
			old.Wait = nil // it has ended
			continue
		}
		if w := old.Wait; w != nil && w.Kind == profile.WaitRuntime {
			looks[i] = p.lookAtConstructor(old, t.ID)
			continue
		}
		room := p.room
		now := p.snapshot(&t)
		p.room = room // its frames take the place of the old ones
		if len(now.Frames) == 0 {
			old.Wait = nil
			continue
		}
		looks[i] = lookOf(now.Wait, p.Capture.Proof)
		now.Pause = max(now.Pause, old.Pause)
		*old = now
		f.keep(p, old.OSThreadID)
	}
	return looks
}

// lookAtConstructor reads once more for which static constructor a thread waits. Such a thread could be captured only
// by stopping it, and so would run: but all that its wait rests on is in its Thread object.
func (p *Process) lookAtConstructor(t *profile.Thread, id arch.Addr) look {
	count := p.Live.RunCount(t.OSThreadID)
	head := make([]byte, thread.HeadLen)
	t.Wait = nil
	if p.from.ReadMemory(head, id) == nil {
		t.Wait = p.waitReader().Constructor(head, id)
	}
	if !p.Live.NotRunSince(t.OSThreadID, count) {
		count = ""
	}
	return lookOf(t.Wait, count)
}
