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
	s.fill(&st, s.frames(&st.Frames))
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

// Watch has f told of every walk of a recording, and between which times of
// CLOCK_MONOTONIC the moment was that it is about.
func (o *RecordOptions) Watch(f func(th *profile.Thread, begin, end uint64)) {
	o.watch = func(ft *frameTable, s *Suspension, complete bool, begin time.Duration) {
		th := s.p.describe(&s.thread)
		th.Complete = complete
		for i, l := range ft.stack {
			loc, fn := ft.b.At(l)
			th.Frames = append(th.Frames, profile.Frame{
				Kind: fn.Kind, IP: uint64(ft.ips[i]), Method: fn.Method, Module: fn.Module, Offset: loc.Offset, Tier: loc.Tier,
			})
		}
		f(&th, uint64(begin), uint64(live.Monotonic()))
	}
}
