package inject

import (
	"context"
	"iter"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"clrsnap/internal/agent"
	"clrsnap/internal/procfs"
)

// A Listener waits for the agents of programs that our process starts.
type Listener struct {
	f *folder
}

// Listen unpacks the agent for programs that are to be started. They must see the same files as
// our process, and run as the same user.
func Listen() (*Listener, error) {
	library, err := Library(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	return listenWith(library)
}

func listenWith(library []byte) (*Listener, error) {
	self, err := procfs.Self()
	if err != nil {
		return nil, err
	}
	defer self.Close()
	f, err := unpack(self, library)
	if err != nil {
		return nil, err
	}
	return &Listener{f}, nil
}

// Close stops listening and removes the library. Programs that are started later run without the
// agent.
func (l *Listener) Close() error { return l.f.Close() }

// Environment returns env with the variables that make a program and its children load the agent.
// It is an error if env makes them load another profiler, or forbids profilers.
func (l *Listener) Environment(env []string) ([]string, error) {
	if err := checkEnvironment(env); err != nil {
		return nil, err
	}
	var out []string
	for _, v := range env {
		// A path for one CPU architecture (PROFILER_PATH_64) would take precedence over ours.
		name, _, _ := strings.Cut(v, "=")
		if !isProfilerSetting(name, "ENABLE_PROFILING") && !isProfilerSetting(name, "PROFILER") {
			out = append(out, v)
		}
	}
	return append(out, agent.Environment(l.f.library(), l.f.socket())...), nil
}

// Accept waits for the next agent to connect, until the end of ctx. The caller should close the
// connections of unwanted programs, and of processes that the caller has not started.
func (l *Listener) Accept(ctx context.Context) (*Agent, error) { return accept(ctx, l.f.listener) }

// checkEnvironment looks for settings that keep the agent out.
func checkEnvironment(env []string) error {
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		if isProfilerSetting(name, "ENABLE_PROFILING") && isOn(value) {
			return &Error{Err: ErrOtherProfiler, Detail: v + " is in the environment",
				Remedy: "start the program without the variable, and so without the other profiler"}
		}
	}
	if v := switchOff(slices.Values(env), "EnableDiagnostics", "EnableDiagnostics_Profiler"); v != "" {
		return &Error{Err: ErrProfilerOff, Detail: v + " is in the environment",
			Remedy: "start the program without the variable"}
	}
	return nil
}

// isProfilerSetting reports whether an environment variable has this meaning. .NET 11 knows both
// prefixes, earlier versions the first prefix. PROFILER stands for every name that begins with
// PROFILER.
func isProfilerSetting(variable, meaning string) bool {
	for _, prefix := range []string{"CORECLR_", "DOTNET_"} {
		rest, ok := strings.CutPrefix(variable, prefix)
		if ok && (rest == meaning || strings.HasPrefix(rest, meaning+"_")) {
			return true
		}
	}
	return false
}

// isOn reports whether value, a hexadecimal number, means yes to the runtime
// (src/coreclr/utilcode/clrconfig.cpp).
func isOn(value string) bool {
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(strings.TrimSpace(value)), "0x"), 16, 32)
	return err == nil && n != 0
}

// switchOff returns the variable of env that switches off one of the runtime's settings, which
// are all on by default; "" if there is none.
func switchOff(env iter.Seq[string], settings ...string) string {
	for v := range env {
		name, value, _ := strings.Cut(v, "=")
		for _, prefix := range []string{"DOTNET_", "COMPlus_"} {
			for _, setting := range settings {
				if name == prefix+setting && value != "" && !isOn(value) {
					return v
				}
			}
		}
	}
	return ""
}
