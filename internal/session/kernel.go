package session

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/cgroup"
	"clrsnap/internal/procfs"
	"clrsnap/internal/target/live"
	"clrsnap/snapshot"
)

// Why the kernel does not run a thread, whatever the thread itself waits for: snapshot.Thread.Kernel.
const (
	bySignal   = "stopped by a signal"
	byDebugger = "stopped by a debugger"
	byFreezer  = "frozen by its control group"
	byThrottle = "throttled by its control group meanwhile"
	byFault    = "in a page fault"
	deepWait   = "in an uninterruptible wait"
)

// kernel says why the kernel does not run a thread that has just been captured; "": the kernel runs the thread, or
// the reason is not known.
func (s *Suspension) kernel() string {
	p, c := s.Process, s.Capture
	switch {
	case p.Live == nil:
		return ""
	case s.Thread.Halted:
		return bySignal
	case s.Thread.Traced:
		return byDebugger
	case c.Busy() || c.Proof == "":
		return ""
	case c.SyscallNr < 0:
		return s.fault()
	case !s.Thread.Deep:
		return ""
	}
	if !s.isDeep() {
		return ""
	}
	function, ok := s.sleepsIn()
	switch {
	case !ok:
		return ""
	case function == "":
		return deepWait
	}
	return deepWait + " (" + function + ")"
}

// isDeep reports whether the thread is in an uninterruptible wait now.
func (s *Suspension) isDeep() bool {
	info, err := s.Process.from.Thread(s.Thread.OSThreadID)
	return err == nil && info.State == 'D'
}

// inDeepWait describes a thread that could not be stopped because of an uninterruptible wait. The description has as
// much of the stack as a walk without a stop finds, or else the kernel's facts about the thread. false: the failed
// stop has another reason.
func (s *visit) inDeepWait(err error) (st taken, ok bool) {
	if s.g.Live == nil || !errors.Is(err, live.ErrNotStopping) || !s.isDeep() {
		return st, false
	}
	s.Thread.Deep = true
	if !s.g.Options.AlwaysStop && s.peek() == nil {
		if st = s.finish(s.frames()); st.Error == "" {
			return st, true
		}
		st.Error = fmt.Sprintf("%v; without a stop: %s", err, st.Error)
		return st, true
	}
	st = s.g.without(&s.Thread, err)
	s.ofKernel(&st.Thread)
	return st, true
}

// ofKernel describes a thread in an uninterruptible wait by the kernel's facts: the system call, what the call waits
// for, and why the thread does not run.
func (s *Suspension) ofKernel(st *snapshot.Thread) {
	p, c, tid := s.Process, s.Capture, s.Thread.OSThreadID
	count := p.Live.RunCount(tid)
	if !s.isDeep() {
		return
	}
	st.Kernel = deepWait
	call, blocked := p.Live.Call(tid)
	if !blocked || !p.Live.NotRunSince(tid, count) {
		return // the system call is not known
	}
	c.SyscallNr, c.SyscallArgs, c.Stopped, c.Proof = call.Nr, call.Args, false, count
	s.Thread.Deep = true
	st.State, st.Kernel = state(c), cmp.Or(s.kernel(), deepWait)
	st.Wait = s.ioWait(nil)
}

// faultsIn are parts of the names of kernel functions in which threads wait for a page.
var faultsIn = []string{"fault", "folio", "page", "swap", "io_schedule"}

// fault says of a blocked thread outside system calls that the thread waits for a page, if the kernel names the
// function of the wait.
func (s *Suspension) fault() string {
	function, ok := s.sleepsIn()
	if !ok || !slices.ContainsFunc(faultsIn, func(part string) bool { return strings.Contains(function, part) }) {
		return ""
	}
	return byFault + " (" + function + ")"
}

// sleepsIn is the kernel function of the thread's wait; "": the kernel does not name the function
// (proc_pid_wchan(5)). false: the thread has run since its capture.
func (s *Suspension) sleepsIn() (function string, ok bool) {
	tid := s.Thread.OSThreadID
	text, err := s.Process.Live.Dir().ReadFile(procfs.TaskFile(tid, "wchan"))
	if !s.Process.Live.Holds(tid, s.Capture.Proof) {
		return "", false
	}
	if function = strings.TrimSpace(string(text)); err != nil || function == "0" {
		return "", true
	}
	return function, true
}

// watchGroups begins to watch the control groups of the process. The returned function marks the threads of a
// snapshot as frozen, or the running threads as throttled.
func (g *gathering) watchGroups() func([]snapshot.Thread) {
	p := g.Process
	if p.Live == nil {
		return func([]snapshot.Thread) {}
	}
	if p.groups == nil {
		p.groups = cgroup.NewReader(p.Live.Dir())
	}
	before, err := p.groups.State()
	if err != nil {
		return func([]snapshot.Thread) {}
	}
	for _, c := range before.CPU {
		if c.Quota > 0 && (g.quota == 0 || c.Quota < g.quota) {
			g.quota = c.Quota
		}
	}
	return func(threads []snapshot.Thread) {
		now, err := p.groups.State()
		if err != nil {
			return
		}
		since := now.Since(&before)
		throttled := slices.ContainsFunc(since.CPU, func(c cgroup.CPU) bool { return c.Throttled > 0 })
		for i := range threads {
			switch t := &threads[i]; {
			case before.Frozen && now.Frozen:
				t.Kernel = byFreezer
			case throttled && t.State == stateRunning && t.Kernel == "":
				t.Kernel = byThrottle
			}
		}
	}
}
