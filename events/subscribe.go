package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"clrsnap"
	"clrsnap/internal/agent"
	"clrsnap/internal/arch"
	"clrsnap/internal/link"
	"clrsnap/internal/session"
)

// ErrNoWaits is wrapped by the error about MonitorWaits for a process with a runtime older than .NET
// 9. With MonitorAll, or for a started program, there is no error: waits are not reported then.
var ErrNoWaits = link.ErrNoWaits

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
	s := root.Session(p)
	if err := s.Runs(); err != nil {
		return nil, err
	}
	if s.Runtime == nil {
		return nil, root.Publish(s.NoRuntimeError("notifications"))
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
	s := root.Session(p)
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
