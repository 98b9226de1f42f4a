package session

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/profile"
)

// maxSameCalls bounds the frames of a thread that is captured once more.
const maxSameCalls = 1 << 10

// again captures a thread once more that was blocked when it was walked, and has run since: what it waits for has to be
// read while it waits. It returns the copy of its stack, and the capture is the second one from then on. nil: the
// thread is not blocked in the very same calls, and all is as it was. A capture of many threads is not replaced.
func (s *Suspension) again(frames []profile.Frame) *target.Stack {
	p, first := s.Process, s.Capture
	if first.Busy() || first != &p.Capture || len(frames) > maxSameCalls {
		return nil
	}
	req := p.request(&s.Thread, slices.Concat(s.Also, s.extra, s.copies), false)
	if p.from.TryBlocked(&req, &p.second) != nil || !sameCalls(frames, p.Arch.SP, first, &p.second) {
		return nil
	}
	*first, p.second = p.second, *first
	p.Engine.Cache.Invalidate()
	s.ran = true
	return s.Walk.Stack
}

// sameCalls reports whether a thread was in the same calls at two captures: it was at the same instruction, its stack
// was as deep, and each of its frames has the same address to return to at the same place.
func sameCalls(frames []profile.Frame, sp uint8, a, b *target.Capture) bool {
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
