package record

import (
	"time"

	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

type recordedProcess struct {
	r       *recorder
	p       *session.Process
	index   int32 // in Recording.Processes
	owned   bool  // opened by the recorder
	frames  *frameTable
	threads map[int]*recordedThread // threads that are not known to have ended, by thread id
	ns      map[int]int             // our thread ids, by thread id in the target's PID namespace
	since   time.Duration           // when the recording of the process began
	listed  time.Duration           // when the kernel's list was last looked at,
	count   int                     // how many threads there were,
	read    time.Duration           // when the list was last read,
	named   time.Duration           // and when threads were last described
	cpu     time.Duration           // CPU time of the process when its recording began
	used    time.Duration           // CPU time since, at the last reading,
	counted time.Duration           // and when the last reading was
	ended   bool
	left    time.Duration // since when the process runs another program: see leave; 0: it does not
	unnamed bool          // a thread has become one of the runtime's since its description
	fresh   time.Duration // when caches were brought up to date for the samples at hand; 0: not yet
	stored  time.Duration // when the runtime's list of threads was read
	maps    ration        // of reading the mappings: see newMappings
}

// recordedThread is a thread while it lives.
type recordedThread struct {
	of     *recordedProcess
	info   session.Thread
	index  int32 // in Recording.Threads; -1: no sample yet
	chosen bool
	ended  bool
	comm   string        // the kernel's name of the thread at its latest sample
	named  time.Duration // when the thread was described,
	again  time.Duration // and when to describe it again
	wall   wallThread
}

func newRecordedProcess(r *recorder, p *session.Process, index int32) *recordedProcess {
	rp := &recordedProcess{
		r: r, p: p, index: index, since: r.now, cpu: p.Live.CPUTime(),
		threads: map[int]*recordedThread{}, ns: map[int]int{},
	}
	if rp.frames = r.surveyed; rp.frames == nil || rp.frames.p != p {
		rp.frames = newFrameTable(p, r.assemblies)
	}
	rp.frames.newMappings, r.surveyed = rp.newMappings, nil
	rp.p.Live.Executed() // opens the file that tells later
	return rp
}

// usedCPU is the CPU time that the process has used during its recording.
func (rp *recordedProcess) usedCPU() time.Duration {
	if t := rp.p.Live.CPUTime(); t > rp.cpu && rp.left == 0 {
		rp.used = t - rp.cpu
	}
	return rp.used
}

// nameEvery is how often threads are described again: a thread may get its name, or become one of the
// runtime's, after its start. Old threads are described less often.
const nameEvery = 2 * time.Second

// mostNamed is the longest that a description lasts, unless Options.Threads depends on it.
const mostNamed = 30 * time.Second

// readEvery is how often the list of threads is read even if their number is the same.
const readEvery = time.Second

// countEvery is how often CPU time is read, at most: a little less than drainEvery, so that each drain
// reads the CPU time. The CPU time of an ended process is the last reading. The kernel adds up the
// times of all threads at each reading.
const countEvery = drainEvery * 3 / 4

// update checks whether the process has exited, and lists its threads from time to time.
func (rp *recordedProcess) update() {
	if rp.ended {
		return
	}
	if rp.r.now < rp.r.young || rp.r.now >= rp.counted+countEvery {
		rp.counted = rp.r.now
		rp.usedCPU() // impossible once the process has exited
	}
	if rp.p.Live.Alive() != nil {
		rp.end()
		return
	}
	if rp.listed == 0 || rp.r.now >= rp.listed+listEvery {
		rp.list(false)
	}
}

func (rp *recordedProcess) end() {
	rp.ended = true
	if rp.r.cpu != nil {
		rp.r.cpu.ended(rp.p.Live.PID())
	}
}

// leave ends the recording of a process that has executed another program: nothing known of the
// process holds any more. With Options.Subprocesses the other program is recorded, too, if it is .NET.
func (rp *recordedProcess) leave() {
	if rp.ended || !rp.p.Live.Executed() {
		return
	}
	rp.end()
	rp.left = rp.r.now
	for tid := range rp.threads {
		rp.remove(tid)
	}
	if rp.r.o.Subprocesses {
		rp.r.expect(rp.p.Live.PID(), true)
	}
}

// list finds threads that have started and ended, and from time to time changed names. last: this is
// the last call.
func (rp *recordedProcess) list(last bool) {
	now := rp.r.now
	some := last || rp.unnamed || now >= rp.named+nameEvery
	if n, err := rp.p.Live.CountThreads(); err == nil && n == rp.count && !some && now < rp.read+readEvery {
		rp.listed = now
		return // most likely the threads are the same
	}
	tids, err := rp.p.Live.Threads()
	if err != nil {
		return // the process is about to exit
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
		case t == nil && rp.r.wall == nil: // the thread's first sample will tell
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

// readStore reads the runtime's list of threads, at most once in each round of the recorder. If the
// list cannot be read, threads are described as native threads, and again a little later.
func (rp *recordedProcess) readStore() {
	if rp.stored >= rp.r.now {
		return
	}
	rp.stored = live.Monotonic()
	_ = rp.p.ReadThreadStore()
}

// recent is at least the time until a new thread is in the runtime's list.
const recent = 100 * time.Millisecond

// hostThread turns a thread id of the target's PID namespace into ours. The id of a thread that ended
// unseen stays as it is.
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

// maxThreadIDs bounds the ids in recordedProcess.ns, and the threads that were first seen after their
// end.
const maxThreadIDs = 1 << 16

// remove forgets a thread that has ended.
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

// thread returns a sampled thread, and describes the thread if it is not known yet. name is the
// kernel's name of the thread; "" if the name is not known.
func (rp *recordedProcess) thread(tid int, name string) *recordedThread {
	t := rp.threads[tid]
	if t != nil && name != "" && name != t.comm {
		if t.comm != "" {
			t.again, rp.named = 0, 0 // the thread has another name now
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
		// The thread has ended. Only its name is left.
		t = &recordedThread{of: rp, index: -1, ended: true}
		t.info = session.Thread{OSThreadID: tid, Name: name, Role: session.RoleOfEnded(name)}
		t.chosen = rp.r.o.wants(&t.info)
		if len(rp.threads) < maxThreadIDs { // a hostile program can report any number
			rp.threads[tid] = t
		}
	}
	return t
}

// How often the mappings are read again when a walk fails, on average: a program loads most of its
// libraries when it starts.
const (
	mapEvery  = 100 * time.Millisecond
	mapFirst  = 10 * time.Millisecond // in the first second
	mapsSaved = 4                     // readings that may follow each other at once
)

// newMappings reads the mappings again, and reports whether it has read them: there may be new
// modules, and new memory with code outside all modules.
func (rp *recordedProcess) newMappings() bool {
	every := mapEvery
	if rp.r.now < rp.since+time.Second {
		every = mapFirst
	}
	if !rp.maps.left(rp.r.now, every, mapsSaved) {
		return false
	}
	rp.maps.take(every)
	before := rp.p.Engine.Changes
	if rp.p.Engine.UpdateModules() != nil {
		return false
	}
	if rp.p.Engine.Changes != before {
		rp.frames.begin()
	}
	return true
}

// agentThread is the name of the agent's thread in the target. The thread is not recorded.
const agentThread = "clrsnap-agent"

// describe updates the description of a thread; t is nil for a new one.
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
			t.wall.last = (rp.listed + rp.r.now) / 2 // the thread began somewhere in between
		}
		rp.threads[tid] = t
		rp.changed()
	}
	t.info = info
	t.describedAt(rp.r.now)
	if chosen := rp.r.o.wants(&info) && info.Name != agentThread; chosen != t.chosen {
		// The new name is wanted, or no longer wanted. The time before does not count.
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

// mayHaveChanged reports whether a thread deserves another look at the end of the recording. Most
// changes come soon after a thread's start.
func (t *recordedThread) mayHaveChanged(now time.Duration) bool {
	const part = 8
	return now-t.named > t.age(now)/part
}

// age is how long before now the thread started.
func (t *recordedThread) age(now time.Duration) time.Duration {
	return live.Age(t.info.Started) - (live.Monotonic() - now)
}

// changed has wall-clock sampling collect its threads again.
func (rp *recordedProcess) changed() {
	if rp.r.wall != nil {
		rp.r.wall.dealt = false
	}
}

// sampled returns the index of a thread in Recording.Threads, and adds the thread there for its first
// sample.
func (t *recordedThread) sampled() int32 {
	if t.index < 0 {
		t.index = t.of.r.threads.add(t.recorded())
	}
	return t.index
}

func (t *recordedThread) recorded() profile.RecordedThread {
	return profile.RecordedThread{
		Process: t.of.index, OSThreadID: t.info.OSThreadID, ManagedThreadID: t.info.ManagedID,
		Name: t.info.Name, Role: t.info.Role,
	}
}

// threadTable numbers threads. Beyond maxThreadsApart, threads of one name share a number; beyond
// maxThreadNames shared names, all further threads share a number.
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

// rename replaces the description of a thread, unless the thread shares its number.
func (tt *threadTable) rename(i int32, t profile.RecordedThread) {
	if int(i) < maxThreadsApart {
		tt.b.SetThread(i, t)
	}
}
