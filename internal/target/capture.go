package target

import (
	"time"

	"clrsnap/internal/arch"
)

// DefaultStackLimit bounds the bytes of stack that are copied when a request
// names no bound.
const DefaultStackLimit = 64 << 10

// MaxStackLimit is the largest bound that a request can name, and the largest
// further piece, in bytes.
const MaxStackLimit = 64 << 20

// Range is a piece of the target's memory.
type Range struct {
	Addr arch.Addr
	Len  int
}

// Request says what to copy of a thread.
type Request struct {
	TID int

	// The runtime's Thread object, which is copied during the same stop as the stack;
	// none if HeadLen is 0.
	Head    arch.Addr
	HeadLen int

	// The stack is copied from just below the stack pointer up to the end of
	// its mapping, or to StackEnd where that is set and nearer, but at most
	// StackLimit bytes (0: DefaultStackLimit).
	StackLimit int
	StackEnd   arch.Addr

	Extra []Range // further pieces, such as the ordinary stack below a signal stack

	// SlowPoll: the thread most likely waits for a CPU, so the tracer checks less often
	// whether it has stopped. That costs less, and makes the pause longer.
	SlowPoll bool

	// Proof is that of an earlier capture without a stop (Capture.Proof). live.Tracer.CaptureAll
	// does not stop the thread as long as it holds.
	Proof Proof
}

// Capture is the state of a thread at the moment that it stood still. A Capture that is
// used again reuses its memory: the slices are valid until then.
type Capture struct {
	TID     int
	Context arch.Context // every integer register; after live.Process.TryBlocked only IP, SP and those of SyscallArgs
	Stack   Stack        // Extra has the pieces asked for, as far as they could be read
	Head    []byte

	// Pause is an upper bound on how long the thread stood still for us: from
	// just before PTRACE_INTERRUPT, or from the last look that found it not
	// stopped yet if that took longer than a short sleep, until just after
	// PTRACE_DETACH; stops in between for a signal that was passed on are added.
	// After live.Tracer.CaptureAll they all end at the same time. 0 where !Stopped.
	Pause   time.Duration
	Stopped bool // false: nothing was stopped
	Ready   bool // it was not stopped, and waited for a CPU

	// Proof shows that the thread was on no CPU (live.Process.TryBlocked and Look), or still was
	// (live.Tracer.CaptureAll).
	Proof Proof

	// Waited is how long the thread was known not to have stopped yet. 0: it stopped within
	// some 40 µs. A thread that is on a CPU does so, where it next leaves the kernel. A thread
	// that waits for a CPU stops exactly where it was.
	Waited time.Duration

	SyscallNr   int64 // the system call that the thread is in; -1: none
	SyscallArgs [6]uint64

	Truncated  bool // StackLimit left out the upper part of the stack
	SPUnmapped bool // the stack pointer was in no known mapping; call Mappings

	Buffers Buffers // of whoever captures: what the other fields point into
}

// Busy reports whether the thread had something to do: it has most likely run since.
func (c *Capture) Busy() bool { return c.Stopped || c.Ready }

// Buffers is the memory of a Capture, which the next capture uses again.
type Buffers struct {
	Stack, Head []byte
	Extra       [][]byte
}

// A Proof shows that a thread was on no CPU: the line of its schedstat at that time, which
// changes as soon as the thread runs again.
type Proof string
