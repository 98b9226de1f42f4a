package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
)

// maxDeadlocks bounds the deadlocks with a verdict of their own.
const maxDeadlocks = 3

// judgeDeadlock looks for threads that wait for one another, and for locks that are never left.
func judgeDeadlock(e *evidence) []profile.Verdict {
	if len(e.looks) == 0 {
		return nil
	}
	l := e.last()
	g := l.snap.WaitGraph()
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
func (e *evidence) suspectedInAll(d *profile.Deadlock, l *look) bool {
	if len(e.looks) < 2 {
		return e.core()
	}
	still := e.stillWaiting()
	return !slices.ContainsFunc(d.Threads, func(i int) bool { return !still[l.snap.Threads[i].OSThreadID] })
}

// stillWaiting are the threads, by id, that have waited in all looks and have not run since the first look.
func (e *evidence) stillWaiting() map[int]bool {
	still := map[int]bool{}
	threads := e.threads()
	for i := range threads {
		if w := &threads[i]; w.unmoved && w.waits() {
			still[w.last().OSThreadID] = true
		}
	}
	return still
}

func deadlockVerdict(e *evidence, l *look, d *profile.Deadlock, c profile.Certainty) profile.Verdict {
	v := profile.Verdict{
		Cause: profile.CauseDeadlock, Certainty: c,
		Text:     deadlockText(l.snap, d),
		Commands: []string{"clrsnap locks " + e.again()},
	}
	if d.Timeout > 0 {
		v.Text += fmt.Sprintf(" One of the waits has a timeout of %s.", seconds(d.Timeout))
	}
	if n := len(d.Victims); n > 0 {
		v.Text += fmt.Sprintf(" %s for them.", more(n))
	}
	for _, i := range d.Threads[:min(len(d.Threads), maxShown)] {
		t := &l.snap.Threads[i]
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: threadName(ref(t)) + waitPhrase(t) + ":", Frames: t.Frames, Threads: []profile.ThreadRef{ref(t)},
		})
	}
	if len(d.Victims) > 0 {
		v.Evidence = append(v.Evidence, victims(l.snap, d.Victims))
	}
	return v
}

// maxShown bounds the threads whose stacks are shown for one verdict.
const maxShown = 8

func more(n int) string {
	if n == 1 {
		return "1 more thread waits"
	}
	return fmt.Sprintf("%d more threads wait", n)
}

func victims(s *profile.Snapshot, list []int) profile.Evidence {
	in := tally{}
	e := profile.Evidence{}
	for _, i := range list {
		t := &s.Threads[i]
		e.Threads = append(e.Threads, ref(t))
		if m := blockedIn(t); m != "" {
			in[m]++
		}
	}
	e.Text = more(len(list)) + ", directly or not"
	switch name, n := in.top(); {
	case n == len(list):
		e.Text += ", in " + name
	case n > 0:
		e.Text += fmt.Sprintf(", %d of them in %s", n, name)
	}
	e.Text += "."
	return e
}

// deadlockText says who waits for whom, with each thread's own method.
func deadlockText(s *profile.Snapshot, d *profile.Deadlock) string {
	var words []string
	for k, i := range d.Threads {
		if k == maxShown {
			words = append(words, fmt.Sprintf("and %d more", len(d.Threads)-k))
			break
		}
		t := entangled(s, d, &s.Threads[i])
		words = append(words, threadIn(&t)+waitPhrase(&t))
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

// entangled is a thread of a deadlock with the locks for which other threads of the deadlock wait. Such a lock names its
// owner itself.
func entangled(s *profile.Snapshot, d *profile.Deadlock, t *profile.Thread) profile.Thread {
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
func threadIn(t *profile.Thread) string {
	return threadName(ref(t)) + ", in " + method(ownFrame(t.Frames)) + ","
}

// waitPhrases describe a thread's wait; %s stands for the awaited object.
var waitPhrases = map[profile.WaitKind]string{
	profile.MonitorEnter: "waits to enter Monitor of %s", profile.MonitorWait: "waits in Monitor.Wait of %s",
	profile.LockEnter: "waits to enter %s", profile.SpinLockEnter: "spins to enter %s",
	profile.ReadLock:        "waits to read under %s",
	profile.UpgradeableLock: "waits to read, upgradeable, under %s", profile.WriteLock: "waits to write under %s",
	profile.SemaphoreWait: "waits for %s", profile.EventWait: "waits for %s", profile.CountdownWait: "waits for %s",
	profile.BarrierWait: "waits at %s", profile.CollectionTake: "waits to take from %s",
	profile.CollectionAdd: "waits to add to %s", profile.TaskWait: "waits for %s",
	profile.ThreadJoin: "waits for the end of %s", profile.ThreadSleep: "sleeps", profile.HandleOne: "waits for %s",
	profile.TaskWaitAll: "waits for all of several tasks", profile.TaskWaitAny: "waits for any of several tasks",
	profile.HandleAny: "waits for any of several handles", profile.HandleAll: "waits for all of several handles",
}

// things name the awaited object if its type is not known.
var things = map[profile.WaitKind]string{
	profile.MonitorEnter: "an object", profile.MonitorWait: "an object", profile.LockEnter: "a Lock",
	profile.SpinLockEnter: "a SpinLock",
	profile.ReadLock:      "a ReaderWriterLockSlim", profile.UpgradeableLock: "a ReaderWriterLockSlim",
	profile.WriteLock: "a ReaderWriterLockSlim", profile.SemaphoreWait: "a SemaphoreSlim",
	profile.EventWait: "a ManualResetEventSlim", profile.CountdownWait: "a CountdownEvent",
	profile.BarrierWait: "a Barrier", profile.CollectionTake: "a BlockingCollection",
	profile.CollectionAdd: "a BlockingCollection", profile.TaskWait: "a task", profile.ThreadJoin: "a thread",
	profile.HandleOne: "a handle", profile.HandleAny: "several handles", profile.HandleAll: "several handles",
}

// waitPhrase describes a thread's holds and its wait: " holds Lock 0x… and waits to enter Monitor of Order 0x…, held
// by orders-2 (4242)". The phrase begins with a blank.
func waitPhrase(t *profile.Thread) string {
	var holds []string
	for i := range t.Holds {
		h := &t.Holds[i]
		holds = append(holds, objectOf(h, "a lock")+unsure(h))
	}
	text := doing(t)
	if len(holds) > 0 {
		text = "holds " + list(holds) + " and " + text
	}
	return " " + text
}

// doing says what a thread does.
func doing(t *profile.Thread) string {
	w := t.Wait
	switch {
	case w == nil && t.State == "running":
		return "runs"
	case w == nil:
		return "is " + t.State
	case w.Kind == profile.WaitIO && w.Target != "":
		return "is in " + w.Target
	case w.Kind == profile.WaitRuntime && w.Owner != nil:
		return fmt.Sprintf("waits for the static constructor of %s, which %s runs", w.Type, threadName(*w.Owner))
	case waitPhrases[w.Kind] == "":
		return "is " + t.State
	}
	thing := objectOf(w, things[w.Kind])
	if w.Method != "" {
		thing = "async " + w.Method
	}
	if w.Kind == profile.ThreadJoin && w.Owner != nil {
		thing = threadName(*w.Owner)
	}
	text := strings.Replace(waitPhrases[w.Kind], "%s", thing, 1)
	if w.Owner != nil && w.Kind == profile.HandleAll {
		text += ", among them " + thing
	}
	if len(w.Tasks) > 0 {
		text += " (" + w.Detail + ")" + someTasks(w.Tasks)
	}
	return text + hasIt(w) + unsure(w)
}

// someTasks names the first of several tasks with a known owner, and the owner.
func someTasks(tasks []profile.Wait) string {
	for i := range tasks {
		t := &tasks[i]
		if t.Owner == nil {
			continue
		}
		thing := objectOf(t, things[t.Kind])
		if t.Method != "" {
			thing = "async " + t.Method
		}
		return ", among them " + thing + hasIt(t)
	}
	return ""
}

// unsure marks an uncertain wait or hold.
func unsure(w *profile.Wait) string {
	if w.Certain {
		return ""
	}
	return " (uncertain)"
}

// hasIt names the holder of the awaited object, or the thread that comes first, if known.
func hasIt(w *profile.Wait) string {
	switch {
	case w.Owner != nil && w.Kind == profile.ThreadJoin:
		return "" // the owner is the awaited thread
	case w.Owner != nil && w.Kind == profile.TaskWait && w.Detail != "Running":
		return ", which depends on " + threadName(*w.Owner)
	case w.Owner != nil && w.Kind == profile.TaskWait:
		return ", run by " + threadName(*w.Owner)
	case w.Owner != nil:
		return ", held by " + threadName(*w.Owner)
	case len(w.Readers) > 0:
		return ", which " + someThreads(w.Readers) + display.Plural(len(w.Readers), " reads", " read")
	case len(w.Behind) > 0:
		return ", behind " + someThreads(w.Behind) +
			display.Plural(len(w.Behind), ", who waits to write", ", who wait to write")
	}
	return ""
}

// someThreads names the first threads of a list, and the number of further threads.
func someThreads(of []profile.ThreadRef) string {
	const most = 3
	var names []string
	for _, t := range of[:min(most, len(of))] {
		names = append(names, threadName(t))
	}
	if left := len(of) - most; left > 0 {
		names = append(names, fmt.Sprintf("%d more", left))
	}
	return list(names)
}

// judgeStuckHolder looks for a lock with waiters whose holder has waited during the whole look for a permit of a
// SemaphoreSlim. Only another thread, or an await, can release the permit. Nothing moves, and the threads alone do
// not tell who has the permit.
func judgeStuckHolder(e *evidence) []profile.Verdict {
	if len(e.looks) < 2 {
		return nil
	}
	threads := e.threads()
	byID := map[int]*watched{}
	for i := range threads {
		byID[threads[i].last().OSThreadID] = &threads[i]
	}
	waiters := map[int][]*watched{} // by the holder's id
	for i := range threads {
		w := &threads[i]
		if t := w.last(); w.unmoved && w.waits() && isLock(t.Wait) && t.Wait.Certain && t.Wait.Owner != nil {
			waiters[t.Wait.Owner.OSThreadID] = append(waiters[t.Wait.Owner.OSThreadID], w)
		}
	}
	best := 0
	for id, list := range waiters {
		h := byID[id]
		if h != nil && h.unmoved && h.all(waitsForPermit) && (best == 0 || len(list) > len(waiters[best])) {
			best = id
		}
	}
	if best == 0 {
		return nil
	}
	return []profile.Verdict{stuckHolder(e, byID[best], waiters[best])}
}

func waitsForPermit(t *profile.Thread) bool {
	return t.Wait != nil && t.Wait.Kind == profile.SemaphoreWait && t.Wait.Timeout <= 0
}

func stuckHolder(e *evidence, h *watched, behind []*watched) profile.Verdict {
	t, one := h.last(), behind[0].last()
	lock := objectOf(one.Wait, "a lock")
	holder := "Whoever has the permit, an await perhaps"
	if names := e.holders(t); names != "" {
		holder = "Who most likely has a permit, " + names
	}
	v := profile.Verdict{
		Cause: profile.CauseDeadlock, Certainty: profile.Likely,
		Text: fmt.Sprintf("Deadlock, most likely: %s holds %s, in %s, and waits for a permit of %s, which it has not "+
			"got for at least %s. %s for the lock. %s, may need one of them to go on.",
			threadName(ref(t)), lock, method(ownFrame(t.Frames)), objectOf(t.Wait, "a SemaphoreSlim"),
			seconds(e.span()), waitNow(len(behind)), holder),
		Commands: []string{"clrsnap locks " + e.again(), "clrsnap tasks " + e.again()},
	}
	if !slices.ContainsFunc(behind, func(w *watched) bool { return takesElsewhere(w.last(), t) }) {
		v.Certainty = profile.Possible
		v.Text = strings.Replace(v.Text, "Deadlock, most likely", "Deadlock, perhaps", 1) +
			" Threads that take turns to wait for work look the same."
	}
	v.Evidence = []profile.Evidence{{
		Text: threadName(ref(t)) + waitPhrase(t) + ":", Frames: t.Frames, Threads: []profile.ThreadRef{ref(t)},
	}}
	in := profile.Evidence{
		Text: fmt.Sprintf("%s for %s, and have not run since the first look, such as %s:", waitNow(len(behind)), lock,
			threadName(ref(one))),
		Frames: one.Frames,
	}
	for _, w := range behind {
		in.Threads = append(in.Threads, ref(w.last()))
	}
	v.Evidence = append(v.Evidence, in)
	return v
}

// takesElsewhere reports whether a thread waits for a lock in a method outside the holder's stack: waiter and holder
// do different things under the lock. Consumers of a queue take the lock in the method in which one consumer waits
// for work.
func takesElsewhere(t, holder *profile.Thread) bool {
	own := ownFrame(t.Frames)
	return own != nil && !slices.ContainsFunc(holder.Frames, func(f profile.Frame) bool {
		return f.Method == own.Method && f.Module == own.Module
	})
}

// isLock reports whether a wait is for a lock with an owner.
func isLock(w *profile.Wait) bool {
	if w == nil {
		return false
	}
	switch w.Kind {
	case profile.MonitorEnter, profile.LockEnter, profile.ReadLock, profile.UpgradeableLock, profile.WriteLock:
		return true
	}
	return false
}

// enough is the shortest duration of a wait that deserves blame.
const enough = 500 * time.Millisecond
