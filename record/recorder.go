package record

import (
	"slices"
	"time"

	"clrsnap/internal/session"
	"clrsnap/profile"
)

// recorder makes one recording, all in one goroutine: the goroutine empties the kernel's buffers
// before they are full, and samples threads for profile.Wall in between.
type recorder struct {
	o          Options
	b          *profile.Builder
	assemblies *assemblies
	opts       session.Options    // for further processes
	all        []*recordedProcess // including exited processes
	pending    []*pendingProcess
	failed     error        // why a pending process cannot be recorded
	refused    map[int]bool // processes that cannot be recorded, by id
	surveyed   *frameTable  // of the process to be recorded next; nil: none
	family     family
	began      time.Time
	start      time.Duration // monotonic, like all times here
	young      time.Duration // until when a process is young
	now        time.Duration
	threads    threadTable
	cpu        *cpuSampler   // nil: no CPU samples
	wall       *wallSampler  // nil: no wall samples
	events     *eventSampler // nil: no events

	haste haste

	unwalked time.Duration // when a walk of a CPU sample last failed; 0: none has

	endAlone func()        // ends Options.Alone
	ownCPU   time.Duration // when recording began
	notes    []string
	reported time.Duration
	busy     time.Duration // targetCPU at the last report
}

// How often things are done.
const (
	drainEvery  = 200 * time.Millisecond // the kernel's buffers are emptied; each time takes a CPU from the target
	drainNew    = 100 * time.Millisecond // the same, while walks fail: new code is the cause, and is soon known
	drainFirst  = 5 * time.Millisecond   // the same, while a program is young, as it may exit at once; and for events
	drainSoon   = 4 * time.Millisecond   // the same, while new code needs a name soon: see trustFor
	listEvery   = 100 * time.Millisecond // new threads are looked for, at most so often
	reportEvery = 500 * time.Millisecond
)

// How long buffers are emptied more often.
const (
	startLasts = 250 * time.Millisecond // after the recording began
	newsLast   = time.Second            // after new code needed a name soon
	failsLast  = 5 * time.Second        // after a walk has failed
)

// youth is how long a program is young: most short-lived programs have exited by then.
const youth = time.Second

// add starts to record a process.
func (r *recorder) add(p *session.Process) *recordedProcess {
	rp := newRecordedProcess(r, p, int32(len(r.all)))
	r.all = append(r.all, rp)
	r.young = max(r.young, r.now+youth-p.Live.Age())
	return rp
}

// recorded returns the process with an id; nil if the process is not recorded, not yet, or no more.
func (r *recorder) recorded(pid int) *recordedProcess {
	for _, rp := range r.all {
		if rp.p.Live.PID() == pid && rp.left == 0 {
			return rp
		}
	}
	return nil
}

// startsUntil is when the recording has begun and no program is young any more.
func (r *recorder) startsUntil() time.Duration { return max(r.young, r.start+startLasts) }

// alive reports whether any of the processes runs, or may yet turn out to run.
func (r *recorder) alive() bool {
	return len(r.pending) > 0 || slices.ContainsFunc(r.all, func(rp *recordedProcess) bool { return !rp.ended })
}
