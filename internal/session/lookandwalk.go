package session

import (
	"clrsnap/internal/target"
	"clrsnap/internal/walk"
)

// LookAndWalk captures the thread with the registers that the kernel has saved, without a stop, and walks the thread,
// like StopAndWalk (live.Process.LookOnce). The error is live.ErrUnavailable if the kernel does not tell registers, and
// live.ErrOnCPU if the thread had a CPU; then Capture is as before. The capture is valid until another thread is
// captured.
func (s *Suspension) LookAndWalk(walked func() walk.Result) (walk.Result, error) {
	// The memory of a look is not the memory of other captures.
	before := s.Capture
	s.Capture, s.extra, s.copies = &target.Capture{}, nil, nil
	for attempt := 0; ; attempt++ {
		if err := s.take(s.Process.Live.LookOnce, true); err != nil {
			s.Capture = before
			return walk.Result{}, err
		}
		if s.Thread.ID != 0 && s.Walk.Info.Address == 0 {
			return walk.Result{}, ErrThreadEnded // the Thread object is another thread's now
		}
		if r := walked(); !s.lacksMore(r, attempt) {
			return r, nil
		}
	}
}
