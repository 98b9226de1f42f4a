package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// maxDeadlocks bounds the deadlocks with a verdict of their own.
const maxDeadlocks = 3

// judgeDeadlock looks for threads that wait for one another, and for locks that are never left.
func judgeDeadlock(e *evidence) []profile.Verdict {
	if len(e.Looks) == 0 {
		return nil
	}
	l := e.Last()
	g := l.Snap.WaitGraph()
	var out []profile.Verdict
	for i := range g.Deadlocks {
		if len(out) == maxDeadlocks {
			break
		}
		out = append(out, deadlockVerdict(e, l, &g.Deadlocks[i], profile.Certain))
	}
	for i := range g.Suspected {
		if len(out) > 0 {
			break // a certain deadlock says enough
		}
		if d := &g.Suspected[i]; e.suspectedInAll(d, l) {
			out = append(out, deadlockVerdict(e, l, d, profile.Likely))
		}
	}
	if len(out) == 0 {
		out = judgeLikely(e)
	}
	if len(out) == 0 {
		out = judgeStuckHolder(e)
	}
	return out
}

// suspectedInAll reports whether the members of a deadlock have waited in each look, and have not run since the first.
func (e *evidence) suspectedInAll(d *snapshot.Deadlock, l *gather.Look) bool {
	if len(e.Looks) < 2 {
		return e.Core()
	}
	still := e.stillWaiting()
	return !slices.ContainsFunc(d.Threads, func(i int) bool { return !still[l.Snap.Threads[i].OSThreadID] })
}

// stillWaiting are the threads, by id, that have waited in all looks and have not run since the first look.
func (e *evidence) stillWaiting() map[int]bool {
	still := map[int]bool{}
	threads := e.Threads()
	for i := range threads {
		if w := &threads[i]; w.Unmoved && w.Waits() {
			still[w.Last().OSThreadID] = true
		}
	}
	return still
}

func deadlockVerdict(e *evidence, l *gather.Look, d *snapshot.Deadlock, c profile.Certainty) profile.Verdict {
	groups := alike(l.Snap, d)
	v := profile.Verdict{
		Cause: profile.CauseDeadlock, Certainty: c,
		Text:     deadlockText(l.Snap, d, groups),
		Commands: []string{"clrsnap locks " + e.Again()},
	}
	if d.Timeout > 0 {
		v.Text += fmt.Sprintf(" One of the waits has a timeout of %s.", phrase.Seconds(d.Timeout))
	}
	if n := len(d.Victims); n > 0 {
		v.Text += fmt.Sprintf(" %s for them.", more(n))
	}
	for _, equal := range groups {
		t := &l.Snap.Threads[equal[0]]
		ev := profile.Evidence{
			Text: phrase.ThreadName(gather.Ref(t)) + likeOthers(equal) + phrase.WaitPhrase(t) + ":", Frames: t.Frames,
		}
		for _, i := range equal {
			ev.Threads = append(ev.Threads, gather.Ref(&l.Snap.Threads[i]))
		}
		v.Evidence = append(v.Evidence, ev)
	}
	if len(d.Victims) > 0 {
		v.Evidence = append(v.Evidence, victims(l.Snap, d.Victims))
	}
	return v
}

// alike groups the threads of a deadlock that wait in equal words in one method: at most maxShown groups.
func alike(s *snapshot.Snapshot, d *snapshot.Deadlock) (out [][]int) {
	at := map[string]int{}
	for _, i := range d.Threads {
		t := entangled(s, d, &s.Threads[i])
		key := gather.Place(t.Frames) + phrase.WaitPhrase(&t)
		k, ok := at[key]
		if !ok && len(out) == maxShown {
			continue
		}
		if !ok {
			k, at[key], out = len(out), len(out), append(out, nil)
		}
		out[k] = append(out[k], i)
	}
	return out
}

// likeOthers says how many threads are alike: ", like 5 other threads,"; "": only one is.
func likeOthers(equal []int) string {
	if len(equal) == 1 {
		return ""
	}
	return fmt.Sprintf(", like %s,", phrase.Counted(len(equal)-1, "other thread", "other threads"))
}

// maxShown bounds the threads whose stacks are shown for one verdict.
const maxShown = 8

func more(n int) string {
	if n == 1 {
		return "1 more thread waits"
	}
	return fmt.Sprintf("%d more threads wait", n)
}

func victims(s *snapshot.Snapshot, list []int) profile.Evidence {
	in := gather.Tally{}
	e := profile.Evidence{}
	for _, i := range list {
		t := &s.Threads[i]
		e.Threads = append(e.Threads, gather.Ref(t))
		if m := gather.OwnMethod(t); m != "" {
			in[m]++
		}
	}
	e.Text = more(len(list)) + ", directly or not"
	switch name, n := in.Top(); {
	case n == len(list):
		e.Text += ", in " + name
	case n > 0:
		e.Text += fmt.Sprintf(", %d of them in %s", n, name)
	}
	e.Text += "."
	return e
}

// deadlockText says who waits for whom, with each thread's own method. groups are the threads that are alike.
func deadlockText(s *snapshot.Snapshot, d *snapshot.Deadlock, groups [][]int) string {
	var words []string
	left := len(d.Threads)
	for _, equal := range groups {
		t := entangled(s, d, &s.Threads[equal[0]])
		words = append(words, phrase.ThreadName(gather.Ref(&t))+strings.TrimSuffix(likeOthers(equal), ",")+", in "+
			gather.Place(t.Frames)+","+phrase.WaitPhrase(&t))
		left -= len(equal)
	}
	if left > 0 {
		words = append(words, fmt.Sprintf("and %d more", left))
	}
	switch {
	case d.Ended && s.Threads[d.Threads[0]].Wait.Owner == nil:
		return "A reader of a lock has ended without leaving it, so that nobody ever writes under it: " +
			strings.Join(words, "; ") + "."
	case d.Ended:
		return "The owner of a lock has ended without leaving it, so that it is never free: " +
			strings.Join(words, "; ") + "."
	case len(d.Threads) == 1:
		return "Deadlock: a thread waits for itself: " + words[0] + "."
	}
	return "Deadlock: " + strings.Join(words, "; ") + "."
}

// entangled is a thread of a deadlock with the locks for which other threads of the deadlock wait. Such a lock names
// its owner itself.
func entangled(s *snapshot.Snapshot, d *snapshot.Deadlock, t *snapshot.Thread) snapshot.Thread {
	out := *t
	out.Holds = nil
	for k := range t.Holds {
		h := t.Holds[k]
		for _, i := range d.Threads {
			if w := s.Threads[i].Wait; w != nil && w.Owner != nil && w.Owner.OSThreadID == t.OSThreadID &&
				w.Object != 0 && w.Object == h.Object {
				h.Certain, h.Field = h.Certain || w.Certain, cmp.Or(h.Field, w.Field)
				out.Holds = append(out.Holds, h)
				break
			}
		}
	}
	if len(out.Holds) == 0 {
		out.Holds = t.Holds
	}
	return out
}

// threadIn names a thread and its own method: "orders-2 (4242), in Orders.Handle,".
func threadIn(t *snapshot.Thread) string {
	return phrase.ThreadName(gather.Ref(t)) + ", in " + gather.Place(t.Frames) + ","
}

// waitEvidence is the stack of a thread that waits, and what for.
func waitEvidence(t *snapshot.Thread) profile.Evidence {
	return profile.Evidence{
		Text: phrase.ThreadName(gather.Ref(t)) + phrase.WaitPhrase(t) + ":", Frames: t.Frames,
		Threads: []snapshot.ThreadRef{gather.Ref(t)},
	}
}

// judgeStuckHolder looks for a lock with waiters whose holder has waited during the whole look for a permit of a
// SemaphoreSlim. Only another thread, or an await, can release the permit. Nothing moves, and the threads alone do
// not tell who has the permit.
func judgeStuckHolder(e *evidence) []profile.Verdict {
	if len(e.Looks) < 2 {
		return nil
	}
	threads := e.Threads()
	byID := map[int]*gather.Watched{}
	for i := range threads {
		byID[threads[i].Last().OSThreadID] = &threads[i]
	}
	waiters := map[int][]*gather.Watched{} // by the holder's id
	for i := range threads {
		w := &threads[i]
		if t := w.Last(); w.Unmoved && w.Waits() && isLock(t.Wait) && t.Wait.Certain && t.Wait.Owner != nil {
			waiters[t.Wait.Owner.OSThreadID] = append(waiters[t.Wait.Owner.OSThreadID], w)
		}
	}
	best := 0
	for id, list := range waiters {
		h := byID[id]
		if h != nil && h.Unmoved && h.All(waitsForPermit) && (best == 0 || len(list) > len(waiters[best])) {
			best = id
		}
	}
	if best == 0 {
		return nil
	}
	return []profile.Verdict{stuckHolder(e, byID[best], waiters[best])}
}

func waitsForPermit(t *snapshot.Thread) bool {
	return t.Wait != nil && t.Wait.Kind == snapshot.SemaphoreWait && t.Wait.Timeout <= 0
}

func stuckHolder(e *evidence, h *gather.Watched, behind []*gather.Watched) profile.Verdict {
	t, one := h.Last(), behind[0].Last()
	lock := phrase.ObjectOf(one.Wait, "a lock")
	holder := "Whoever has the permit, an await perhaps"
	if names := e.holders(t); names != "" {
		holder = "Who most likely has a permit, " + names
	}
	v := profile.Verdict{
		Cause: profile.CauseDeadlock, Certainty: profile.Likely,
		Text: fmt.Sprintf("Deadlock, most likely: %s holds %s, in %s, and waits for a permit of %s, which it has not "+
			"got for at least %s. %s for the lock. %s, may need one of them to go on.",
			phrase.ThreadName(gather.Ref(t)), lock, gather.Place(t.Frames), phrase.ObjectOf(t.Wait,
				"a SemaphoreSlim"),
			phrase.Seconds(e.Span()), phrase.ThreadsWait(len(behind)), holder),
		Commands: []string{"clrsnap locks " + e.Again(), "clrsnap tasks " + e.Again()},
	}
	if !slices.ContainsFunc(behind, func(w *gather.Watched) bool { return takesElsewhere(w.Last(), t) }) {
		v.Certainty = profile.Possible
		v.Text = strings.Replace(v.Text, "Deadlock, most likely", "Deadlock, perhaps", 1) +
			" Threads that take turns to wait for work look the same."
	}
	v.Evidence = []profile.Evidence{waitEvidence(t)}
	in := profile.Evidence{
		Text: fmt.Sprintf("%s for %s, and have not run since the first look, such as %s:",
			phrase.ThreadsWait(len(behind)), lock,
			phrase.ThreadName(gather.Ref(one))),
		Frames: one.Frames,
	}
	for _, w := range behind {
		in.Threads = append(in.Threads, gather.Ref(w.Last()))
	}
	v.Evidence = append(v.Evidence, in)
	return v
}

// takesElsewhere reports whether a thread waits for a lock in a method outside the holder's stack: waiter and holder
// do different things under the lock. Consumers of a queue take the lock in the method in which one consumer waits
// for work.
func takesElsewhere(t, holder *snapshot.Thread) bool {
	own := gather.OwnFrame(t.Frames)
	return own != nil && !slices.ContainsFunc(holder.Frames, func(f snapshot.Frame) bool {
		return f.Method == own.Method && f.Module == own.Module
	})
}

// isLock reports whether a wait is for a lock with an owner.
func isLock(w *snapshot.Wait) bool {
	if w == nil {
		return false
	}
	switch w.Kind {
	case snapshot.MonitorEnter, snapshot.LockEnter, snapshot.ReadLock, snapshot.UpgradeableLock, snapshot.WriteLock:
		return true
	}
	return false
}
