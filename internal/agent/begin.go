package agent

import (
	"fmt"
	"time"
)

// The events that can be requested (agent/protocol.h, enum event_bits).
const (
	Allocations = 1 << iota
	Exceptions
	Contention
	Threads
	GC
	Waits // .NET 9 and later: see BeginResult.Events
)

// A Subscription says which events are wanted. Its zero value wants none.
type Subscription struct {
	Events      uint32 // Allocations and so on
	EveryObject bool   // every object, not the runtime's own samples; at start-up only
	Registers   bool   // frames have registers

	// on average, publish one allocation per AllocBytes; 0: all allocations that the runtime
	// reports
	AllocBytes     uint64
	ExceptionEvery uint64        // on average, publish one exception in so many; 0: all
	Contention     time.Duration // shorter waits for locks are not published
	Wait           time.Duration // shorter waits are not published
	MaxFrames      int           // of one stack; 0: 512, the most
	Messages       bool          // exceptions come with their messages
	Handles        int           // bounds the allocated objects that are followed at a time: see Record.Handle; 0: none
	RingBytes      int           // of memory for records, a power of two; 0: 4 MB

	ExceptionOffsets ExceptionOffsets // if known already: see Conn.SetExceptionOffsets
	Owners           Owners           // likewise: see Conn.SetOwners

	// For tests: bounds the wait of a thread with a recorded stack for Conn.Release, one thread
	// at a time. 0: no thread waits.
	Hold time.Duration

	// Bounds the wait of an ending thread while Conn.SetWalkedThread says that the thread is
	// being walked. 0: the thread does not wait.
	DestroyWait time.Duration
}

// SamplingMean is the mean distance, in bytes, between the allocated bytes that the runtime's own
// sampling chooses (gcheaputilities.h, SamplingDistributionMean).
const SamplingMean = 100 << 10

// AllocMeans is the means of finding allocations (agent/protocol.h, enum alloc_means).
type AllocMeans uint32

// Means of finding allocations.
const (
	AllocNone AllocMeans = 0
	// AllocationSampled, .NET 10 and later: each byte with the same chance, 102,400 bytes apart on average.
	AllocSampled AllocMeans = 1
	AllocTick    AllocMeans = 2 // AllocationTick, before .NET 10: about every 102,400 bytes of a heap
	AllocObject  AllocMeans = 3 // ObjectAllocated, every object
)

// BeginResult is the agent's answer to a Subscription.
type BeginResult struct {
	Events       uint32 // the runtime's part of Subscription.Events
	AllocMeans   AllocMeans
	RuntimeMajor int // version of the runtime
}

const (
	maxFrames    = 512 // MAX_FRAMES_LIMIT
	defaultRing  = 4 << 20
	beginTimeout = 15 * time.Second // the runtime may be in a garbage collection
)

// Flags of a request (enum begin_flags).
const (
	beginEveryObject = 1 << iota
	beginRegisters
	beginHold
	beginMessages
	beginHandles
)

// struct begin_request
type beginRequest struct {
	Events, Flags                                    uint32
	AllocBytes, ExceptionEvery, ContentionNS, WaitNS uint64
	MaxFrames, HoldMS, DestroyMS, Handles            uint32
}

// struct begin_reply
type beginReply struct {
	Result, Step, Events, AllocMeans, RuntimeMajor, _ uint32
}

func (s *Subscription) request() beginRequest {
	r := beginRequest{
		Events:         s.Events,
		AllocBytes:     max(s.AllocBytes, 1),
		ExceptionEvery: max(s.ExceptionEvery, 1),
		ContentionNS:   uint64(max(s.Contention, 0)),
		WaitNS:         uint64(max(s.Wait, 0)),
		MaxFrames:      uint32(s.MaxFrames),
		HoldMS:         uint32(s.Hold.Milliseconds()),
		DestroyMS:      uint32(s.DestroyWait.Milliseconds()),
		Handles:        uint32(s.Handles),
	}
	if s.MaxFrames == 0 {
		r.MaxFrames = maxFrames
	}
	if s.EveryObject {
		r.Flags |= beginEveryObject
	}
	if s.Registers {
		r.Flags |= beginRegisters
	}
	if s.Messages {
		r.Flags |= beginMessages
	}
	if s.Hold > 0 {
		r.Flags |= beginHold
	}
	if s.Handles > 0 {
		r.Flags |= beginHandles
	}
	return r
}

// A BeginError is an agent's answer that it cannot fulfil the request. The agent is detached, or
// about to be.
type BeginError struct {
	Step    uint32 // enum begin_step
	HRESULT uint32
}

func (e *BeginError) Error() string {
	what := fmt.Sprintf("step %d", e.Step)
	if e.Step < uint32(len(beginSteps)) {
		what = beginSteps[e.Step]
	}
	return fmt.Sprintf("the agent cannot begin: %s (HRESULT 0x%08x)", what, e.HRESULT)
}

var beginSteps = []string{
	"it gives no reason",
	"it does not support the request; every object can be reported only from a program's start on",
	"it cannot use the memory for its records",
	"the runtime is too old",
	"the runtime refuses these notifications",
	"the runtime cannot start an EventPipe session",
}

// Begin requests events. From now on, Drain returns them.
func (c *Conn) Begin(s Subscription) (BeginResult, error) {
	fd := -1
	if s.Events != 0 {
		r, memory, err := newRing(s.RingBytes)
		if err != nil {
			return BeginResult{}, err
		}
		defer memory.Close()
		r.setExceptionOffsets(s.ExceptionOffsets)
		r.setOwners(s.Owners)
		c.ring, fd = r, int(memory.Fd())
	}
	request := s.request()
	if err := c.send(msgBegin, &request, fd); err != nil {
		return BeginResult{}, c.refusal(err)
	}
	var reply beginReply
	if err := c.receive(msgBegun, &reply, beginTimeout); err != nil {
		return BeginResult{}, c.refusal(fmt.Errorf("the agent did not begin: %w", err))
	}
	if reply.Result != 0 {
		return BeginResult{}, &BeginError{Step: reply.Step, HRESULT: reply.Result}
	}
	if c.attached != nil {
		if err := <-c.attached; err != nil {
			return BeginResult{}, err
		}
	}
	return BeginResult{
		Events: reply.Events, AllocMeans: AllocMeans(reply.AllocMeans), RuntimeMajor: int(reply.RuntimeMajor),
	}, nil
}

// refusal returns the runtime's refusal of the load request, if any, else err.
func (c *Conn) refusal(err error) error {
	select {
	case refused := <-c.attached:
		if refused != nil {
			return refused
		}
	default:
	}
	return err
}
