package why

import (
	"context"
	"fmt"
	"slices"
	"time"

	"clrsnap/internal/display"
	"clrsnap/internal/heapwalk"
	"clrsnap/profile"
)

// lostGap is how long nobody may get a permit before the permit counts as lost. A holder may be at work unseen.
const lostGap = 2 * time.Second

// mostIterators bounds the iterators that are looked for.
const mostIterators = 64

// stillLost are the semaphores with the same first method in the queue in two looks, or with iterators that have a
// permit, and have not gone on.
func stillLost(before, now []profile.Lost) (out []profile.Lost) {
	for _, l := range now {
		i := slices.IndexFunc(before, func(b profile.Lost) bool { return b.Object == l.Object })
		if i >= 0 && before[i].First != l.First {
			l.First = 0 // somebody has got a permit
		}
		if i < 0 || l.Iterators == nil && l.First == 0 {
			continue
		}
		all := len(l.Iterators)
		l.Iterators = slices.DeleteFunc(l.Iterators, func(at uint64) bool {
			return !slices.Contains(before[i].Iterators, at)
		})
		if all == 0 || len(l.Iterators) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// unkept leaves the iterators that nothing keeps. Somebody may go on with another iterator, so that a semaphore with
// only such iterators is left out.
func (g *gatherer) unkept(ctx context.Context, list []profile.Lost) []profile.Lost {
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
	return onlyUnkept(list, unkept)
}

// onlyUnkept is unkept, with the iterators that nothing keeps.
func onlyUnkept(list []profile.Lost, unkept []uint64) (out []profile.Lost) {
	for _, l := range list {
		had := len(l.Iterators)
		l.Iterators = slices.DeleteFunc(l.Iterators, func(at uint64) bool { return !slices.Contains(unkept, at) })
		if had == 0 || len(l.Iterators) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// judgeLost looks for async methods that wait for a permit that was never released.
func judgeLost(e *evidence) []profile.Verdict {
	if len(e.lost) == 0 {
		return nil
	}
	l := &e.lost[0]
	waiters := counted(l.Awaits, "async method waits", "async methods wait")
	if l.Threads > 0 {
		waiters = waitNow(l.Threads)
	}
	none := fmt.Sprintf(", and none has got one for at least %s", seconds(lostGap))
	if l.First == 0 {
		none = ""
	}
	v := profile.Verdict{
		Cause: profile.CauseLockContention, Certainty: profile.Likely,
		Text: fmt.Sprintf("%s for a permit of %s%s. ", waiters,
			objectOf(&profile.Wait{Type: l.Type, Object: l.Object, Field: l.Field}, "a SemaphoreSlim"), none) +
			lostText(l) + fmt.Sprintf(" %s in %s.", oneText(l), method(ownFrame(l.Frames))),
		Evidence: []profile.Evidence{{Text: firstText(l), Frames: l.Frames, Threads: e.waitersOf(l)}},
		Commands: []string{"clrsnap tasks " + e.again()},
	}
	if left := len(e.lost) - 1; left > 0 {
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("Likewise for %s %s.", display.Number(left),
				display.Plural(left, "other semaphore", "other semaphores")),
		})
	}
	return []profile.Verdict{v}
}

// waitersOf are the threads that wait for a permit of a semaphore in the last look.
func (e *evidence) waitersOf(l *profile.Lost) (out []profile.ThreadRef) {
	if len(e.looks) == 0 {
		return nil
	}
	for i := range e.last().snap.Threads {
		t := &e.last().snap.Threads[i]
		if w := t.Wait; w != nil && w.Kind == profile.SemaphoreWait && (w.Object == l.Object || w.Field == l.Field &&
			w.Field != "") {
			out = append(out, ref(t))
		}
	}
	return out
}

// oneText and firstText introduce the shown waiter: the first async method of a queue, or any thread.
func oneText(l *profile.Lost) string {
	if l.Threads > 0 {
		return "One of them waits"
	}
	return "The first one waits"
}

func firstText(l *profile.Lost) string {
	if l.Threads > 0 {
		return "One of them:"
	}
	return "The one that has waited the longest:"
}

// lostText says who takes and releases the permits, and that nobody is seen to have one.
func lostText(l *profile.Lost) string {
	if n := len(l.Iterators); n > 0 {
		permits := counted(n, "permit", "permits")
		if l.Permits > 0 {
			permits = fmt.Sprintf("%s of its %s", display.Number(n), counted(l.Permits, "permit", "permits"))
		}
		return fmt.Sprintf("%s %s lost: %s of %s took %s and stopped at a yield return, and nothing refers to %s any "+
			"more. Nobody can call DisposeAsync, so the finally block that releases the permit does not run. Most "+
			"likely a caller stopped early, without await foreach or DisposeAsync.", permits, verb(n, "is", "are"),
			counted(n, "iterator", "iterators"), l.Iterator, verb(n, "it", "a permit each"), verb(n, "it", "them"))
	}
	if !l.Leased {
		return "Nobody is seen who would release one: no thread and no suspended method is between taking a " +
			"permit and releasing it. Most likely a permit was not released, as when an exception skips a Release " +
			"that is in no finally block."
	}
	permits := "The permits are"
	switch {
	case l.Permits == 1:
		permits = "The only permit is"
	case l.Permits > 1:
		permits = fmt.Sprintf("All %s permits are", display.Number(l.Permits))
	}
	text := fmt.Sprintf("%s taken. Permits are taken in %s, and given back in %s. ", permits, list(names(l.Takes)),
		list(names(l.Gives)))
	if l.Again != "" {
		return text + fmt.Sprintf("Nobody but the waiters is seen in code between taking and giving back. But %s "+
			"takes permits in several places, so the waiters may have permits themselves: then none of them goes on. "+
			"Otherwise permits were not given back, as when an exception skips the call that gives back.", l.Again)
	}
	return text + "Nobody is seen who would give one back: no thread and no suspended method is in code that has " +
		"got a permit there. Most likely permits were not given back, as when an exception skips the call; or an " +
		"object keeps what belongs to a permit."
}

// names are the first of some names.
func names(all []string) []string {
	if more := len(all) - maxShown; more > 0 {
		return append(slices.Clone(all[:maxShown]), fmt.Sprintf("%d others", more))
	}
	return all
}
