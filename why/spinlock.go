package why

import (
	"fmt"
	"slices"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// spun is a SpinLock that threads want.
type spun struct {
	object uint64
	field  string
}

// judgeSpinLocks looks for threads that spin for one SpinLock in all looks: a SpinLock is meant for a few instructions.
// The holder is known if the SpinLock keeps its holder.
func judgeSpinLocks(e *evidence) []profile.Verdict {
	if e.Core() || len(e.Looks) < 2 || e.Span() < gather.Enough {
		return nil
	}
	by := map[spun][]*snapshot.Thread{}
	var most spun
	threads := e.Threads()
	for i := range threads {
		t := threads[i].Last()
		if w := t.Wait; gather.OwnFrame(t.Frames) == nil || w == nil || w.Object == 0 || !threads[i].All(
			func(o *snapshot.Thread) bool { return o.Wait != nil && spinsAsWell(o.Wait, w) }) {
			continue
		}
		at := spun{t.Wait.Object, t.Wait.Field}
		if by[at] = append(by[at], t); len(by[at]) > len(by[most]) {
			most = at
		}
	}
	list := by[most]
	if len(list) == 0 {
		return nil
	}
	first := list[0]
	own := gather.OwnFrame(first.Frames)
	reason := fmt.Sprintf("No other thread is in code of %s: most likely the lock was entered and not left, as when "+
		"an exception skips an Exit that is in no finally block.", gather.OuterType(own.Display))
	if h := first.Wait.Owner; h != nil {
		holder := e.Last().ByID()[h.OSThreadID]
		if holder == nil {
			return nil // judgeDeadlock tells of ended holders
		}
		reason = fmt.Sprintf("The holder, %s, %s, in %s.", phrase.ThreadName(*h), phrase.Doing(holder),
			gather.Place(holder.Frames))
	} else if e.inside(list) {
		return nil
	}
	who, got := phrase.ThreadName(gather.Ref(first))+" spins", "the thread has not"
	if n := len(list); n > 1 {
		who, got = fmt.Sprintf("%d threads spin, such as %s,", n, phrase.ThreadName(gather.Ref(first))), "none has"
	}
	here := "The thread spins here:"
	if len(list) > 1 {
		here = "One of them spins here:"
	}
	v := profile.Verdict{
		Cause: profile.CauseLockContention, Certainty: profile.Likely,
		Text: fmt.Sprintf("%s for %s, in %s, and %s got the lock in %s. %s", who,
			phrase.ObjectOf(first.Wait, "a SpinLock"), placeOfAll(list), got, phrase.Seconds(e.Span()), reason),
		Evidence: []profile.Evidence{{Text: here, Frames: first.Frames}},
		Commands: []string{"clrsnap locks " + e.Again()},
	}
	for _, t := range list {
		v.Evidence[0].Threads = append(v.Evidence[0].Threads, gather.Ref(t))
	}
	return []profile.Verdict{v}
}

// placeOfAll is the own method of the first thread, and says whether others are in other methods.
func placeOfAll(list []*snapshot.Thread) string {
	in := phrase.Method(gather.OwnFrame(list[0].Frames))
	if slices.ContainsFunc(list, func(t *snapshot.Thread) bool {
		return gather.OwnMethod(t) != gather.OwnMethod(list[0])
	}) {
		in += " and elsewhere"
	}
	return in
}

// spinsAsWell reports whether a wait is for the same SpinLock as w, with the same holder, and the lock is not free.
func spinsAsWell(o, w *snapshot.Wait) bool {
	sameHolder := (o.Owner == nil) == (w.Owner == nil) && (o.Owner == nil || o.Owner.OSThreadID == w.Owner.OSThreadID)
	return o.Kind == snapshot.SpinLockEnter && o.Object == w.Object && o.Field == w.Field && o.Timeout <= 0 &&
		o.Detail != "free" && sameHolder
}

// inside reports whether another thread is in code of the classes in which threads wait.
func (e *evidence) inside(list []*snapshot.Thread) bool {
	classes, waits := classesOf(list), map[int]bool{}
	for _, t := range list {
		waits[t.OSThreadID] = true
	}
	return slices.ContainsFunc(e.Last().Snap.Threads, func(t snapshot.Thread) bool {
		return !waits[t.OSThreadID] && gather.HasCodeOf(classes, t.Frames)
	})
}

// classesOf are the classes in which threads wait.
func classesOf(list []*snapshot.Thread) map[string]bool {
	out := map[string]bool{}
	for _, t := range list {
		out[gather.OuterType(gather.OwnFrame(t.Frames).Display)] = true
	}
	return out
}
