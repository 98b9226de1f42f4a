package events

import (
	"clrsnap"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/arch"
	"clrsnap/internal/bridge"
	"clrsnap/internal/link"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
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

// Options say which notifications a subscription brings. Zero fields
// stand for good values.
type Options struct {
	// Monitor is which kinds of notifications are wanted; 0: all of them.
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

// Bounds and defaults of Options.
const (
	DefaultAllocationBytes = 512 << 10
	MaxNotifiedFrames      = 512

	defaultRingBytes = 512 << 10
	minRingBytes     = 64 << 10
	maxRingBytes     = 64 << 20
	maxHold          = 10 * time.Second
)

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
		return fmt.Errorf("events.Options.Monitor %#x: choose from MonitorAllocations, MonitorExceptions, MonitorContention, MonitorThreads and MonitorGC", uint32(o.Monitor))
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

// attachable returns why what is wanted cannot be had of a program that runs already.
func (o *Options) attachable() error {
	if o.EveryObject {
		return errors.New("the runtime reports every object only to a profiler that is there from the start: " +
			"start the program with the subscription, or do without Options.EveryObject")
	}
	return nil
}

// leastRing is how large a ring must be: one record of the largest kind has a place
// in it then, wherever the last one ends (agent/ring.c).
func (o *Options) leastRing() int {
	const record, frame, frameWithRegisters = 64 + 2*256, 16, 80
	if o.RegisterContext {
		return 2 * (record + o.MaxFrames*frameWithRegisters)
	}
	return 2 * (record + o.MaxFrames*frame)
}

// request is what the agent is asked for. maxPause is clrsnap.Options.MaxPause.
func (o *Options) request(maxPause time.Duration) agent.Subscription {
	return agent.Subscription{
		Events: uint32(o.Monitor), EveryObject: o.EveryObject, Registers: o.RegisterContext,
		AllocBytes: uint64(o.AllocationBytes), ExceptionEvery: uint64(o.ExceptionEvery), Contention: o.ContentionMin,
		MaxFrames: o.MaxFrames, Hold: o.Hold, DestroyWait: cmp.Or(maxPause, live.DefaultWatchdog), RingBytes: o.RingBytes,
	}
}

// Subscription is a stream of notifications. Like its Process it is not safe for
// concurrent use.
type Subscription struct {
	p     *clrsnap.Process
	s     *session.Process
	o     Options
	owned bool // opened by the subscription
	link  *link.Link
	queue []*agent.Record
	over  bool

	closed bool
	final  [agent.EventTypes]agent.Counts // when it was closed
}

// Subscribe loads the agent into the process, over the diagnostics socket of its
// runtime, and asks for notifications. It needs neither a restart nor anything
// installed; the agent leaves after Close, and by itself if this
// process dies. EveryObject is not possible like that.
func Subscribe(ctx context.Context, p *clrsnap.Process, o Options) (*Subscription, error) {
	s := bridge.Session(p)
	if err := s.Runs(); err != nil {
		return nil, err
	}
	if s.Runtime == nil {
		return nil, bridge.Publish(s.NoRuntimeError())
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := o.attachable(); err != nil {
		return nil, err
	}
	l, err := link.Attach(ctx, s, o.request(s.Options.MaxPause))
	if err != nil {
		return nil, err
	}
	return newSubscription(p, l, o), nil
}

func newSubscription(p *clrsnap.Process, l *link.Link, o Options) *Subscription {
	s := bridge.Session(p)
	s.Announce = func(id arch.Addr) { l.Walking(uint64(id)) }
	return &Subscription{p: p, s: s, o: o, link: l}
}

// SubscribeCommand starts cmd with the agent in it and asks for notifications
// from the start of its runtime. Waiting for cmd remains with the caller, also after
// an error if cmd.Process is set: the program runs then, without the agent. If cmd
// starts the .NET program as another process, that one is not subscribed to.
func SubscribeCommand(ctx context.Context, cmd *exec.Cmd, opts clrsnap.Options, o Options) (*Subscription, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	l, err := link.Launch(cmd, o.request(opts.MaxPause))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the program: %w", err)
	}
	agent, err := l.Await(ctx, cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	p, err := openStarting(ctx, cmd.Process.Pid, opts)
	if err != nil {
		agent.Detach()
		return nil, err
	}
	s := newSubscription(p, agent, o)
	s.owned = true
	return s, nil
}

// openStarting opens a process whose runtime is there, or will be in a moment.
func openStarting(ctx context.Context, pid int, opts clrsnap.Options) (*clrsnap.Process, error) {
	for {
		p, err := clrsnap.Open(ctx, pid, opts)
		if err == nil || session.Final(err) {
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
func (s *Subscription) Process() *clrsnap.Process { return s.p }

// Next returns the next notification; it waits until there is one. The error is
// io.EOF when the process has exited, and that of ctx when ctx has ended. The
// notifications of one thread come in their order.
func (s *Subscription) Next(ctx context.Context) (*Notification, error) {
	for len(s.queue) == 0 {
		if s.over {
			return nil, io.EOF
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.link.Arrived():
		case <-s.link.Ended():
			s.over = true // what is there now is the last
		}
		var err error
		if s.queue, err = s.link.Records(s.s); err != nil && len(s.queue) == 0 {
			s.over = true
			return nil, err
		}
		s.s.Engine.Begin()
	}
	r := s.queue[0]
	s.queue = s.queue[1:]
	return newNotification(s.s, &s.o, s.link.Begun.AllocMeans, r), nil
}

// Release lets the thread of a notification go that is Held.
func (s *Subscription) Release(n *Notification) {
	if n.Held && !s.closed {
		s.link.Release(&n.record)
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
		all = s.link.Counts()
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
	s.over, s.queue, s.s.Announce, s.closed = true, nil, nil, true
	_, err := s.link.Stop()
	s.final = s.link.Counts()
	err = errors.Join(err, s.link.Close())
	if s.owned {
		err = errors.Join(err, s.p.Close())
	}
	return err
}

// Package record makes samples of notifications.
func init() {
	bridge.EventOptions = func(options any) (any, error) {
		o := options.(Options)
		err := o.complete()
		return o, err
	}
	bridge.EventRequest = func(options any, maxPause time.Duration) agent.Subscription {
		o := options.(Options)
		return o.request(maxPause)
	}
	bridge.Attachable = func(options any) error {
		o := options.(Options)
		return o.attachable()
	}
	bridge.Notification = func(p *session.Process, options any, means agent.AllocMeans, r *agent.Record) any {
		return newNotification(p, options.(*Options), means, r)
	}
}
