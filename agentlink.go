package clrsnap

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/inject"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

// agentLink is the connection to the agent in a process, by which its
// notifications come. A goroutine of its own takes them out of the ring, which is
// small, because it is in the target's memory.
type agentLink struct {
	conn  *agent.Conn
	begun agent.Begun
	o     SubscribeOptions
	told  bool // the agent knows where exceptions are

	mu      sync.Mutex
	waiting []*agent.Record // taken out of the ring
	frames  int             // of those
	err     error           // why nothing more is taken
	arrived chan struct{}   // has something if waiting has
	once    sync.Once       // for quit
	quit    chan struct{}   // closed when nothing more is wanted
	ended   chan struct{}   // closed when nothing more will come

	pace   pace        // of pump
	slowed atomic.Bool // it has taken all that it may: there was more
}

// maxWaitingFrames bounds what is taken out of the ring and not used yet: 80 bytes
// for each frame, 40 MB. Beyond that the ring fills up, and the agent drops and
// counts.
const (
	maxWaitingFrames = 1 << 19
	framesOfRecord   = 3 // what a record takes besides its frames
)

// How often the ring is looked at. It has room for a thousand records or so, and what
// wakes up less often costs less.
const (
	pollSoon = time.Millisecond // after there was much in it
	pollLate = 8 * time.Millisecond
	many     = 64 // records
)

// Shares of a processor that go into what one process reports, at most: a hostile one can
// report as fast as it can write. What is not taken in time the agent drops and counts.
// pumpShare is for taking records out of the ring: 200,000 a second, at 1 µs. readShare is
// for making samples of them: 60,000 to 200,000 a second, at 3 to 10 µs.
const (
	pumpShare = 0.2
	readShare = 0.6

	paceEvery = 64 // records, after which it is looked how much has been used
)

// attachAgent loads the agent into a running process and subscribes.
func attachAgent(ctx context.Context, p *Process, o SubscribeOptions) (*agentLink, error) {
	if o.EveryObject {
		return nil, errors.New("the runtime reports every object only to a profiler that is there from the start: start the program with the subscription, or do without SubscribeOptions.EveryObject")
	}
	a, err := inject.Attach(ctx, p.live.Dir())
	if err != nil {
		return nil, err
	}
	return newAgentLink(a, o, p.opts)
}

// newAgentLink subscribes with an agent that has connected.
func newAgentLink(a *inject.Agent, o SubscribeOptions, opts Options) (*agentLink, error) {
	conn, err := agent.NewConn(a.Conn)
	if err != nil {
		return nil, err
	}
	begun, err := conn.Begin(o.request(cmp.Or(opts.MaxPause, live.DefaultWatchdog)))
	if err != nil {
		conn.Close() // or the runtime waits for its answer to come
	}
	if refusal := a.Loaded(); refusal != nil {
		conn.Close()
		return nil, refusal // which says more than err
	}
	if err != nil {
		return nil, err
	}
	l := &agentLink{conn: conn, begun: begun, o: o, pace: pace{share: pumpShare, used: live.ThreadCPU}, arrived: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
	go live.Urgently(l.pump)
	return l, nil
}

// pump takes records out of the ring until the agent is gone and nothing is left.
func (l *agentLink) pump() {
	defer close(l.ended)
	wait, done := pollSoon, l.conn.Done()
	for gone := false; ; {
		select {
		case <-l.quit:
			return
		case <-done:
			gone, done = true, nil // what is in the ring is the last
		case <-time.After(wait):
		}
		n, full, err := l.take()
		if err != nil || gone && !full {
			return
		}
		if wait = min(2*wait, pollLate); n >= many {
			wait = pollSoon
		}
	}
}

// take takes what there is room and time for out of the ring; full: there was not for all.
func (l *agentLink) take() (n int, full bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.frames > maxWaitingFrames {
		return 0, l.err == nil, l.err
	}
	l.pace.begin(live.Monotonic())
	defer l.pace.end()
	if l.pace.spent() {
		l.slowed.Store(true)
		return 0, true, nil
	}
	err = l.conn.Drain(func(r *agent.Record) error {
		l.waiting = append(l.waiting, r)
		l.frames += len(r.Frames) + framesOfRecord
		if n++; l.frames > maxWaitingFrames || n%paceEvery == 0 && l.pace.spent() {
			return errFull
		}
		return nil
	})
	if full = errors.Is(err, errFull); full {
		err = nil
	}
	if l.err = err; n > 0 {
		select {
		case l.arrived <- struct{}{}:
		default:
		}
	}
	return n, full, err
}

var errFull = errors.New("full")

// gone reports whether nothing more will come than what waits to be drained.
func (l *agentLink) gone() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// records hands over what has come.
func (l *agentLink) records(p *Process) ([]*agent.Record, error) {
	if !l.told {
		l.told = true
		l.conn.Thrown(p.rt.Threads.Thrown())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.waiting
	l.waiting, l.frames = nil, 0
	return out, l.err
}

func (l *agentLink) notifier(p *Process) notifier { return notifier{p, l.o, l.begun.AllocMeans} }

// linkStats are the figures of one mode.
type linkStats struct {
	seen, lost int64
}

// eventsOf are the events that samples of a mode are made of; the first one is that
// which is counted as seen.
var eventsOf = map[profile.Mode][]Event{
	profile.Alloc:       {ObjectAllocated},
	profile.Exception:   {ExceptionThrown, ExceptionCatcherEnter},
	profile.Contention:  {LockContended},
	profile.ThreadStart: {ThreadStarting},
	profile.GC:          {RuntimeResumeFinished, RuntimeSuspendStarted, GarbageCollectionTriggered, GarbageCollectionStarted},
}

// stats are the figures of the event modes.
func (l *agentLink) stats() map[profile.Mode]linkStats {
	out := map[profile.Mode]linkStats{}
	all := l.conn.Stats()
	for mode, events := range eventsOf {
		s := linkStats{seen: int64(all[events[0]].Seen)}
		for _, e := range events {
			s.lost += int64(all[e].Dropped)
		}
		out[mode] = s
	}
	return out
}

// stop has the agent leave the runtime, and waits until it has: 0.3 s, as a rule.
// What it has reported can still be drained. died: it had gone by itself, as it does
// with its process.
func (l *agentLink) stop() (died bool, err error) {
	select {
	case <-l.conn.Done():
		died = true
	default:
	}
	if !l.gone() {
		if err = l.conn.Detach(); err != nil && l.hungUp() {
			died, err = true, nil
		}
	}
	if err == nil {
		l.last()
	}
	return died, err
}

// last waits until what an agent that has left has reported is taken out of the ring.
// A child of the target's may hold the connection open; that is not waited for.
func (l *agentLink) last() {
	select {
	case <-l.ended:
	case <-time.After(lastPatience):
		l.end()
		l.take()
	}
}

const lastPatience = time.Second

// end ends the pump.
func (l *agentLink) end() {
	l.once.Do(func() { close(l.quit) })
	<-l.ended
}

// hungUp reports whether the agent has hung up: what has just been written to it may
// say so before what is read does.
func (l *agentLink) hungUp() bool {
	select {
	case <-l.conn.Done():
		return true
	case <-time.After(time.Second):
		return false
	}
}

// close hangs up. The agent leaves, if it has not left yet.
func (l *agentLink) close() error {
	l.end()
	return l.conn.Close()
}

// detach is stop and close.
func (l *agentLink) detach() error {
	_, err := l.stop()
	return errors.Join(err, l.close())
}
