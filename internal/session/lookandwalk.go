package session

import (
	"errors"
	"time"

	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
)

// LookAndWalk captures the thread with the registers that the kernel has saved, without a stop, and walks the thread,
// like StopAndWalk (live.Process.LookOnce). A thread on a CPU is tried so many times. The error is live.ErrUnavailable
// if the kernel does not tell registers, and live.ErrOnCPU if the thread had a CPU each time; then Capture is as
// before. The capture is valid until another thread is captured.
func (s *Suspension) LookAndWalk(tries int, walked func() walk.Result) (walk.Result, error) {
	// The memory of a look is not the memory of other captures.
	before := s.Capture
	s.Capture, s.extra, s.copies = &target.Capture{}, nil, nil
	for attempt := 0; ; {
		err := s.take(s.Process.Live.LookOnce, true)
		if tries--; errors.Is(err, live.ErrOnCPU) && tries > 0 {
			time.Sleep(lookPause)
			continue
		}
		if err != nil {
			s.Capture = before
			return walk.Result{}, err
		}
		if s.Thread.ID != 0 && s.Walk.Info.Address == 0 {
			return walk.Result{}, ErrThreadEnded // the Thread object is another thread's now
		}
		if r := walked(); !s.lacksMore(r, attempt) {
			return r, nil
		}
		attempt++
	}
}

// lookTries and lookPause bound the wait for a thread of a server on a CPU.
const (
	lookTries = 8
	lookPause = 500 * time.Microsecond
)
