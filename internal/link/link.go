// Package link is the connection to the agent in a process: it has the agent loaded, tells it
// what is wanted, and takes what it reports out of the ring that they share.
package link

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/inject"
	"clrsnap/internal/pace"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
)

// Link is the connection to the agent in a process, by which its
// notifications come. A goroutine of its own takes them out of the ring, which is
// small, because it is in the target's memory.
type Link struct {
	conn  *agent.Conn
	Begun agent.Begun // what the agent can do
	told  bool        // the agent knows where exceptions are

	mu      sync.Mutex
	waiting []*agent.Record // taken out of the ring
	frames  int             // of those
	err     error           // why nothing more is taken
	arrived chan struct{}   // has something if waiting has
	once    sync.Once       // for quit
	quit    chan struct{}   // closed when nothing more is wanted
	ended   chan struct{}   // closed when nothing more will come

	pace   pace.Pace   // of pump
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

// PumpShare is the share of a CPU that goes into taking records out of the ring, at most:
// 200,000 a second, at 1 µs. A hostile process can report as fast as it can write. What is
// not taken in time the agent drops and counts.
const PumpShare = 0.2

// PaceEvery is after how many records it is looked how much CPU time has been used.
const PaceEvery = 64

// Attach loads the agent into a running process and asks it for what is wanted.
func Attach(ctx context.Context, p *session.Process, want agent.Subscription) (*Link, error) {
	a, err := inject.Attach(ctx, p.Live.Dir())
	if err != nil {
		return nil, err
	}
	return New(a, want)
}

// New asks an agent that has connected for what is wanted.
func New(a *inject.Agent, want agent.Subscription) (*Link, error) {
	conn, err := agent.NewConn(a.Conn)
	if err != nil {
		return nil, err
	}
	begun, err := conn.Begin(want)
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
	l := &Link{conn: conn, Begun: begun, pace: pace.Pace{Share: PumpShare, Used: live.ThreadCPU}, arrived: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
	go live.Urgently(l.pump)
	return l, nil
}

// pump takes records out of the ring until the agent is gone and nothing is left.
func (l *Link) pump() {
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
func (l *Link) take() (n int, full bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.frames > maxWaitingFrames {
		return 0, l.err == nil, l.err
	}
	l.pace.Begin(live.Monotonic())
	defer l.pace.End()
	if l.pace.Spent() {
		l.slowed.Store(true)
		return 0, true, nil
	}
	err = l.conn.Drain(func(r *agent.Record) error {
		l.waiting = append(l.waiting, r)
		l.frames += len(r.Frames) + framesOfRecord
		if n++; l.frames > maxWaitingFrames || n%PaceEvery == 0 && l.pace.Spent() {
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

// Gone reports whether nothing more will come than what waits to be drained.
func (l *Link) Gone() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// Records hands over what has come.
func (l *Link) Records(p *session.Process) ([]*agent.Record, error) {
	if !l.told && p.Runtime != nil {
		l.told = true
		l.conn.Thrown(p.Runtime.Threads.Thrown())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.waiting
	l.waiting, l.frames = nil, 0
	return out, l.err
}

// Counts are how often each event was reported, by its number.
func (l *Link) Counts() [agent.EventTypes]agent.Counts { return l.conn.Stats() }

// Slowed reports whether there was more in the ring than may be taken out at once.
func (l *Link) Slowed() bool { return l.slowed.Load() }

// Arrived has something when there is something to be taken by Records.
func (l *Link) Arrived() <-chan struct{} { return l.arrived }

// Ended is closed when nothing more will come.
func (l *Link) Ended() <-chan struct{} { return l.ended }

// Walking tells the agent which thread is being walked from outside; 0: none. It keeps the
// runtime's ThreadDestroyed waiting until then, but no longer than was agreed.
func (l *Link) Walking(thread uint64) { l.conn.Walking(thread) }

// Release lets the thread go that stands still in the notification of a record.
func (l *Link) Release(r *agent.Record) { l.conn.Release(r) }

// Stop has the agent leave the runtime, and waits until it has: 0.3 s, as a rule.
// What it has reported can still be drained. died: it had gone by itself, as it does
// with its process.
func (l *Link) Stop() (died bool, err error) {
	select {
	case <-l.conn.Done():
		died = true
	default:
	}
	if !l.Gone() {
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
func (l *Link) last() {
	select {
	case <-l.ended:
	case <-time.After(lastPatience):
		l.end()
		l.take()
	}
}

const lastPatience = time.Second

// end ends the pump.
func (l *Link) end() {
	l.once.Do(func() { close(l.quit) })
	<-l.ended
}

// hungUp reports whether the agent has hung up: what has just been written to it may
// say so before what is read does.
func (l *Link) hungUp() bool {
	select {
	case <-l.conn.Done():
		return true
	case <-time.After(time.Second):
		return false
	}
}

// Close hangs up. The agent leaves, if it has not left yet.
func (l *Link) Close() error {
	l.end()
	return l.conn.Close()
}

// Detach is Stop and Close.
func (l *Link) Detach() error {
	_, err := l.Stop()
	return errors.Join(err, l.Close())
}
