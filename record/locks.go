package record

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/session"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// The runtime says who holds a lock when a wait begins, and how long the wait was when the wait is
// over. It does not say what the holder is doing. So the agent shows the waits that are going on, and
// the recorder looks at the holders of locks in long waits: it copies the holder's stack and the lock
// at the same moment. The lock itself says whether the thread held it then. Of a wait that was over
// before a look, only the holder's thread is known.

// How often holders are looked at.
const (
	shortestWait = time.Millisecond      // waits that may end any moment are left alone
	lookEvery    = 10 * time.Millisecond // between two looks in a process, on average
	looksSaved   = 8                     // looks that may follow each other at once
	lookAgain    = 20 * time.Millisecond // between two looks at the holder of one lock
	lookPart     = 8                     // the same, in a long wait: this part of the wait
	lookLatest   = time.Second           // the same, at most
)

// Bounds of the memory of a process's locks.
const (
	maxHeldLocks = 1 << 10
	maxLooks     = 64 // at the holder of one lock: the latest looks
)

// holders are the looks at threads that hold locks.
type holders struct {
	waits  []agent.Wait
	of     map[uint64]*heldLock // by the lock's id
	budget time.Duration        // until when looks are used up: see looksSaved
}

// heldLock is a lock with waiters.
type heldLock struct {
	due   time.Duration // when to look at the lock's holder again
	looks []holderLook  // the oldest first
}

// holderLook is a look at the holder of a lock. The lock was held at some moment from begin to end.
type holderLook struct {
	begin, end time.Duration
	method     profile.Function // of kind Event
	thread     *recordedThread
	node       int32
	incomplete bool
	kept       bool // in Recording.Holds
}

// within reports whether the moment of the look lies in a wait.
func (l *holderLook) within(begin, end time.Duration) bool { return l.begin >= begin && l.end <= end }

// lookAtHolders looks at the holders of all locks that have waiters now.
func (np *notifiedProcess) lookAtHolders() {
	if h := &np.holds; np.e.has(profile.Contention) {
		h.waits = np.link.Waits(h.waits[:0])
		slices.SortFunc(h.waits, func(a, b agent.Wait) int { return cmp.Compare(a.Since, b.Since) })
		np.lookAtLocks()
		for i := range h.waits {
			now := live.Monotonic()
			if h.budget = max(h.budget, now-looksSaved*lookEvery); now < h.budget+lookEvery {
				return
			}
			np.lookAtHolder(&h.waits[i], now)
		}
	}
}

// lookAtLocks finds the monitors of the Locks that have waiters, as long as the monitors' objects
// live.
func (np *notifiedProcess) lookAtLocks() {
	p := np.rp.p
	if p.Runtime == nil || p.Runtime.Locks == nil || !p.Runtime.Locks.Managed() {
		return
	}
	for i := range np.holds.waits {
		p.LookAtLock(np.holds.waits[i].Lock, time.Duration(np.holds.waits[i].Since))
	}
}

// lookAtHolder looks at the holder of a thread's wanted lock, if the time has come. w can be anything:
// it comes from the target's memory.
func (np *notifiedProcess) lookAtHolder(w *agent.Wait, now time.Duration) {
	h := &np.holds
	since := time.Duration(w.Since)
	lock := h.of[w.Lock]
	if since < np.e.r.start-time.Hour || now-since < shortestWait || lock != nil && now < lock.due {
		return
	}
	if lock == nil {
		if len(h.of) >= maxHeldLocks || h.of == nil {
			h.of = map[uint64]*heldLock{}
		}
		lock = &heldLock{}
		h.of[w.Lock] = lock
	}
	h.budget += lookEvery
	lock.due = now + min(max(lookAgain, (now-since)/lookPart), lookLatest)
	waiter := np.rp.thread(np.rp.hostThread(int(w.OSID)), "")
	if !waiter.chosen {
		return
	}
	t, begin, r, ok := np.captureHolder(w)
	if !ok || t == waiter { // the wait is over, and the agent is about to say so
		return
	}
	look := holderLook{
		begin: begin, end: live.Monotonic(), method: np.holding(np.rp.frames.stack), thread: t,
		node: np.e.r.b.Stack(np.rp.frames.stack), incomplete: !r.Complete,
	}
	if look.method.Display == "" {
		return
	}
	if len(lock.looks) == maxLooks {
		lock.looks = slices.Delete(lock.looks, 0, 1)
	}
	lock.looks = append(lock.looks, look)
}

// captureHolder walks the stack of the thread that holds a lock. false: no thread holds the lock, or
// the holder released the lock before its stack was copied. begin is a time before the copy.
func (np *notifiedProcess) captureHolder(w *agent.Wait) (
	t *recordedThread, begin time.Duration, r walk.Result, ok bool,
) {
	rp := np.rp
	rp.p.Engine.Cache.Invalidate()
	at, object, ok := rp.lockAt(w)
	if !ok {
		return nil, 0, r, false
	}
	where := target.Range{Addr: at, Len: thread.LockLen}
	var b [thread.LockLen]byte
	if rp.p.Live.ReadMemory(b[:], where.Addr) != nil {
		return nil, 0, r, false
	}
	owner := thread.LockOwner(b[:], object)
	if owner == 0 {
		return nil, 0, r, false
	}
	if t = rp.ownerOf(owner); t == nil || t.ended || t.info.ID == 0 {
		return nil, 0, r, false
	}
	rp.frames.begin()
	s := session.Suspension{
		Process: rp.p, Thread: t.info, Capture: &rp.p.Capture, Also: []target.Range{where},
	}
	begin = live.Monotonic()
	walked := func() walk.Result { return rp.frames.walk(&s, live.Monotonic()) }
	if r, ok = s.WalkBlocked(walked); !ok {
		var err error
		if r, err = s.LookAndWalk(walked); err != nil {
			r, err = s.StopAndWalk(walked)
		}
		if err != nil {
			return nil, 0, r, false
		}
	}
	copied, there := s.Copied(where)
	if object {
		rp.p.Engine.Cache.Invalidate()
		if id, err := rp.p.Runtime.Locks.EventOf(where.Addr); err != nil || id != w.Lock {
			there = false // the thread is somewhere else by now
		}
	}
	return t, begin, r, there && thread.LockOwner(copied, object) == owner
}

// lockAt returns the address of the lock that a thread waits for, and whether the lock is an object of
// System.Threading.Lock.
func (rp *recordedProcess) lockAt(w *agent.Wait) (at arch.Addr, object, ok bool) {
	if rp.p.Runtime.Locks == nil {
		return 0, false, false
	}
	if m, found := rp.p.MonitorOf(w.Lock); found {
		return m.Lock, true, true // the SyncBlock has a handle of the Lock
	}
	said, monitor := agent.LockedClass(w.Class)
	if rp.p.IsLock(arch.Addr(said)) {
		return arch.Addr(w.Object), true, true
	}
	_, err := rp.p.Class(arch.Addr(said))
	return arch.Addr(w.Lock), false, monitor && err == nil && !rp.p.Runtime.Locks.Managed()
}

// ownerOf returns the owner according to a lock; nil: there is none.
func (rp *recordedProcess) ownerOf(id int) *recordedThread {
	if locks := rp.p.Runtime.Locks; locks != nil && locks.Managed() {
		t, ok := rp.p.Runtime.Threads.WithID(id)
		if !ok || t.OSID == 0 {
			return nil
		}
		id = t.OSID
	}
	return rp.thread(rp.hostThread(id), "")
}

// holding is the leaf of waits whose holder has this stack: the method of the program's own code
// nearest to the leaf, or else the nearest managed method.
func (np *notifiedProcess) holding(stack []int32) profile.Function {
	var first *profile.Function
	for _, l := range stack {
		_, f := np.e.r.b.At(l)
		if f.Kind != snapshot.Managed || f.Method == "" {
			continue
		}
		if f.Origin() == snapshot.OfUser {
			return heldBy(f.Display, f.Short)
		}
		if first == nil {
			first = &f
		}
	}
	if first == nil {
		return profile.Function{}
	}
	return heldBy(first.Display, first.Short)
}

// keep puts a look into the recording. since is when the wait around the look began.
func (l *holderLook) keep(r *recorder, lock int32, waiter *recordedThread, since time.Duration) {
	if l.kept {
		return
	}
	l.kept = true
	r.b.Hold(profile.Hold{
		At: max(l.begin-r.start, 0), Waited: l.begin - since, Lock: lock, Holder: r.b.Function(l.method),
		Waiter: waiter.sampled(), Thread: l.thread.sampled(), Node: l.node, Incomplete: l.incomplete,
	})
}

func heldBy(display, short string) profile.Function {
	const held = "held by "
	return profile.Function{Kind: snapshot.Event, Display: held + display, Short: held + short}
}

// contended adds the sample of a wait for a lock: the leaf says who held the lock, and the leaf's
// caller is the lock.
func (np *notifiedProcess) contended(n *notification) {
	np.arrived[profile.Contention]++
	t := np.thread(n)
	if !t.chosen {
		return
	}
	whole := np.rp.frames.notified(n)
	b := np.e.r.b
	lock := b.Function(np.lockName(n.Lock, arch.Addr(n.Class)))
	stack := append([]int32{b.Location(profile.Location{Function: lock})}, np.rp.frames.complete...)
	np.sample(n.At, t, profile.Contention, float64(n.Waited), 1, np.holder(n, lock, t), stack, whole)
}

// holder is the leaf of a thread's wait for a lock: the method that most looks at the holder found
// during the wait, the first of equally frequent methods. Without a look, the leaf is the thread that
// held the lock when the wait began. A look is kept once a wait around the look is reported: only then
// is it sure that somebody waited.
func (np *notifiedProcess) holder(n *notification, lock int32, waiter *recordedThread) profile.Function {
	var most profile.Function
	if held := np.holds.of[n.Lock]; held != nil {
		count := map[profile.Function]int{}
		for i := range held.looks {
			l := &held.looks[i]
			if !l.within(n.At-n.Waited, n.At) || l.thread == waiter { // the waiter has got the lock, and says so later
				continue
			}
			if count[l.method]++; count[l.method] > count[most] {
				most = l.method
			}
			l.keep(np.e.r, lock, waiter, n.At-n.Waited)
		}
	}
	if most.Display != "" {
		return most
	}
	const unseen = " (code not seen)"
	if n.Owner == 0 {
		return heldBy("an unknown thread", "an unknown thread")
	}
	who := collective(np.rp.thread(np.rp.hostThread(n.Owner), "").info) + unseen
	return heldBy(who, who)
}

// lockNames are the names of locks. Several locks of one type have numbers.
type lockNames struct {
	of    map[lockKey]profile.Function
	types map[profile.Function]int // how many locks have the name without a number
}

type lockKey struct {
	pid       int
	id, class uint64
}

// How many locks have names of their own.
const (
	maxLockNames = 1 << 12
	maxOfType    = 64
)

// lockName is the event that stands for a lock.
func (np *notifiedProcess) lockName(id uint64, class arch.Addr) profile.Function {
	names := &np.e.locks
	key := lockKey{np.pid, id, uint64(class)}
	if f, ok := names.of[key]; ok {
		return f
	}
	f := np.lockType(class)
	if names.of == nil {
		names.of, names.types = map[lockKey]profile.Function{}, map[profile.Function]int{}
	}
	n, full := names.types[f]+1, len(names.of) >= maxLockNames
	plain := f
	switch {
	case full || n > maxOfType:
		f.Display, f.Short = f.Display+" (others)", f.Short+" (others)"
	case n > 1:
		number := fmt.Sprintf(" #%d", n)
		f.Display, f.Short = f.Display+number, f.Short+number
	}
	if !full {
		names.types[plain], names.of[key] = n, f
	}
	return f
}

// lockType is the name of a lock of a class.
func (np *notifiedProcess) lockType(class arch.Addr) profile.Function {
	if c, err := np.rp.p.Class(class); err == nil {
		return profile.Function{
			Kind: snapshot.Event, Display: "lock " + c.Display, Short: "lock " + c.Short, Module: c.Assembly,
		}
	}
	return eventFunction("lock of an unknown type")
}
