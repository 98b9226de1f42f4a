package why

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"clrsnap/internal/cgroup"
	"clrsnap/internal/clr/threadpool"
	"clrsnap/internal/heapwalk"
	"clrsnap/internal/procfs"
	"clrsnap/profile"
)

// evidence is the input of the judges.
type evidence struct {
	process profile.Process
	began   time.Time
	took    time.Duration // from the beginning of the first look to the end of the last look
	stops   int           // of threads
	cpus    int           // of the machine

	looks     []look
	moments   []moment            // of the whole process; at least two for a running process
	anonymous []amount            // memory of no file, over the whole time
	samples   *profile.Recording  // nil: no samples
	sockets   []socket            // of the process; nil: not known
	chains    []profile.TaskChain // async methods that wait; nil: not looked for
	web       *profile.Requests   // requests and calls of HttpClient; nil: not looked for
	heaps     []heapLook          // at the beginning and at the end; nil: not known
	kept      []keptPile          // the known paths to growing collections
	rows      []heapwalk.Row      // how growing own objects are kept
	age       time.Duration       // of the process, at the last look at the heap; 0: not known

	likely       *profile.Snapshot // with profile.Snapshot.Needs; nil: not looked for, or none
	likelyBefore *profile.Snapshot // likewise, some time before; nil: not looked for

	lost    []profile.Lost // permits without a holder for lostGap
	flights []flightLook   // requests and async methods in flight: at the beginning and at the end, if quick to read

	methodsEnded methodsEnded
	readers      []*profile.Thread        // with own methods that take items from channels
	completers   []*profile.Thread        // with own methods that complete TaskCompletionSources
	sources      map[string]keptSource    // what keeps the sources that methods wait for, by the method
	keptTasks    map[uint64]heapwalk.Kept // what keeps failed tasks, by the task
	blocked      []blockedCall            // reads and writes that wait for the other end, and waiting children

	heapLimit heapLimit

	looked  []string // phrases
	missing []string // sentences

	incomplete bool // the look was cut short
	ended      bool // the process has ended meanwhile
}

// look is one look at all threads.
type look struct {
	at    time.Duration // the beginning, since the beginning of the first look
	until time.Duration // the end
	snap  *profile.Snapshot
	ran   map[int]procfs.Schedstat // by thread: the running time when the look began
	after map[int]procfs.Schedstat // and when the look ended
	pool  *threadpool.State        // nil: not known
	// blocked is how often each thread has blocked, up to the end of the look.
	blocked map[int]uint64
	// moved is how many bytes each thread in a call for input or output had read and written at the end of the look.
	moved map[int]procfs.Transferred
}

// moment is the kernel's view of the process.
type moment struct {
	at         time.Duration
	state      byte // as in /proc/PID/stat
	traced     int  // the tracing process; 0: none
	tracer     string
	rss        int64         // bytes in RAM
	cpu        time.Duration // used by all threads
	idle       time.Duration // of all CPUs of the machine, with nothing to do; -1: not known
	groups     cgroup.State
	files      int // descriptors
	filesLimit int // -1: none; 0: not known
	kinds      map[string]int
}

// socket is a TCP connection of the process.
type socket struct {
	local, remote string
	ours          bool          // the process has made the connection; false: the process has accepted the connection
	state         string        // "established", "syn-sent"
	sent          time.Duration // time since the last sending
	received      time.Duration // time since the last receipt, or since the connection was made
	heard         bool          // something was received
	own           bool          // this process listens at the other end
}

// methodsEnded is how many async methods have ended between the looks at what was in flight.
type methodsEnded struct {
	count int
	exact bool
	known bool
}

// core reports whether the evidence comes from a core dump.
func (e *evidence) core() bool { return e.process.Core != nil }

// first and last are the first and the last look.
func (e *evidence) first() *look { return &e.looks[0] }
func (e *evidence) last() *look  { return &e.looks[len(e.looks)-1] }

// span is the time between the beginnings of the first and the last look.
func (e *evidence) span() time.Duration {
	if len(e.looks) == 0 {
		return 0
	}
	return e.last().at - e.first().at
}

// whole is the time from the beginning of the first look to the end of the last look. The threads' running times
// cover whole.
func (e *evidence) whole() time.Duration {
	if len(e.looks) == 0 {
		return 0
	}
	return e.last().until - e.first().at
}

// held reports whether a signal, a debugger or the freezer keeps the process from running.
func (e *evidence) held() bool {
	n := 0
	for i := range e.moments {
		if m := &e.moments[i]; m.state == 'T' || m.state == 't' && m.traced != 0 || m.groups.Frozen {
			n++
		}
	}
	return n > 0 && n == len(e.moments)
}

// watched is a thread that was there in all looks.
type watched struct {
	looks []*profile.Thread // one for each look
	// ran is how long the thread ran from the beginning of the first look to the end of the last look, and ready how
	// long the thread was ready to run without a CPU.
	ran, ready time.Duration
	known      bool // ran and ready are known
	// blocked is how often the thread has blocked between the ends of the first and the last look.
	blocked uint64
	still   bool // the thread has not run at all since the first look began
	// unmoved: the thread was blocked in the same calls in all looks, and has hardly run. A stop for a look wakes a
	// thread in some system calls.
	unmoved bool
}

// last is the thread in the last look.
func (w *watched) last() *profile.Thread { return w.looks[len(w.looks)-1] }

// threads returns the threads that were there in all looks.
func (e *evidence) threads() []watched {
	if len(e.looks) == 0 {
		return nil
	}
	seen := make([]map[int]*profile.Thread, len(e.looks))
	for k := range e.looks {
		seen[k] = e.looks[k].byID()
	}
	var out []watched
	for i := range e.first().snap.Threads {
		id := e.first().snap.Threads[i].OSThreadID
		w := watched{}
		for k := range e.looks {
			if t := seen[k][id]; t != nil {
				w.looks = append(w.looks, t)
			}
		}
		if len(w.looks) < len(e.looks) {
			continue
		}
		before, ok1 := e.first().ran[id]
		after, ok2 := e.last().after[id]
		// Kernels without CONFIG_SCHED_INFO, and gVisor, have zeros.
		w.known = ok1 && ok2 && before != procfs.Schedstat{} && after.Running >= before.Running &&
			after.Ready >= before.Ready
		if w.known {
			w.ran, w.ready = after.Running-before.Running, after.Ready-before.Ready
		}
		w.blocked = e.last().blocked[id] - e.first().blocked[id]
		w.still = w.known && before == after || e.core()
		w.unmoved = w.still || w.known && w.waits() && w.ran <= e.whole()/100 && w.sameCalls()
		out = append(out, w)
	}
	return out
}

// served is the share of the threads' ready time in which the threads ran, because they had a CPU: from 0 to 1. If
// the share is low, everything takes longer, and the program is not to blame.
func (e *evidence) served() float64 {
	ran, ready := e.ranAndReady()
	if ran+ready <= 0 {
		return 1
	}
	return float64(ran) / float64(ran+ready)
}

// ranAndReady is how long the threads ran, and how long they were ready to run without a CPU, in all.
func (e *evidence) ranAndReady() (ran, ready time.Duration) {
	threads := e.threads()
	for i := range threads {
		ran, ready = ran+threads[i].ran, ready+threads[i].ready
	}
	return ran, ready
}

// byID are the threads of a look by id.
func (l *look) byID() map[int]*profile.Thread {
	out := make(map[int]*profile.Thread, len(l.snap.Threads))
	for i := range l.snap.Threads {
		t := &l.snap.Threads[i]
		out[t.OSThreadID] = t
	}
	return out
}

// markStill marks the waiting threads that did not run during the look.
func (l *look) markStill() {
	for i := range l.snap.Threads {
		t := &l.snap.Threads[i]
		before, ok1 := l.ran[t.OSThreadID]
		after, ok2 := l.after[t.OSThreadID]
		t.Still = ok1 && ok2 && before == after && before != procfs.Schedstat{} && t.Waits()
	}
}

// all reports whether f holds for the thread in every look.
func (w *watched) all(f func(*profile.Thread) bool) bool {
	return !slices.ContainsFunc(w.looks, func(t *profile.Thread) bool { return !f(t) })
}

// waits reports whether the thread was blocked in every look, and was not idle.
func (w *watched) waits() bool {
	return w.all(func(t *profile.Thread) bool { return t.Waits() && !resting(t) })
}

// sameCalls reports whether the thread has the same calls in all looks: equal methods in equal places of the stack.
func (w *watched) sameCalls() bool {
	first := w.looks[0].Frames
	if len(first) == 0 {
		return false
	}
	return w.all(func(t *profile.Thread) bool {
		return slices.EqualFunc(first, t.Frames, func(a, b profile.Frame) bool {
			return a.SP == b.SP && a.Method == b.Method && a.IP == b.IP
		})
	})
}

// resting reports whether a thread has nothing to do.
func resting(t *profile.Thread) bool {
	return t.Idle() != "" || t.Wait != nil && t.Wait.Kind == profile.WaitIdle
}

// blockedIn is the own method in which a thread waits; "": none.
func blockedIn(t *profile.Thread) string {
	if f := ownFrame(t.Frames); f != nil {
		return f.Display
	}
	return ""
}

// ownFrame returns the frame nearest to the leaf that is the program's own code, or else a package's; nil: none.
func ownFrame(frames []profile.Frame) *profile.Frame {
	var other *profile.Frame
	for i := range frames {
		switch f := &frames[i]; f.Origin() {
		case profile.OfUser:
			if !isGenerated(f.Method) {
				return f
			}
		case profile.OfPackage:
			if other == nil {
				other = f
			}
		}
	}
	return other
}

// tally counts things by a name.
type tally map[string]int

// top returns the most frequent name and its count.
func (t tally) top() (name string, n int) {
	for k, v := range t {
		if v > n || v == n && cmp.Compare(k, name) < 0 {
			name, n = k, v
		}
	}
	return name, n
}

// sorted are the names, the most frequent first.
func (t tally) sorted() []string {
	return slices.SortedFunc(maps.Keys(t), func(a, b string) int { return cmp.Or(t[b]-t[a], cmp.Compare(a, b)) })
}

// sortedBy are the sorted values of a map.
func sortedBy[K comparable, V any](m map[K]V, order func(a, b V) int) []V {
	return slices.SortedFunc(maps.Values(m), order)
}

// ref names a thread.
func ref(t *profile.Thread) profile.ThreadRef {
	return profile.ThreadRef{OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, Name: t.Name}
}
