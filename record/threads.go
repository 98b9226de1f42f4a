package record

import (
	"time"

	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

// recordedProcess is one of the processes of a recording.
type recordedProcess struct {
	r       *recorder
	p       *session.Process
	index   int32 // in Recording.Processes
	owned   bool  // opened by the recorder
	frames  *frameTable
	threads map[int]*recordedThread // by thread id; those that live, as far as is known
	ns      map[int]int             // thread ids, by the target's own
	since   time.Duration           // when its recording began
	listed  time.Duration           // when the kernel's list was last looked at,
	count   int                     // how many threads there were,
	read    time.Duration           // when it was last read,
	named   time.Duration           // and when threads were last described
	cpu     time.Duration           // that it had used when recording began
	used    time.Duration           // since, when it was last asked
	counted time.Duration           // and when that was
	ended   bool
	unnamed bool          // a thread is one of the runtime's, and was not when it was described
	fresh   bool          // caches have been brought up to date for the samples at hand
	stored  time.Duration // when the runtime's list of threads was read
	mapped  time.Duration // when modules were last looked for
}

// recordedThread is a thread while it lives.
type recordedThread struct {
	of     *recordedProcess
	info   session.Thread
	index  int32 // in Recording.Threads; -1: no sample yet
	chosen bool
	ended  bool
	comm   string        // what the kernel called it at its latest sample
	named  time.Duration // when it was described,
	again  time.Duration // and when that is to be done again
	wall   wallThread
}

func newRecordedProcess(r *recorder, p *session.Process, index int32) *recordedProcess {
	rp := &recordedProcess{r: r, p: p, index: index, since: r.now, cpu: p.Live.CPUTime(), threads: map[int]*recordedThread{}, ns: map[int]int{}}
	rp.frames = newFrameTable(p, r.b, rp.newModules)
	return rp
}

// usedCPU is the CPU time that the process has used while it was recorded.
func (rp *recordedProcess) usedCPU() time.Duration {
	if t := rp.p.Live.CPUTime(); t > rp.cpu {
		rp.used = t - rp.cpu
	}
	return rp.used
}

// nameEvery is how often threads are described anew: a thread may be given its name, or
// become one of the runtime's, after it has started. The older the thread was, the longer
// its description may last.
const nameEvery = 2 * time.Second

// mostNamed is how long a description lasts at most, if nothing is chosen by it.
const mostNamed = 30 * time.Second

// readEvery is how often the list of threads is read even if their number is the same.
const readEvery = time.Second

// countEvery is how often CPU time is read, for which the kernel goes through all threads.
const countEvery = 250 * time.Millisecond

// update takes notice of threads that have come and gone.
func (rp *recordedProcess) update() {
	if rp.ended {
		return
	}
	if rp.r.now < rp.r.young || rp.r.now >= rp.counted+countEvery {
		rp.counted = rp.r.now
		rp.usedCPU() // after its end nobody can tell
	}
	if rp.p.Live.Alive() != nil {
		rp.ended = true
		if rp.r.cpu != nil {
			rp.r.cpu.ended(rp.p.Live.PID())
		}
		return
	}
	if rp.listed == 0 || rp.r.now >= rp.listed+listEvery {
		rp.list(false)
	}
}

// list takes notice of threads that have come and gone, and of the names that threads may
// have got meanwhile. last: there is no other time.
func (rp *recordedProcess) list(last bool) {
	now := rp.r.now
	some := last || rp.unnamed || now >= rp.named+nameEvery
	if n, err := rp.p.Live.CountThreads(); err == nil && n == rp.count && !some && now < rp.read+readEvery {
		rp.listed = now
		return // most likely they are the same
	}
	tids, err := rp.p.Live.Threads()
	if err != nil {
		return // it is about to end
	}
	rp.p.Engine.Begin()
	rp.frames.begin()
	unnamed := rp.unnamed
	if rp.read, rp.count = now, len(tids); some {
		rp.named, rp.unnamed = now, false
	}
	present := make(map[int]bool, len(tids))
	for _, tid := range tids {
		present[tid] = true
		t := rp.threads[tid]
		switch {
		case t == nil && rp.r.wall == nil: // its first sample will tell
			continue
		case t == nil, some && now >= t.again, last && t.mayHaveChanged(now), unnamed && t.info.ID == 0:
		default:
			continue
		}
		rp.readStore()
		rp.describe(tid, t)
	}
	for tid := range rp.threads {
		if !present[tid] {
			rp.remove(tid)
		}
	}
	rp.listed = now
}

// readStore reads the runtime's list of threads, once for all that is done now. Without it
// threads are described as native ones, and again a little later.
func (rp *recordedProcess) readStore() {
	if rp.stored >= rp.r.now {
		return
	}
	rp.stored = live.Monotonic()
	_ = rp.p.ReadStore()
}

// recent is how long it takes until a new thread is in the runtime's list, and more.
const recent = 100 * time.Millisecond

// hostThread turns a thread id of the target's namespace into ours. One that has
// ended, and was never seen, keeps its number.
func (rp *recordedProcess) hostThread(ns int) int {
	tid, ok := rp.ns[ns]
	if !ok {
		if tid, ok = rp.p.HostTID(ns); !ok {
			tid = ns
		}
		if len(rp.ns) > maxThreadIDs {
			clear(rp.ns)
		}
		rp.ns[ns] = tid
	}
	return tid
}

// maxThreadIDs bounds the numbers that are remembered, and the threads that have ended.
const maxThreadIDs = 1 << 16

// remove takes notice of the end of a thread.
func (rp *recordedProcess) remove(tid int) {
	if t := rp.threads[tid]; t != nil {
		t.ended = true
		delete(rp.ns, t.info.NSThreadID)
		delete(rp.threads, tid)
		if rp.r.wall != nil {
			rp.r.wall.ended(t, (rp.listed+rp.r.now)/2)
		}
		rp.changed()
	}
}

// thread returns a thread that has been sampled, be it known or not. name is what
// the kernel calls it.
func (rp *recordedProcess) thread(tid int, name string) *recordedThread {
	t := rp.threads[tid]
	if t != nil && name != "" && name != t.comm {
		if t.comm != "" {
			t.again, rp.named = 0, 0 // it has another name now
		}
		t.comm = name
	}
	if t == nil {
		if i, err := rp.p.Live.Thread(tid); err == nil {
			if live.Monotonic()-live.Age(i.StartTime) > rp.stored-recent {
				rp.readStore()
			}
			t = rp.describe(tid, nil)
		}
	}
	if t == nil {
		// It has ended. What is left of it is its name.
		t = &recordedThread{of: rp, index: -1, ended: true, info: session.Thread{OSThreadID: tid, Name: name, Role: session.Role(false, false, false, name)}}
		t.chosen = rp.r.o.wants(&t.info)
		if len(rp.threads) < maxThreadIDs { // what a program reports need not be true
			rp.threads[tid] = t
		}
	}
	return t
}

// How often modules are looked for when a walk fails: a program loads most of its
// libraries when it starts.
const (
	mapEvery = 100 * time.Millisecond
	mapFirst = 10 * time.Millisecond // in the first second
)

// newModules looks for modules that have been loaded, and reports whether there
// may be some.
func (rp *recordedProcess) newModules() bool {
	every := mapEvery
	if rp.r.now < rp.since+time.Second {
		every = mapFirst
	}
	if rp.r.now < rp.mapped+every {
		return false
	}
	rp.mapped = rp.r.now
	before := rp.p.Engine.Changes
	if rp.p.Engine.UpdateModules() != nil || rp.p.Engine.Changes == before {
		return false
	}
	rp.frames.begin()
	return true
}

// agentThread is the name of the thread that the agent has in the target: it is
// none of the program's.
const agentThread = "clrsnap-agent"

// describe brings what is known of a thread up to date; t is nil for a new one.
func (rp *recordedProcess) describe(tid int, t *recordedThread) *recordedThread {
	info, ok := rp.p.Describe(tid)
	if !ok {
		return t
	}
	isNew := t == nil
	if isNew {
		t = &recordedThread{of: rp, index: -1}
		t.wall.last = rp.since
		if rp.listed > 0 {
			t.wall.last = (rp.listed + rp.r.now) / 2 // it began somewhere in between
		}
		rp.threads[tid] = t
		rp.changed()
	}
	t.info = info
	t.describedAt(rp.r.now)
	if chosen := rp.r.o.wants(&info) && info.Name != agentThread; chosen != t.chosen {
		// It has a name now that is wanted, or not. The time before is not counted.
		if t.chosen = chosen; !isNew {
			t.wall.last = rp.r.now
			rp.changed()
		}
	}
	if t.index >= 0 {
		rp.r.threads.rename(t.index, t.recorded())
	}
	return t
}

// describedAt decides when a thread is to be described again.
func (t *recordedThread) describedAt(now time.Duration) {
	wait := nameEvery
	if t.of.r.o.Threads == nil {
		wait = min(max(wait, t.age(now)), mostNamed)
	}
	t.named, t.again = now, now+wait
}

// mayHaveChanged reports whether what is known of a thread is worth another look before
// the end. Most of what can change does so soon after a thread's start.
func (t *recordedThread) mayHaveChanged(now time.Duration) bool {
	const part = 8
	return now-t.named > t.age(now)/part
}

// age is how long the thread has been there; now is not long ago.
func (t *recordedThread) age(now time.Duration) time.Duration {
	return live.Age(t.info.Started) - (live.Monotonic() - now)
}

// changed has the turns of wall-clock sampling dealt anew.
func (rp *recordedProcess) changed() {
	if rp.r.wall != nil {
		rp.r.wall.dealt = false
	}
}

// sampled returns the index of a thread that there is a sample of.
func (t *recordedThread) sampled() int32 {
	if t.index < 0 {
		t.index = t.of.r.threads.add(t.recorded())
	}
	return t.index
}

func (t *recordedThread) recorded() profile.RecordedThread {
	return profile.RecordedThread{
		Process: t.of.index, OSThreadID: t.info.OSThreadID, ManagedThreadID: t.info.ManagedID, Name: t.info.Name, Role: t.info.Role,
	}
}

// threadTable numbers threads. Beyond a bound, threads of one name share a
// number; beyond a second one all do.
type threadTable struct {
	b      *profile.Builder
	n      int
	shared map[profile.RecordedThread]int32
}

const (
	maxThreadsApart = 4096
	maxThreadNames  = 1024
)

func (tt *threadTable) add(t profile.RecordedThread) int32 {
	if tt.n++; tt.n <= maxThreadsApart {
		return tt.b.Thread(t)
	}
	t.OSThreadID, t.ManagedThreadID = 0, 0
	if _, ok := tt.shared[t]; !ok && len(tt.shared) >= maxThreadNames {
		t.Name, t.Role = "other threads", ""
	}
	i, ok := tt.shared[t]
	if !ok {
		if tt.shared == nil {
			tt.shared = map[profile.RecordedThread]int32{}
		}
		i = tt.b.Thread(t)
		tt.shared[t] = i
	}
	return i
}

// rename changes what is known of a thread, unless it shares its number.
func (tt *threadTable) rename(i int32, t profile.RecordedThread) {
	if int(i) < maxThreadsApart {
		tt.b.SetThread(i, t)
	}
}
