package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"clrsnap"
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
	MonitorExceptions                      // ExceptionThrown, ExceptionRethrown, ExceptionCatcherEnter
	MonitorContention                      // LockContended
	MonitorThreads                         // ThreadStarting, ThreadCreated, ThreadDestroyed
	MonitorGC                              // GarbageCollection…, Runtime…
	MonitorWaits                           // ThreadWaited; .NET 9 and later
)

// MonitorAll is all notifications of the runtime.
const MonitorAll = MonitorWaits<<1 - 1

// ErrNoWaits is wrapped by the error about MonitorWaits for a process with a runtime older than .NET
// 9. With MonitorAll, or for a started program, there is no error: waits are not reported then.
var ErrNoWaits = link.ErrNoWaits

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

// Subscription is a stream of notifications. Neither the Subscription nor its clrsnap.Process is safe
// for concurrent use, and both share state: use both from one goroutine.
type Subscription struct {
	p     *clrsnap.Process
	s     *session.Process
	o     Options
	owned bool // opened by the subscription
	link  *link.Link
	queue []*agent.Record
	over  bool

	closed bool
	final  [agent.EventTypes]agent.Counts // when the subscription was closed
}

// Subscribe loads the agent into a running process, through the diagnostics socket of its runtime, and
// asks for notifications. The process need not be restarted, and nothing need be installed. The agent
// leaves the runtime at Close, and by itself if this process exits.
//
// It is an error if o makes no sense or has EveryObject, if p is a core dump or has no CoreCLR
// (CORPROF_E_RUNTIME_UNINITIALIZED), or if the agent cannot be loaded: the text says why and what to
// do. After an error, and after Close, p stays open.
func Subscribe(ctx context.Context, p *clrsnap.Process, o Options) (*Subscription, error) {
	s := bridge.Session(p)
	if err := s.Runs(); err != nil {
		return nil, err
	}
	if s.Runtime == nil {
		return nil, bridge.Publish(s.NoRuntimeError("notifications"))
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
	s.Announce = func(id arch.Addr) { l.SetWalkedThread(uint64(id)) }
	return &Subscription{p: p, s: s, o: o, link: l}
}

// SubscribeCommand starts cmd with the agent loaded, and asks for notifications from the start of its
// runtime. opts are for the process. The caller calls cmd.Wait. After an error the program runs,
// without the agent, if cmd.Process is set. If cmd starts the .NET program as another process, there
// is no subscription to that process: the error then says that no runtime has loaded the agent.
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

// openStarting opens a process with a runtime that is loaded, or is about to be.
func openStarting(ctx context.Context, pid int, opts clrsnap.Options) (*clrsnap.Process, error) {
	for {
		p, err := clrsnap.Open(ctx, pid, opts)
		if err == nil || session.Permanent(err) {
			return p, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Millisecond):
		}
	}
}

// Process returns the process that sends the notifications. After SubscribeCommand, Close closes it.
func (s *Subscription) Process() *clrsnap.Process { return s.p }

// Next waits for the next notification, and returns it. The notifications of one thread come in order.
// The error is io.EOF when the process has exited, or after Close; ctx.Err() when ctx has ended;
// another error if the agent's records make no sense. There is never a notification with an error.
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
			s.over = true // the records so far are the last
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

// Release resumes the thread of a Held notification. For other notifications it does nothing.
func (s *Subscription) Release(n *Notification) {
	if n.Held && !s.closed {
		s.link.Release(&n.record)
	}
}

// EventStats counts how often an event happened, since the subscription began.
type EventStats struct {
	Seen      uint64 // events that the runtime reported to the agent
	Published uint64 // events of Seen chosen and reported by the agent
	Dropped   uint64 // events of Seen chosen by the agent, without room for a record: the reader was too slow
	Failed    uint64 // events of Published for which the CLR did not walk the stack
}

// Stats returns the statistics of an event so far; after Close, the statistics of the whole
// subscription.
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

// Close ends the subscription and waits until the agent has left the runtime, usually for 0.3 s. It
// closes the Process if SubscribeCommand opened it. An error says that the agent could not be told to
// leave, or has not left in time; the program goes on all the same.
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

// Package record makes samples from notifications.
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
