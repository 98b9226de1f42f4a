package clrsnap

import (
	"runtime"
	"time"

	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// Walk walks the moment that the suspension holds, once, as Snapshot does.
func (s *Suspension) Walk() profile.Thread { return s.s.Named() }

// BareWalk walks without naming anything and returns the number of frames.
func (s *Suspension) BareWalk() (frames int, complete bool) {
	ctx := s.s.Walk.Context
	r := s.p.s.Walker.Walk(&s.s.Walk, &ctx, walk.ByUnwindInfo, func(*walk.Frame) bool {
		frames++
		return true
	})
	return frames, r.Complete
}

// CopyStack copies the captured stack.
func (s *Suspension) CopyStack() int { return copy(stackCopy[:], s.s.Walk.Stack.Data) }

var stackCopy [8 << 20]byte

// SetMode changes Options.Mode.
func (p *Process) SetMode(m Mode) { p.mode = m }

// Traced calls f on an OS thread that may trace by itself, with a function that
// captures the thread anew.
func (s *Suspension) Traced(f func(capture func() error) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := s.p.s
	req := p.Request(&s.s.Thread, nil)
	return p.Live.Trace(func(t *live.Tracer) error {
		defer p.Engine.Begin() // what is cached is older than the last capture
		return f(func() error { return p.Taken(s.s, t.Capture(&req, s.s.Capture)) })
	})
}

// Pause is how long the thread was kept from running.
func (s *Suspension) Pause() time.Duration { return s.s.Capture.Pause }
