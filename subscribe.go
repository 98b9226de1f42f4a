package clrsnap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"clrsnap/internal/agent"
)

// Monitor says which notifications are wanted.
type Monitor uint32

// The kinds of notifications.
const (
	MonitorAllocations Monitor = 1 << iota // ObjectAllocated
	MonitorExceptions                      // ExceptionThrown, ExceptionCatcherEnter
	MonitorContention                      // LockContended
	MonitorThreads                         // ThreadStarting, ThreadCreated, ThreadDestroyed
	MonitorGC                              // GarbageCollection…, Runtime…
)

// MonitorAll is all of them.
const MonitorAll = MonitorGC<<1 - 1

// SubscribeOptions say which notifications a subscription brings. Zero fields
// stand for good values.
type SubscribeOptions struct {
	// Monitor is which kinds of notifications are wanted.
	Monitor Monitor

	// AllocationBytes: of so many allocated bytes one is chosen, by chance, and the
	// object that it belongs to is reported: 512 KB if it is 0. The runtime itself
	// chooses one in 100 KB: less means that, except with EveryObject.
	AllocationBytes int64
	// EveryObject has the runtime report every object to the agent, which then
	// chooses: also those that are smaller than the runtime's own sampling can see,
	// at a price of 20 to 40 ns for each allocation of the program, for as long as
	// it runs. It is possible for programs that are started with the subscription,
	// not for running ones.
	EveryObject bool
	// ExceptionEvery: one exception in so many is reported; 0: each.
	ExceptionEvery int64
	// ContentionMin: shorter waits for a lock are not reported.
	ContentionMin time.Duration

	// MaxFrames bounds a stack; 0: 512, which is also the most.
	MaxFrames int
	// RegisterContext has the registers of each frame reported too.
	RegisterContext bool
	// Hold has the thread stand still in the notification, for so long at most,
	// until Release, so that it can be looked at from outside too. One thread at a
	// time is held; others go on. Only tests want the target to wait like that.
	Hold time.Duration

	// RingBytes is the size of the memory that records pass through, a power of two;
	// 0: 512 KB. What does not fit is dropped and counted; the target never waits.
	RingBytes int
}

// Bounds and defaults of SubscribeOptions.
const (
	DefaultAllocationBytes = 512 << 10
	MaxNotifiedFrames      = 512

	defaultRingBytes = 512 << 10
	minRingBytes     = 64 << 10
	maxRingBytes     = 64 << 20
	maxHold          = 10 * time.Second
)

func (o *SubscribeOptions) complete() error {
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
	case o.Monitor == 0 || o.Monitor&^MonitorAll != 0:
		return fmt.Errorf("SubscribeOptions.Monitor %#x: choose from MonitorAllocations, MonitorExceptions, MonitorContention, MonitorThreads and MonitorGC", uint32(o.Monitor))
	case o.AllocationBytes < 0:
		return fmt.Errorf("one allocation in %d bytes: give a positive number of bytes", o.AllocationBytes)
	case o.ExceptionEvery < 0:
		return fmt.Errorf("one exception in %d: give a positive number", o.ExceptionEvery)
	case o.ContentionMin < 0:
		return fmt.Errorf("waits of at least %v: give a positive time, or 0 for all", o.ContentionMin)
	case o.MaxFrames < 0 || o.MaxFrames > MaxNotifiedFrames:
		return fmt.Errorf("stacks of %d frames: give a number between 1 and %d", o.MaxFrames, MaxNotifiedFrames)
	case o.RingBytes < minRingBytes || o.RingBytes > maxRingBytes || o.RingBytes&(o.RingBytes-1) != 0:
		return fmt.Errorf("a ring of %d bytes: give a power of two between %d and %d", o.RingBytes, minRingBytes, maxRingBytes)
	case o.RingBytes < o.leastRing():
		return fmt.Errorf("a ring of %d bytes has no room for two stacks of %d frames: give %d, or fewer MaxFrames", o.RingBytes, o.MaxFrames, 2*o.RingBytes)
	case o.Hold < 0 || o.Hold > maxHold:
		return fmt.Errorf("threads that are held for %v: give a time of at most %v", o.Hold, maxHold)
	}
	return nil
}

// leastRing is how large a ring must be: one record of the largest kind has a place
// in it then, wherever the last one ends (agent/ring.c).
func (o *SubscribeOptions) leastRing() int {
	const record, frame, frameWithRegisters = 64 + 2*256, 16, 80
	if o.RegisterContext {
		return 2 * (record + o.MaxFrames*frameWithRegisters)
	}
	return 2 * (record + o.MaxFrames*frame)
}

// request is what the agent is asked for.
func (o *SubscribeOptions) request(maxPause time.Duration) agent.Subscription {
	return agent.Subscription{
		Events: uint32(o.Monitor), EveryObject: o.EveryObject, Registers: o.RegisterContext,
		AllocBytes: uint64(o.AllocationBytes), ExceptionEvery: uint64(o.ExceptionEvery), Contention: o.ContentionMin,
		MaxFrames: o.MaxFrames, Hold: o.Hold, DestroyWait: maxPause, RingBytes: o.RingBytes,
	}
}

// Subscription is a stream of notifications. Like its Process it is not safe for
// concurrent use.
type Subscription struct {
	p     *Process
	owned bool // opened by the subscription
	link  *agentLink
	queue []*agent.Record
	over  bool

	closed bool
	final  [len(eventNames)]agent.Counts // when it was closed
}

// Subscribe loads the agent into the process, over the diagnostics socket of its
// runtime, and asks for notifications. It needs neither a restart nor anything
// installed; the agent is gone again after Close, and goes by itself if this
// process dies. EveryObject cannot be had like that.
func (p *Process) Subscribe(ctx context.Context, o SubscribeOptions) (*Subscription, error) {
	if err := p.runs(); err != nil {
		return nil, err
	}
	if p.rt == nil {
		return nil, p.noRuntime()
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	link, err := attachAgent(ctx, p, o)
	if err != nil {
		return nil, err
	}
	return newSubscription(p, link), nil
}

func newSubscription(p *Process, link *agentLink) *Subscription {
	p.link = link
	return &Subscription{p: p, link: link}
}

// SubscribeCommand starts cmd with the agent in it and asks for notifications
// from the start of its runtime. Waiting for cmd remains with the caller, also after
// an error if cmd.Process is set: the program runs then, without the agent. If cmd
// starts the .NET program as another process, that one is not subscribed to.
func SubscribeCommand(ctx context.Context, cmd *exec.Cmd, opts Options, o SubscribeOptions) (*Subscription, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	l, err := launchWithAgent(cmd, o, opts)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the program: %w", err)
	}
	link, err := l.await(ctx, cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	p, err := openStarting(ctx, cmd.Process.Pid, opts)
	if err != nil {
		link.detach()
		return nil, err
	}
	s := newSubscription(p, link)
	s.owned = true
	return s, nil
}

// openStarting opens a process whose runtime is there, or will be in a moment.
func openStarting(ctx context.Context, pid int, opts Options) (*Process, error) {
	for {
		p, err := OpenWith(pid, opts)
		if err == nil || final(err) {
			return p, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Millisecond):
		}
	}
}

// Process returns the process that the notifications are of.
func (s *Subscription) Process() *Process { return s.p }

// Next returns the next notification; it waits until there is one. The error is
// io.EOF when the process has ended, and that of ctx when ctx has. The
// notifications of one thread come in their order.
func (s *Subscription) Next(ctx context.Context) (*Notification, error) {
	for len(s.queue) == 0 {
		if s.over {
			return nil, io.EOF
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.link.arrived:
		case <-s.link.ended:
			s.over = true // what is there now is the last
		}
		var err error
		if s.queue, err = s.link.records(s.p); err != nil && len(s.queue) == 0 {
			s.over = true
			return nil, err
		}
		s.p.eng.Begin()
	}
	r := s.queue[0]
	s.queue = s.queue[1:]
	f := s.link.notifier(s.p)
	n := f.notification(r)
	return &n, nil
}

// Release lets the thread of a notification go that is Held.
func (s *Subscription) Release(n *Notification) {
	if n.Held && !s.closed {
		s.link.conn.Release(&n.record)
	}
}

// EventStats are how many notifications of an event there were.
type EventStats struct {
	Seen      uint64 // events that the agent was told of
	Published uint64 // that it chose, and reported
	Dropped   uint64 // that it chose, but had no room for: the reader was too slow
	Failed    uint64 // of Published: the CLR did not walk the stack
}

// Stats returns the figures of an event so far.
func (s *Subscription) Stats(e Event) EventStats {
	all := s.final
	if !s.closed {
		all = s.link.conn.Stats()
	}
	if int(e) >= len(all) {
		return EventStats{}
	}
	return EventStats(all[e])
}

// Close ends the subscription, waits until the agent has left the runtime, and
// closes the Process if it was opened by SubscribeCommand.
func (s *Subscription) Close() error {
	if s.closed {
		return nil
	}
	s.over, s.queue, s.p.link, s.closed = true, nil, nil, true
	_, err := s.link.stop()
	s.final = s.link.conn.Stats()
	err = errors.Join(err, s.link.close())
	if s.owned {
		err = errors.Join(err, s.p.Close())
	}
	return err
}
