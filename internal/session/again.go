package session

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// maxSameCalls bounds the frames of a thread that is captured once more.
const maxSameCalls = 1 << 10

// again captures a thread once more. The thread was blocked during the walk, and has run since; the
// wait has to be read while the thread waits. again returns the new copy of the stack, and the
// second capture replaces the first. nil: the thread is not blocked in the very same calls, and
// nothing has changed. A capture of many threads is not replaced.
func (s *visit) again(frames []snapshot.Frame) *target.Stack {
	g, first := s.g, s.Capture
	if first.Busy() || first != &g.Capture || len(frames) > maxSameCalls {
		return nil
	}
	req := g.request(&s.Thread, slices.Concat(s.Also, s.extra, s.copies), false)
	if g.from.TryBlocked(&req, &g.second) != nil || !sameCalls(frames, g.Arch.SP, first, &g.second) {
		return nil
	}
	*first, g.second = g.second, *first
	g.Engine.Cache.Invalidate()
	s.ran = true
	return s.Walk.Stack
}

// sameCalls reports whether a thread was in the same calls at two captures: at the same
// instruction, with the same depth of the stack, and for each frame with the same return address at
// the same place.
func sameCalls(frames []snapshot.Frame, sp uint8, a, b *target.Capture) bool {
	if a.Context.IP != b.Context.IP || a.Context.Regs[sp] != b.Context.Regs[sp] || a.SyscallNr != b.SyscallNr {
		return false
	}
	for i := range frames[1:] {
		from, to, want := arch.Addr(frames[i].SP), arch.Addr(frames[i+1].SP), frames[i+1].IP
		if from == to {
			continue // no frame of its own
		}
		at, ok := to, false
		for !ok && at >= from+8 {
			at -= 8
			v, is := a.Stack.Uint64(at)
			ok = is && v == want
		}
		if v, is := b.Stack.Uint64(at); !ok || !is || v != want {
			return false
		}
	}
	return true
}
