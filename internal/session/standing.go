package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"clrsnap/internal/clr/heap"
	"clrsnap/internal/origin"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/snapshot"
)

// RunningProcess is the running process, also while its threads stand still; nil: a core dump.
func (p *Process) RunningProcess() *live.Process {
	if s, ok := p.from.(*origin.Standing); ok {
		return s.Process
	}
	return p.Live
}

// AtRest looks while all threads of a running process stand still, for most at most. If that fails, the stop's Reason
// says why, and the result is before, of an earlier look: by that look all names are known.
func AtRest[T any](
	ctx context.Context, p *Process, most time.Duration, before T, look func(context.Context) (T, error),
) (T, *snapshot.HeapStop) {
	held, stop := before, &snapshot.HeapStop{}
	stop.Exact = p.Stops(ctx, most, stop, func(limit time.Duration) error {
		return p.rest(ctx, limit, stop, func(ctx context.Context) (err error) {
			held, err = look(ctx)
			return err
		})
	})
	if !stop.Exact {
		held = before
	}
	return held, stop
}

// Stops calls attempt, which stops all threads of a running process and adds to stop, until an attempt succeeds. The
// stops take most together; 0 stands for DefaultPause. Where objects are being moved just then, the threads go on, and
// are stopped once more a little later. false: stop.Reason says why.
func (p *Process) Stops(
	ctx context.Context, most time.Duration, stop *snapshot.HeapStop, attempt func(limit time.Duration) error,
) bool {
	most = cmp.Or(most, DefaultPause)
	for n := 0; n < maxStops && stop.Pause < most; n++ {
		if n > 0 && !Sleep(ctx, firstRest<<(n-1)) {
			stop.Reason = Interrupted
			return false
		}
		p.calm(ctx)
		err := attempt(most - stop.Pause)
		if err == nil {
			stop.Reason = ""
			return true
		}
		stop.Reason = err.Error()
		if !errors.Is(err, errMoving) && !errors.Is(err, heap.ErrTorn) && (!passing(err) || n+1 >= passingStops) {
			return false
		}
	}
	return false
}

var errMoving = errors.New("the garbage collector was moving objects at each stop")

// rest is one stop.
func (p *Process) rest(
	ctx context.Context, limit time.Duration, stop *snapshot.HeapStop, look func(context.Context) error,
) (err error) {
	infos := map[int]target.ThreadInfo{}
	if tids, err := p.from.Threads(); err == nil {
		for _, tid := range tids {
			if infos[tid], err = p.from.Thread(tid); err != nil {
				delete(infos, tid)
			}
		}
	}
	called := false
	held, holdErr := p.Live.Hold(limit, func(all live.Standing) {
		called = true
		bounded, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err = p.stand(all, infos, func() error {
			if !p.Managed.Heap.Settled(p.from) {
				return errMoving
			}
			err := look(bounded)
			if err == nil && bounded.Err() != nil {
				err = fmt.Errorf("the look takes longer than the %v that the program may be stopped for", limit)
			}
			return err
		})
	})
	stop.Stops += held.Stops
	stop.Threads = held.Threads
	stop.Pause += held.Pause
	if holdErr != nil {
		return holdErr
	}
	if !called {
		return live.ErrNotStopping
	}
	return err
}

// stand calls look with the standing threads as the origin.
func (p *Process) stand(all live.Standing, infos map[int]target.ThreadInfo, look func() error) error {
	s := origin.Stand(p.from, all, infos)
	before, beforeLive, beforeWaits, changes := p.from, p.Live, p.waits, p.moments.Running
	p.from, p.Live, p.waits, p.moments.Running = s, nil, nil, nil
	p.Engine.Begin()
	defer func() {
		p.from, p.Live, p.waits, p.moments.Running = before, beforeLive, beforeWaits, changes
		p.Engine.Begin()
	}()
	return look()
}

// calm waits a little while objects are being moved, so that threads are not stopped in vain.
func (p *Process) calm(ctx context.Context) {
	const most = 50
	p.moments.Calm(most, func() bool { return Sleep(ctx, time.Millisecond) })
}

// DefaultPause is how long all threads of a process may be stopped, unless the caller says so.
const DefaultPause = 2 * time.Second

// Bounds of the search for a moment at which a process that stands still can be read.
const (
	maxStops     = 6
	passingStops = 3                     // of the stops, if threads do not stop
	firstRest    = 10 * time.Millisecond // between the first two stops, and twice as long before each further stop
	MostReaders  = 4                     // goroutines that walk the heap while the process is stopped
)

// Interrupted is the reason for a look that the caller has ended.
const Interrupted = "it was interrupted"

// passing reports whether threads may well be held a moment later.
func passing(err error) bool {
	for _, p := range []error{live.ErrNotStopping, live.ErrNewThreads, live.ErrWatchdog, live.ErrTracerLost} {
		if errors.Is(err, p) {
			return true
		}
	}
	return false
}

// Sleep waits; false: ctx has ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
