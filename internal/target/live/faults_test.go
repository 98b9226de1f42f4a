package live

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
)

var stepNames = [steps]string{
	stepSeize: "before SEIZE", stepSeized: "after SEIZE", stepInterrupt: "after INTERRUPT", stepLook: "before the look",
	stepMissed: "not stopped yet", stepSignal: "before CONT with a signal", stepContinue: "after CONT",
	stepStopped: "before GETREGS",
	stepRegs:    "before the copy", stepCopied: "before DETACH", stepDetached: "after DETACH",
}

// faultProgram is the path of testdata/faults.c, compiled.
var faultProgram string

// injections is the number of injected faults. The short form is enough for every pair of a step
// and a fault once or twice.
var injections = layer.Size(400, 10_000)

// TestFaults disturbs captures at every step in every way that we could think of. Three in ten
// captures are of a .NET program. The faults: clrsnap, the tracer or the watchdog is killed, stopped
// or late; the thread gets signals, has another tracer, exits, executes, forks or clones; the process
// dies; the process's control group is frozen. Afterwards every thread makes progress, each signal has
// arrived once and in order, exit codes are right, and no tracer or watchdog is left.
func TestFaults(t *testing.T) {
	layer.Quiet(t)
	faultProgram = testProgram(t, "faults")
	v1, v2, why := newFreezers()
	defer v1.remove()
	defer v2.remove()
	for _, w := range why {
		t.Logf("NOT TESTED, frozen targets: %s", w)
	}
	list := faultList(v1, v2)
	dotnet := injections * 3 / 10
	t.Run("native", func(t *testing.T) { injectNative(t, list, injections-dotnet) })
	t.Run("dotnet", func(t *testing.T) { injectDotNet(t, list, dotnet) })
	if !within(waitLimit, func() bool { return len(leftTasks(unix.Getpid())) == 0 }) {
		t.Errorf("left behind: %q", leftTasks(unix.Getpid()))
	}
}

func injectNative(t *testing.T, list []*fault, n int) {
	ft := newFaultTarget(t)
	r := newFaultReport(list)
	for i := range n {
		f, step := r.next(i)
		if err := ft.begin(); err != nil {
			t.Fatal(err)
		}
		put(&ft.books.sleepy, uint64(i%3)) // two in three
		put(&ft.want.generation, get(&ft.books.generation))
		x := &injection{f: f, step: step, pid: ft.pid(), tid: ft.victim(), ft: ft, each: rand.N(2) == 1}
		p := ft.patient
		if f.strict {
			p = ft.strict
		}
		r.count(t, x, x.run(p))
		if t.Failed() {
			return
		}
		if i%50 == 0 {
			noZombies(t)
		}
		if i%500 == 499 {
			t.Logf("%d done", i+1)
		}
	}
	ft.end()
	r.log(t)
}

// injectDotNet injects the faults into a busy .NET program, except for the native faults.
func injectDotNet(t *testing.T, list []*fault, n int) {
	list = slices.DeleteFunc(slices.Clone(list), func(f *fault) bool { return f.native })
	r := newFaultReport(list)
	r.skip = 1<<stepSignal | 1<<stepContinue // .NET programs get signals of the runtime: these steps come by chance
	a := testenv.Start(t, "scenarios", testenv.Options{Args: []string{"--busy", "3600", "--max-seconds", "3600"}})
	patient, strict := open(t, &program{pid: a.PID}), open(t, &program{pid: a.PID})
	strict.Watchdog = 0 // the usual limit
	patient.Watchdog = 20 * time.Second
	demote(t, patient)
	for i := range n {
		tids, err := patient.Threads()
		if err != nil {
			t.Fatal(err)
		}
		f, step := r.next(i)
		p := patient
		if f.strict {
			p = strict
		}
		x := &injection{f: f, step: step, pid: a.PID, tid: tids[rand.N(len(tids))], each: rand.N(2) == 1}
		r.count(t, x, x.run(p))
		if i%500 == 499 {
			t.Logf("%d done", i+1)
		}
		if t.Failed() {
			t.Log(a.Stderr())
			return
		}
	}
	patient.Close()
	strict.Close()
	if result, code := a.Stop(); result != "OK" || code != 0 {
		t.Errorf("the target ended with result %q and exit code %d\n%s", result, code, a.Stderr())
	}
	r.log(t)
}

// demote gives all threads of the target, and their future threads, a low priority: the target
// uses every CPU, and would slow the test down tenfold.
func demote(t *testing.T, p *Process) {
	tids, err := p.Threads()
	if err != nil {
		t.Fatal(err)
	}
	for _, tid := range tids {
		_ = unix.Setpriority(unix.PRIO_PROCESS, tid, 5) // the thread may just have ended
	}
}

// noZombies requires that our children live.
func noZombies(t *testing.T) {
	t.Helper()
	for _, s := range leftTasks(unix.Getpid()) {
		if strings.Contains(s, ") Z") &&
			!within(waitLimit, func() bool { return !slices.Contains(leftTasks(unix.Getpid()), s) }) {
			t.Errorf("not collected: %s", s)
		}
	}
}

// result is the outcome of an injection.
type result struct {
	reached bool  // the tracer reached the step
	capture error // the capture's error
	err     error // the test's failure
}

func (x *injection) run(p *Process) (r result) {
	if x.f.before != nil {
		if err := x.f.before(x); err != nil {
			return result{err: fmt.Errorf("before: %w", err)}
		}
	}
	if x.f.foreign {
		r = x.runForeign()
	} else {
		r = x.runHere(p)
	}
	if x.f.after != nil && (r.reached || x.f.before != nil) {
		if err := x.f.after(x); err != nil && r.err == nil {
			r.err = fmt.Errorf("after: %w", err)
		}
	}
	if r.err == nil {
		r.err = x.check(r)
	}
	return r
}

func (x *injection) check(r result) error {
	ok := r.capture == nil || x.notItsFault(r.capture) ||
		slices.ContainsFunc(x.f.may, func(e error) bool { return errors.Is(r.capture, e) })
	if !ok {
		return fmt.Errorf("the capture says: %w", r.capture)
	}
	if x.ft == nil {
		return notHeld(x.pid)
	}
	if !x.f.fatal || !r.reached {
		return x.ft.check()
	}
	state := x.ft.over()
	switch status := state.String(); {
	case x.f.name == "process exits" && status != fmt.Sprintf("exit status %d", actExitCode),
		x.f.name != "process exits" && status != "signal: killed":
		return fmt.Errorf("the target ended with %q", status)
	}
	return nil
}

// notItsFault accepts errors that can happen without the fault: threads of a busy program end,
// and on a busy machine a thread may get no CPU during the tracer's whole wait. The kernel's
// count of waiting time must confirm the lack of a CPU.
func (x *injection) notItsFault(err error) bool {
	if x.ft == nil {
		return errors.Is(err, target.ErrThreadExited) || errors.Is(err, ErrNotStopping)
	}
	return errors.Is(err, ErrNotStopping) && x.waited() > x.waitedBefore+uint64(x.ft.patient.StopLimit)/4
}

// waited is the thread's time in the ready state without a CPU, in ns.
func (x *injection) waited() uint64 {
	w, err := x.ft.patient.ThreadWait(x.tid)
	if err != nil {
		return 0
	}
	return w.Waited
}

// runHere captures in our process and disturbs the capture at the step.
func (x *injection) runHere(p *Process) (r result) {
	var w *tasks
	err := p.Trace(func(t *Tracer) error {
		sh, err := t.ready()
		x.sh, w = sh, t.tasks
		return err
	})
	if err != nil || w == nil {
		return result{err: fmt.Errorf("no tracer: %w", err)}
	}
	p.StopLimit = 2 * time.Second
	if x.f.strict {
		p.StopLimit = 200 * time.Millisecond
	} else if x.f.short {
		p.StopLimit = 50 * time.Millisecond
	}
	if x.ft != nil {
		x.waitedBefore = x.waited()
	}
	x.arm()
	done := make(chan error, 1)
	go func() {
		var c target.Capture
		done <- p.Trace(func(t *Tracer) error { return x.way()(t, &target.Request{TID: x.tid}, &c) })
	}()
	r.reached, r.err = x.await(done, &r.capture)
	if r.err != nil || !r.reached {
		return r
	}
	if x.f.do != nil {
		r.err = x.f.do(x)
	}
	atomic.StoreUint32(&x.sh.breaks, 0)
	if x.f.linger == 0 {
		x.resume()
	}
	select {
	case r.capture = <-done:
	case <-time.After(2 * time.Minute):
		r.err = errors.New("the capture hangs")
	}
	return r
}

// way is the way of capturing the thread.
func (x *injection) way() func(*Tracer, *target.Request, *target.Capture) error {
	if x.each {
		return captureAmongAll
	}
	return (*Tracer).Capture
}

// arm sets the steps at which the tracer waits. For the signal steps, the test must send a signal
// between SEIZE and INTERRUPT.
func (x *injection) arm() {
	breaks := uint32(1) << x.step
	if x.needsSignal() {
		breaks |= 1 << stepSeized
	}
	linger := 5 * time.Second
	if x.f.linger != 0 {
		linger = x.f.linger
	}
	atomic.StoreInt64(&x.sh.linger, int64(linger))
	atomic.StoreUint32(&x.sh.arrived, 0)
	atomic.StoreUint32(&x.sh.breaks, breaks)
}

func (x *injection) needsSignal() bool {
	return x.ft != nil && (x.step == stepSignal || x.step == stepContinue)
}

func (x *injection) resume() {
	atomic.AddUint32(&x.sh.resume, 1)
	futexWake(&x.sh.resume)
}

// await waits until the tracer is at the step, or the capture is over.
func (x *injection) await(done <-chan error, capture *error) (bool, error) {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		switch atomic.LoadUint32(&x.sh.arrived) {
		case x.step:
			return true, nil
		case stepSeized:
			if err := x.signal(); err != nil {
				return false, err
			}
			within(time.Second, func() bool { return x.state() == 't' })
			atomic.StoreUint32(&x.sh.breaks, 1<<x.step)
			x.resume()
			// one signal, not two
			within(waitLimit, func() bool { return atomic.LoadUint32(&x.sh.arrived) != stepSeized })
		}
		select {
		case *capture = <-done:
			atomic.StoreUint32(&x.sh.breaks, 0)
			return false, nil
		default:
			runtime.Gosched()
		}
	}
	return false, errors.New("the step is never reached, and the capture hangs")
}
