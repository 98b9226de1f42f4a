package profile

import (
	"iter"
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
	Cost      Cost
	Notes     []string // sentences that a reader of the numbers has to know
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
}

// Kernel is the kind of frames inside the operating system's kernel. Only
// recordings have them.
const Kernel Kind = "kernel"

// Event is the kind of a function that is not code but names an event. It is the
// leaf of the event's stack. Its name is the type of the object that was allocated
// or of the exception (with its assembly as Module), the thread that held the lock,
// the thread that was started, or the garbage collection. Only recordings have such
// frames.
const Event Kind = "event"

// Origin says whose code a function is.
type Origin string

// The origins.
const (
	OfUser      Origin = "user"
	OfFramework Origin = "framework"
	OfNative    Origin = "native"
	OfKernel    Origin = "kernel"
	OfEvent     Origin = "event" // not code: a function of kind Event
)

// Origin returns whose code f is.
func (f *Function) Origin() Origin {
	switch {
	case f.Kind == Event:
		return OfEvent
	case f.Kind == Kernel:
		return OfKernel
	case f.Kind == Native:
		return OfNative
	case Framework(f.Module):
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
	Lost     int
	Late     int    // samples that were taken, or processed by clrsnap, later than they were due
	Broken   int    // of Samples: the stack is incomplete, or missing
	Repaired int    // of Samples: the stack was incomplete, and completed with memory that was read later
	Pauses   Pauses // how long stops kept threads from running
	Released int    // stops that the watchdog ended; they gave no stack
	// Seen is how many events happened, sampled or not, as far as is known. 0 in
	// the other modes, and if it is not known.
	Seen int64
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
