package live

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// Tracer stops threads. It exists during Process.Trace only.
type Tracer struct {
	p    *Process
	one  *tracee
	many []*tracee
	lost bool // something stays attached until this OS thread ends
}

// tracerThread is the goroutine that makes all ptrace calls: the kernel binds a
// tracee to one OS thread.
type tracerThread struct {
	work chan *traceJob
	tid  int // of the OS thread
}

type traceJob struct {
	f     func(*Tracer) error
	done  chan struct{}
	err   error
	lost  bool
	panic *TracePanic
}

// TracePanic is what Trace panics with when its function did, after every
// thread has been let go.
type TracePanic struct {
	Value any
	Stack []byte // of the function
}

func (p *TracePanic) Error() string {
	return fmt.Sprintf("panic while tracing: %v\n%s", p.Value, p.Stack)
}

// Trace calls f on the OS thread that traces, so that a batch of captures pays
// for the way there once. When a capture in f has failed with ErrNotStopping
// the following ones fail with ErrTracerLost, and f should return: the thread
// that did not stop is let go only then. f must not call Trace.
func (p *Process) Trace(f func(*Tracer) error) error {
	p.traceMu.Lock()
	defer p.traceMu.Unlock()
	if err := p.Alive(); err != nil {
		return err
	}
	if p.tracer == nil {
		p.tracer = newTracerThread(p)
	}
	th := p.tracer
	job := &traceJob{f: f, done: make(chan struct{})}
	th.work <- job
	<-job.done
	if job.lost {
		p.tracer = nil
		awaitThreadEnd(th.tid)
	}
	if job.panic != nil {
		panic(job.panic)
	}
	return job.err
}

// Capture captures one thread by itself.
func (p *Process) Capture(req *Request, out *Capture) error {
	return p.Trace(func(t *Tracer) error { return t.Capture(req, out) })
}

func newTracerThread(p *Process) *tracerThread {
	th := &tracerThread{work: make(chan *traceJob)}
	ready := make(chan struct{})
	go th.main(p, ready)
	<-ready
	return th
}

// main must not run on the process's first thread: the runtime parks that one
// instead of ending it when a goroutine that is locked to it ends, and would
// keep the tracees attached.
func (th *tracerThread) main(p *Process, ready chan struct{}) {
	runtime.LockOSThread()
	th.tid = unix.Gettid()
	if th.tid == os.Getpid() {
		// This goroutine occupies the first thread, so the next gets another.
		next := make(chan struct{})
		go th.main(p, next)
		<-next
		close(ready)
		runtime.UnlockOSThread()
		return
	}
	urgent()
	close(ready)
	t := &Tracer{p: p, one: &tracee{}}
	for job := range th.work {
		if t.run(job) {
			break
		}
	}
	// Still locked, so that the OS thread ends: it has precedence, and may have
	// tracees.
}

// urgent gives the calling OS thread precedence, as far as it may have it: a
// stopped thread waits for this one, and on a machine whose processors are busy
// that wait would be most of the pause. Real-time priority makes it run as soon
// as it wakes up; it sleeps whenever it waits for longer than microseconds. Its
// sleeps should not last longer than they have to, either.
func urgent() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	fifo := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	_ = unix.SchedSetAttr(0, &fifo, 0)
}

// run does one job and reports whether the OS thread has to go. Anything but
// an ordinary return of f throws it away, because that lets go of every thread
// for certain.
func (t *Tracer) run(job *traceJob) (lost bool) {
	ended := false
	// For the whole job, because two system calls less for each capture count.
	// Go code in f can still be preempted wherever it calls a function.
	mask := setMask(quiet)
	defer func() {
		setMask(mask)
		if !ended {
			if v := recover(); v != nil {
				job.panic = &TracePanic{Value: v, Stack: debug.Stack()}
			} else {
				job.err = ErrTracerLost // runtime.Goexit in f
			}
			t.lost = true
		}
		job.lost, lost = t.lost, t.lost
		close(job.done)
	}()
	job.err = job.f(t)
	ended = true
	return
}

// awaitThreadEnd waits until the kernel has ended a tracer's thread, and so
// has let go of its tracees.
func awaitThreadEnd(tid int) {
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if unix.Tgkill(os.Getpid(), tid, 0) == unix.ESRCH {
			return
		}
		time.Sleep(20 * time.Microsecond)
	}
}
