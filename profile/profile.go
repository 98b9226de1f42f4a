// Package profile is the data model of what clrsnap collected: whose stacks,
// when, and what they were. It knows no collector and no output format, and
// imports nothing but the standard library.
package profile

import (
	"fmt"
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
	Unlisted   int             // threads that were there at the instant, and are not in Threads because they had only just been started
}

// Missing is how many threads there were of which there is no stack at all.
func (s *Snapshot) Missing() int {
	n := s.Unlisted
	for i := range s.Threads {
		if len(s.Threads[i].Frames) == 0 {
			n++
		}
	}
	return n
}

// Process describes the process that was looked at.
type Process struct {
	PID     int
	Command string // command line, arguments separated by spaces
	Runtime Runtime
	Core    *Core // what it was read from; nil: it was running
}

// Core is a core dump.
type Core struct {
	Path   string
	Writer string  // "kernel", "createdump", or "gcore", which stands for whatever writes as gdb does
	Signal *Signal // what ended the process; nil: nothing, or it is not known
	// Missing says, a sentence each, what was neither in the dump nor to be had
	// from files.
	Missing []string
}

// Signal is a signal that ended a process.
type Signal struct {
	Number     int
	Name       string // such as "SIGSEGV"
	Reason     string // what its code means, such as "address not mapped"; may be empty
	Address    uint64 // what could not be accessed, or executed
	HasAddress bool
}

// String describes s: "SIGSEGV (address not mapped: 0x10)".
func (s *Signal) String() string {
	detail := s.Reason
	if s.HasAddress {
		if detail != "" {
			detail += ": "
		}
		detail += fmt.Sprintf("%#x", s.Address)
	}
	if detail == "" {
		return s.Name
	}
	return s.Name + " (" + detail + ")"
}

// Thrown is a managed exception, and the one that led to it.
type Thrown struct {
	Type    string // with its namespace
	Message string // empty: the type's default message
	HResult int32
	Inner   *Thrown
	// NoMessage: it has a message, which could not be read.
	NoMessage bool
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
	Crashed         bool          // of a core dump: the signal that ended the process was for this thread
	Exception       *Thrown       // that the crashed thread had last to do with; nil: none
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
