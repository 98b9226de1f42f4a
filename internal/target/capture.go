package target

import (
	"time"

	"clrsnap/internal/arch"
)

// DefaultStackLimit bounds the copied bytes of stack in a request without a bound.
const DefaultStackLimit = 64 << 10

// MaxStackLimit is the largest bound in a request, and the largest further piece, in bytes.
const MaxStackLimit = 64 << 20

// Range is a piece of the target's memory.
type Range struct {
	Addr arch.Addr
	Len  int
}

// Request says what to copy of a thread.
type Request struct {
	TID int

	// The runtime's Thread object, copied during the same stop as the stack; none if HeadLen is
	// 0.
	Head    arch.Addr
	HeadLen int

	// The stack is copied from just below the stack pointer up to the end of its mapping, or to
	// StackEnd where set and nearer, but at most StackLimit bytes (0: DefaultStackLimit).
	StackLimit int
	StackEnd   arch.Addr

	Extra []Range // further pieces, for example the ordinary stack below a signal stack

	// SlowPoll: the thread most likely waits for a CPU, so the tracer polls less often for the
	// stop. That costs less, and makes the pause longer.
	SlowPoll bool

	// Proof is the Capture.Proof of an earlier capture without a stop. live.Tracer.CaptureAll
	// does not stop the thread as long as Proof holds.
	Proof Proof
}

// Capture is the state of a thread at the moment when the thread stood still. A further capture
// into the same Capture reuses the memory: the slices are valid until then.
type Capture struct {
	TID     int
	Context arch.Context // all integer registers; after live.Process.TryBlocked only IP, SP and the SyscallArgs
	Stack   Stack        // Extra has the requested pieces, as far as readable
	Head    []byte

	// Pause is an upper bound on how long the thread stood still for us. It begins just before
	// PTRACE_INTERRUPT, or at the last look that found the thread not stopped yet if the stop
	// took longer than a short sleep. It ends just after PTRACE_DETACH. Earlier stops for a
	// signal that was passed on are added. After live.Tracer.CaptureAll all pauses end at the
	// same time. 0 where !Stopped.
	Pause   time.Duration
	Stopped bool // false: nothing was stopped
	Ready   bool // not stopped, and waited for a CPU

	// Proof shows that the thread was on no CPU (live.Process.TryBlocked and Look), or still was
	// on no CPU (live.Tracer.CaptureAll).
	Proof Proof

	// Waited is how long the thread was known not to have stopped yet. 0: the stop came within
	// some 40 µs. A thread on a CPU stops that fast, where it next leaves the kernel. A thread
	// that waits for a CPU stops exactly where it was.
	Waited time.Duration

	SyscallNr   int64 // number of the thread's current system call; -1: none
	SyscallArgs [6]uint64

	Truncated  bool // StackLimit left out the upper part of the stack
	SPUnmapped bool // the stack pointer was in no known mapping; call Mappings

	Buffers Buffers // the capturer's memory: what the other fields point into
}

// Busy reports whether the thread had work: it has most likely run since.
func (c *Capture) Busy() bool { return c.Stopped || c.Ready }

// Buffers is the memory of a Capture, for use by the next capture.
type Buffers struct {
	Stack, Head []byte
	Extra       [][]byte
}

// A Proof shows that a thread was on no CPU: the thread's schedstat line at that time, which
// changes as soon as the thread runs again.
type Proof string
