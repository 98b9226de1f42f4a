package live

import (
	"fmt"
	"slices"

	"clrsnap/internal/target"
)

// CaptureAll captures the threads in reqs as of one instant. A thread without a Proof in its
// request is stopped. A Proof comes from an earlier capture by TryBlocked. If the thread has not
// run since then, the earlier capture is valid at the instant too, and CaptureAll does not stop
// the thread. If the thread has run, CaptureAll stops the thread as well. At the instant, all
// threads to be stopped stand still: CaptureAll checks each proof after the last stop and before
// the first release.
//
// out and errs have the length of reqs. Where out has Stopped, the thread was stopped and copied.
// Where out has no Stopped and errs is nil, the earlier capture is still valid. A thread that
// does not stop within the limit (Process.AllLimit) is left out, with ErrNotStopping in errs. The
// slices in out are valid until the next CaptureAll or FreeAll.
//
// threads is the process's number of threads at the instant, including ended threads that have
// not been collected; 0 if the number is not known.
func (t *Tracer) CaptureAll(reqs []target.Request, out []target.Capture, errs []error) (threads int, err error) {
	out, errs = out[:len(reqs)], errs[:len(reqs)]
	if len(reqs) == 0 {
		return 0, nil
	}
	const attempts = 3
	for attempt := 1; ; attempt++ {
		outcome, err := t.captureAll(reqs, out, errs)
		if err != nil {
			return 0, err
		}
		// The target executed another program: its threads have exited. See startReaper.
		if slices.ContainsFunc(t.batch, func(te *tracee) bool { return te.wanted && t.mayTrace(te, outcome) }) {
			continue
		}
		stuck := outcome == outcomeLate && t.sh.step == stepSeize
		if stuck && attempt < attempts {
			continue
		}
		for i, te := range t.batch {
			if te.wanted {
				errs[i] = t.conclude(te, outcome, &reqs[i], &out[i])
			}
		}
		return t.sh.threads, nil
	}
}

func (t *Tracer) captureAll(reqs []target.Request, out []target.Capture, errs []error) (outcome uint32, err error) {
	if err := t.prepareAll(reqs, out, errs); err != nil {
		return 0, err
	}
	// The proofs' files must stay open.
	t.p.blocked.mu.Lock()
	defer t.p.blocked.mu.Unlock()
	for i, te := range t.batch {
		if te.prepare(); te.wanted && te.prove(&t.p.blocked, reqs[i].Proof) {
			te.phase = phaseStill
		}
	}
	if outcome, err = t.perform(nil, t.batch); err != nil {
		clear(out)
		return 0, fmt.Errorf("process %d: %w: %w", t.p.pid, ErrWatchdog, err)
	}
	return outcome, nil
}

// prepareAll makes room for the copies of threads. A thread without room is not wanted.
func (t *Tracer) prepareAll(reqs []target.Request, out []target.Capture, errs []error) error {
	if err := t.arena.fit(reqs); err != nil {
		return fmt.Errorf("process %d: no memory for the stacks of %d threads: %w", t.p.pid, len(reqs), err)
	}
	for len(t.many) < len(reqs) {
		t.many = append(t.many, &tracee{})
	}
	t.batch = t.many[:len(reqs)]
	for i, te := range t.batch {
		te.tid, te.pid = uintptr(reqs[i].TID), uintptr(t.p.pid)
		t.arena.lend(&reqs[i], &out[i])
		errs[i] = te.copier.prepare(t.p, &reqs[i], &out[i])
		te.wanted = errs[i] == nil
	}
	return nil
}

// prepare resets the thread for a stop in the next request.
func (t *tracee) prepare() { t.phase, t.errno, t.moved, t.ended = phaseFree, 0, false, 0 }

// prove prepares the check of the thread's proof, if there is a proof. The check reads schedstat
// from the file that is already open, or opens the file.
func (t *tracee) prove(r *blockedReader, proof target.Proof) bool {
	if proof == "" || len(proof) > len(t.proof) {
		return false
	}
	t.proofLen = copy(t.proof[:], proof)
	f, ok := r.files[int(t.tid)]
	if t.schedstat = uintptr(f.schedstat); !ok {
		t.schedstat = noSchedstat
		copy(t.path[:], fmt.Sprintf("task/%d/schedstat\x00", t.tid))
	}
	return true
}

// FreeAll frees the memory of the latest CaptureAll.
func (p *Process) FreeAll() {
	p.traceMu.Lock()
	defer p.traceMu.Unlock()
	if p.tracer != nil {
		p.tracer.arena.free()
		p.tracer.many, p.tracer.batch = nil, nil
	}
}
