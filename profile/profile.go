// Package profile is the data model of what clrsnap collected: whose stacks,
// when, and what they were. It knows no collector and no output format, and
// imports nothing but the standard library.
package profile

import (
	"strings"
	"time"
)

// Snapshot is the state of every thread of one process at one time.
type Snapshot struct {
	Process    Process
	CapturedAt time.Time
	Threads    []Thread
	Stops      []time.Duration // how long each stop of a thread lasted; some threads need several, most none
	Released   int             // stops that a watchdog ended, because we had no processor: they brought nothing
}

// Process describes the process that was looked at.
type Process struct {
	PID     int
	Command string // command line, arguments separated by spaces
	Runtime Runtime
}

// Program is what the program is called: its file, without its folder, and
// without the host that runs it.
func (p *Process) Program() string {
	name := ""
	for i, word := range strings.Fields(p.Command) {
		base := word[strings.LastIndexByte(word, '/')+1:]
		if i == 0 {
			name = base
		}
		if !strings.HasPrefix(name, "dotnet") || word == "--" {
			break
		}
		if strings.HasSuffix(base, ".dll") {
			return base
		}
	}
	return name
}

// Runtime describes the .NET runtime inside a process.
type Runtime struct {
	Version string // such as "10.0.8"
	Path    string // the file that holds the runtime, as the target sees it
	Shape   string // "shared", "self-contained" or "single-file"
}

// Thread is one thread and its stack.
type Thread struct {
	OSThreadID      int    // as this process sees it
	ManagedThreadID int    // Environment.CurrentManagedThreadId; 0: the runtime does not know this thread
	ThreadID        uint64 // address of the runtime's Thread object; 0 like ManagedThreadID
	Name            string
	Role            string        // "Main", "Finalizer", "ThreadPool worker", "GC", …; empty: an ordinary thread
	State           string        // such as "running", "waiting (futex)", "sleeping"
	Mode            string        // "cooperative" or "preemptive"; empty for a native thread
	Pause           time.Duration // the longest stop of this thread; 0: it was not stopped
	Complete        bool          // the walk reached the base of the stack
	Error           string        // why it did not, or why there is no stack
	Frames          []Frame
}

// Kind tells managed from native frames.
type Kind string

// The kinds of frame.
const (
	Managed Kind = "managed"
	Native  Kind = "native"
)

// Frame is one frame of a stack, leaf first.
type Frame struct {
	Kind       Kind
	FunctionID uint64 // address of the MethodDesc; 0 for native frames
	IP, SP     uint64
	Method     string // exact metadata name, or the demangled native symbol
	Display    string // friendly name, full form without the parameters
	Short      string // friendly name without namespaces
	Signature  string // parameter types in parentheses
	Module     string // assembly or native module, without its folder
	Offset     uint64 // of IP from the start of the method or symbol, else of the module
	Tier       string // "tier-0", "tier-1", "ReadyToRun", "OSR", "dynamic", "stub", …; managed frames only
}
