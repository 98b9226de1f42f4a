package requests

import (
	"context"
	"maps"
	"strings"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/session"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// The heap is walked again, for tasks.RewalkWithin, as long as another walk may find missing objects. The time is
// shorter if tasks are to be found as well.
const (
	rewalkShortly = 300 * time.Millisecond
	maxRewalks    = 200
	fewWalks      = 4 // walks that may take slowly times as much time
	slowly        = 3
	idleRewalks   = 2 // of requests with an unknown action as the only gap
)

// looks is one call of Find: several walks. Each walk takes up the results of earlier walks, so only the
// objects that all walks have missed are missing.
//
// A walk knows all objects, but the collector may move an object after the walk meets the object and before the
// object is read. The old copy of a moved object leads to the new place, until the memory is used again. Then only
// another walk can find the object.
type looks struct {
	p       *session.Process
	ctx     context.Context
	o       session.WalkOptions
	threads servingThreads
	// progress: the numbers and addresses that two looks are compared by are noted, too.
	progress bool

	best   *walk // the walk that has missed the least
	last   *walk
	census *heap.Census // of best
	doubt  int          // how many calls all walks may have missed, at least
}

// walk walks the heap and reads the objects. When ctx ends, earlier walks count, and not the walk that ended early.
func (l *looks) walk(within time.Duration) error {
	pace := l.p.NewHeapWalk(l.ctx, l.o) // of all walks, and of the reading after them
	for try := range maxRewalks {
		if rest := max(pace.Ahead(), 0); try > 0 && (time.Since(pace.Begin)+rest > l.limit(try, within) ||
			!session.Sleep(l.ctx, rest)) {
			break
		}
		next := newWalk(l.ctx, l.p, l.o, l.threads)
		if l.progress {
			next.waiting, next.counts = map[uint64]WaitingChain{}, map[string]int{}
		}
		next.takeUp(l.last)
		before := l.p.Moments().Epoch()
		census, err := next.WalkHeap()
		if err != nil && try > 0 {
			break
		}
		if err != nil {
			return err
		}
		next.whole = !census.Stopped && census.Consistent >= census.Size
		next.read(before)
		if try > 0 && next.Stopped() {
			break
		}
		next.inherit(l.last)
		next.inheritCalls(l.last)
		next.dropEarlier()
		l.judge(next)
		if l.best == nil || next.beats(l.best) {
			l.best, l.census = next, census
		}
		if l.last = next; next.Stopped() || next.settled(try) {
			break
		}
	}
	l.best.Unproven = max(l.best.Unproven, l.doubt)
	if l.best != l.last {
		l.best.requests, l.best.listed = l.last.requests, l.last.listed
		for _, s := range l.last.requests {
			l.best.adopt(l.last, s.chains)
		}
	}
	return nil
}

// judge estimates how many calls all walks may have missed, by the calls found by w and missed by earlier walks. If
// nothing was moved, no call is missing. If w itself has missed most calls, w tells nothing.
func (l *looks) judge(w *walk) {
	switch {
	case w.still:
		l.doubt = 0
	case l.last == nil:
		l.doubt = 1
	case w.met() > 0 && w.own*2 >= len(w.listed):
		l.doubt = w.fresh + w.ageless
	}
}

// limit is until when another walk may begin. A busy machine makes walks slow. So there is more time for the first
// walks, because a single walk may have met nothing, and as long as each walk finds calls that earlier walks have
// missed.
func (l *looks) limit(walks int, within time.Duration) time.Duration {
	if walks < fewWalks || l.last.fresh > 0 {
		return slowly * within
	}
	return within
}

// beats reports whether a walk has missed no more than another walk. The gaps of a shortened walk are not known: the
// objects that only the other walk has met count as missing.
func (w *walk) beats(other *walk) bool {
	return w.missing()+max(0, other.met()-w.met()) <= other.missing()+max(0, w.met()-other.met())
}

// met is the number of objects that a walk has met.
func (w *walk) met() (n int) {
	for _, list := range w.Objects {
		n += len(list)
	}
	return n
}

// takeUp gives a walk the results of an earlier walk. nil: there was none.
func (w *walk) takeUp(from *walk) {
	if from == nil {
		return
	}
	w.known, w.boot, w.counts = from.requests, from.boot, from.counts
	w.Earlier = make([]arch.Addr, 0, len(from.Firsts))
	for obj := range from.Firsts {
		if len(w.Earlier) == tasks.MaxObjects {
			break
		}
		w.Earlier = append(w.Earlier, obj)
	}
}

// inherit takes over the proved results of earlier walks if this walk has missed them: requests that have not
// certainly ended, and the waits of requests without a known wait.
func (w *walk) inherit(from *walk) {
	if from == nil {
		return
	}
	all := (w.whole || w.still) && w.lost == 0
	for id, s := range from.requests {
		now := w.requests[id]
		switch {
		case now == nil && (all || !w.addRequest(&s.Request)):
			continue
		case now == nil:
			now = w.requests[id]
		case len(now.chains) > 0:
			continue
		}
		cost := 0
		for _, c := range s.chains {
			cost += tasks.FramesCost(c.Frames)
		}
		if !w.keep(cost) {
			return
		}
		now.chains = s.chains
		w.adopt(from, s.chains)
	}
}

// dropEarlier drops requests that have certainly ended: a connection of HTTP/1 serves one request after the other, so
// only the last request can be in progress.
func (w *walk) dropEarlier() {
	last := map[string]string{} // ids, by connection
	for id, s := range w.requests {
		if c, ok := serial(s); ok {
			last[c] = max(last[c], id)
		}
	}
	maps.DeleteFunc(w.requests, func(id string, s *served) bool {
		c, ok := serial(s)
		return ok && id != last[c]
	})
}

// serial returns the connection of a request, if the connection serves one request after the other.
func serial(s *served) (connection string, ok bool) {
	connection, _, ok = strings.Cut(s.ID, ":")
	return connection, ok && strings.HasPrefix(s.Protocol, "HTTP/1.")
}

// adopt takes over the calls that another walk's chains make.
func (w *walk) adopt(from *walk, chains []*snapshot.TaskChain) {
	for _, c := range chains {
		call := from.makes[c]
		if call == nil {
			continue
		}
		w.makes[c] = call
	}
}

// missing is how much a walk may have missed.
func (w *walk) missing() int {
	n := w.Unproven + w.lost
	if !w.still {
		n += w.gone + w.Unread
		if !w.whole {
			n++
		}
	}
	return n
}

// settled reports whether another walk would find no more.
func (w *walk) settled(try int) bool {
	if !w.p.Moments().Changes() {
		return true
	}
	if w.missing() > 0 || !w.still && (try == 0 || w.fresh > 0) {
		return false
	}
	if try >= idleRewalks || w.threads.by == nil {
		return true
	}
	for id, s := range w.requests {
		if len(s.chains) == 0 && w.threads.by[id] == nil {
			return false
		}
	}
	return true
}
