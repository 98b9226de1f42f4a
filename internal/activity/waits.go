package activity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

const (
	shownWaits  = 6 // number of places where threads wait
	shownChains = 4 // number of places where async methods wait
)

// Waits returns the waits in the program's own code that lasted the whole time: no trouble by themselves. A reader
// who knows that the program should be working sees the program's waits here.
func Waits(e *gather.Evidence) (out []profile.Evidence) {
	if len(e.Looks) < 2 || e.Held() {
		return nil
	}
	out = append(out, waitingThreads(e)...)
	l := e.LastFlight()
	if l == nil {
		return append(out, waitingChains(e, e.Chains)...)
	}
	out = append(out, waitingChains(e, l.Tasks.Chains)...)
	if list := l.RequestsNow(); len(list) > 0 {
		oldest := slices.MinFunc(list, func(a, b snapshot.Request) int { return sinceOrder(&a, &b) })
		text := phrase.Counted(len(list), "request is in flight", "requests are in flight")
		if !oldest.Since.IsZero() {
			text += fmt.Sprintf(", the oldest one for %s: %s %s",
				phrase.Seconds(l.Requests.CapturedAt.Sub(oldest.Since)),
				oldest.Method, oldest.Path)
		}
		out = append(out, profile.Evidence{Text: text + "."})
	}
	return out
}

// sinceOrder puts requests without a known beginning behind the others.
func sinceOrder(a, b *snapshot.Request) int {
	if a.Since.IsZero() != b.Since.IsZero() {
		if a.Since.IsZero() {
			return 1
		}
		return -1
	}
	return a.Since.Compare(b.Since)
}

// waitingThreads are the threads that have waited in own code, in the same calls in all looks, by place.
func waitingThreads(e *gather.Evidence) (out []profile.Evidence) {
	type group struct {
		first   *snapshot.Thread
		threads []snapshot.ThreadRef
	}
	groups := map[string]*group{}
	threads := e.Threads()
	for i := range threads {
		w := &threads[i]
		t := w.Last()
		own := gather.OwnFrame(t.Frames)
		if own == nil || t.Wait == nil || !w.Retries() && (!w.Unmoved || !w.Waits() || !gather.Telling(t.Wait)) {
			continue
		}
		key := string(t.Wait.Kind) + " " + own.Module + "!" + own.Method
		g := groups[key]
		if g == nil {
			g = &group{first: t}
			groups[key] = g
		}
		g.threads = append(g.threads, gather.Ref(t))
	}
	list := slices.SortedFunc(maps.Values(groups), func(a, b *group) int {
		return cmp.Or(cmp.Compare(len(b.threads), len(a.threads)), cmp.Compare(a.first.OSThreadID, b.first.OSThreadID))
	})
	for _, g := range list[:min(len(list), shownWaits)] {
		who, in := phrase.ThreadName(gather.Ref(g.first)), gather.Place(g.first.Frames)
		does := phrase.Doing(g.first) + named(g.first.Wait)
		text := fmt.Sprintf("%s %s, in %s.", who, does, in)
		n := len(g.threads)
		switch {
		case g.first.Wait.Kind == snapshot.ThreadSleep:
			text = fmt.Sprintf("%s of the thread pool %s in %s: no other work gets %s.",
				phrase.Counted(n, "worker", "workers"), phrase.Verb(n, "sleeps", "sleep"),
				in, phrase.Verb(n, "it", "them"))
		case n > 1: // their objects may differ
			text = fmt.Sprintf("%d threads wait in %s. One of them, %s, %s.", n, in, who, does)
		}
		out = append(out, profile.Evidence{Text: text, Threads: g.threads})
	}
	return out
}

// named names a Mutex that other processes can hold, with its holder.
func named(w *snapshot.Wait) string {
	if w.Kind == snapshot.HandleOne && strings.HasPrefix(w.Detail, "named ") {
		return " (" + w.Detail + ")"
	}
	return ""
}

// waitingChains are the suspended methods of the program, by the object at the end of their chain.
func waitingChains(e *gather.Evidence, chains []snapshot.TaskChain) (out []profile.Evidence) {
	type group struct {
		first *snapshot.TaskChain
		thing string
		count int
	}
	groups := map[string]*group{}
	for i := range chains {
		c := &chains[i]
		own := gather.OwnFrame(c.Frames)
		if own == nil || c.State != snapshot.TaskWaiting || c.WaitsFor == nil || own.Origin() != snapshot.OfUser {
			continue
		}
		thing := e.AwaitedThing(c.WaitsFor)
		if thing == "" {
			continue
		}
		switch w := c.WaitsFor; {
		case w.Target != "":
			thing = w.Target
		case w.Kind != snapshot.AwaitsSemaphore && gather.QueuedFor(w) != "":
			thing = gather.QueuedFor(w)
		}
		key := thing + " " + own.Module + "!" + own.Method
		g := groups[key]
		if g == nil {
			g = &group{first: c, thing: thing}
			groups[key] = g
		}
		g.count += c.Count
	}
	list := slices.SortedFunc(maps.Values(groups), func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.thing, b.thing))
	})
	for _, g := range list[:min(len(list), shownChains)] {
		out = append(out, profile.Evidence{
			Text: fmt.Sprintf("%s for %s, in %s.", phrase.Counted(g.count, "async method waits", "async methods wait"),
				g.thing, gather.Place(g.first.Frames)),
		})
	}
	return out
}
