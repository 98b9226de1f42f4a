package profile

import (
	"iter"
	"slices"
	"strings"
	"time"
)

// Recording is the result of sampling one or several processes over some time, of
// recording their events, or of both.
//
// Stacks form a tree of nodes, so that callers that stacks have in common are stored
// once. A sample has the index of its leaf's node; the nodes from there to the root
// are its stack.
type Recording struct {
	Version   string    // of clrsnap
	Start     time.Time // when sampling began
	Duration  time.Duration
	Processes []Process // the one that was asked for, then its children as far as they were recorded
	Threads   []RecordedThread
	Functions []Function
	Locations []Location
	Nodes     []Node // [0] is the root
	Samples   []Sample
	Modes     []ModeStats // of each mode that was sampled
	Holds     []Hold      // looks at threads that held locks, in the order of At; at most MaxHolds
	// Where the locations are in the program's source text, as far as that is known: see Assembly.
	Assemblies []Assembly
	Libraries  []Library
	Methods    []Method
	Sites      []CallSite // in the order of Method and IL; at most MaxSites
	Files      []SourceFile
	Lines      []Line
	Cost       Cost
	Messages   Messages // of the exceptions
	Notes      []string // sentences that a reader of the numbers has to know
}

// State is what a thread was doing when it was sampled.
type State uint8

// The states. Running includes being ready to run.
const (
	Running State = iota
	Waiting
)

func (s State) String() string { return [...]string{"running", "waiting"}[s&1] }

// Sample is one sample of a thread, or the sum of several with the same stack.
type Sample struct {
	// At is when it was taken, since Recording.Start. A weight that is a time ends
	// then. Of a sum, it is when the first one was taken.
	At     time.Duration
	Weight int64 // the time, bytes or count that the sample stands for, in Mode.Unit
	// Events is how many events the sample stands for: objects that were allocated
	// (an estimate), exceptions, waits, … 0 unless Mode is an event mode.
	Events     int64
	Count      int32 // how many samples it is the sum of
	Thread     int32 // index in Recording.Threads
	Node       int32 // the leaf of its stack: index in Recording.Nodes; 0: the stack is empty
	Mode       Mode
	State      State
	Incomplete bool // frames near the base, or in between, are missing
}

// Hold is a look at a thread while it held a lock that others waited for. A wait of mode Contention
// during which there was such a look has the holder's method in its leaf.
type Hold struct {
	At         time.Duration // since Recording.Start
	Waited     time.Duration // how long Waiter had waited by then
	Lock       int32         // index in Recording.Functions: the event that calls the leaf of the lock's waits
	Holder     int32         // likewise: the event that names the holder's method, as a leaf of waits does
	Waiter     int32         // index in Recording.Threads: one of those who waited
	Thread     int32         // likewise: who held the lock
	Node       int32         // the leaf of that thread's stack: index in Recording.Nodes
	Incomplete bool          // frames of the stack are missing
}

// MaxHolds bounds Recording.Holds.
const MaxHolds = 1 << 16

// RecordedThread is a thread that was sampled. Threads that have ended can share
// one.
type RecordedThread struct {
	Process         int32 // index in Recording.Processes
	OSThreadID      int   // 0: several threads that have ended
	ManagedThreadID int   // 0: a native thread, or several
	Name, Role      string
}

// Function is a method, a native function, a module whose symbols are missing, or
// an event.
type Function struct {
	Kind      Kind
	Method    string // exact metadata name, or the native symbol; empty where there is none
	Display   string // what to call it, without parameters
	Short     string // Display without namespaces
	Signature string // parameter types in parentheses
	Module    string // assembly or native module, without its folder

	// Fate is what became of an exception, of an Event in mode Exception: CaughtBy and the display name
	// of the method that caught it last, perhaps with LikelyCatcher, or other words. Empty in other
	// modes, and in recordings of earlier versions, which have it in Display and Short.
	Fate string
	// Owner is whose Module is, if it is an assembly and Framework does not say so already. Only a
	// running process, or its files, tell. Empty: what Framework says.
	Owner Origin
}

// CaughtBy is what precedes the name of a method in Function.Fate.
const CaughtBy = "caught by "

// LikelyCatcher follows the name of a method in Function.Fate if another one can have caught the exception.
const LikelyCatcher = "?"

// Kernel is the kind of frames inside the operating system's kernel. Only
// recordings have them.
const Kernel Kind = "kernel"

// What stands in place of the name of code that can be unloaded. Such a function has no Method.
const (
	UnloadedCode = "[unloaded code]" // it was no longer there when its name was to be read
	UnknownCode  = "[unknown code]"  // its name cannot be read, or it may have replaced the code that was sampled
)

// Event is the kind of a function that is not code but names an event. It is the
// leaf of the event's stack. Its name is the type of the object that was allocated
// or of the exception (with its assembly as Module), the method or the thread that
// held the lock, the thread that was started, or the garbage collection. Only recordings
// have such frames. A wait for a lock has two: its leaf says who held the lock, and the
// leaf's caller which lock it was (with the assembly of its type as Module).
const Event Kind = "event"

// noCode reports whether f stands for something that is no method: what ByWait puts before stacks, or a run of
// plumbing.
func (f *Function) noCode() bool {
	return f.Kind == Managed && f.Method == "" && f.Module == "" && f.Owner == OfFramework
}

// Origin says whose code a function is.
type Origin string

// The origins.
const (
	OfUser      Origin = "user"      // the program's own
	OfPackage   Origin = "package"   // a library's that the program uses, such as one from NuGet
	OfFramework Origin = "framework" // .NET's
	OfNative    Origin = "native"
	OfKernel    Origin = "kernel"
	OfEvent     Origin = "event" // not code: a function of kind Event
)

// Origin returns whose code f is.
func (f *Function) Origin() Origin { return originOf(f.Kind, f.Module, f.Owner) }

// Origin returns whose code f is in.
func (f *Frame) Origin() Origin { return originOf(f.Kind, f.Module, f.Owner) }

func originOf(kind Kind, module string, owner Origin) Origin {
	switch kind {
	case Event:
		return OfEvent
	case Kernel:
		return OfKernel
	case Native:
		return OfNative
	}
	switch owner {
	case OfUser, OfPackage, OfFramework:
		return owner
	}
	if Framework(module) {
		return OfFramework
	}
	return OfUser
}

// Framework reports whether an assembly belongs to .NET itself, by its name. It is
// true of "", which dynamic methods have: most of those are the framework's.
func Framework(assembly string) bool {
	return assembly == "System" || strings.HasPrefix(assembly, "System.") ||
		strings.HasPrefix(assembly, "Microsoft.") ||
		assembly == "mscorlib" || assembly == "netstandard" || assembly == ""
}

// Location is a place in a function.
type Location struct {
	Function int32  // index in Recording.Functions
	Offset   uint64 // bytes from the start of the function's code
	Tier     string // as in Frame
	Method   int32  // index in Recording.Methods; 0: not known
	IL       int32  // with a Method: the offset in its IL, of a caller that of the call; -1: not known
	Next     int32  // with an IL: the code belongs to the IL from there up to here
	Nearest  bool   // the instruction itself belongs to no IL offset: IL is the nearest one before
	Line     int32  // index in Recording.Lines; 0: not known
	Inlined  bool   // the method has no frame of its own: its code is part of that of its nearest caller that has one
	Library  int32  // of native code: index in Recording.Libraries; 0: not known
	Address  uint64 // with a Library: where in it, from its link-time address 0; of a caller within the call
}

// Node is one frame of all stacks that have the same callers up to it.
type Node struct {
	Parent   int32 // the caller: index in Recording.Nodes, less than the node's own; -1 for the root
	Location int32 // index in Recording.Locations; -1 for the root, which is no frame
}

// ModeStats are statistics of how one mode of a recording was sampled: the rate,
// the number of samples, and how many are lost or flawed.
type ModeStats struct {
	Mode Mode
	// Rate is the sampling rate that was asked for, in samples a second: of CPU
	// time in mode CPU, for each thread in mode Wall. 0 in event modes.
	Rate float64
	// Got is the rate that a thread got on average, where the limit of clrsnap's
	// own CPU time allowed less than Rate. 0: it got Rate.
	Got float64
	// Source is where the stacks of running threads come from. Empty in event
	// modes, and if it is not known.
	Source Source
	// Samples is how many samples were taken; in event modes, how many events the
	// recording has as samples.
	Samples int
	// Lost is how many samples are missing, because the kernel's buffer was full or
	// the thread could not be captured; in event modes, how many events were
	// dropped.
	Lost int
	// Missed is about how often the kernel's timer of a CPU was so late that its turn
	// for a sample passed, as happens where other machines take CPUs away; whatever ran
	// there meanwhile. Known if Source is FromProcessors; else 0.
	Missed   int
	Late     int    // samples that were taken, or processed by clrsnap, later than they were due
	Broken   int    // of Samples: the stack is incomplete, or missing
	Repaired int    // of Samples: the stack was incomplete, and completed with memory that was read later
	Pauses   Pauses // how long stops kept threads from running
	Released int    // stops that the watchdog ended; they gave no stack
	// Seen is how many events happened, sampled or not, as far as is known. 0 in
	// the other modes, and if it is not known.
	Seen int64
	// Rethrown is how often exceptions were thrown again, in mode Exception: by await,
	// ExceptionDispatchInfo.Throw, "throw;", and "throw e;" in a handler. Neither Samples nor
	// Seen has these. 0 in recordings of earlier versions, in which most of them are samples.
	Rethrown int64
	// Every says which events became samples, in Mode.Unit: one for so many bytes,
	// one of so many exceptions, or waits of at least so many nanoseconds. 0: each
	// event, or not an event mode.
	Every int64
}

// Source is how running threads were sampled. Sources differ in what they cost.
type Source string

// The sources, the cheapest one first.
const (
	FromProcessors    Source = "processors-filtered" // the kernel sampled each CPU, and dropped other programs
	FromAllProcessors Source = "processors"          // the kernel sampled each CPU; clrsnap dropped other programs
	FromThreads       Source = "threads"             // the kernel sampled each thread
	FromStops         Source = "stops"               // clrsnap stopped each thread
)

// SourceNamed returns the source with this name; empty if there is none.
func SourceNamed(name string) Source {
	switch s := Source(name); s {
	case FromProcessors, FromAllProcessors, FromThreads, FromStops:
		return s
	}
	return ""
}

// Messages are how often exceptions had which message. Those of a type that computes its message are what the
// exception was constructed with. The zero value says that none are known.
type Messages struct {
	Counts []MessageCount // the most frequent first
	Others int64          // exceptions whose message is not in Counts, because there were too many different ones
}

// MessageCount is how often exceptions of a type had a message.
type MessageCount struct {
	Type, Module string // Function.Display and Function.Module of the type
	Text         string // as the program gave it, with any characters; may be empty
	Cut          bool   // Text is only the beginning of the message
	Count        int64  // exceptions
}

// Cost is what the recorded processes and clrsnap used during the recording.
type Cost struct {
	TargetCPU  time.Duration // CPU time of the recorded processes
	OwnCPU     time.Duration // CPU time of clrsnap
	OwnMemory  int64         // peak memory of clrsnap, in bytes
	Processors int           // CPUs that the machine has
}

// Stack yields the locations of a node's stack, leaf first.
func (r *Recording) Stack(node int32) iter.Seq[*Location] {
	return func(yield func(*Location) bool) {
		for n := node; n > 0; n = r.Nodes[n].Parent {
			if !yield(&r.Locations[r.Nodes[n].Location]) {
				return
			}
		}
	}
}

// Function returns the function of a node; nil for the root.
func (r *Recording) Function(node int32) *Function {
	if node <= 0 {
		return nil
	}
	return &r.Functions[r.Locations[r.Nodes[node].Location].Function]
}

// Mode returns the statistics of a mode; false: it was not sampled.
func (r *Recording) Mode(m Mode) (ModeStats, bool) {
	for _, s := range r.Modes {
		if s.Mode == m {
			return s, true
		}
	}
	return ModeStats{}, false
}

// SampledModes returns the modes that r has samples of, in the order of Modes.
func (r *Recording) SampledModes() []Mode {
	there := r.sampledModes()
	return there.list()
}

// RecordedModes returns the modes that r has samples or statistics of, in the order of Modes.
func (r *Recording) RecordedModes() []Mode {
	there := r.sampledModes()
	for i := range r.Modes {
		there[r.Modes[i].Mode] = true
	}
	return there.list()
}

// modeSet is a set of modes.
type modeSet [len(Modes)]bool

func (s *modeSet) list() []Mode {
	return slices.DeleteFunc(slices.Clone(Modes[:]), func(m Mode) bool { return !s[m] })
}

func (r *Recording) sampledModes() (s modeSet) {
	for i := range r.Samples {
		s[r.Samples[i].Mode] = true
	}
	return s
}

// Weight returns the sum of the weights of a mode's samples, in Mode.Unit.
func (r *Recording) Weight(m Mode) int64 {
	sum := int64(0)
	for i := range r.Samples {
		if r.Samples[i].Mode == m {
			sum += r.Samples[i].Weight
		}
	}
	return sum
}
