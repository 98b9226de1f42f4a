// Package profile is the data model of what clrsnap collects.
//
// A [Snapshot] has the stacks of all threads of one process at one time. A [Recording] has samples of one process, or
// several, over some time. Each sample has a stack, a weight, and a [Mode]. The mode says what the weight measures:
// CPU time, wall-clock time, allocated bytes, and so on.
//
// A collector builds a Recording with a [Builder]. [Recording.Select] takes a part of a recording, [Recording.Totals]
// sums a recording up by function and by thread, and [Compare] compares two recordings. Package report writes
// snapshots and recordings for people; package export writes recordings for other tools, and reads them back.
//
// Package profile knows no collector and no output format, and imports nothing but the standard library.
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
	Unlisted   int             // threads that already existed, but had just been started, and are not in Threads
	// HoldsPartial: threads may hold monitors that Holds lacks. The runtime has more monitors than clrsnap looks
	// through, or some monitors could not be read.
	HoldsPartial bool
	// Awaits and Needs are the likely wait edges, if they were asked for.
	Awaits []Await
	Needs  []Need
	// Lost are the permits without a likely holder for which others wait, if Lost was asked for, of all threads.
	Lost []Lost
	// Stop says how long all threads stood still, and whether everything is of one moment; nil: no stop was asked for.
	Stop *HeapStop
	// Unsearched is why Awaits and Needs may lack something; "": no known reason.
	Unsearched string
}

// AtRest reports whether nothing changed while the snapshot was taken: of a core dump, or with all threads stopped.
func (s *Snapshot) AtRest() bool { return s.Process.Core != nil || s.Stop != nil && s.Stop.Exact }

// Registers say where the registers of threads that were not blocked came from. The stack walk of a thread begins
// with the thread's registers.
type Registers struct {
	// From is one of the ways below; "": all threads were blocked, or there was no choice.
	From string
	// Reason is why the registers are not the kernel's.
	Reason string
}

// Where registers come from.
const (
	RegistersKernel = "kernel" // from the kernel: only threads that never lacked a CPU were stopped
	// RegistersTogether: clrsnap asked the threads to stop together, and let each thread go as soon as its copy was
	// made.
	RegistersTogether = "together"
)

// Missing returns how many threads have no stack at all: the threads in Threads without frames, and the Unlisted
// threads.
func (s *Snapshot) Missing() int {
	n := s.Unlisted
	for i := range s.Threads {
		if s.Threads[i].Depth() == 0 {
			n++
		}
	}
	return n
}

// Process describes a process.
type Process struct {
	PID     int
	Command string // command line, arguments separated by spaces
	Runtime Runtime
	Core    *Core // the core dump that the process was read from; nil: a running process
}

// Core is a core dump.
type Core struct {
	Path   string
	Writer string  // "kernel", "createdump", or "gcore": gdb, or a program that writes dumps as gdb does
	Signal *Signal // the signal that ended the process; nil: no signal did, or the signal is not known
	// Missing has a sentence for each thing that could be read neither from the dump nor from the process's files.
	Missing []string
}

// Signal is a signal that ended a process.
type Signal struct {
	Number     int
	Name       string // such as "SIGSEGV"
	Reason     string // what the signal's code means, for example "address not mapped"; may be empty
	Address    uint64 // the address that could not be accessed, or executed
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
	Others     []*ExceptionInfo // of an AggregateException: its inner exceptions besides Inner
	NoMessage  bool             // the exception has a message, but the message could not be read
	CutMessage bool             // Message is only the beginning

	Frames []TraceFrame // the exception's own stack trace: the frame that threw first
	More   int          // frames after these, left out
	Remote string       // a stack trace that the exception had as text before it was thrown here
	// NoFrames is why the stack trace, or a part of it, could not be read; empty: all was read.
	NoFrames string

	// LeftOut: inner exceptions are missing here, because there are too many, or because an exception that is here
	// would come once more.
	LeftOut bool
	// Uncertain is why this exception may not belong to the thread's stack; empty: the exception does. A running
	// process changes during the reading.
	Uncertain string
}

// TraceFrame is a frame of an exception's stack trace. IP is an address within the instruction that the exception
// came through. The IP of a thread's frame is different: the address behind a call. IP is 0 if no address is known,
// and so are Offset and Tier.
type TraceFrame struct {
	Frame
	Hidden    bool // .NET leaves the frame out when it prints the exception
	EndsTrace bool // the next frame is of the code that threw the exception again
}

// FailFast is a call of Environment.FailFast, which ends the process.
type FailFast struct {
	Message   string         // empty: the call had no message
	Unknown   bool           // the arguments of the call could not be found
	Exception *ExceptionInfo // the exception argument, which can be Thread.Exception; nil: none
}

// Runtime describes the .NET runtime inside a process.
type Runtime struct {
	Version string // for example "10.0.8"
	Path    string // the file that holds the runtime, as the target sees it
	Shape   string // "shared", "self-contained" or "single-file"
}

// Thread is one thread and its stack.
type Thread struct {
	OSThreadID      int    // the kernel's thread id, in the PID namespace of clrsnap
	ManagedThreadID int    // Environment.CurrentManagedThreadId; 0: the runtime does not know this thread
	ThreadID        uint64 // address of the runtime's Thread object; 0 where ManagedThreadID is 0
	Name            string
	Role            string // "Main", "Finalizer", "ThreadPool worker", "GC", …; empty: an ordinary thread
	State           string // for example "running", "waiting (futex)", "sleeping"
	// Kernel is why the kernel does not let the thread run, whatever the thread itself waits for: "stopped by a
	// signal", "frozen by its control group", "in an uninterruptible wait (folio_wait_bit_common)". "": the kernel
	// lets the thread run, or the reason is not known.
	Kernel string
	Mode   string // the GC mode: "cooperative" or "preemptive"; empty for a native thread
	// Background: the process does not wait for the end of the thread (Thread.IsBackground).
	Background bool
	Wait       *Wait         // the thread's wait; nil: the thread does not wait, or the wait is not known
	Holds      []Wait        // the locks that the thread holds, as far as known; Kind is a waiter's kind
	Pause      time.Duration // the longest stop of this thread; 0: the thread was not stopped
	// Still: the thread proved not to have run while clrsnap read the waits of all threads with Still. So all of
	// these waits were true at the same time. Only snapshots for this purpose have Still.
	Still   bool
	Crashed bool // core dumps only: the signal that ended the process was for this thread
	// Exception is the newest exception in flight: an exception that is being thrown, or whose handler runs. For the
	// thread that the process died of, Exception is the exception that the thread threw last. nil: none.
	Exception *ExceptionInfo
	// Handling has the exceptions whose handlers were running when Exception was thrown, the newest first.
	Handling []*ExceptionInfo
	FailFast *FailFast // core dumps only: how the crashed thread ended the process; nil: otherwise
	Complete bool      // the walk reached the base of the stack
	Error    string    // why the walk is not complete, or why there is no stack
	Frames   []Frame   // the stack, leaf first
	// Packed is the stack in packed form, if clrsnap.Options.PackStacks is set; then Frames is nil. Methods Depth,
	// Frame and Stack serve both forms.
	Packed *PackedStack
}

// Kind tells managed from native frames.
type Kind string

// Async is the kind of a frame that is not on the stack: of an async method that awaits the method above. The frame
// has neither IP nor SP, and its line is the line of the await. A method of .NET with this kind, for example
// Task.WhenAll, joins several tasks.
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
	// bytes from the start of the method or symbol to IP; without a symbol, from the start of the module
	Offset   uint64
	Tier     string      // "tier-0", "tier-1", "ReadyToRun", "OSR", "dynamic", "stub", …; managed frames only
	Owner    Origin      // as in Function
	Line     *SourceLine // nil: not known
	Inlined  bool        // without a frame of its own: the code is part of the next frame that is not Inlined
	Generics Generics    // of shared generic code; empty: the code is not shared
	Waiter   *ThreadRef  // of kind Async: the thread that waits for the task of the method above; nil: a method
	// of native functions without a symbol: the exported function before, and the distance; "" if the distance is
	// large
	Nearest string
	// the name may come from another build of the file than the program has loaded; the name ends in (?)
	Unproved bool
}

// Generics says what the name of a frame of shared generic code tells. The runtime compiles one piece of code for all
// type arguments that are reference types.
type Generics string

// The kinds of name of shared generic code.
const (
	ExactGenerics  Generics = "exact"  // the type arguments are those of the running instantiation
	SharedGenerics Generics = "shared" // System.__Canon stands for each type argument that is a reference type
)

// SourceLine is a place in a source file.
type SourceLine struct {
	File        string // as the compiler wrote it: a path on the machine that built the program
	Line        int    // counted from 1
	Column      int    // counted from 1, in UTF-16 code units
	URL         string // the address of the file by SourceLink; empty: none
	Approximate bool   // the code itself belongs to no line: this line is the line before
}

// Same reports whether both are the same line of the same file, or both are nil.
func (l *SourceLine) Same(o *SourceLine) bool {
	if l == nil || o == nil {
		return l == o
	}
	return l.File == o.File && l.Line == o.Line
}
