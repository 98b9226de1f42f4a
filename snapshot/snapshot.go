// Package snapshot is the data model of one moment of a process.
//
// A [Snapshot] has the stacks of all threads, with what each [Thread] waits for and holds. [Snapshot.WaitGraph] says
// who waits for whom, and finds deadlocks. A [Heap] has the objects of the managed heap, [Tasks] the suspended async
// methods, [Requests] the requests that a web server is serving.
//
// Some knowledge of .NET's methods belongs to the model: [PrimitiveOf] tells a wait, and [Thread.Idle] an idle thread,
// by the methods on the stack; [Folds] finds the framework frames.
//
// Package profile has the data model of recordings, whose stacks are stored in another way. Package report writes
// snapshots for people. Package snapshot knows no process and no output format.
package snapshot

import "time"

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
	// Awaits and LikelyEdges are the likely wait edges, if they were asked for.
	Awaits      []Await
	LikelyEdges []LikelyEdge
	// PermitQueues are the queues of async methods for permits, the longest first, if likely wait edges were asked for.
	PermitQueues []PermitQueue
	// Lost are the permits without a likely holder for which others wait, if Lost was asked for, of all threads.
	Lost []Lost
	// Stop says how long all threads stood still, and whether everything is of one moment; nil: no stop was asked for.
	Stop *HeapStop
	// Unsearched is why Awaits and LikelyEdges may lack something; "": no known reason.
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
