// Package link is the connection to the agent in a process. The package loads the agent, subscribes to events, and
// takes the records out of the shared ring.
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
	"clrsnap/internal/priority"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
)

// Link is the connection to the agent in a process, and the source of its notifications. A goroutine takes the
// notifications out of the ring. The ring is small, because it is in the target's memory.
type Link struct {
	conn  *agent.Conn
	Begun agent.BeginResult // abilities of the agent
	told  bool              // the agent knows the places of exceptions, and the meaning of owners

	mu      sync.Mutex
	waiting []*agent.Record // taken out of the ring
	frames  int             // of waiting
	err     error           // the reason why nothing more is taken
	arrived chan struct{}   // has something if waiting has
	once    sync.Once       // for quit
	quit    chan struct{}   // closed when nothing more is wanted
	ended   chan struct{}   // closed when nothing more will come

	pace   pace.Pace   // of pump
	slowed atomic.Bool // pump has used up its CPU time at least once
}

// AgentModule is the module of the agent's frames.
const AgentModule = inject.LibraryName

// maxWaitingFrames bounds the records that were taken out of the ring and are not used yet: 80 bytes for each frame,
// 40 MB. Beyond the bound the ring fills up, and the agent drops and counts records.
const (
	maxWaitingFrames = 1 << 19
	framesOfRecord   = 3 // the cost of a record besides its frames
)

// How often the pump looks at the ring. The ring has room for a thousand records or so, and rare wake-ups cost less.
const (
	pollSoon = time.Millisecond // after many records
	pollLate = 8 * time.Millisecond
	many     = 64 // records
)

// PumpShare is the greatest share of a CPU that taking records out of the ring may use: 200,000 records a second, at
// 1 µs. A hostile process can report as fast as it can write. If records are not taken in time, the agent drops and
// counts them.
const PumpShare = 0.2

// PaceEvery is the number of records after which the used CPU time is checked.
const PaceEvery = 64

// Attach loads the agent into a running process and subscribes to want.
func Attach(ctx context.Context, p *session.Process, want agent.Subscription) (*Link, error) {
	if err := checkWaits(p, &want); err != nil {
		return nil, err
	}
	a, err := inject.Attach(ctx, p.Live.Dir())
	if err != nil {
		return nil, err
	}
	want.ExceptionOffsets, want.Owners = exceptionOffsets(p), owners(p)
	return New(a, want)
}

// New subscribes to want at an agent that has connected.
func New(a *inject.Agent, want agent.Subscription) (*Link, error) {
	conn, err := agent.NewConn(a.Conn)
	if err != nil {
		return nil, err
	}
	begun, err := conn.Begin(want)
	if err != nil {
		conn.Close() // else the runtime waits for its answer
	}
	if refusal := a.Loaded(); refusal != nil {
		conn.Close()
		return nil, refusal // tells more than err
	}
	if err != nil {
		return nil, err
	}
	l := &Link{
		conn: conn, Begun: begun, pace: pace.Pace{Share: PumpShare, Used: live.ThreadCPU},
		arrived: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}),
	}
	go priority.RunHigh(l.pump)
	return l, nil
}

// pump takes records out of the ring until the agent has hung up and the ring is empty.
func (l *Link) pump() {
	defer close(l.ended)
	wait, done := pollSoon, l.conn.Done()
	for hungUp := false; ; {
		select {
		case <-l.quit:
			return
		case <-done:
			hungUp, done = true, nil // the ring has the last records
		case <-time.After(wait):
		}
		n, full, err := l.take()
		if err != nil || hungUp && !full {
			return
		}
		if wait = min(2*wait, pollLate); n >= many {
			wait = pollSoon
		}
	}
}

// take takes records out of the ring, as long as there is room and CPU time. full: records are left in the ring.
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

// HasEnded reports whether no more records will come: Records returns the last records.
func (l *Link) HasEnded() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

func exceptionOffsets(p *session.Process) agent.ExceptionOffsets {
	if p.Runtime == nil {
		return agent.ExceptionOffsets{}
	}
	return agent.ExceptionOffsets(p.Runtime.Threads.ExceptionOffsets())
}

// owners returns the meaning of a lock's owner in the events of a process: where monitors are managed code, the owner
// is a managed thread id.
func owners(p *session.Process) agent.Owners {
	if p.Runtime == nil || p.Runtime.Locks == nil {
		return agent.Owners{}
	}
	if !p.Runtime.Locks.Managed() {
		return agent.Owners{Form: agent.OwnerOSID}
	}
	by, ok := p.Runtime.Threads.ByID()
	if !ok {
		return agent.Owners{}
	}
	return agent.Owners{
		Form: agent.OwnerManagedID, Dispenser: uint64(by.Dispenser), Threads: by.Threads, ID: by.ID, OSID: by.OSID,
	}
}

// Records returns the records that have come since the last call. With an error no more records will come; the
// records before the error are in the result.
func (l *Link) Records(p *session.Process) ([]*agent.Record, error) {
	if !l.told && p.Runtime != nil {
		l.told = true
		l.conn.SetExceptionOffsets(exceptionOffsets(p))
		l.conn.SetOwners(owners(p))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.waiting
	l.waiting, l.frames = nil, 0
	return out, l.err
}

// Counts returns the numbers of events that happened, were reported and were dropped, by event number.
func (l *Link) Counts() [agent.EventTypes]agent.Counts { return l.conn.Stats() }

// Waits appends the present waits for locks to out, as reported by the agent.
func (l *Link) Waits(out []agent.Wait) []agent.Wait { return l.conn.Waits(out) }

// Slowed reports whether there were more records at some time than PumpShare of a CPU can take.
func (l *Link) Slowed() bool { return l.slowed.Load() }

// Arrived receives a value when Records has something to return.
func (l *Link) Arrived() <-chan struct{} { return l.arrived }

// Ended returns a channel that is closed when no more records will come.
func (l *Link) Ended() <-chan struct{} { return l.ended }

// SetWalkedThread tells the agent the thread that is being walked from outside; 0: none. The agent keeps the
// runtime's ThreadDestroyed waiting until the walk is over, for Subscription.DestroyWait at most.
func (l *Link) SetWalkedThread(thread uint64) { l.conn.SetWalkedThread(thread) }

// Free has the agent destroy handles that the agent has made.
func (l *Link) Free(slots []uint32) error { return l.conn.Free(slots) }

// Collect makes the runtime do a full, blocking garbage collection, and returns the duration. When ctx ends, Collect
// gives up waiting.
func (l *Link) Collect(ctx context.Context) (time.Duration, error) { return l.conn.Collect(ctx) }

// Settle waits until all present records of the agent have been taken out of the ring, if there is room.
func (l *Link) Settle() {
	select {
	case <-l.ended:
	case <-time.After(2 * pollLate):
	}
}

// Release resumes the thread that is held in the notification of a record.
func (l *Link) Release(r *agent.Record) { l.conn.Release(r) }

// Stop has the agent leave the runtime, and waits until the agent has left, usually for 0.3 s. Records still returns
// the agent's last records. died: the agent had hung up before, as agents do when their process exits.
func (l *Link) Stop() (died bool, err error) {
	select {
	case <-l.conn.Done():
		died = true
	default:
	}
	if !l.HasEnded() {
		if err = l.conn.Detach(); err != nil && l.hungUp() {
			died, err = true, nil
		}
	}
	if err == nil {
		l.last()
	}
	return died, err
}

// last waits until the last records of an agent that has left are taken out of the ring. last does not wait for a
// child of the target that holds the connection open.
func (l *Link) last() {
	select {
	case <-l.ended:
	case <-time.After(lastPatience):
		l.end()
		l.take()
	}
}

const lastPatience = time.Second

func (l *Link) end() {
	l.once.Do(func() { close(l.quit) })
	<-l.ended
}

// hungUp reports whether the agent has hung up. A write can fail before the reader of the connection has seen the
// end, so hungUp waits a moment.
func (l *Link) hungUp() bool {
	select {
	case <-l.conn.Done():
		return true
	case <-time.After(time.Second):
		return false
	}
}

// Close hangs up. The agent leaves, unless the agent has left already.
func (l *Link) Close() error {
	l.end()
	return l.conn.Close()
}

// Detach is Stop and Close.
func (l *Link) Detach() error {
	_, err := l.Stop()
	return errors.Join(err, l.Close())
}
