package gather

import (
	"context"
	"slices"
	"time"

	"clrsnap/internal/heapwalk"
	"clrsnap/snapshot"
)

// LostGap is how long nobody may get a permit before the permit counts as lost. A holder may be at work unseen.
const LostGap = 2 * time.Second

// mostIterators bounds the iterators that are looked for.
const mostIterators = 64

// StillLost are the semaphores with the same first method in the queue in two looks, or with iterators that have a
// permit, and have not gone on.
func StillLost(before, now []snapshot.Lost) (out []snapshot.Lost) {
	for _, l := range now {
		i := slices.IndexFunc(before, func(b snapshot.Lost) bool { return b.Object == l.Object })
		if i >= 0 && before[i].First != l.First {
			l.First = 0 // somebody has got a permit
		}
		if i < 0 || l.Iterators == nil && l.First == 0 {
			continue
		}
		if leaveIterators(&l, before[i].Iterators) {
			out = append(out, l)
		}
	}
	return out
}

// unkept leaves the iterators that nothing keeps. Somebody may go on with another iterator, so that a semaphore with
// only such iterators is left out.
func (g *Gatherer) unkept(ctx context.Context, list []snapshot.Lost) []snapshot.Lost {
	var all []uint64
	for i := range list {
		l := &list[i]
		l.Iterators = l.Iterators[:min(len(l.Iterators), mostIterators)]
		all = append(all, l.Iterators...)
	}
	if len(all) == 0 {
		return list
	}
	bounded, cancel := context.WithTimeout(ctx, walkWithin)
	defer cancel()
	unkept, known, err := heapwalk.Unkept(bounded, g.s, all)
	if err != nil || !known {
		unkept = nil
	}
	return OnlyUnkept(list, unkept)
}

// OnlyUnkept is unkept, with the iterators that nothing keeps.
func OnlyUnkept(list []snapshot.Lost, unkept []uint64) (out []snapshot.Lost) {
	for _, l := range list {
		if leaveIterators(&l, unkept) {
			out = append(out, l)
		}
	}
	return out
}

// leaveIterators leaves the iterators of a semaphore that are in a list. The result is false if the semaphore had
// iterators, and none is left.
func leaveIterators(l *snapshot.Lost, in []uint64) bool {
	had := len(l.Iterators)
	l.Iterators = slices.DeleteFunc(l.Iterators, func(at uint64) bool { return !slices.Contains(in, at) })
	return had == 0 || len(l.Iterators) > 0
}
