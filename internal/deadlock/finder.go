package deadlock

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/permits"
	"clrsnap/internal/naming"
	"clrsnap/internal/session"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// finder finds the wait edges of one snapshot, as the snapshot's Observer.
type finder struct {
	p      *session.Process
	s      *session.Observed
	o      Options
	duties *duties // nil: permits that threads hold are not wanted
}

// likely finds wait edges that are only likely.
type likely struct {
	p   *session.Process
	f   *finder
	out *snapshot.Snapshot // of f
	t   *tasks.Walk        // set by walk

	// What methods have at their awaits: set by codeOf and codeOfResumed.
	all     map[naming.AwaitKey]*suspendedCode
	resumed map[naming.ResumedKey]*suspendedCode // likewise of methods that the runtime itself suspends

	suspended []suspended // likely holders: set by scan

	// Set by build, each time anew.
	holders map[arch.Addr][]snapshot.WaitNode // holders by semaphore or task
	known   map[arch.Addr][]duty              // likewise
	awaits  map[arch.Addr]int                 // by the box: indices in out.Awaits
	runs    map[arch.Addr][]int               // by task: indices of threads
	feeds   map[arch.Addr][]arch.Addr         // boxes by the tasks that the methods' ends complete; nil: not looked for
	pending []int                             // indices in out.Awaits of methods without a wait edge so far
	// a suspended method has a permit of a semaphore that is not known, or may have gone on
	unsure   bool
	contexts []contextThread // nil: not looked for
	direct   map[int]int     // by await that contexts wait for: the index of the context; -1: several wait
	pool     *snapshot.Pool  // nil: not looked for

	// Set by findWaiting; nil: not looked for.
	waiting map[arch.Addr]arch.Addr // the awaiting box, by the task in a semaphore's queue
	yields  map[arch.Addr]*yielding // by semaphore: iterators that have a permit

	blind bool // the permits of a method are not known: set by whoever reads code
}

// suspendedCode is what a method has at an await: permits, and tasks to complete.
type suspendedCode struct {
	of       permits.MethodID
	held     []permits.Section
	promised []permits.Promise
}

// suspended is a suspended async method that is a likely holder, or the methods of a RuntimeAsyncTask.
type suspended struct {
	box  arch.Addr
	code *suspendedCode // nil: of a RuntimeAsyncTask
}

const (
	maxAwaits    = 1 << 14
	maxSuspended = 1 << 18 // suspended methods that are read
	maxNeeds     = 1 << 17
	maxNeeded    = 1 << 7 // holders of one wait edge
)

// stateAt is the place of a suspended method's await: the offset in the IL where the method stores its state.
func (l *likely) stateAt(b *async.Box) (at uint32, ok bool) {
	stores, err := l.p.Runtime.Names.StateStores(b.Machine.Module, b.Machine.RID)
	if err != nil {
		return 0, false
	}
	found := 0
	for _, s := range stores {
		if s.State == b.State {
			at, found = s.IL, found+1
		}
	}
	return at, found == 1
}

func (l *likely) addDuties(who snapshot.WaitNode, list []duty) {
	for _, d := range list {
		has := l.holders[d.object]
		if len(has) == 0 || has[len(has)-1] != who {
			l.holders[d.object] = append(has, who)
		}
		l.known[d.object] = append(l.known[d.object], d)
	}
}

// contextThread is a thread that waits for a task, and has a SynchronizationContext.
type contextThread struct {
	thread  int // index
	context arch.Addr
	class   string
}

// awaitPlace is a method suspended at an await, with the known arguments and variables.
type awaitPlace struct {
	of    permits.MethodID
	await uint32 // the offset in the IL
	roots permits.Roots
}

// dutiesIn finds the objects that a suspended method is going to release or complete.
func (l *likely) dutiesIn(b *async.Box, held []permits.Section, promised []permits.Promise) []duty {
	of := permits.MethodID{Module: b.Machine.Module, RID: b.Machine.RID}
	return dutiesAt(l.p, of, held, promised, rootsIn(b))
}

// rootsIn are the arguments of a suspended method. Only the argument this, the state machine, is known.
func rootsIn(b *async.Box) permits.Roots {
	at, class := b.Fields()
	return func(v permits.Variable) (permits.Place, bool) {
		return permits.Place{At: at, Class: class}, v == permits.This
	}
}

// lease is a semaphore whose permits one method takes and another method releases: a pool leases connections.
type lease struct {
	sem   arch.Addr
	use   *permits.Use
	field string

	takers  []string                  // the methods that take, as callers write the names
	names   []string                  // likewise, and of the methods that release
	through map[permits.MethodID]bool // the methods through which the waiters come
	matters map[permits.MethodID]bool // of methods that were looked at
}
