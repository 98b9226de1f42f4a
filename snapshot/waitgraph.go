package snapshot

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// WaitGraph says who waits for whom in a snapshot. Snapshot.WaitGraph makes a WaitGraph.
//
// An edge leads from a waiter to a thread that must act first: the owner of the lock, the joined thread, or the
// thread that runs the task. A thread with several edges needs all these threads to act. So a circle of edges is a
// deadlock, whatever the locks are. A Task.WaitAny has edges only if all threads that run the tasks are stuck.
type WaitGraph struct {
	// Locks are what threads wait for, the most harmful first: see LockState.Blocked. After the locks without a
	// waiter come the held locks without a waiter.
	Locks []LockState
	// Deadlocks are facts: all waits of the deadlock were there at the same time, and none has a timeout.
	Deadlocks []Deadlock
	// Suspected are deadlocks that are not certain or that end with a timeout.
	Suspected []Deadlock
	// Likely are deadlocks with likely wait edges: permits of semaphores, tasks that are completed by hand, and
	// suspended async methods.
	Likely []LikelyDeadlock
	// Edges are all the edges, by thread.
	Edges []WaitEdge
}

// WaitEdge says that a thread waits for another thread.
type WaitEdge struct {
	Thread, For int // indices in Snapshot.Threads
}

// LockKind is a kind of thing that threads wait for: the first part of a WaitKind.
type LockKind string

// The kinds of lock. Threads also wait for other kinds, for example "ManualResetEventSlim", but nobody owns these.
const (
	MonitorLock       LockKind = "Monitor"
	LockObject        LockKind = "Lock"
	ReaderWriterLock  LockKind = "ReaderWriterLockSlim"
	SpinLock          LockKind = "SpinLock"
	SemaphoreLock     LockKind = "SemaphoreSlim"     // without an owner
	StaticConstructor LockKind = "StaticConstructor" // of a class that others need
	TaskLock          LockKind = "Task"              // the owner is the thread that runs the task
	ThreadLock        LockKind = "Thread"            // the owner is the joined thread
	HandleLock        LockKind = "WaitHandle"        // only a Mutex has an owner
	CompletionLock    LockKind = "TaskCompletionSource"
	ContextLock       LockKind = "SynchronizationContext" // of a thread that is to run the continuation
)

// LockState is something that threads wait for, or hold.
type LockState struct {
	Kind      LockKind
	Object    uint64 // the object's address; 0: no object
	Type      string
	Of, Field string     // as in Wait
	Owner     *ThreadRef // nil: nobody, not known, or locks of this kind have none
	Readers   []ThreadRef
	Recursion int
	Method    string // the task's async method
	Detail    string // as in Wait
	Waiters   []Waiter
	// Counted is how many threads wait by the lock's own count, also threads that are not in the snapshot.
	Counted int
	// Blocked is how many threads cannot go on before the lock is free: the threads in Waiters, and all threads that
	// wait for these, directly or not. For the last locks of a chain of thousands, Blocked counts only Waiters.
	Blocked int
	// Holders are the likely holders of a semaphore's permits, or the likely completers of a task. There may be
	// others.
	Holders []WaitNode
	Certain bool // of the wait, or hold, with the most information
}

// IsLock reports whether threads want to hold l. Otherwise they wait for something to happen: a task's end, an event.
func (l *LockState) IsLock() bool {
	switch l.Kind {
	case LockObject, ReaderWriterLock, SpinLock, SemaphoreLock, StaticConstructor:
		return true
	case MonitorLock:
		return l.Owner != nil ||
			slices.ContainsFunc(l.Waiters, func(w Waiter) bool { return w.Wait.Kind == MonitorEnter })
	}
	return l.Owner != nil && l.Kind != ThreadLock && l.Kind != TaskLock
}

// Ended reports whether a thread that owns the lock, or reads under the lock, has ended. Then the lock is never left.
func (l *LockState) Ended() bool {
	return l.readByEnded() || l.Owner != nil && l.Owner.OSThreadID == 0 && l.Kind != ThreadLock && l.Kind != TaskLock
}

// readByEnded reports whether a thread that reads under the lock has ended. Others may still read.
func (l *LockState) readByEnded() bool {
	return slices.ContainsFunc(l.Readers, func(t ThreadRef) bool { return t.OSThreadID == 0 })
}

// Waiter is a thread that waits for something.
type Waiter struct {
	Thread int // index in Snapshot.Threads
	Wait   *Wait
}

// Deadlock is a circle of threads that wait for one another, or a lock whose owner has ended, with the lock's
// waiters.
type Deadlock struct {
	// Threads are the members as indices in Snapshot.Threads. In a simple circle each member waits for the next, and
	// the last member for the first. A thread that only waits for a member is not a member.
	Threads []int
	// Victims are the threads that wait for members, directly or not: indices in Snapshot.Threads.
	Victims []int
	// Simple: each member waits for exactly one other member.
	Simple bool
	// Ended: the owner of the lock that all Threads wait for has ended.
	Ended bool
	// Certain: the members' waits are certain, and were there at the same time.
	Certain bool
	// Timeout is the shortest time after which a member gives up by itself. Forever: no member does; 0: one member's
	// timeout is not known.
	Timeout time.Duration
}

// LockKindOf returns the kind of lock that a wait is for; "": nothing that several threads could wait for.
func LockKindOf(w *Wait) LockKind {
	switch w.Kind {
	case ThreadSleep, WaitIO, WaitIdle, "":
		return ""
	case WaitRuntime:
		if w.Owner == nil {
			return ""
		}
		return StaticConstructor
	}
	kind, _, _ := strings.Cut(string(w.Kind), ".")
	return LockKind(kind)
}

// wantsOwner reports whether a wait ends only if the owner of its object does something.
func wantsOwner(w *Wait) bool { return w.Kind != MonitorWait && LockKindOf(w) != "" }

// WaitGraph returns who waits for whom.
//
// Of a running process, a deadlock is certain only if all its members are Still (see Thread), or if all threads were
// stopped.
func (s *Snapshot) WaitGraph() *WaitGraph {
	b := waitGraph{s: s, index: make(map[int]int, len(s.Threads)), locks: map[lockKey]int{}, ids: map[lockID]int{},
		g: &WaitGraph{}}
	for i := range s.Threads {
		b.index[s.Threads[i].OSThreadID] = i
	}
	b.addWaits()
	b.addHolds()
	b.entered()
	b.edges()
	b.rank()
	components(b.out, b.component)
	b.untangle()
	b.ended()
	b.likely()
	byMembers := func(x, y Deadlock) int {
		return cmp.Or(cmp.Compare(len(y.Victims), len(x.Victims)), slices.Compare(x.Threads, y.Threads))
	}
	slices.SortFunc(b.g.Deadlocks, byMembers)
	slices.SortFunc(b.g.Suspected, byMembers)
	return b.g
}

// lockKey identifies a lock without Wait.Lock. A lock without an object is identified by its owner or, without an
// owner, by its waiter. A key with an object has the class too: between two captures the collector may have moved
// another object to the address.
type lockKey struct {
	kind   LockKind
	object uint64
	other  int
	name   string
}

// lockID identifies a lock also after the collector has moved the lock: Wait.Lock.
type lockID struct {
	kind LockKind
	lock uint64
}

// waitGraph is a WaitGraph under construction.
type waitGraph struct {
	s     *Snapshot
	g     *WaitGraph
	index map[int]int // threads by their ids
	locks map[lockKey]int
	ids   map[lockID]int
	lock  []uint64 // by lock: Wait.Lock
	out   [][]int  // by thread: the threads that the thread waits for
	in    [][]int

	edged   map[WaitEdge]bool // the edges in out
	tangles []Deadlock        // only suspected deadlocks that may contain other circles
	room    int               // threads that rank may still visit
}

func (b *waitGraph) addWaits() {
	for i := range b.s.Threads {
		w := b.s.Threads[i].Wait
		if w == nil || LockKindOf(w) == "" {
			continue
		}
		l := b.state(w, i)
		l.Waiters = append(l.Waiters, Waiter{i, w})
		l.Counted = max(l.Counted, w.Waiters)
	}
}

func (b *waitGraph) addHolds() {
	for i := range b.s.Threads {
		t := &b.s.Threads[i]
		for k := range t.Holds {
			h := &t.Holds[k]
			l := b.state(h, i)
			if l.Owner == nil && h.Certain {
				l.Owner = t.ref()
				l.Recursion, l.Certain = max(l.Recursion, h.Recursion), true
			}
			l.Counted = max(l.Counted, h.Waiters)
		}
	}
}

// entered removes a thread from the waiters of a lock if a later capture saw the thread hold the lock.
func (b *waitGraph) entered() {
	for i := range b.g.Locks {
		l := &b.g.Locks[i]
		if l.Owner == nil || l.Owner.OSThreadID == 0 {
			continue
		}
		l.Waiters = slices.DeleteFunc(l.Waiters, func(w Waiter) bool {
			switch w.Wait.Kind {
			case MonitorEnter, LockEnter, SpinLockEnter, ReadLock, UpgradeableLock, WriteLock:
				return b.s.Threads[w.Thread].OSThreadID == l.Owner.OSThreadID
			}
			return false
		})
	}
}

// ref returns a reference to t.
func (t *Thread) ref() *ThreadRef {
	return &ThreadRef{OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, Name: t.Name}
}

// find returns the index of what a thread waits for or holds. The collector may have moved the lock between the
// captures of two threads: equal Wait.Lock means an equal lock.
func (b *waitGraph) find(w *Wait, thread int) int {
	key := lockKey{kind: LockKindOf(w), object: w.Object, name: w.Type}
	if key.object == 0 {
		key.other = -1 - thread
		if w.Owner != nil {
			key.other = w.Owner.OSThreadID
		}
	}
	id := lockID{key.kind, w.Lock}
	if at, ok := b.ids[id]; ok && w.Lock != 0 {
		return at
	}
	at, ok := b.locks[key]
	if !ok || w.Lock != 0 && b.lock[at] != 0 {
		at = len(b.g.Locks)
		b.locks[key] = at
		b.g.Locks = append(b.g.Locks, LockState{Kind: key.kind, Object: w.Object, Type: w.Type})
		b.lock = append(b.lock, 0)
	}
	if w.Lock != 0 {
		b.ids[id], b.lock[at] = at, w.Lock
	}
	return at
}

// state returns what a thread waits for or holds, completed with the facts of w.
func (b *waitGraph) state(w *Wait, thread int) *LockState {
	l := &b.g.Locks[b.find(w, thread)]
	if l.Object == 0 {
		l.Object, l.Type = w.Object, cmp.Or(w.Type, l.Type)
	}
	l.Method, l.Field, l.Of = cmp.Or(l.Method, w.Method), cmp.Or(l.Field, w.Field), cmp.Or(l.Of, w.Of)
	if w.Kind != MonitorWait && (w.Certain && !l.Certain || w.Certain == l.Certain && l.Owner == nil) {
		l.Certain, l.Recursion, l.Detail = w.Certain, max(w.Recursion, l.Recursion), cmp.Or(w.Detail, l.Detail)
		if w.Owner != nil {
			l.Owner = w.Owner
		}
		if len(w.Readers) > 0 {
			l.Readers = w.Readers
		}
	}
	return l
}

// edges finds the edges.
func (b *waitGraph) edges() {
	n := len(b.s.Threads)
	b.out, b.in, b.edged = make([][]int, n), make([][]int, n), map[WaitEdge]bool{}
	for i := range b.s.Threads {
		w := b.s.Threads[i].Wait
		if w == nil || !wantsOwner(w) {
			continue
		}
		b.edge(i, w.Owner)
		for k := range w.Readers {
			b.edge(i, &w.Readers[k])
		}
		for k := range w.Behind {
			b.edge(i, &w.Behind[k])
		}
		if w.Kind == TaskWaitAll {
			for k := range w.Tasks {
				b.edge(i, w.Tasks[k].Owner)
			}
		}
	}
	b.anyEdges()
}

// anyEdges adds the edges of the threads that wait for any of several tasks, if all these tasks are run by threads
// that wait for ever: for one another, or for threads that wait for ever, too. Otherwise one of the tasks may
// complete.
func (b *waitGraph) anyEdges() {
	runs := map[int][]int{} // by thread: the threads that run the tasks
	for i := range b.s.Threads {
		if w := b.s.Threads[i].Wait; w != nil && w.Kind == TaskWaitAny && w.Timeout == Forever {
			if list := b.runners(w); list != nil {
				runs[i] = list
			}
		}
	}
	if len(runs) == 0 {
		return
	}
	for i := range b.freed(runs) {
		delete(runs, i)
	}
	for i := range b.s.Threads {
		for _, to := range runs[i] {
			b.edge(i, b.s.Threads[to].ref())
		}
	}
}

// runners returns the threads that run the tasks of a wait; nil: for one task no runner is known.
func (b *waitGraph) runners(w *Wait) (out []int) {
	for k := range w.Tasks {
		o := w.Tasks[k].Owner
		if o == nil {
			return nil
		}
		at, ok := b.index[o.OSThreadID]
		if !ok {
			return nil
		}
		out = append(out, at)
	}
	return out
}

// freed returns the threads that may go on. of has, for each waiter for any of several tasks, the tasks' runners.
// Free are threads that do not wait for ever, or wait for nobody. Then a thread is free if all threads on which the
// thread waits are free or, for a wait in of, if one runner is free.
func (b *waitGraph) freed(of map[int][]int) map[int]bool {
	freed, left := map[int]bool{}, make([]int, len(b.out))
	from := make([][]int, len(b.out)) // by thread: the waiters in of for which the thread runs a task, among others
	var next []int
	free := func(i int) {
		if !freed[i] {
			freed[i] = true
			next = append(next, i)
		}
	}
	for i := range b.out {
		left[i] = len(b.out[i])
		for _, to := range of[i] {
			from[to] = append(from[to], i)
		}
		if w := b.s.Threads[i].Wait; w == nil || w.Timeout != Forever || left[i] == 0 && of[i] == nil {
			free(i)
		}
	}
	for len(next) > 0 {
		t := next[len(next)-1]
		next = next[:len(next)-1]
		for _, f := range from[t] {
			free(f)
		}
		for _, f := range b.in[t] {
			if left[f]--; left[f] == 0 {
				free(f)
			}
		}
	}
	return freed
}

func (b *waitGraph) edge(from int, to *ThreadRef) {
	if to == nil || to.OSThreadID == 0 {
		return
	}
	at, ok := b.index[to.OSThreadID]
	if !ok || b.edged[WaitEdge{from, at}] {
		return
	}
	b.edged[WaitEdge{from, at}] = true
	b.out[from], b.in[at] = append(b.out[from], at), append(b.in[at], from)
	b.g.Edges = append(b.g.Edges, WaitEdge{from, at})
}

// behind returns the threads that wait for some threads, directly or not. The result lacks threads itself.
func (b *waitGraph) behind(threads []int) []int {
	seen := make(map[int]bool, len(threads))
	for _, t := range threads {
		seen[t] = true
	}
	var out []int
	for next := slices.Clone(threads); len(next) > 0; {
		t := next[len(next)-1]
		next = next[:len(next)-1]
		for _, from := range b.in[t] {
			if !seen[from] {
				seen[from] = true
				out, next = append(out, from), append(next, from)
			}
		}
	}
	slices.Sort(out)
	return out
}

// maxRanked bounds the threads that rank visits. A chain of waits, each for a lock of its own, would take quadratic
// time.
const maxRanked = 1 << 20

// rank sorts the locks by how many threads a lock blocks. Beyond maxRanked only the lock's own waiters count.
func (b *waitGraph) rank() {
	b.room = maxRanked
	for i := range b.g.Locks {
		l := &b.g.Locks[i]
		waiters := make([]int, len(l.Waiters))
		for k := range l.Waiters {
			waiters[k] = l.Waiters[k].Thread
		}
		if l.Blocked = len(waiters); l.Blocked > 0 && b.room > 0 {
			behind := len(b.behind(waiters))
			l.Blocked += behind
			b.room -= behind
		}
	}
	slices.SortStableFunc(b.g.Locks, func(x, y LockState) int {
		return cmp.Or(cmp.Compare(y.Blocked, x.Blocked), cmp.Compare(len(y.Waiters), len(x.Waiters)),
			cmp.Compare(owned(&y), owned(&x)))
	})
}

func owned(l *LockState) int {
	if l.Owner != nil {
		return 1
	}
	return 0
}

// add adds a deadlock to Deadlocks or Suspected.
func (b *waitGraph) add(d Deadlock) {
	b.judge(&d)
	d.Victims = b.behind(d.Threads)
	if d.isFact() {
		b.g.Deadlocks = append(b.g.Deadlocks, d)
	} else {
		b.g.Suspected = append(b.g.Suspected, d)
	}
}

// judge decides whether a deadlock is certain, and how long the deadlock lasts.
func (b *waitGraph) judge(d *Deadlock) {
	d.Certain, d.Timeout = b.closed(d.Threads), Forever
	for _, i := range d.Threads {
		d.Certain = d.Certain && b.proved(i)
		w := b.s.Threads[i].Wait
		d.Timeout = sooner(d.Timeout, cmp.Or(w.Timeout, w.Rest))
	}
}

// closed reports whether members run all tasks of a member's Task.WaitAny: a task of another thread may complete.
func (b *waitGraph) closed(members []int) bool {
	for _, m := range members {
		if w := b.s.Threads[m].Wait; w == nil || w.Kind != TaskWaitAny {
			continue
		}
		for _, to := range b.out[m] {
			if !slices.Contains(members, to) {
				return false
			}
		}
	}
	return true
}

// isFact reports whether a deadlock is certain and never ends.
func (d *Deadlock) isFact() bool { return d.Certain && d.Timeout == Forever }

// proved reports whether a thread's wait is certain, together with the waits of other threads.
func (b *waitGraph) proved(i int) bool {
	t := &b.s.Threads[i]
	return t.Wait != nil && t.Wait.Certain && (t.Still || b.s.AtRest())
}

// stays reports whether a thread certainly waits for ever, unless the thread gets what it waits for.
func (b *waitGraph) stays(i int) bool { return b.proved(i) && b.s.Threads[i].Wait.Timeout == Forever }

// sooner returns the shorter of two timeouts. A known timeout is shorter than an unknown one.
func sooner(a, b time.Duration) time.Duration {
	switch {
	case a > 0 && b > 0:
		return min(a, b)
	case a > 0 || b > 0:
		return max(a, b)
	}
	return max(a, b) // not known, before Forever
}

// ended finds the locks whose owners have ended. A lock whose waiters are in a circle is not told again.
func (b *waitGraph) ended() {
	for i := range b.g.Locks {
		l := &b.g.Locks[i]
		if !l.Ended() {
			continue
		}
		facts, others := Deadlock{Ended: true}, Deadlock{Ended: true}
		for _, w := range l.Waiters { // the waiters are independent
			switch {
			case !wantsOwner(w.Wait) || l.readByEnded() && w.Wait.Kind != WriteLock:
			case b.stays(w.Thread):
				facts.Threads = append(facts.Threads, w.Thread)
			default:
				others.Threads = append(others.Threads, w.Thread)
			}
		}
		for _, d := range []Deadlock{facts, others} {
			if len(d.Threads) > 0 {
				b.add(d)
			}
		}
	}
}

// component adds a strongly connected component, unless the component is a thread in no circle, or a tangle.
func (b *waitGraph) component(members []int) {
	if !isCircle(b.out, members) {
		return
	}
	d := b.circle(members)
	if b.judge(&d); d.isFact() || d.Simple {
		b.add(d)
		return
	}
	b.tangles = append(b.tangles, d)
}

// isCircle reports whether a component of a graph is more than a node without an edge to itself.
func isCircle(out [][]int, members []int) bool {
	return len(members) > 1 || slices.Contains(out[members[0]], members[0])
}

// untangle finds the circles that are facts within suspected tangles: circles of members that certainly wait for
// ever. All other members of the tangle wait for such a circle, directly or not.
func (b *waitGraph) untangle() {
	if len(b.tangles) == 0 {
		return
	}
	in := map[int]int{} // the tangles, by member that stays
	for n, d := range b.tangles {
		for _, t := range d.Threads {
			if b.stays(t) {
				in[t] = n
			}
		}
	}
	out := make([][]int, len(b.out))
	for t, n := range in {
		for _, to := range b.out[t] {
			if other, ok := in[to]; ok && other == n {
				out[t] = append(out[t], to)
			}
		}
	}
	facts := map[int]bool{}
	components(out, func(members []int) {
		if isCircle(out, members) && b.closed(members) {
			facts[in[members[0]]] = true
			b.add(b.circle(members))
		}
	})
	for n, d := range b.tangles {
		if !facts[n] {
			b.add(d)
		}
	}
}

// circle describes a component with circles.
func (b *waitGraph) circle(members []int) Deadlock {
	first := slices.Min(members)
	d := Deadlock{Simple: true}
	member := make(map[int]bool, len(members))
	for _, m := range members {
		member[m] = true
	}
	inside := func(t int) []int {
		return slices.DeleteFunc(slices.Clone(b.out[t]), func(o int) bool { return !member[o] })
	}
	for _, m := range members {
		d.Simple = d.Simple && len(inside(m)) == 1
	}
	d.Threads = slices.Sorted(slices.Values(members))
	if d.Simple {
		for i, t := 0, first; i < len(members); i, t = i+1, inside(t)[0] {
			d.Threads[i] = t
		}
	}
	return d
}
