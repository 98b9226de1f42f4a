package live

import "fmt"

// CaptureAll stops all threads that reqs name, copies them while all of them
// stand still, and lets them go: what was copied belongs to one instant. out
// and errs have the length of reqs. A thread that does not stop within the
// limit (Process.AllLimit) is left out, with ErrNotStopping in errs. Pause is
// that of the whole batch.
func (t *Tracer) CaptureAll(reqs []Request, out []Capture, errs []error) error {
	out, errs = out[:len(reqs)], errs[:len(reqs)]
	if len(reqs) == 0 {
		return nil
	}
	const attempts = 3
	for attempt := 1; ; attempt++ {
		outcome, err := t.captureAll(reqs, out, errs)
		if err != nil {
			return err
		}
		// The target executed another program: its threads are gone. See
		// startReaper.
		stuck := outcome == outcomeLate && t.tasks.sh.step == stepSeize
		if !stuck || attempt == attempts {
			for i, te := range t.batch {
				if te.wanted {
					errs[i] = t.conclude(te, outcome, &reqs[i], &out[i])
				}
			}
			return nil
		}
	}
}

func (t *Tracer) captureAll(reqs []Request, out []Capture, errs []error) (outcome uint32, err error) {
	for len(t.many) < len(reqs) {
		t.many = append(t.many, &tracee{})
	}
	t.batch = t.many[:len(reqs)]
	for i, te := range t.batch {
		te.tid, te.pid = uintptr(reqs[i].TID), uintptr(t.p.pid)
		te.phase, te.errno = phaseFree, 0
		errs[i] = te.copier.prepare(t.p, &reqs[i], &out[i])
		te.wanted = errs[i] == nil
	}
	if outcome, err = t.perform(nil, t.batch); err != nil {
		clear(out)
		return 0, fmt.Errorf("process %d: %w: %w", t.p.pid, ErrWatchdog, err)
	}
	for _, te := range t.batch {
		if te.wanted && t.mayTrace(te, outcome) {
			return t.captureAll(reqs, out, errs)
		}
	}
	return outcome, nil
}
