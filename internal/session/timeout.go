package session

import (
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/locate"
	"clrsnap/internal/target/live"
	"clrsnap/snapshot"
)

// The system call futex (futex(2)): the waiting operations, and flags. Arguments: address, operation, value, address
// of the timeout.
const (
	futexCall       = 202 // on x86-64: see Syscalls
	futexWait       = 0
	futexWaitBitset = 9 // the timeout is a time of a clock
	futexPrivate    = 128
	futexLock       = 6 // and the other waiting operations, for locks that give their owner priority
	futexLock2      = 13

	futexWaitRequeue = 11
	futexRealtime    = 256 // of the clock CLOCK_REALTIME; otherwise CLOCK_MONOTONIC
	futexFlags       = futexPrivate | futexRealtime
)

// endless are the kinds of wait that last for ever if the system call does.
var endless = map[snapshot.WaitKind]bool{
	snapshot.ThreadJoin: true, snapshot.ReadLock: true, snapshot.UpgradeableLock: true, snapshot.WriteLock: true,
	snapshot.LockEnter: true, snapshot.HandleOne: true, snapshot.HandleAny: true, snapshot.HandleAll: true,
	snapshot.ThreadSleep: true,
}

// timed are the kinds of wait that end when the system call does.
var timed = map[snapshot.WaitKind]bool{
	snapshot.MonitorEnter: true, snapshot.MonitorWait: true, snapshot.ThreadSleep: true, snapshot.ThreadJoin: true,
	snapshot.HandleOne: true, snapshot.HandleAny: true, snapshot.HandleAll: true, snapshot.SemaphoreWait: true,
	snapshot.EventWait: true, snapshot.CountdownWait: true, snapshot.TaskWait: true, snapshot.CollectionTake: true,
	snapshot.CollectionAdd: true, snapshot.TaskWaitAll: true, snapshot.TaskWaitAny: true,
}

// timeout adds to a wait its longest duration, if the system call tells the duration and the primitive does not: for
// ever, or the rest of a timeout.
func (s *Suspension) timeout(st *snapshot.Thread) {
	w, c := st.Wait, s.Capture
	if w == nil || c.SyscallNr != futexCall || c.SyscallArgs == [6]uint64{} {
		return
	}
	op := c.SyscallArgs[1] &^ futexFlags
	if (w.Kind == snapshot.ThreadSleep || timed[w.Kind]) && c.SyscallArgs[3] == 0 && s.over(st) {
		st.Wait = &snapshot.Wait{Kind: snapshot.WaitRuntime, Certain: w.Certain}
		return
	}
	switch {
	case op != futexWait && op != futexWaitBitset:
	case c.SyscallArgs[3] == 0 && w.Timeout == 0 && endless[w.Kind]:
		w.Timeout = snapshot.Forever
	case c.SyscallArgs[3] != 0 && op == futexWaitBitset && timed[w.Kind]:
		w.Rest = s.rest(w)
	}
}

// over reports whether the wait of a thread in a system call without a timeout has ended: after the wait, a thread that
// the runtime suspends waits for the runtime, and the waiting method is still on the stack.
func (s *Suspension) over(st *snapshot.Thread) bool {
	p := s.Process
	if p.Managed == nil || p.Managed.Locks == nil || s.Walk.Info.Address == 0 {
		return false
	}
	if !p.Managed.Locks.Managed() { // the runtime waits, and marks the thread meanwhile
		return s.Walk.Info.State&thread.StateInterruptible == 0
	}
	// Managed code waits, and calls the system. In a single-file program the system's part of .NET and the runtime are
	// one module. A wait goes through one function of the system's part at most (src/native/libs/System.Native,
	// pal_threading.c), a suspension through several of the runtime. The thread's own record tells, too, if somebody
	// else has ended the wait.
	if p.Found.Shape != locate.SingleFile && p.Found.Shape != locate.NativeAOT {
		return p.inRuntime(st.Frames)
	}
	const ofSystem = 1
	n := p.ownFrames(st.Frames)
	return n > ofSystem || n > 0 && p.WaitReader().Over(&s.Walk.Info) && s.Rests()
}

// maxRest bounds the believable rest of a timeout: .NET has no longer timeout than 31 bits of ms.
const maxRest = 1 << 31 * time.Millisecond

// rest is how long a wait still lasts, by the end time of the wait on the thread's stack; 0: not known.
func (s *Suspension) rest(w *snapshot.Wait) time.Duration {
	stack, at := s.Walk.Stack, arch.Addr(s.Capture.SyscallArgs[3])
	if s.Process.RunningProcess() == nil || !stack.Contains(at) || !stack.Contains(at+8) {
		return 0
	}
	sec, ok1 := stack.Uint64(at)
	nsec, ok2 := stack.Uint64(at + 8)
	now, ok3 := live.ClockTime(s.Capture.SyscallArgs[1]&futexRealtime != 0)
	if !ok1 || !ok2 || !ok3 || sec >= 1<<33 || nsec >= 1e9 {
		return 0
	}
	left := time.Duration(sec)*time.Second + time.Duration(nsec) - now
	if left <= 0 || left > maxRest || w.Timeout != 0 && left > w.Timeout {
		return 0 // the wait is about to end, or the process has clocks of its own (time_namespaces(7))
	}
	return left
}
