package live

import (
	"fmt"
	"sync/atomic"
	"time"

	"clrsnap/internal/target"
)

// Tracer stops threads. It exists during Process.Trace only.
type Tracer struct {
	p     *Process
	one   *tracee
	many  []*tracee
	batch []*tracee // the used part of many
	arena arena     // the copies of batch
	sh    *shared   // the latest request

	tasks  *tasks        // performs requests,
	thread *threadTracer // or a thread of ours; nil before the first request
	inside bool          // only a thread may trace this target

	holding   time.Duration // how long the threads of a request are held at most; 0: not held
	meanwhile func()        // runs while the threads of a request are held; nil: not held

	each bool // the threads of a request are let go as they stop

	waiting int         // the thread that we wait for; 0: many
	stuck   func() bool // forsaken, allocated once
}

// Trace calls f, which may capture several threads with the Tracer. Other requests wait. f must
// not call Trace.
func (p *Process) Trace(f func(*Tracer) error) error {
	p.traceMu.Lock()
	defer p.traceMu.Unlock()
	if err := p.Alive(); err != nil {
		return err
	}
	if p.tracer == nil {
		t := &Tracer{p: p, one: &tracee{}, inside: p.inside}
		t.stuck = t.forsaken
		p.tracer = t
	}
	return f(p.tracer)
}

// Capture captures one thread by itself.
func (p *Process) Capture(req *target.Request, out *target.Capture) error {
	return p.Trace(func(t *Tracer) error { return t.Capture(req, out) })
}

// perform stops, copies and releases the tracees in one or batch.
func (t *Tracer) perform(one *tracee, batch []*tracee) (outcome uint32, err error) {
	for _, te := range batch {
		te.asked = 0
	}
	outcome, err = t.performOnce(one, batch)
	if one != nil {
		t.count(one)
	}
	for _, te := range batch {
		t.count(te)
	}
	return outcome, err
}

// count counts the stop of a thread.
func (t *Tracer) count(te *tracee) {
	if te.asked != 0 && te.phase != phaseFree {
		t.p.stops.Add(1)
	}
}

// performOnce is perform without counting.
func (t *Tracer) performOnce(one *tracee, batch []*tracee) (uint32, error) {
	sh, err := t.ready()
	if err != nil {
		return 0, err
	}
	t.sh = sh
	sh.one, sh.many, sh.dir, sh.threads = one, batch, uintptr(t.p.dir), 0
	sh.stopLimit, sh.allLimit = int64(t.p.stopLimit()), 0
	if t.waiting = 0; len(batch) == 0 {
		t.waiting = int(one.tid)
	} else {
		sh.allLimit = int64(t.p.allLimit())
	}
	if sh.each = t.each; sh.each {
		sh.allLimit = max(eachLimit, sh.stopLimit)
	}
	if sh.held, sh.letGo, sh.hold = 0, 0, int64(t.holding); sh.hold != 0 {
		sh.allLimit = min(sh.allLimit, sh.hold)
	}
	if t.thread != nil {
		outcome := t.thread.request(t.stuck, t.meanwhile)
		if outcome != outcomeDone {
			t.thread = nil
		}
		return outcome, nil
	}
	outcome, err := t.tasks.request(t.stuck, t.meanwhile)
	if err != nil {
		t.tasks.kill()
		t.abandon()
		return 0, err
	}
	switch {
	case outcome == outcomeLate:
		t.p.let.Add(1)
	case outcome == outcomeDied && atomic.LoadUint32(&t.tasks.sh.noTracer) != 0:
		t.goInside("no second task can be made")
		return t.performOnce(one, batch)
	}
	return outcome, nil
}

// ready returns the memory for the next request.
func (t *Tracer) ready() (*shared, error) {
	if t.tasks != nil && (!t.tasks.alive() || t.inside) {
		t.p.tracingCPU += t.tasks.cpu()
		t.tasks.stop()
		t.tasks = nil
	}
	if t.tasks == nil && t.thread == nil && !t.inside {
		w, err := startTasks(t.p.watchLimit())
		if err != nil {
			// A sandbox, or a limit on the number of processes, may forbid tasks.
			t.goInside(fmt.Sprintf("no task can be made: %v", err))
		}
		t.tasks = w
	}
	if t.inside {
		if t.thread == nil {
			t.thread = newThreadTracer()
		}
		return t.thread.sh, nil
	}
	return t.tasks.sh, nil
}

// goInside makes a thread of ours the tracer, because a task cannot trace, and records why.
func (t *Tracer) goInside(why string) { t.inside, t.p.unwatched = true, why }

// abandon gives up the memory that a hanging tracer may still write to. The memory must not be
// used again.
func (t *Tracer) abandon() {
	t.tasks, t.one, t.many, t.batch, t.arena = nil, &tracee{}, nil, nil, arena{}
}

func (t *Tracer) close() {
	if t.tasks != nil && !t.tasks.stop() {
		t.abandon()
	}
	if t.thread != nil {
		close(t.thread.work)
	}
	t.arena.free()
}

// DefaultWatchdog is how long a thread may be stopped before the watchdog releases it.
const DefaultWatchdog = 10 * time.Millisecond

func (p *Process) watchLimit() time.Duration {
	if p.Watchdog > 0 {
		return max(p.Watchdog, leastWatchdog)
	}
	return DefaultWatchdog
}

// leastWatchdog is longer than the tracer's sleep between two polls.
const leastWatchdog = 2 * time.Millisecond

// Stops counts how often a thread was asked to stop, and attached to.
func (p *Process) Stops() int { return int(p.stops.Load()) }

// Released counts how often the watchdog has released threads.
func (p *Process) Released() int { return int(p.let.Load()) }

// Unwatched says why no watchdog watches the stops of the target's threads; "" if a watchdog
// does, or none was needed yet.
func (p *Process) Unwatched() string {
	p.traceMu.Lock()
	defer p.traceMu.Unlock()
	return p.unwatched
}

// TracingCPU is the CPU time of the tasks that stop threads: the kernel does not count that time
// as our process's.
func (p *Process) TracingCPU() time.Duration {
	p.traceMu.Lock()
	defer p.traceMu.Unlock()
	if p.tracer == nil || p.tracer.tasks == nil {
		return p.tracingCPU
	}
	return p.tracingCPU + p.tracer.tasks.cpu()
}

func (p *Process) stopLimit() time.Duration {
	if p.StopLimit > 0 {
		return p.StopLimit
	}
	return DefaultStopLimit
}

func (p *Process) allLimit() time.Duration {
	if p.AllLimit > 0 {
		return p.AllLimit
	}
	return DefaultAllLimit
}
