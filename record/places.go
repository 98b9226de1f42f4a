package record

import (
	"cmp"
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/session"
	"clrsnap/profile"
)

// waitPlace is where a thread waits. When the thread has the same instruction pointer, stack pointer
// and return addresses again, and the same contexts of generic methods, the thread has the same
// frames.
type waitPlace struct {
	ip, sp  arch.Addr
	returns []returnSlot // ascending; none: no place is known
	node    wallNode
}

// recognise reports whether a thread that is ready to run is at a known place, and sets t.wall.at.
// Either the thread is at the place of its last wait: it has been woken and has not run since, or is
// about to wait there again. Or the thread is where it gave up its CPU.
func (w *wallSampler) recognise(t *recordedThread, s *session.Suspension) (profile.State, bool) {
	wt := &t.wall
	switch {
	case s.FoundBlocked:
		return 0, false
	case w.isAt(t, &wt.wait):
		wt.at = wt.wait.node
		return profile.Waiting, true
	case w.isAt(t, &wt.yield):
		wt.at = wt.yield.node
		return profile.Running, true
	}
	return 0, false
}

// remember stores the place of a captured thread, whose walk is in the table.
func (w *wallSampler) remember(at *waitPlace, s *session.Suspension, f *frameTable, n wallNode) {
	c := &s.Capture.Context
	sp := arch.Addr(c.Regs[s.Process.Arch.SP])
	*at = waitPlace{c.IP, sp, f.awaits.holds(append(at.returns[:0], f.returns...), s, sp, f.sps), n}
}

// alsoHolds adds a word on the stack to a place.
func (at *waitPlace) alsoHolds(word returnSlot) {
	if word.at < at.sp || len(at.returns) == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(at.returns, word.at, func(r returnSlot, a arch.Addr) int {
		return cmp.Compare(r.at, a)
	})
	at.returns = slices.Insert(at.returns, i, word)
}

// isOf reports whether a captured thread is at the place.
func (at *waitPlace) isOf(s *session.Suspension) bool {
	c := s.Capture
	if len(at.returns) == 0 || c.Context.IP != at.ip || arch.Addr(c.Context.Regs[s.Process.Arch.SP]) != at.sp {
		return false
	}
	d := at.sp - c.Stack.Base
	return uint64(d) <= uint64(len(c.Stack.Data)) && at.returnsIn(c.Stack.Data[d:])
}

// returnsIn reports whether the bytes from the stack pointer up have each return address and context
// in its place.
func (at *waitPlace) returnsIn(stack []byte) bool {
	for _, r := range at.returns {
		d := uint64(r.at - at.sp)
		if n := uint64(len(stack)); n < callSlot || d > n-callSlot {
			return false
		}
		if arch.Addr(binary.LittleEndian.Uint64(stack[d:])) != r.ip {
			return false
		}
	}
	return true
}

// isAt reports whether a thread's stack has the content of a place. Only memory is compared: the
// registers of a thread that is ready to run cannot be read without a stop.
func (w *wallSampler) isAt(t *recordedThread, at *waitPlace) bool {
	if len(at.returns) == 0 {
		return false
	}
	size := at.returns[len(at.returns)-1].at + callSlot - at.sp
	if size > session.FirstStack {
		return false
	}
	if cap(w.buf) < int(size) {
		w.buf = make([]byte, size)
	}
	stack := w.buf[:size]
	return t.of.p.Live.ReadMemory(stack, at.sp) == nil && at.returnsIn(stack)
}

// givesUp reports whether a stopped thread was in a system call that only gives up the CPU. For any
// other thread the place of the stop says little: the interrupt for the stop can come late, above all
// in a virtual machine, and a running thread stops where it next leaves the kernel.
func givesUp(s *session.Suspension) bool {
	switch session.Syscalls[s.Capture.SyscallNr] {
	case "sched_yield", "nanosleep", "clock_nanosleep", "poll", "ppoll", "epoll_wait", "epoll_pwait", "select",
		"pselect6":
		return true
	}
	return false
}
