// Package profile is the data model of what clrsnap collects.
//
// A [Snapshot] has the stacks of all threads of one process at one time. A
// [Recording] has samples of one process, or several, over some time. Each sample
// has a stack, a weight, and a [Mode] that says what the weight measures: CPU time,
// wall-clock time, allocated bytes, and so on.
//
// A collector builds a Recording with a [Builder]. [Recording.Select] takes a part
// of it, [Recording.Totals] sums it up by function and by thread, and [Compare]
// compares two recordings. Package report writes snapshots and recordings for
// people; package export writes recordings for other tools, and reads them back.
//
// Package profile knows no collector and no output format, and imports nothing but
// the standard library.
package profile

import (
	"fmt"
	"time"
)

// Snapshot is the state of every thread of one process at one time.
type Snapshot struct {
	Process    Process
	CapturedAt time.Time
	Threads    []Thread
	Stops      []time.Duration // how long each stop of a thread lasted; some threads need several, most none
	Released   int             // stops that the watchdog ended because clrsnap itself got no CPU: they gave no stack
	Registers  Registers       // of the threads that were not blocked
	Unlisted   int             // threads that existed then, but had just been started and are not in Threads
	// HoldsPartial: threads may hold monitors that Holds does not have. The runtime has more than are looked through,
	// or some could not be read.
	HoldsPartial bool
	// Awaits and Needs are what is likely to be waited for, if that was asked for.
	Awaits []Await
	Needs  []Need
	// Lost are the permits that nobody seems to have, but others wait for, if that was asked for, of all threads.
	Lost []Lost
	// Unsearched is why Awaits and Needs may lack something; "": nothing that is known.
	Unsearched string
}

// Registers say where those came from that the stacks of threads were walked with which were not blocked.
type Registers struct {
	// From is one of the ways below; "": all threads were blocked, or there was no choice.
	From string
	// Reason is why they are not the kernel's.
	Reason string
}

// Where registers come from.
const (
	RegistersKernel = "kernel" // the kernel has told them: only threads were stopped that never were without a CPU
	// RegistersTogether: they were asked to stop together, and each was let go as soon as it had been copied.
	RegistersTogether = "together"
)

// Missing returns how many threads have no stack at all: those in Threads without
// frames, and those that are Unlisted.
func (s *Snapshot) Missing() int {
	n := s.Unlisted
	for i := range s.Threads {
		if s.Threads[i].Depth() == 0 {
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
	Core    *Core // the core dump that it was read from; nil: a running process
}

// Core is a core dump.
type Core struct {
	Path   string
	Writer string  // "kernel", "createdump", or "gcore": gdb, or a program that writes dumps as gdb does
	Signal *Signal // that ended the process; nil: none did, or it is not known
	// Missing has a sentence for each thing that could be read neither from the
	// dump nor from the process's files.
	Missing []string
}

// Signal is a signal that ended a process.
type Signal struct {
	Number     int
	Name       string // such as "SIGSEGV"
	Reason     string // what its code means, such as "address not mapped"; may be empty
	Address    uint64 // that could not be accessed, or executed
	HasAddress bool   // Address is known; it can be 0
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

// ExceptionInfo is a managed exception, with its inner exceptions.
type ExceptionInfo struct {
	Type       string // with its namespace
	Message    string // empty: the type's default message
	HResult    int32
	Inner      *ExceptionInfo   // the exception that led to this one; nil: none
	Others     []*ExceptionInfo // of an AggregateException: what it has besides Inner
	NoMessage  bool             // there is a message, but it could not be read
	CutMessage bool             // Message is only the beginning

	Frames []TraceFrame // the exception's own stack trace: the frame that has thrown first
	More   int          // frames after these, which are left out
	Remote string       // a stack trace that the exception had as text before it was thrown here
	// NoFrames is why the stack trace could not be read, or not all of it; empty: it was.
	NoFrames string

	// LeftOut: there are inner exceptions that are not here, because they are too many, or one
	// of those that are here once more.
	LeftOut bool
	// Uncertain is why this may not be the exception of the thread's stack; empty: it is. A running process
	// changes while it is read.
	Uncertain string
}

// TraceFrame is a frame of an exception's stack trace. Its IP is an address within the instruction that the
// exception came through: unlike that of a thread's frame, not the address behind a call. It is 0 where none is
// known, and so are Offset and Tier.
type TraceFrame struct {
	Frame
	Hidden    bool // .NET leaves the frame out when it prints the exception
	EndsTrace bool // the next frame is one of the code that has thrown the exception again
}

// FailFast is a call of Environment.FailFast, which ends the process.
type FailFast struct {
	Message   string         // empty: it was called with none
	Unknown   bool           // what it was called with could not be found
	Exception *ExceptionInfo // that it was called with, which can be Thread.Exception; nil: none
}

// Runtime describes the .NET runtime inside a process.
type Runtime struct {
	Version string // such as "10.0.8"
	Path    string // the file that holds the runtime, as the target sees it
	Shape   string // "shared", "self-contained" or "single-file"
}

// Thread is one thread and its stack.
type Thread struct {
	OSThreadID      int    // the kernel's thread id, in the PID namespace of clrsnap
	ManagedThreadID int    // Environment.CurrentManagedThreadId; 0: the runtime does not know this thread
	ThreadID        uint64 // address of the runtime's Thread object; 0 like ManagedThreadID
	Name            string
	Role            string // "Main", "Finalizer", "ThreadPool worker", "GC", …; empty: an ordinary thread
	State           string // such as "running", "waiting (futex)", "sleeping"
	// Kernel is why the kernel does not let the thread run, whatever that waits for itself: "stopped by a signal",
	// "frozen by its control group", "in an uninterruptible wait (folio_wait_bit_common)". "": it does, or that is not
	// known.
	Kernel string
	Mode   string // the GC mode: "cooperative" or "preemptive"; empty for a native thread
	// Background: the process does not wait for the end of the thread (Thread.IsBackground).
	Background bool
	Wait       *Wait         // what it waits for; nil: it does not wait, or that is not known
	Holds      []Wait        // the locks that it holds, as far as they are known; Kind is that of who would wait
	Pause      time.Duration // the longest stop of this thread; 0: it was not stopped
	// Still: it is proved that the thread did not run while the waits of all threads that are Still were read. So
	// what they say was true at the same time. Only snapshots that are taken for that have it.
	Still   bool
	Crashed bool // core dumps only: the signal that ended the process was for this thread
	// Exception is the newest exception in flight: one that is being thrown, or whose handler runs. Of the
	// thread that a process died of it is the last one that it has thrown. nil: there is none.
	Exception *ExceptionInfo
	// Handling has the exceptions whose handlers were running when Exception was thrown, the newest first.
	Handling []*ExceptionInfo
	FailFast *FailFast // core dumps only: how the crashed thread ended the process; nil: otherwise
	Complete bool      // the walk reached the base of the stack
	Error    string    // why it did not, or why there is no stack
	Frames   []Frame   // the stack, leaf first
	// Packed is the stack if it is packed, which clrsnap.Options.PackStacks asks for; then Frames is nil. Methods
	// Depth, Frame and Stack are for both.
	Packed *PackedStack
}

// Kind tells managed from native frames.
type Kind string

// Async is the kind of a frame that is not on the stack: of an async method that awaits the one above it. It has
// neither IP nor SP, and its line is that of the await. A method of .NET among them, such as Task.WhenAll, is what
// joins several tasks.
const Async Kind = "async"

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
	// bytes from the start of the method or symbol to IP; without a symbol, from that of the module
	Offset   uint64
	Tier     string      // "tier-0", "tier-1", "ReadyToRun", "OSR", "dynamic", "stub", …; managed frames only
	Owner    Origin      // as in Function
	Line     *SourceLine // nil: not known
	Inlined  bool        // the method has no frame of its own: its code is part of that of the next frame with one
	Generics Generics    // of shared generic code; empty: the code is not shared
	Waiter   *ThreadRef  // of kind Async: the thread that waits for the task of the method above; nil: it is a method
	// of native functions without a symbol: the exported one before it, and how far; "" if it is far
	Nearest string
	// the file that the name is of may be another build than the one that the program has loaded; the name ends in (?)
	Unproved bool
}

// Generics says what the name of a frame of shared generic code tells. The runtime compiles one piece of
// code for all type arguments that are reference types.
type Generics string

// The kinds of name of shared generic code.
const (
	ExactGenerics  Generics = "exact"  // the type arguments are those of the instantiation that runs
	SharedGenerics Generics = "shared" // System.__Canon stands for those that are reference types
)

// SourceLine is a place in a source file.
type SourceLine struct {
	File        string // as the compiler wrote it: a path on the machine that built the program
	Line        int    // counted from 1
	Column      int    // likewise, in UTF-16 code units
	URL         string // where SourceLink says that the file can be had; empty: it does not
	Approximate bool   // the code itself belongs to no line: this is the one before
}

// Same reports whether both are the same line of the same file, or both are nil.
func (l *SourceLine) Same(o *SourceLine) bool {
	if l == nil || o == nil {
		return l == o
	}
	return l.File == o.File && l.Line == o.Line
}
