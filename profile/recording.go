// Package profile is the data model of what clrsnap collects over some time.
//
// A [Recording] has samples of one process, or several. Each sample has a stack, a weight, and a [Mode]. The mode says
// what the weight measures: CPU time, wall-clock time, allocated bytes, and so on. [Findings] have the verdicts of
// package why.
//
// A collector builds a Recording with a [Builder]. [Recording.Select] takes a part of a recording, [Recording.Totals]
// sums a recording up by function and by thread, and [Compare] compares two recordings. Package report writes
// recordings for people; package export writes recordings for other tools, and reads them back.
//
// Package snapshot has the data model of one moment, and package profile uses its words: frames' kinds, waits, threads.
// Package profile knows no collector and no output format.
package profile

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"clrsnap/snapshot"
)

// Recording is the result of sampling one or several processes over some time, of
// recording their events, or of both.
//
// Stacks form a tree of nodes, so that common callers are stored once. A sample has the index of its leaf's
// node; the nodes from there to the root are the sample's stack.
type Recording struct {
	Version   string    // of clrsnap
	Start     time.Time // when sampling began
	Duration  time.Duration
	Processes []snapshot.Process // the requested process, then its children as far as recorded
	Threads   []RecordedThread
	Functions []Function
	Locations []Location
	Nodes     []Node // [0] is the root
	Samples   []Sample
	Modes     []ModeStats // of each sampled mode
	Holds     []Hold      // looks at threads that held locks, in the order of At; at most MaxHolds
	// Where the locations are in the program's source text, as far as known: see Assembly.
	Assemblies []Assembly
	Libraries  []Library
	Methods    []Method
	Sites      []CallSite // in the order of Method and IL; at most MaxSites
	Files      []SourceFile
	Lines      []Line
	Cost       Cost
	Messages   Messages // of the exceptions
	Notes      []string // sentences that a reader of the numbers must know
}

// State is what a thread was doing at a sample.
type State uint8

// The states. Running includes being ready to run.
const (
	Running State = iota
	Waiting
)

func (s State) String() string { return [...]string{"running", "waiting"}[s&1] }

// Sample is one sample of a thread, or the sum of several with equal stacks.
type Sample struct {
	// At is when the sample was taken, since Recording.Start. A weight that is a time ends then. For a sum, At
	// is the time of the first sample.
	At     time.Duration
	Weight int64 // the time, bytes or count that the sample stands for, in Mode.Unit
	// Events is how many events the sample stands for: objects that were allocated
	// (an estimate), exceptions, waits, … 0 unless Mode is an event mode.
	Events     int64
	Count      int32 // how many samples are summed up
	Thread     int32 // index in Recording.Threads
	Node       int32 // the leaf of the stack: index in Recording.Nodes; 0: the stack is empty
	Mode       Mode
	State      State
	Incomplete bool // frames near the base, or in between, are missing
}

// Hold is a look at a thread while the thread held a lock that others waited for. If there was a look during a
// wait of mode Contention, the wait's leaf has the holder's method.
type Hold struct {
	At         time.Duration // since Recording.Start
	Waited     time.Duration // how long Waiter had waited by then
	Lock       int32         // index in Recording.Functions: the event that calls the leaf of the lock's waits
	Holder     int32         // likewise: the event that names the holder's method, as in a leaf of waits
	Waiter     int32         // index in Recording.Threads: one of the waiters
	Thread     int32         // likewise: the holder of the lock
	Node       int32         // the leaf of the holder's stack: index in Recording.Nodes
	Incomplete bool          // frames of the stack are missing
}

// MaxHolds bounds Recording.Holds.
const MaxHolds = 1 << 16

// RecordedThread is a sampled thread. Threads that have ended can share a RecordedThread.
type RecordedThread struct {
	Process         int32 // index in Recording.Processes
	OSThreadID      int   // 0: several threads that have ended
	ManagedThreadID int   // 0: a native thread, or several
	Name, Role      string
}

// Function is a method, a native function, a module whose symbols are missing, or
// an event.
type Function struct {
	Kind      snapshot.Kind
	Method    string // exact metadata name, or the native symbol; empty if there is none
	Display   string // the name for people, without parameters
	Short     string // Display without namespaces
	Signature string // parameter types in parentheses
	Module    string // assembly or native module, without its folder

	// Fate says how an exception ended, in an Event of mode Exception: CaughtBy and the display name of the
	// method that caught the exception last, perhaps with LikelyCatcher, or other words. Fate is empty in
	// other modes, and in recordings of earlier versions, where Display and Short have the fate.
	Fate string
	// Owner is whose Module is, if Module is an assembly and Framework does not say so already. Only a running
	// process, or its files, tell. Empty: Framework says so.
	Owner snapshot.Origin
}

// CaughtBy precedes the name of a method in Function.Fate.
const CaughtBy = "caught by "

// UnseenThrow precedes the words about the end of an exception in Function.Fate, if the exception was thrown for the
// first time before the recording began, and was thrown again in the recording.
const UnseenThrow = "rethrown, first throw not seen, "

// Catcher is the method that has caught an exception, according to Function.Fate; false: not known.
func Catcher(fate string) (method string, ok bool) {
	return strings.CutPrefix(strings.TrimPrefix(fate, UnseenThrow), CaughtBy)
}

// LikelyCatcher follows the name of a method in Function.Fate if another method can have caught the exception.
const LikelyCatcher = "?"

// Names for code that can be unloaded. A function with either name has no Method.
const (
	UnloadedCode = "[unloaded code]" // the code was gone before clrsnap read the name
	UnknownCode  = "[unknown code]"  // the name cannot be read, or the named code may have replaced the sampled code
)

func (f *Function) code() snapshot.Code {
	return snapshot.Code{Kind: f.Kind, Module: f.Module, Method: f.Method}
}

// noCode reports whether f stands for something other than a method: a frame that ByWait puts before stacks,
// or a run of framework frames.
func (f *Function) noCode() bool {
	return f.Kind == snapshot.Managed && f.Method == "" && f.Module == "" && f.Owner == snapshot.OfFramework
}

// Origin returns whose code f is.
func (f *Function) Origin() snapshot.Origin { return snapshot.OriginOf(f.Kind, f.Module, f.Owner) }

// Location is a place in a function.
type Location struct {
	Function int32  // index in Recording.Functions
	Offset   uint64 // bytes from the start of the function's code
	Tier     string // as in Frame
	Method   int32  // index in Recording.Methods; 0: not known
	IL       int32  // with a Method: the offset in the method's IL, for a caller the offset of the call; -1: not known
	Next     int32  // with an IL: the code belongs to the offsets from IL up to Next
	Nearest  bool   // the instruction itself belongs to no IL offset: IL is the nearest before
	Line     int32  // index in Recording.Lines; 0: not known
	Inlined  bool   // the method has no frame of its own: its code is part of the nearest caller with a frame
	Library  int32  // of native code: index in Recording.Libraries; 0: not known
	Address  uint64 // with a Library: the address from the library's link-time address 0; for a caller within the call
}

// Node is one frame of all stacks with equal callers up to the frame.
type Node struct {
	Parent   int32 // the caller: index in Recording.Nodes, less than the node's own; -1 for the root
	Location int32 // index in Recording.Locations; -1 for the root, which is no frame
}

// ModeStats are statistics of how one mode of a recording was sampled: the rate,
// the number of samples, and how many are lost or flawed.
type ModeStats struct {
	Mode Mode
	// Rate is the requested sampling rate, in samples a second: of CPU time in mode CPU, for each thread in
	// mode Wall. 0 in event modes.
	Rate float64
	// Got is the average rate of a thread, where the limit of clrsnap's own CPU time allowed less than Rate.
	// 0: the rate was Rate.
	Got float64
	// Source is where the stacks of running threads come from. Empty in event modes, and if not known.
	Source Source
	// Samples is how many samples were taken; in event modes, how many events the
	// recording has as samples.
	Samples int
	// Lost is how many samples are missing, because the kernel's buffer was full or the thread could not be
	// captured; in event modes, how many events were dropped.
	Lost int
	// Missed is about how often the kernel's timer of a CPU was so late that the turn for a sample passed, as
	// happens where other machines take CPUs away, whatever ran on the CPU meanwhile. Known if Source is
	// FromProcessors; else 0.
	Missed   int
	Late     int             // samples taken, or processed by clrsnap, too late
	Broken   int             // of Samples: the stack is incomplete, or missing
	Repaired int             // of Samples: the stack was incomplete, and completed with memory read later
	Pauses   snapshot.Pauses // how long stops kept threads from running
	Released int             // stops that the watchdog ended; these stops gave no stack
	// Seen is how many events happened, sampled or not, as far as known. 0 in the other modes, and if not
	// known.
	Seen int64
	// Rethrown is how often exceptions were thrown again, in mode Exception: by await,
	// ExceptionDispatchInfo.Throw, "throw;", and "throw e;" in a handler. Neither Samples nor Seen counts
	// these. 0 in recordings of earlier versions, where most of these are samples.
	Rethrown int64
	// Every says which events became samples, in Mode.Unit: one sample for so many bytes, one of so many
	// exceptions, or waits of at least so many nanoseconds. 0: each event, or not an event mode.
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

// SourceNamed returns the source with a name; empty if there is none.
func SourceNamed(name string) Source {
	switch s := Source(name); s {
	case FromProcessors, FromAllProcessors, FromThreads, FromStops:
		return s
	}
	return ""
}

// Messages count the exceptions by message. A type may compute its message; then the counted message is the
// argument of the exception's constructor. The zero value: no messages are known.
type Messages struct {
	Counts []MessageCount // the most frequent first
	Others int64          // exceptions with messages that Counts lacks, because there were too many different messages
}

// MessageCount is how often exceptions of a type had a message.
type MessageCount struct {
	Type, Module string // Function.Display and Function.Module of the type
	Text         string // as the program gave the text, with any characters; may be empty
	Cut          bool   // Text is only the beginning of the message
	Count        int64  // exceptions
}

// Cost is what the recorded processes and clrsnap used during the recording.
type Cost struct {
	TargetCPU  time.Duration // CPU time of the recorded processes
	OwnCPU     time.Duration // CPU time of clrsnap
	OwnMemory  int64         // peak memory of clrsnap, in bytes
	Processors int           // number of the machine's CPUs
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

// Mode returns the statistics of a mode; false: the mode was not sampled.
func (r *Recording) Mode(m Mode) (ModeStats, bool) {
	for _, s := range r.Modes {
		if s.Mode == m {
			return s, true
		}
	}
	return ModeStats{}, false
}

// SampledModes returns the modes with samples in r, in the order of Modes.
func (r *Recording) SampledModes() []Mode {
	there := r.sampledModes()
	return there.list()
}

// RecordedModes returns the modes with samples or statistics in r, in the order of Modes.
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

// FrameworkPart returns the part of .NET of f, for example "pool" or "Kestrel", if f is a framework frame; "" if not.
// Framework frames lead from a thread to the program's code.
func (f *Function) FrameworkPart() string {
	return snapshot.FrameworkPartOf(f.Kind, cmp.Or(f.Method, f.Display), f.Origin())
}
