package events

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/target/live"
)

// Monitor says which notifications are wanted.
type Monitor uint32

// The kinds of notifications.
const (
	MonitorAllocations Monitor = 1 << iota // ObjectAllocated
	MonitorExceptions                      // ExceptionThrown, ExceptionRethrown, ExceptionCatcherEnter
	MonitorContention                      // LockContended
	MonitorThreads                         // ThreadStarting, ThreadCreated, ThreadDestroyed
	MonitorGC                              // GarbageCollection…, Runtime…
	MonitorWaits                           // ThreadWaited; .NET 9 and later
)

// MonitorAll is all notifications of the runtime.
const MonitorAll = MonitorWaits<<1 - 1

// Options say which notifications a subscription delivers. The zero value asks for all, with the
// defaults given below.
type Options struct {
	// Monitor is which kinds of notifications are wanted; 0: all of them.
	Monitor Monitor

	// AllocationBytes is how many allocated bytes there are for each reported object, on average: one byte
	// in so many is chosen at random, and the object around the byte is reported. 0 stands for
	// DefaultAllocationBytes. Less than 100 KB means 100 KB, because the runtime itself samples at that
	// rate, except with EveryObject.
	AllocationBytes int64
	// EveryObject has the runtime report every object to the agent, and the agent chooses, instead of the
	// runtime's own sampling. AllocationBytes can then be less than 100 KB. EveryObject costs 20 to 40 ns
	// for each allocation of the program, for as long as the program runs. It works with SubscribeCommand
	// only.
	EveryObject bool
	// ExceptionEvery reports one exception in so many; 0 and 1: every exception.
	ExceptionEvery int64
	// NoMessages leaves the messages of exceptions in the target. Messages can contain secrets.
	NoMessages bool
	// ContentionMin is the shortest reported wait for a lock; 0: all waits are reported.
	ContentionMin time.Duration
	// WaitMin is the shortest wait reported as ThreadWaited; 0: all waits are reported, including waits of
	// the runtime's threads for work.
	WaitMin time.Duration

	// MaxFrames bounds the frames of a stack; 0: MaxNotifiedFrames, which is also the largest
	// value. Of a deeper stack the frames near the base are missing.
	MaxFrames int
	// RegisterContext reports the registers of each frame too.
	RegisterContext bool
	// Hold keeps the thread in its notification until Subscription.Release, for this time at most, for a
	// walk from outside. One thread at a time is held; others go on. Hold is for tests; 0: threads are not
	// held.
	Hold time.Duration

	// RingBytes is the size of the shared memory for records: a power of two from 64 KB to 64 MB; 0: 512
	// KB. Records that do not fit are dropped and counted (EventStats.Dropped); the target never waits.
	RingBytes int
}

func (o *Options) complete() error {
	if o.Monitor == 0 {
		o.Monitor = MonitorAll
	}
	if o.AllocationBytes == 0 {
		o.AllocationBytes = DefaultAllocationBytes
	}
	if o.ExceptionEvery == 0 {
		o.ExceptionEvery = 1
	}
	if o.MaxFrames == 0 {
		o.MaxFrames = MaxNotifiedFrames
	}
	if o.RingBytes == 0 {
		o.RingBytes = defaultRingBytes
	}
	switch {
	case o.Monitor&^MonitorAll != 0:
		return fmt.Errorf("events.Options.Monitor %#x: choose from MonitorAllocations, MonitorExceptions, "+
			"MonitorContention, MonitorThreads, MonitorGC and MonitorWaits", uint32(o.Monitor))
	case o.AllocationBytes < 0:
		return fmt.Errorf("one allocation in %d bytes: give a positive number of bytes", o.AllocationBytes)
	case o.ExceptionEvery < 0:
		return fmt.Errorf("one exception in %d: give a positive number", o.ExceptionEvery)
	case o.ContentionMin < 0:
		return fmt.Errorf("waits of at least %v: give a positive time, or 0 for all", o.ContentionMin)
	case o.WaitMin < 0:
		return fmt.Errorf("waits of at least %v: give a positive time, or 0 for all", o.WaitMin)
	case o.MaxFrames < 0 || o.MaxFrames > MaxNotifiedFrames:
		return fmt.Errorf("stacks of %d frames: give a number between 1 and %d", o.MaxFrames, MaxNotifiedFrames)
	case o.RingBytes < minRingBytes || o.RingBytes > maxRingBytes || o.RingBytes&(o.RingBytes-1) != 0:
		return fmt.Errorf("a ring of %d bytes: give a power of two between %d and %d",
			o.RingBytes, minRingBytes, maxRingBytes)
	case o.RingBytes < o.leastRing():
		return fmt.Errorf("a ring of %d bytes has no room for two stacks of %d frames: give %d, or fewer MaxFrames",
			o.RingBytes, o.MaxFrames, 2*o.RingBytes)
	case o.Hold < 0 || o.Hold > maxHold:
		return fmt.Errorf("threads that are held for %v: give a time of at most %v", o.Hold, maxHold)
	}
	return nil
}

// attachable returns an error if the options need a program started with the agent.
func (o *Options) attachable() error {
	if o.EveryObject {
		return errors.New("the runtime reports every object only to a profiler that is loaded at its start: " +
			"start the program with the subscription, or do without Options.EveryObject")
	}
	return nil
}

// leastRing is the smallest size of a ring, in bytes: room for one record of the largest kind,
// wherever the last record ends (agent/ring.c).
func (o *Options) leastRing() int {
	const record, frame, frameWithRegisters = 64 + 16 + 2*(256+256), 16, 80
	if o.RegisterContext {
		return 2 * (record + o.MaxFrames*frameWithRegisters)
	}
	return 2 * (record + o.MaxFrames*frame)
}

// request is the subscription for the agent. maxPause is clrsnap.Options.MaxPause.
func (o *Options) request(maxPause time.Duration) agent.Subscription {
	return agent.Subscription{
		Events: uint32(o.Monitor), EveryObject: o.EveryObject, Registers: o.RegisterContext, Messages: !o.NoMessages,
		AllocBytes: uint64(o.AllocationBytes), ExceptionEvery: uint64(o.ExceptionEvery), Contention: o.ContentionMin,
		Wait:      o.WaitMin,
		MaxFrames: o.MaxFrames, Hold: o.Hold, RingBytes: o.RingBytes,
		DestroyWait: cmp.Or(maxPause, live.DefaultWatchdog),
	}
}

// DefaultAllocationBytes and MaxNotifiedFrames stand for Options.AllocationBytes, in bytes, and
// Options.MaxFrames, if they are 0.
const (
	DefaultAllocationBytes = 512 << 10
	MaxNotifiedFrames      = 512

	defaultRingBytes = 512 << 10
	minRingBytes     = 64 << 10
	maxRingBytes     = 64 << 20
	maxHold          = 10 * time.Second
)
