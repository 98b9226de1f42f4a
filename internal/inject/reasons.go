package inject

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"clrsnap/internal/diagnostics"
	"clrsnap/internal/locate"
	"clrsnap/internal/module"
	"clrsnap/internal/target/live"
)

// The runtime's HRESULTs for refusing to attach a profiler (src/inc/corerror.h, for modNotFound
// winerror.h; the meanings are in profattach.cpp, profilinghelper.cpp and ds-protocol.h of the
// runtime).
const (
	otherProfilerActive = 0x8013136a // CORPROF_E_PROFILER_ALREADY_ACTIVE
	uninitialized       = 0x80131371 // CORPROF_E_RUNTIME_UNINITIALIZED
	cancelActivation    = 0x80131375 // CORPROF_E_PROFILER_CANCEL_ACTIVATION
	notYetAvailable     = 0x8013135b // DS_IPC_E_NOT_YET_AVAILABLE
	unknownCommand      = 0x80131385 // DS_IPC_E_UNKNOWN_COMMAND
	modNotFound         = 0x8007007e // ERROR_MOD_NOT_FOUND
)

// explain makes a sentence of an error with process p.
func explain(p *live.Process, err error) error {
	pid := p.PID()
	var explained *Error
	var refusal *diagnostics.ServerError
	switch {
	case p.Alive() != nil:
		return fmt.Errorf("%w before the agent was loaded: start the program again, and try again", p.Alive())
	case errors.As(err, &explained), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, diagnostics.ErrNoSocket):
		return noSocket(p, err)
	case errors.As(err, &refusal):
		return refused(pid, refusal)
	case errors.Is(err, ErrNoAnswer):
		return &Error{PID: pid, Err: errNoAnswer, Remedy: "the process hangs, or its container is paused: " +
			"clrsnap stack shows the threads; try again when the process runs"}
	case errors.Is(err, ErrNoAgent):
		return &Error{PID: pid, Err: ErrNoAgent, Detail: "although the library was loaded", Remedy: "try again"}
	}
	return &Error{PID: pid, Err: err}
}

// noSocket explains why a process has no diagnostics socket.
func noSocket(p *live.Process, err error) *Error {
	e := &Error{PID: p.PID()}
	r, findErr := findRuntime(p)
	switch {
	case errors.Is(findErr, locate.ErrNotDotNet):
		e.Err, e.Remedy = findErr, "find the right process with clrsnap ps"
		return e
	case findErr != nil:
		e.Err = findErr
		return e
	case r.Shape == locate.NativeAOT:
		e.Err, e.Detail, e.Remedy = ErrAheadOfTime, "without a CoreCLR for the agent",
			"record CPU and wall-clock time, without --event"
		return e
	}
	off := switchOff(environmentOf(p), "EnableDiagnostics", "EnableDiagnostics_IPC")
	file := diagnostics.BoundSocket(p.Dir())
	switch {
	case off != "":
		e.Err, e.Detail = ErrDiagnosticsOff, off+" is in the environment"
		e.Remedy = "start the program without the variable"
	case file != "":
		e.Err, e.Detail = ErrNoConnection, "the file of the diagnostics socket, "+file+", has been removed"
		e.Remedy = "start the program again, and let nothing that cleans up the directory remove dotnet-diagnostic-*"
	default:
		e.Err, e.Detail, e.Remedy = ErrNoConnection, err.Error(), "if the process has only just started, try again"
		if why := diagnostics.NoPlace(p.Dir()); why != "" {
			e.Detail, e.Remedy = why, "start the program again, with an existing directory with a short path as TMPDIR"
		}
	}
	return e
}

// findRuntime looks for .NET in a process.
func findRuntime(p *live.Process) (*locate.Runtime, error) {
	maps, err := p.Mappings()
	if err != nil {
		return nil, err
	}
	exe, err := p.Executable()
	if err != nil {
		return nil, err
	}
	mods := module.NewSet(p.Arch(), p, p.OpenMapping)
	defer mods.Close()
	mods.Update(maps)
	return locate.Find(mods, exe)
}

// refused explains why a runtime did not load the agent.
func refused(pid int, refusal *diagnostics.ServerError) *Error {
	e := &Error{PID: pid}
	switch refusal.HRESULT {
	case uninitialized, notYetAvailable:
		e.Err = ErrTooEarly
		e.Remedy = "try again in a moment; with DOTNET_DefaultDiagnosticPortSuspend=1 the runtime waits " +
			"for another tool"
	case modNotFound:
		e.Err, e.Remedy = ErrNotLoaded, "a security module may forbid this: look into the kernel's audit log"
	case cancelActivation:
		e.Err, e.Detail = ErrNoAgent, "the library was loaded and did not stay"
		e.Remedy = "try again; if this does not help, a seccomp filter or a security module may forbid the " +
			"process to connect to Unix sockets"
	case unknownCommand:
		e.Err, e.Detail = ErrProfilerOff, "the runtime is older than .NET Core 3.0"
		e.Remedy = "run the program on a newer .NET"
	default:
		e.Err, e.Remedy = refusal, "try again; if this does not help, have clrsnap start the program"
	}
	return e
}

// otherProfiler names the profiler that is loaded already.
func otherProfiler(p *live.Process) error {
	e := &Error{PID: p.PID(), Err: ErrOtherProfiler}
	switch path := startedProfiler(p); {
	case path != "":
		e.Detail, e.Remedy = path, "start the program without the other profiler, and try again"
	case agentWorks(p):
		e.Detail, e.Remedy = "the agent of another clrsnap", "wait until the other clrsnap has ended, and try again"
	default:
		e.Remedy = "a runtime has room for a single profiler: end the other tool, or start the program again " +
			"without the other profiler"
	}
	return e
}

// startedProfiler is the path of the profiler with which a process was started; "" if there is
// none, or if the profiler is the agent.
func startedProfiler(p *live.Process) string {
	on, found := false, ""
	for v := range environmentOf(p) {
		name, value, _ := strings.Cut(v, "=")
		on = on || isProfilerSetting(name, "ENABLE_PROFILING") && isOn(value)
		if isProfilerSetting(name, "PROFILER_PATH") && path.Base(value) != libraryName {
			found = value
		}
	}
	if !on {
		return ""
	}
	return found
}

// hasAgent reports whether the library of the agent, of our clrsnap or another, has ever been
// loaded into a process. The library is never unloaded.
func hasAgent(p *live.Process) bool {
	maps, err := p.Mappings()
	if err != nil {
		return false
	}
	for i := range maps {
		if strings.Contains(maps[i].Path, "/"+folderPrefix) && strings.HasSuffix(maps[i].Path, "/"+libraryName) {
			return true
		}
	}
	return false
}

// agentWorks reports whether an agent in the process has a reader.
func agentWorks(p *live.Process) bool {
	tids, err := p.Threads()
	if err != nil {
		return false
	}
	for _, tid := range tids {
		const name = "clrsnap-agent" // agent/session.c
		if info, err := p.Thread(tid); err == nil && info.Name == name {
			return true
		}
	}
	return false
}

// environmentOf is the environment of a process at its start.
func environmentOf(p *live.Process) iter.Seq[string] {
	env, err := p.Dir().Environ()
	if err != nil {
		return slices.Values[[]string](nil)
	}
	return env
}
