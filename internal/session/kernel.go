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
	"clrsnap/profile"
)

// Why the kernel does not let a thread run, whatever that waits for itself: profile.Thread.Kernel.
const (
	bySignal   = "stopped by a signal"
	byDebugger = "stopped by a debugger"
	byFreezer  = "frozen by its control group"
	byThrottle = "throttled by its control group meanwhile"
	byFault    = "in a page fault"
	deepWait   = "in an uninterruptible wait"
)

// kernel says why the kernel does not let a thread run that has just been captured; "": it does, or that is not known.
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

// isDeep reports whether the thread is in a wait that cannot be interrupted now.
func (s *Suspension) isDeep() bool {
	info, err := s.Process.from.Thread(s.Thread.OSThreadID)
	return err == nil && info.State == 'D'
}

// inDeepWait describes a thread that could not be stopped because of an uninterruptible wait: with as much of its stack
// as can be walked without a stop, or else with what the kernel tells of it. false: that is not why.
func (s *Suspension) inDeepWait(err error) (st profile.Thread, ok bool) {
	p := s.Process
	if p.Live == nil || !errors.Is(err, live.ErrNotStopping) || !s.isDeep() {
		return st, false
	}
	s.Thread.Deep = true
	if !p.Options.AlwaysStop && s.peek() == nil {
		if st = p.finish(s, s.frames(&p.walked)); st.Error == "" {
			return st, true
		}
		st.Error = fmt.Sprintf("%v; without a stop: %s", err, st.Error)
		return st, true
	}
	st = p.Summary(&s.Thread)
	st.Error = err.Error()
	s.ofKernel(&st)
	return st, true
}

// ofKernel says of a thread in an uninterruptible wait what the kernel tells: the system call, what it is for, and why
// the thread does not run.
func (s *Suspension) ofKernel(st *profile.Thread) {
	p, c, tid := s.Process, s.Capture, s.Thread.OSThreadID
	count := p.Live.RunCount(tid)
	if !s.isDeep() {
		return
	}
	st.Kernel = deepWait
	call, blocked := p.Live.Call(tid)
	if !blocked || !p.Live.NotRunSince(tid, count) {
		return // in which call that is is not known
	}
	c.SyscallNr, c.SyscallArgs, c.Stopped, c.Proof = call.Nr, call.Args, false, count
	s.Thread.Deep = true
	st.State, st.Kernel = state(c), cmp.Or(s.kernel(), deepWait)
	st.Wait = s.ioWait(nil)
}

// faultsIn are parts of the names of the kernel's functions in which threads wait for a page.
var faultsIn = []string{"fault", "folio", "page", "swap", "io_schedule"}

// fault says of a thread that is blocked, but in no system call, that it waits for a page, if the kernel tells in which
// of its functions the thread is.
func (s *Suspension) fault() string {
	function, ok := s.sleepsIn()
	if !ok || !slices.ContainsFunc(faultsIn, func(part string) bool { return strings.Contains(function, part) }) {
		return ""
	}
	return byFault + " (" + function + ")"
}

// sleepsIn is the function of the kernel that the thread waits in; "": the kernel does not tell (proc_pid_wchan(5)).
// false: it has run since it was captured.
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

// watchGroups begins to watch the control groups of the process. What is returned says of the threads of a snapshot
// that these are frozen or, of those that run, throttled.
func (p *Process) watchGroups() func([]profile.Thread) {
	if p.Live == nil {
		return func([]profile.Thread) {}
	}
	if p.groups == nil {
		p.groups = cgroup.NewReader(p.Live.Dir())
	}
	before, err := p.groups.State()
	if err != nil {
		return func([]profile.Thread) {}
	}
	return func(threads []profile.Thread) {
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
