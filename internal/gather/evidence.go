package gather

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"clrsnap/internal/cgroup"
	"clrsnap/internal/clr/threadpool"
	"clrsnap/internal/heapwalk"
	"clrsnap/internal/openfiles"
	"clrsnap/internal/phrase"
	"clrsnap/internal/procfs"
	"clrsnap/internal/requests"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Evidence is the input of the judges.
type Evidence struct {
	Process snapshot.Process
	Began   time.Time
	Took    time.Duration // from the beginning of the first look to the end of the last look
	Stops   int           // of threads
	CPUs    int           // of the machine

	Looks      []Look
	Moments    []Moment             // of the whole process; at least two for a running process
	Anonymous  []Amount             // memory of no file, over the whole time
	Samples    *profile.Recording   // nil: no samples
	Sockets    []Socket             // of the process; nil: not known
	Unaccepted []Unaccepted         // by the address at which the process listens
	Chains     []snapshot.TaskChain // async methods that wait; nil: not looked for
	Web        *snapshot.Requests   // requests and calls of HttpClient; nil: not looked for
	Heaps      []HeapLook           // at the beginning and at the end; nil: not known
	Kept       []KeptPile           // the known paths to growing collections
	Rows       []heapwalk.Row       // how growing own objects are kept
	EarlyRows  *RowsLook            // the same at the beginning; nil: the heap takes too long
	Age        time.Duration        // of the process, at the last look at the heap; 0: not known

	Likely       *snapshot.Snapshot // with snapshot.Snapshot.LikelyEdges; nil: not looked for, or none
	LikelyBefore *snapshot.Snapshot // likewise, some time before; nil: not looked for

	Lost    []snapshot.Lost // permits without a holder for lostGap
	Flights []FlightLook    // requests and async methods in flight: at the beginning and at the end, if quick to read
	Early   *FlightLook     // the look at the beginning, if the collector has moved the objects of its waits since

	MethodsEnded methodsEnded
	AlwaysBusy   map[int]bool             // threads, by id, that have run, or were ready to run, since their beginning
	Takers       map[int]bool             // threads, by id, with own methods that take items from BlockingCollections
	Pulses       map[int]bool             // threads in Monitor.Wait, by id: the waiting method itself pulses a monitor
	Readers      []*snapshot.Thread       // with own methods that take items from channels
	Completers   []*snapshot.Thread       // with own methods that complete TaskCompletionSources
	Sources      map[string]KeptSource    // what keeps the sources that methods wait for, by the method
	KeptTasks    map[uint64]heapwalk.Kept // what keeps failed tasks, by the task
	Blocked      []BlockedCall            // reads and writes that wait for the other end, and waiting children

	Handlers  *snapshot.HeapPath // keeps the most handlers of HttpClients; nil: they do not become more, or not known
	HeapLimit HeapLimit
	Filling   *snapshot.HeapPath // of a nearly full heap: keeps the most objects of the largest type; nil: not known

	Looked  []string // phrases
	Missing []string // sentences

	Incomplete bool // the look was cut short
	Ended      bool // the process has ended meanwhile

	throws []*Thrown // see Throws; nil: not yet known, or none
}

// Look is one look at all threads.
type Look struct {
	At    time.Duration // the beginning, since the beginning of the first look
	Until time.Duration // the end
	Snap  *snapshot.Snapshot
	Ran   map[int]procfs.Schedstat // by thread: the running time when the look began
	After map[int]procfs.Schedstat // and when the look ended
	Pool  *threadpool.State        // nil: not known
	// blocked is how often each thread has blocked, up to the end of the look.
	blocked map[int]uint64
	// moved is how many bytes each thread in a call for input or output had read and written at the end of the look.
	moved map[int]procfs.Transferred
}

// Moment is the kernel's view of the process.
type Moment struct {
	At         time.Duration
	State      byte // as in /proc/PID/stat
	Traced     int  // the tracing process; 0: none
	Tracer     string
	Rss        int64         // bytes in RAM
	CPU        time.Duration // used by all threads
	Idle       time.Duration // of all CPUs of the machine, with nothing to do; -1: not known
	Groups     cgroup.State
	Files      int // descriptors
	FilesLimit int // -1: none; 0: not known
	Kinds      map[string]int
}

// Socket is a TCP connection of the process.
type Socket struct {
	Local, Remote string
	Ours          bool          // the process has made the connection; false: the process has accepted the connection
	State         string        // "established", "syn-sent"
	Sent          time.Duration // time since the last sending
	Received      time.Duration // time since the last receipt, or since the connection was made
	heard         bool          // something was received
	Own           bool          // this process listens at the other end
}

// Unaccepted is connections to the process that the process has not accepted: the kernel keeps the connections in a
// queue.
type Unaccepted struct {
	Local  string        // the address at which the process listens
	Count  int           // of connections
	Oldest time.Duration // at least so long the oldest connection has waited; its client may have sent more meanwhile
}

// methodsEnded is how many async methods have ended between the looks at what was in flight.
type methodsEnded struct {
	Count int
	Exact bool
	Known bool
}

// Core reports whether the evidence comes from a core dump.
func (e *Evidence) Core() bool { return e.Process.Core != nil }

// First is the first look.
func (e *Evidence) First() *Look { return &e.Looks[0] }

// Last is the last look.
func (e *Evidence) Last() *Look { return &e.Looks[len(e.Looks)-1] }

// Whole is the time from the beginning of the first look to the end of the last look. The threads' running times
// cover whole.
func (e *Evidence) Whole() time.Duration {
	if len(e.Looks) == 0 {
		return 0
	}
	return e.Last().Until - e.First().At
}

// Held reports whether a signal, a debugger or the freezer keeps the process from running.
func (e *Evidence) Held() bool {
	n := 0
	for i := range e.Moments {
		if m := &e.Moments[i]; m.State == 'T' || m.State == 't' && m.Traced != 0 || m.Groups.Frozen {
			n++
		}
	}
	return n > 0 && n == len(e.Moments)
}

// Watched is a thread that was there in all looks.
type Watched struct {
	Looks []*snapshot.Thread // one for each look
	// ran is how long the thread ran from the beginning of the first look to the end of the last look, and ready how
	// long the thread was ready to run without a CPU.
	Ran, Ready time.Duration
	known      bool // ran and ready are known
	// blocked is how often the thread has blocked between the ends of the first and the last look.
	Blocked uint64
	still   bool // the thread has not run at all since the first look began
	// unmoved: the thread was blocked in the same calls in all looks, and has hardly run. A stop for a look wakes a
	// thread in some system calls.
	Unmoved bool
}

// Last is the thread in the last look.
func (w *Watched) Last() *snapshot.Thread { return w.Looks[len(w.Looks)-1] }

// Threads returns the threads that were there in all looks.
func (e *Evidence) Threads() []Watched {
	if len(e.Looks) == 0 {
		return nil
	}
	seen := make([]map[int]*snapshot.Thread, len(e.Looks))
	for k := range e.Looks {
		seen[k] = e.Looks[k].ByID()
	}
	var out []Watched
	for i := range e.First().Snap.Threads {
		id := e.First().Snap.Threads[i].OSThreadID
		w := Watched{}
		for k := range e.Looks {
			if t := seen[k][id]; t != nil {
				w.Looks = append(w.Looks, t)
			}
		}
		if len(w.Looks) < len(e.Looks) {
			continue
		}
		before, ok1 := e.First().Ran[id]
		after, ok2 := e.Last().After[id]
		// Kernels without CONFIG_SCHED_INFO, and gVisor, have zeros.
		w.known = ok1 && ok2 && before != procfs.Schedstat{} && after.Running >= before.Running &&
			after.Ready >= before.Ready
		if w.known {
			w.Ran, w.Ready = after.Running-before.Running, after.Ready-before.Ready
		}
		if w.Waits() && 2*w.Ready > e.Whole() {
			w.Ready = 0 // the kernel's number is wrong: the thread was blocked in all looks
		}
		w.Blocked = e.Last().blocked[id] - e.First().blocked[id]
		w.still = w.known && before == after || e.Core()
		w.Unmoved = w.still || w.known && w.Waits() && w.Ran <= e.Whole()/100 && w.sameCalls()
		out = append(out, w)
	}
	return out
}

// ByID are the threads of a look by id.
func (l *Look) ByID() map[int]*snapshot.Thread {
	out := make(map[int]*snapshot.Thread, len(l.Snap.Threads))
	for i := range l.Snap.Threads {
		t := &l.Snap.Threads[i]
		out[t.OSThreadID] = t
	}
	return out
}

// MarkStill marks the waiting threads that did not run during the look.
func (l *Look) MarkStill() {
	for i := range l.Snap.Threads {
		t := &l.Snap.Threads[i]
		before, ok1 := l.Ran[t.OSThreadID]
		after, ok2 := l.After[t.OSThreadID]
		t.Still = ok1 && ok2 && before == after && before != procfs.Schedstat{} && t.Waits()
	}
}

// All reports whether f holds for the thread in every look.
func (w *Watched) All(f func(*snapshot.Thread) bool) bool {
	return !slices.ContainsFunc(w.Looks, func(t *snapshot.Thread) bool { return !f(t) })
}

// Waits reports whether the thread was blocked in every look, and was not idle.
func (w *Watched) Waits() bool {
	return w.All(func(t *snapshot.Thread) bool { return t.Waits() && !Resting(t) })
}

// sameCalls reports whether the thread has the same calls in all looks: equal methods in equal places of the stack. A
// look may have found out more about inlined methods.
func (w *Watched) sameCalls() bool {
	first := calls(w.Looks[0].Frames)
	if len(first) == 0 {
		return false
	}
	return w.All(func(t *snapshot.Thread) bool {
		return slices.EqualFunc(first, calls(t.Frames), func(a, b *snapshot.Frame) bool {
			return a.SP == b.SP && a.Method == b.Method && a.IP == b.IP
		})
	})
}

// calls are the frames of methods that were not inlined.
func calls(frames []snapshot.Frame) []*snapshot.Frame {
	out := make([]*snapshot.Frame, 0, len(frames))
	for i := range frames {
		if !frames[i].Inlined {
			out = append(out, &frames[i])
		}
	}
	return out
}

// Resting reports whether a thread has nothing to do.
func Resting(t *snapshot.Thread) bool {
	return t.Idle() != "" || t.Wait != nil && t.Wait.Kind == snapshot.WaitIdle
}

// OwnFrame returns the frame nearest to the leaf that is the program's own code, or else a package's; nil: none.
func OwnFrame(frames []snapshot.Frame) *snapshot.Frame {
	var other *snapshot.Frame
	for i := range frames {
		switch f := &frames[i]; f.Origin() {
		case snapshot.OfUser:
			if !phrase.IsGenerated(f.Method) {
				return f
			}
		case snapshot.OfPackage:
			if other == nil {
				other = f
			}
		}
	}
	return other
}

// PlaceFrame is the frame that tells best where a stack is: the own method. Without one, the innermost method of .NET
// outside the core library says more than the core library's ways of waiting and writing. nil: there are no frames.
func PlaceFrame(frames []snapshot.Frame) *snapshot.Frame {
	if own := OwnFrame(frames); own != nil || len(frames) == 0 {
		return own
	}
	innermost := 0
	for i := range frames {
		f := &frames[i]
		if f.Kind != snapshot.Managed || f.Module == "" { // native, or made at run time
			continue
		}
		if f.Module != "System.Private.CoreLib" {
			return f
		}
		if frames[innermost].Kind != snapshot.Managed {
			innermost = i
		}
	}
	return &frames[innermost]
}

// Place names the method of PlaceFrame.
func Place(frames []snapshot.Frame) string { return phrase.Method(PlaceFrame(frames)) }

// Tally counts things by a name.
type Tally map[string]int

// Top returns the most frequent name and its count.
func (t Tally) Top() (name string, n int) {
	for k, v := range t {
		if v > n || v == n && cmp.Compare(k, name) < 0 {
			name, n = k, v
		}
	}
	return name, n
}

// Sorted are the names, the most frequent first.
func (t Tally) Sorted() []string {
	return slices.SortedFunc(maps.Keys(t), func(a, b string) int { return cmp.Or(t[b]-t[a], cmp.Compare(a, b)) })
}

// Ref names a thread.
func Ref(t *snapshot.Thread) snapshot.ThreadRef {
	return snapshot.ThreadRef{OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, Name: t.Name}
}

// HeapLook is the heap at one moment.
type HeapLook struct {
	At time.Duration
	*snapshot.Heap
	Piles []heapwalk.Pile
}

// HeapLimit is the runtime's limit of the managed heap.
type HeapLimit struct {
	Bytes   int64 // 0: not known, or none
	Source  string
	Assumed bool // the program's runtimeconfig.json may say otherwise
}

// String gives the limit, and the limit's source.
func (l *HeapLimit) String() string {
	if l.Assumed {
		return fmt.Sprintf("about %s (%s, unless runtimeconfig.json says otherwise)", phrase.BytesOf(l.Bytes), l.Source)
	}
	return fmt.Sprintf("%s (%s)", phrase.BytesOf(l.Bytes), l.Source)
}

// KeptPile is a pile with a path that keeps the pile.
type KeptPile struct {
	heapwalk.Pile
	Path *snapshot.HeapPath
}

// KeptSource is what keeps the TaskCompletionSources that the calls of one method wait for.
type KeptSource struct {
	Waits   int // that were followed
	Missing int // of waits: there is no source, or nothing keeps it
	Path    *snapshot.HeapPath
	Threads map[int]string // by id: threads that wait for such a source, and the field that keeps it
}

// Amount is how much anonymous memory the process had in RAM at a moment.
type Amount struct {
	At    time.Duration
	Bytes int64
}

// FlightLook is what was in flight at one moment.
type FlightLook struct {
	At time.Duration // since the first look
	*requests.InFlight
}

// BlockedCall is a read or a write that waits for the process at the other end.
type BlockedCall struct {
	openfiles.Call
	Pid     int
	Command string
	Own     bool               // of the process itself
	Thread  snapshot.ThreadRef // in the call
	Stack   *snapshot.Thread   // of the thread; nil: not known
	What    string             // "a pipe", "a socket to 127.0.0.1:80"

	Ends   []FarEnd
	hidden bool // the other end was not found, or only in part

	// awaited: the process waits for the end of the call's process, a child.
	Awaited bool
}

// FarEnd is a process at the other end.
type FarEnd struct {
	Pid     int
	Command string
	Own     bool             // the process itself
	Ready   bool             // a thread is about to take what the caller waits to give, or the other way round
	Does    string           // "is stopped by a signal", "sleeps in Shop.Feed.Run (Feed.cs:12)"
	stack   *snapshot.Thread // of the process itself only a thread that writes there, too; nil: not known, or none
	Next    *BlockedCall     // in which the process is blocked in turn; nil: in none
}
