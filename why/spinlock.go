package why

import (
	"cmp"
	"fmt"
	"slices"

	"clrsnap/internal/display"
	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// judgeSpinLocks looks for threads that spin for one SpinLock in all looks, while no other thread is in the code around
// the lock. A SpinLock is meant for a few instructions, and does not keep its holder.
func judgeSpinLocks(e *evidence) []profile.Verdict {
	if e.Core() || len(e.Looks) < 2 || e.Span() < gather.Enough {
		return nil
	}
	by := map[uint64][]*snapshot.Thread{}
	most := uint64(0)
	threads := e.Threads()
	for i := range threads {
		t := threads[i].Last()
		if gather.OwnFrame(t.Frames) == nil || t.Wait == nil {
			continue
		}
		if at := t.Wait.Object; at != 0 && threads[i].All(func(o *snapshot.Thread) bool {
			return o.Wait != nil && o.Wait.Kind == snapshot.SpinLockEnter && o.Wait.Object == at && o.Wait.Timeout <= 0
		}) {
			if by[at] = append(by[at], t); len(by[at]) > len(by[most]) {
				most = at
			}
		}
	}
	list := by[most]
	if len(list) == 0 || e.inside(list) {
		return nil
	}
	first := list[0]
	who, got := phrase.ThreadName(gather.Ref(first))+" spins", "the thread has not"
	if n := len(list); n > 1 {
		who, got = fmt.Sprintf("%d threads spin, such as %s,", n, phrase.ThreadName(gather.Ref(first))), "none has"
	}
	own := gather.OwnFrame(first.Frames)
	v := profile.Verdict{
		Cause: profile.CauseLockContention, Certainty: profile.Likely,
		Text: fmt.Sprintf("%s for SpinLock %s, in %s, and %s got the lock in %s. No other thread is in code of %s: "+
			"most likely the lock was entered and not left, as when an exception skips an Exit that is in no finally "+
			"block.",
			who, cmp.Or(display.Field(first.Wait.Field), fmt.Sprintf("%#x", first.Wait.Object)), phrase.Method(own),
			got, phrase.Seconds(e.Span()), gather.OuterType(own.Method)),
		Evidence: []profile.Evidence{{Text: "The thread spins here:", Frames: first.Frames}},
		Commands: []string{"clrsnap locks " + e.Again()},
	}
	for _, t := range list {
		v.Evidence[0].Threads = append(v.Evidence[0].Threads, gather.Ref(t))
	}
	return []profile.Verdict{v}
}

// inside reports whether another thread is in code of the classes in which threads wait.
func (e *evidence) inside(list []*snapshot.Thread) bool {
	class, waits := map[string]bool{}, map[int]bool{}
	for _, t := range list {
		class[gather.OuterType(gather.OwnFrame(t.Frames).Method)], waits[t.OSThreadID] = true, true
	}
	return slices.ContainsFunc(e.Last().Snap.Threads, func(t snapshot.Thread) bool {
		return !waits[t.OSThreadID] && slices.ContainsFunc(t.Frames, func(f snapshot.Frame) bool {
			return f.Origin() != snapshot.OfFramework && gather.MemberOf(class, f.Method)
		})
	})
}
