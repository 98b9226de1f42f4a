package live

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"clrsnap/internal/target"
	"clrsnap/internal/target/iter"
)

// Look captures threads without stopping them, whether they are blocked or wait for a CPU: the
// registers are the kernel's own (package iter), all registers of Context. The error is
// ErrUnavailable where the kernel does not give the registers.
//
// Why a copy is good. Look reads all threads, copies the stacks of the threads on no CPU, and
// reads all threads again. A thread that certainly had no CPU in between (iter.Task.Rested) has
// not changed its stack, like a stopped thread: see TryBlocked. Look tries a thread that had a
// CPU again, up to lookLimit. A thread that was on a CPU in every try has ErrOnCPU.
//
// A capture's Proof is a schedstat line, as in TryBlocked, made from the kernel's numbers.
//
// out and errs have the length of reqs. The slices in out are valid until the next Look or
// FreeLook.
func (p *Process) Look(reqs []target.Request, out []target.Capture, errs []error) error {
	l := &p.looker
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.begin(p, reqs, out); err != nil {
		return err
	}
	end := time.Now().Add(lookLimit)
	for rounds := 1; ; rounds++ {
		if err := l.round(p, reqs, out, errs); err != nil {
			return err
		}
		if len(l.left) == 0 || rounds >= lookRounds && !time.Now().Before(end) {
			break
		}
		time.Sleep(lookRest)
	}
	for _, i := range l.left {
		if _, err := p.Thread(reqs[i].TID); errors.Is(err, target.ErrThreadExited) {
			errs[i] = err
		}
	}
	return nil
}

// LookOnce is Look for one thread, with one try. The slices in out are valid until the next look.
func (p *Process) LookOnce(req *target.Request, out *target.Capture) error {
	l := &p.looker
	l.mu.Lock()
	defer l.mu.Unlock()
	reqs, outs, errs := [1]target.Request{*req}, [1]target.Capture{}, [1]error{}
	if err := l.begin(p, reqs[:], outs[:]); err != nil {
		return err
	}
	if err := l.round(p, reqs[:], outs[:], errs[:]); err != nil {
		return err
	}
	*out = outs[0]
	return errs[0]
}

// LookAtOnce captures threads as of one instant without stopping a thread, and reports whether it
// could. Between the two readings of a round, no thread of the requests had a CPU: so any moment in
// between is the instant. A request with a Proof is for a thread that was captured earlier. If the
// thread has not run since then, the earlier capture is valid at the instant, and out has the Proof of
// the request. Otherwise the thread is copied, and has another Proof.
//
// threads is the process's number of threads at the instant. If LookAtOnce could not capture all
// threads, out and errs mean nothing. The slices in out are valid until the next Look, LookAtOnce or
// FreeLook.
func (p *Process) LookAtOnce(
	reqs []target.Request, out []target.Capture, errs []error,
) (threads int, ok bool, err error) {
	l := &p.looker
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.begin(p, reqs, out); err != nil {
		return 0, false, err
	}
	for range instantRounds {
		if threads, ok, err = l.instant(p, reqs, out, errs); ok || err != nil {
			return threads, ok, err
		}
		time.Sleep(lookRest)
	}
	return 0, false, nil
}

const (
	// lookLimit bounds the wait for threads on a CPU. Where other threads wait for the CPU, a
	// thread has the CPU for a few milliseconds.
	lookLimit = 20 * time.Millisecond
	// lookRounds rounds are made in any case: perhaps we get no CPU.
	lookRounds = 20
	// instantRounds bound the wait for a moment in which no thread has a CPU.
	instantRounds = 5
	// lookRest is the time between two rounds.
	lookRest = 500 * time.Microsecond
)

// ErrUnavailable: the kernel does not give the registers of threads. The error is an *iter.Error,
// with the remedy.
var ErrUnavailable = iter.ErrUnavailable

// ErrOnCPU: the thread was on a CPU all the time.
var ErrOnCPU = errors.New("thread is on a CPU")

// CanLook returns nil if Look can capture threads of the process, and otherwise an
// ErrUnavailable.
func (p *Process) CanLook() error {
	p.looker.mu.Lock()
	defer p.looker.mu.Unlock()
	return p.looker.open(p)
}

// FreeLook frees the memory of the latest Look.
func (p *Process) FreeLook() {
	p.looker.mu.Lock()
	defer p.looker.mu.Unlock()
	p.looker.arena.free()
}

// looker keeps the iterator and the memory of Look between calls.
type looker struct {
	mu            sync.Mutex
	it            *iter.Iterator
	err           error // why there is no iterator
	before, after []iter.Task
	at            map[uint32]int // index of each thread in the latest reading
	left, copied  []int          // indices in the requests: threads not captured yet, and threads just copied
	found         []int          // index in before of each copied thread
	arena         arena
	c             copier
}

var errNotWanted = fmt.Errorf("%w: it is not to be used", ErrUnavailable)

func (l *looker) open(p *Process) error {
	switch {
	case p.NoLook:
		return errNotWanted
	case p.closed.Load():
		return ErrClosed
	case l.it == nil && l.err == nil:
		l.it, l.err = iter.New(p.pid)
		l.at = map[uint32]int{}
	}
	return l.err
}

func (l *looker) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.it != nil {
		l.it.Close()
	}
	l.it, l.err = nil, ErrClosed
	l.arena.free()
}

// begin begins a look at the threads of the requests.
func (l *looker) begin(p *Process, reqs []target.Request, out []target.Capture) error {
	if err := p.Alive(); err != nil {
		return err
	}
	if err := l.open(p); err != nil {
		return err
	}
	if err := l.arena.fit(reqs); err != nil {
		return fmt.Errorf("process %d: no memory for the stacks of %d threads: %w", p.pid, len(reqs), err)
	}
	l.left = l.left[:0]
	for i := range reqs {
		l.arena.lend(&reqs[i], &out[i])
		l.left = append(l.left, i)
	}
	return nil
}

// round copies the threads in left. Threads that ran meanwhile stay in left.
func (l *looker) round(p *Process, reqs []target.Request, out []target.Capture, errs []error) (err error) {
	if l.before, err = l.read(l.before); err != nil {
		return err
	}
	again := l.left[:0]
	l.copied, l.found = l.copied[:0], l.found[:0]
	for _, i := range l.left {
		at, ok := l.at[uint32(reqs[i].TID)]
		if !ok {
			errs[i] = &target.ThreadError{TID: reqs[i].TID, Err: ErrOnCPU, Detail: "or it has just ended"}
			again = append(again, i)
			continue
		}
		var final bool
		if final, errs[i] = l.take(p, &l.before[at], &reqs[i], &out[i]); errs[i] == nil || !final {
			l.copied, l.found = append(l.copied, i), append(l.found, at)
		}
	}
	if l.after, err = l.read(l.after); err != nil {
		return err
	}
	if err := p.Alive(); err != nil {
		return err // the id may belong to another process
	}
	for k, i := range l.copied {
		at, ok := l.at[uint32(reqs[i].TID)]
		if t := &l.before[l.found[k]]; ok && t.Rested(&l.after[at]) && t.Settled() {
			l.deliver(&l.after[at], &out[i])
			continue
		}
		errs[i] = &target.ThreadError{TID: reqs[i].TID, Err: ErrOnCPU}
		again = append(again, i)
	}
	l.left = again
	return nil
}

// instant is a round for all threads of the requests together.
func (l *looker) instant(p *Process, reqs []target.Request, out []target.Capture, errs []error) (int, bool, error) {
	var err error
	if l.before, err = l.read(l.before); err != nil {
		return 0, false, err
	}
	l.found = l.found[:0]
	for i := range reqs {
		at, ok := l.at[uint32(reqs[i].TID)]
		if !ok {
			return 0, false, nil
		}
		l.found = append(l.found, at)
		t := &l.before[at]
		if errs[i] = nil; proofOf(t) == reqs[i].Proof {
			continue
		}
		var final bool
		if final, errs[i] = l.take(p, t, &reqs[i], &out[i]); !final && (t.OnCPU != 0 || !t.Settled()) {
			return 0, false, nil
		}
	}
	if l.after, err = l.read(l.after); err != nil {
		return 0, false, err
	}
	if err := p.Alive(); err != nil {
		return 0, false, err // the id may belong to another process
	}
	for i := range reqs {
		t := &l.before[l.found[i]]
		at, ok := l.at[uint32(reqs[i].TID)]
		switch {
		case t.Ended() || t.OfKernel():
		case !ok || !t.Rested(&l.after[at]):
			return 0, false, nil
		case proofOf(t) == reqs[i].Proof:
			out[i].TID, out[i].Stopped, out[i].Proof = reqs[i].TID, false, reqs[i].Proof
		default:
			l.deliver(&l.after[at], &out[i])
		}
	}
	return len(l.after), true, nil
}

// proofOf is the thread's line of schedstat, in the format of proc_pid_schedstat in fs/proc/base.c.
func proofOf(t *iter.Task) target.Proof {
	return target.Proof(fmt.Appendf(nil, "%d %d %d\n", t.Ran, t.Waited, t.Runs))
}

// read reads all threads.
func (l *looker) read(into []iter.Task) ([]iter.Task, error) {
	tasks, err := l.it.Read(into)
	clear(l.at)
	for i := range tasks {
		l.at[tasks[i].TID] = i
	}
	return tasks, err
}

// take copies the thread for a request, if the thread can be at rest. A final error does not
// depend on whether the thread rests.
func (l *looker) take(p *Process, t *iter.Task, req *target.Request, out *target.Capture) (final bool, err error) {
	switch {
	case t.Ended():
		return true, p.threadGone(req.TID)
	case t.OfKernel():
		return true, &target.ThreadError{TID: req.TID, Err: ErrKernelThread, Detail: "it never runs the program's code"}
	case t.OnCPU != 0 || !t.Settled():
		return false, nil
	}
	if err := l.c.prepare(p, req, out); err != nil {
		return true, err
	}
	l.c.copy(uintptr(req.TID), t.Regs.RSP)
	return false, l.c.deliver(req, out)
}

// deliver completes the capture of a thread at rest.
func (l *looker) deliver(t *iter.Task, out *target.Capture) {
	var r regs
	r.set(&t.Regs)
	r.context(&out.Context)
	if out.SyscallNr, out.SyscallArgs = r.syscallNr(), [6]uint64{}; out.SyscallNr >= 0 {
		out.SyscallArgs = r.syscallArgs()
	} else {
		out.SyscallNr = -1
	}
	out.Pause, out.Stopped, out.Waited, out.Ready = 0, false, 0, t.Ready()
	out.Proof = proofOf(t)
}
