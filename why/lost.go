package why

import (
	"fmt"
	"slices"
	"time"

	"clrsnap/internal/display"
	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/internal/tasks"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// judgeLost looks for async methods that wait for a permit that was never released.
func judgeLost(e *evidence) []profile.Verdict {
	if len(e.Lost) == 0 {
		return nil
	}
	l := &e.Lost[0]
	waiters := phrase.Counted(l.Awaits, "async method waits", "async methods wait")
	if l.Threads > 0 {
		waiters = phrase.ThreadsWait(l.Threads)
	}
	none := fmt.Sprintf(", and none has got one for at least %s", phrase.Seconds(e.lostFor(l)))
	if l.First == 0 {
		none = ""
	}
	v := profile.Verdict{
		Cause: profile.CauseLockContention, Certainty: profile.Likely,
		Text: fmt.Sprintf("%s for a permit of %s%s. ", waiters,
			phrase.ObjectOf(&snapshot.Wait{Type: l.Type, Object: l.Object, Field: l.Field}, "a SemaphoreSlim"), none) +
			lostText(l) + fmt.Sprintf(" %s in %s.", oneText(l), gather.Place(l.Frames)),
		Evidence: []profile.Evidence{{Text: firstText(l), Frames: l.Frames, Threads: e.waitersOf(l)}},
		Commands: []string{"clrsnap tasks " + e.Again()},
	}
	if left := len(e.Lost) - 1; left > 0 {
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("Likewise for %s %s.", display.Number(left),
				display.Plural(left, "other semaphore", "other semaphores")),
		})
	}
	return []profile.Verdict{v}
}

// lostFor is how long no waiter has got a permit, as far as known.
func (e *evidence) lostFor(l *snapshot.Lost) time.Duration {
	before, after, ok := e.Progressed()
	if !ok || l.Threads > 0 {
		return gather.LostGap
	}
	stood, was, found := e.stoodStill(), gather.WaitsOf(before), false
	for i := range after.Tasks.Chains {
		c := &after.Tasks.Chains[i]
		if w := c.WaitsFor; w == nil || w.Kind != snapshot.AwaitsSemaphore || w.Object != l.Object {
			continue
		}
		key := tasks.ChainKey(c)
		if stood[key] == 0 || stood[key] < was[key] {
			return gather.LostGap // some have gone on, or have come since
		}
		found = true
	}
	if !found {
		return gather.LostGap
	}
	return max(gather.LostGap, after.At-before.At)
}

// waitersOf are the threads that wait for a permit of a semaphore in the last look.
func (e *evidence) waitersOf(l *snapshot.Lost) (out []snapshot.ThreadRef) {
	if len(e.Looks) == 0 {
		return nil
	}
	for i := range e.Last().Snap.Threads {
		t := &e.Last().Snap.Threads[i]
		if w := t.Wait; w != nil && w.Kind == snapshot.SemaphoreWait && (w.Object == l.Object || w.Field == l.Field &&
			w.Field != "") {
			out = append(out, gather.Ref(t))
		}
	}
	return out
}

// oneText and firstText introduce the shown waiter: the first async method of a queue, or any thread.
func oneText(l *snapshot.Lost) string {
	if l.Threads > 0 {
		return "One of them waits"
	}
	return "The first one waits"
}

func firstText(l *snapshot.Lost) string {
	if l.Threads > 0 {
		return "One of them:"
	}
	return "The one that has waited the longest:"
}

// lostText says who takes and releases the permits, and that nobody is seen to have one.
func lostText(l *snapshot.Lost) string {
	if n := len(l.Iterators); n > 0 {
		permits := phrase.Counted(n, "permit", "permits")
		if l.Permits > 0 {
			permits = fmt.Sprintf("%s of its %s", display.Number(n), phrase.Counted(l.Permits, "permit", "permits"))
		}
		return fmt.Sprintf("%s %s lost: %s of %s took %s and stopped at a yield return, and nothing refers to %s any "+
			"more. Nobody can call DisposeAsync, so the finally block that releases the permit does not run. Most "+
			"likely a caller stopped early, without await foreach or DisposeAsync.", permits,
			phrase.Verb(n, "is", "are"), phrase.Counted(n, "iterator", "iterators"), l.Iterator,
			phrase.Verb(n, "it", "a permit each"), phrase.Verb(n, "it", "them"))
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
	text := fmt.Sprintf("%s taken. Permits are taken in %s, and given back in %s. ", permits,
		phrase.List(names(l.Takes)),
		phrase.List(names(l.Gives)))
	if l.Again != "" {
		return text + fmt.Sprintf("Nobody but the waiters is seen in code between taking and giving back. But %s "+
			"takes permits in several places, so the waiters may have permits themselves: then none of them goes on. "+
			"Otherwise permits were not given back, as when an exception skips the call that gives back.", l.Again)
	}
	return text + "Nobody is seen who would give one back: apart from the waiters, no thread and no suspended method " +
		"is in these methods, or in a method that calls one that takes permits. Most likely permits were not given " +
		"back, as when an exception skips the call. Or an object keeps what belongs to a permit, or a method that " +
		"has got a permit through other methods."
}

// names are the first of some names.
func names(all []string) []string {
	if more := len(all) - maxShown; more > 0 {
		return append(slices.Clone(all[:maxShown]), fmt.Sprintf("%d others", more))
	}
	return all
}
