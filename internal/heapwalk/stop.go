package heapwalk

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"clrsnap/internal/clr/heap"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/snapshot"
)

// atOnce walks the heap while all threads are stopped. If that fails, the census is nil, and
// HeapStop.Reason says why. The error is for a process that has exited.
func (h *heapWalk) atOnce(ctx context.Context) (*heap.Census, error) {
	h.warm(ctx)
	h.stop = &snapshot.HeapStop{}
	var census *heap.Census
	if !h.p.Stops(ctx, h.o.MaxPause, h.stop, func(limit time.Duration) (err error) {
		census, err = h.attempt(ctx, limit)
		return err
	}) {
		if h.stop.Reason == session.Interrupted {
			return nil, nil
		}
		return nil, h.p.Alive()
	}
	h.stop.Exact, h.stop.Unfinished = !census.Stopped, census.Unfinished
	if census.Stopped {
		h.stop.Reason = session.Interrupted
	}
	return census, nil
}

// attempt is one stop.
func (h *heapWalk) attempt(ctx context.Context, limit time.Duration) (census *heap.Census, err error) {
	h.instances, h.matching, h.strings = nil, snapshot.HeapAmount{}, stringCounts{}
	f := forecast{limit: limit}
	held, holdErr := h.p.Live.Hold(limit, func(all live.Standing) {
		h.began = time.Now()
		f.begin = h.began
		h.epoch = h.p.Moments().Epoch()
		o := h.options()
		o.Still, o.Held, o.Workers = true, true, h.readers()
		o.Rest, o.Progress = nil, f.progress // nothing is waited for while threads are stopped
		o.Stopped = func() bool { return h.Stopped() || !all.Still() || f.vain.Load() }
		census, err = h.p.Managed.Heap.Walk(o)
	})
	h.stop.Stops += held.Stops
	h.stop.Threads = held.Threads
	h.stop.Pause += held.Pause
	if err == nil {
		err = holdErr
	}
	if err == nil && f.vain.Load() || errors.Is(err, live.ErrHeldTooLong) && f.all.Load() > 0 {
		h.stop.Needed = f.needed()
		err = fmt.Errorf("a read of the heap may take %v, and the program may be stopped for %v", h.stop.Needed,
			limit.Round(time.Millisecond))
	}
	return census, err
}

// forecast estimates the duration of a walk that has begun.
type forecast struct {
	begin     time.Time
	limit     time.Duration
	done, all atomic.Uint64 // bytes
	vain      atomic.Bool   // the walk will take much longer than allowed
}

// earliest is the time until the first estimate: the first milliseconds are for threads that have
// to start, and for memory that nobody has read yet.
const earliest = 25 * time.Millisecond

// progress is called during the walk. A walk that would take more than twice the limit is given up
// after a tenth of the limit, so that threads do not stand still in vain.
func (f *forecast) progress(done, all uint64) {
	f.done.Store(done)
	f.all.Store(all)
	if took := time.Since(f.begin); took > max(f.limit/10, earliest) && f.total(took) > 2*f.limit {
		f.vain.Store(true)
	}
}

// total is the expected duration of the whole walk, if the part done so far took so long.
func (f *forecast) total(took time.Duration) time.Duration {
	const longest = float64(time.Hour)
	return time.Duration(min(float64(took)*float64(f.all.Load())/float64(max(f.done.Load(), 1)), longest))
}

// needed is a sufficient pause: one and a half times the expected duration, rounded.
func (f *forecast) needed() time.Duration {
	const step = 100 * time.Millisecond
	return (f.total(time.Since(f.begin))*3/2 + step).Truncate(step)
}

// readers is the number of goroutines that read while the process is stopped: the process does not
// need the CPUs then.
func (h *heapWalk) readers() int {
	if h.o.MaxCPU > 0 {
		return max(int(h.o.MaxCPU), 1)
	}
	return min(runtime.NumCPU(), session.MostReaders)
}

// warm walks the heap once while the process runs, if types are chosen by name: names take files
// and time, and both are better spent before threads are stopped.
func (h *heapWalk) warm(ctx context.Context) {
	if h.o.Type == nil {
		return
	}
	o := h.options()
	o.Visit, o.Data, o.Graph, o.Progress = func(*heap.Region, []heap.Object) {}, false, false, nil
	_, _ = h.p.Managed.Heap.Walk(o) // an error shows again
}
