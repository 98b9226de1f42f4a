package live

import (
	"fmt"
	"slices"

	"clrsnap/internal/target"
)

// CaptureAll captures the threads that reqs name as they were at one instant. A
// request without a Proof has its thread stopped. One with a Proof, of a capture
// that TryBlocked made before, does not, if the thread has not run since: what
// was captured then is what it was at that instant too. Otherwise it is stopped
// as well. The instant is one at which all that had to be stopped stood still:
// each proof is checked after the last of them has stopped, and before the first
// is released.
//
// out and errs have the length of reqs. A thread whose out has Stopped was stopped
// and copied; for another one whose errs is nil, the earlier capture is still valid.
// A thread that is not stopped within the limit (Process.AllLimit) is left out, with
// ErrNotStopping in errs. The slices in out are valid until the next CaptureAll or
// FreeAll.
//
// threads is how many the process had at the instant, those included that have
// ended and not been collected; 0 if that could not be found out.
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
		// The target executed another program: its threads have exited. See
		// startReaper.
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
	// The files of proofs must stay open.
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

// prepareAll makes room for the copies of threads. A thread for which there can be none is not wanted.
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

// prepare has the thread be stopped by the next request.
func (t *tracee) prepare() { t.phase, t.errno, t.moved, t.ended = phaseFree, 0, false, 0 }

// prove prepares to look at the proof that the thread is blocked, if there is one: in
// the file that is open already, or in one that is opened for it.
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
