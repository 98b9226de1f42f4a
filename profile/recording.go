package profile

import (
	"iter"
	"strings"
	"time"
)

// Recording is what sampling brought: which stacks the threads of a program had,
// and for how long, over some time; and with which stacks certain events happened.
//
// Stacks form a tree, so that what they share is kept once. A sample names the
// node of its leaf; the way from there to the root is the stack.
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
	Notes     []string // what whoever reads the figures has to know, in sentences
}

// State is what a thread was doing when it was sampled.
type State uint8

// The states. Running includes being ready to run.
const (
	Running State = iota
	Waiting
)

func (s State) String() string { return [...]string{"running", "waiting"}[s&1] }

// Sample is one or several samples of one stack of one thread.
type Sample struct {
	At         time.Duration // since Recording.Start: the end of the time that it stands for; of several samples the first one's
	Weight     int64         // what it stands for, in Mode.Unit
	Events     int64         // how many events it stands for, in event modes: objects that were allocated (estimated), exceptions, waits, …
	Count      int32         // how many samples it is the sum of
	Thread     int32         // index in Recording.Threads
	Node       int32         // the leaf of its stack in Recording.Nodes
	Mode       Mode
	State      State
	Incomplete bool // frames near the base, or in between, are missing
}

// RecordedThread is a thread that was sampled. Many threads that have ended can
// share one.
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

// Event is the kind of what stands for a function at the leaf of an event's stack:
// what happened there. It is the type of the object that was allocated, or of the
// exception (with its assembly as Module); who holds the lock; which collection it
// was. Only recordings have such frames.
const Event Kind = "event"

// Origin tells whose code a function is.
type Origin string

// The origins.
const (
	OfUser      Origin = "user"
	OfFramework Origin = "framework"
	OfNative    Origin = "native"
	OfKernel    Origin = "kernel"
	OfEvent     Origin = "event" // it is no code, but what happened
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

// Framework reports whether an assembly is one of .NET's own. Dynamic methods
// have no assembly; most are the framework's.
func Framework(assembly string) bool {
	return assembly == "System" || strings.HasPrefix(assembly, "System.") || strings.HasPrefix(assembly, "Microsoft.") ||
		assembly == "mscorlib" || assembly == "netstandard" || assembly == ""
}

// Location is a place in a function.
type Location struct {
	Function int32  // index in Recording.Functions
	Offset   uint64 // bytes from the start of the function's code
	Tier     string // as in Frame
}

// Node is a frame of the stacks that go through it.
type Node struct {
	Parent   int32 // index in Recording.Nodes, less than the node's own: the caller; -1 for the root
	Location int32 // index in Recording.Locations; the root has none
}

// ModeStats says how well a mode was sampled.
type ModeStats struct {
	Mode     Mode
	Rate     float64 // samples a second that were asked for: of CPU time, or for each thread; 0: an event mode
	Got      float64 // what a thread got on average, where the budget was less; 0: as asked for
	Source   Source  // where the stacks of threads that run come from; empty: an event mode, or not known
	Samples  int     // taken; of an event mode: events that are in the recording
	Lost     int     // never seen: the kernel had no room, or a thread could not be captured; of an event mode: events that were dropped
	Late     int     // taken or understood later than they should have been
	Broken   int     // of Samples: the stack is incomplete, or missing
	Repaired int     // of Samples: the stack is complete with what was read later
	Pauses   Pauses  // stops of the threads
	Released int     // stops that a watchdog ended
	Seen     int64   // events that happened, as far as is known, with those that were not sampled; 0: not an event mode, or not known
	Every    int64   // of an event mode, in Mode.Unit: one sample for so many bytes, one of so many exceptions, no shorter waits than this; 0: each event
}

// Source is how threads that use a processor were sampled. What it costs them differs.
type Source string

// The sources, the cheapest one first.
const (
	FromProcessors    Source = "processors-filtered" // the kernel sampled each processor, and dropped what others did
	FromAllProcessors Source = "processors"          // the same, but clrsnap dropped what others did
	FromThreads       Source = "threads"             // the kernel sampled each thread
	FromStops         Source = "stops"               // clrsnap stopped each thread
)

// SourceNamed returns the source with a name; empty if there is none.
func SourceNamed(name string) Source {
	switch s := Source(name); s {
	case FromProcessors, FromAllProcessors, FromThreads, FromStops:
		return s
	}
	return ""
}

// Cost says what the recording cost, and what it was spent on.
type Cost struct {
	TargetCPU  time.Duration // CPU time that the recorded processes used meanwhile
	OwnCPU     time.Duration // that clrsnap used
	OwnMemory  int64         // most memory that clrsnap used, in bytes
	Processors int           // of the machine
}

// Stack yields the locations from a node to the base of its stack: leaf first.
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

// Mode returns the figures of a mode, and false if it was not sampled.
func (r *Recording) Mode(m Mode) (ModeStats, bool) {
	for _, s := range r.Modes {
		if s.Mode == m {
			return s, true
		}
	}
	return ModeStats{}, false
}

// Weight is the sum of the weights of a mode's samples, in the mode's unit.
func (r *Recording) Weight(m Mode) int64 {
	sum := int64(0)
	for i := range r.Samples {
		if r.Samples[i].Mode == m {
			sum += r.Samples[i].Weight
		}
	}
	return sum
}
