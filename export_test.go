package clrsnap

import (
	"runtime"
	"time"

	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// Walk walks the moment that the suspension holds, once, as Snapshot does.
func (s *Suspension) Walk() profile.Thread {
	st := s.p.describe(&s.thread)
	s.fill(&st, s.frames(&st))
	return st
}

// BareWalk walks without naming anything and returns the number of frames.
func (s *Suspension) BareWalk() (frames int, complete bool) {
	ctx := s.walk.Context
	r := s.p.walker.Walk(&s.walk, &ctx, walk.ByUnwindInfo, func(*walk.Frame) bool {
		frames++
		return true
	})
	return frames, r.Complete
}

// CopyStack copies the captured stack.
func (s *Suspension) CopyStack() int { return copy(stackCopy[:], s.walk.Stack.Data) }

var stackCopy [8 << 20]byte

// SetMode changes Options.Mode.
func (p *Process) SetMode(m Mode) { p.opts.Mode = m }

// Traced calls f on an OS thread that may trace by itself, with a function that
// captures the thread anew.
func (s *Suspension) Traced(f func(capture func() error) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	req := s.p.request(&s.thread, nil)
	return s.p.live.Trace(func(t *live.Tracer) error {
		defer s.p.eng.Begin() // what is cached is older than the last capture
		return f(func() error { return s.p.taken(s, t.Capture(&req, s.capture)) })
	})
}

// Pause is how long the thread was kept from running.
func (s *Suspension) Pause() time.Duration { return s.capture.Pause }
