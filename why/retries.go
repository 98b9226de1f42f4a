package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// fewRetries is how many exceptions each thread must have caught while it was looked at.
const fewRetries = 2

// retries is threads that have been in one own call since the first look, and try again and again.
type retries struct {
	own     *snapshot.Frame
	frames  []snapshot.Frame
	threads []snapshot.ThreadRef
	caught  int64
	node    int32 // the leaf of one of the exceptions
}

// judgeRetries looks for threads that sleep in one method, wake up, catch an exception there and sleep again: each try
// has failed. A loop at the base of a thread may as well ask for work, and is left out.
func judgeRetries(e *evidence) []profile.Verdict {
	if len(e.Looks) < 2 || e.Span() < gather.Enough || !gather.HasMode(e.Samples, profile.Exception) {
		return nil
	}
	groups, caught := map[string]*retries{}, e.caught()
	threads := e.Threads()
	for i := range threads {
		t, own := threads[i].Last(), sleepsWithin(&threads[i])
		if own == nil {
			continue
		}
		c := caught[catcher{t.OSThreadID, own.Display}]
		if c.n < fewRetries {
			continue
		}
		g := groups[own.Method]
		if g == nil {
			g = &retries{own: own, frames: t.Frames, node: c.node}
			groups[own.Method] = g
		}
		g.threads = append(g.threads, gather.Ref(t))
		g.caught += c.n
	}
	for _, g := range slices.SortedFunc(maps.Values(groups), func(a, b *retries) int {
		return cmp.Or(cmp.Compare(len(b.threads), len(a.threads)), cmp.Compare(a.own.Method, b.own.Method))
	}) {
		if len(g.threads) >= fewWaiters {
			return []profile.Verdict{g.verdict(e)}
		}
	}
	if v := e.timesOut(); v != nil {
		return v
	}
	return e.failsAgain()
}

// timesOut looks for waits that end with a TimeoutException again and again: several threads, or async methods, wait in
// a method all the time, and each of the threads has thrown the exception there.
func (e *evidence) timesOut() []profile.Verdict {
	r := e.Samples
	for _, t := range e.Throws() {
		stack := gather.WithoutEvents(gather.Frames(r, t.Node))
		own := gather.OwnFrame(stack)
		if own == nil || !strings.HasSuffix(t.Type, ".TimeoutException") {
			continue
		}
		waits := timedWaits{own: own.Display}
		if waits.addThreads(e); len(waits.threads) == 0 {
			waits.addMethods(e)
		}
		if n := len(waits.threads) + waits.methods; n >= fewWaiters && t.Weight >= fewRetries {
			return []profile.Verdict{waits.verdict(e, t, n)}
		}
	}
	return nil
}

// timedWaits is the threads and async methods that wait in one method, with a time limit, in all looks.
type timedWaits struct {
	own     string
	frames  []snapshot.Frame // of one of them
	threads []snapshot.ThreadRef
	methods int
}

func (w *timedWaits) addThreads(e *evidence) {
	r, thrown := e.Samples, map[int]bool{}
	for i := range r.Samples {
		x := &r.Samples[i]
		if x.Mode != profile.Exception {
			continue
		}
		if n := gather.OwnNode(r, x.Node); n > 0 && r.Function(n).Display == w.own {
			thrown[r.Threads[x.Thread].OSThreadID] = true
		}
	}
	threads := e.Threads()
	for i := range threads {
		t := threads[i].Last()
		if thrown[t.OSThreadID] && threads[i].All(func(t *snapshot.Thread) bool {
			own := gather.OwnFrame(t.Frames)
			return own != nil && own.Display == w.own && t.Wait != nil && t.Wait.Kind != snapshot.ThreadSleep &&
				t.Wait.Timeout != snapshot.Forever
		}) {
			w.threads, w.frames = append(w.threads, gather.Ref(t)), t.Frames
		}
	}
}

func (w *timedWaits) addMethods(e *evidence) {
	if len(e.Flights) < 2 {
		return
	}
	count := func(l *gather.FlightLook) (n int) {
		for i := range l.Tasks.Chains {
			c := &l.Tasks.Chains[i]
			if own := gather.OwnFrame(c.Frames); own != nil && own.Display == w.own && c.State == snapshot.TaskWaiting {
				n, w.frames = n+c.Count, c.Frames
			}
		}
		return n
	}
	w.methods = min(count(&e.Flights[0]), count(e.LastFlight()))
}

func (w *timedWaits) verdict(e *evidence, t *gather.Thrown, n int) profile.Verdict {
	who := phrase.ThreadsWait(n)
	if len(w.threads) == 0 {
		who = phrase.Counted(n, "async method waits", "async methods wait")
	}
	return profile.Verdict{
		Cause: profile.CauseStalled, Certainty: profile.Possible,
		Text: fmt.Sprintf("%s in %s in all looks, and the time limits pass: %s of %s in %s, thrown there%s. What the "+
			"waits are for does not come, or comes too late. Code that asks for work with a time limit looks the same.",
			who, phrase.Method(gather.OwnFrame(w.frames)), phrase.Counted(int(t.Weight), "exception", "exceptions"),
			t.Type, phrase.Seconds(e.Samples.Duration), t.Caught()),
		Evidence: []profile.Evidence{{Text: "One of the waits:", Frames: w.frames, Threads: w.threads}},
		Commands: []string{fmt.Sprintf("clrsnap record %d --event exception -d 10s", e.Process.PID)},
	}
}

// Thresholds of one piece of work that fails each time.
const (
	equalExceptions = 20  // a second, of one type, from one place and caught in one method
	nearlyAll       = 0.9 // of all exceptions
)

// failsAgain looks for one piece of work that fails each time that it is tried: nearly all exceptions are equal, and
// the method that catches the exceptions of another method pauses between the tries. The end of a wait is no failure.
func (e *evidence) failsAgain() []profile.Verdict {
	list := e.Throws()
	if len(list) == 0 {
		return nil
	}
	r, t := e.Samples, list[0]
	rate := phrase.Rate(t.Weight, r.Duration)
	in, known := profile.Catcher(t.Fate)
	if !known || rate < equalExceptions || float64(t.Weight) < nearlyAll*float64(r.Weight(profile.Exception)) ||
		slices.ContainsFunc(endsOfWaits, func(name string) bool { return strings.HasSuffix(t.Type, name) }) ||
		!e.spread(t.Node) {
		return nil
	}
	pauses, stack := e.pausesIn(in), gather.WithoutEvents(gather.Frames(r, t.Node))
	if own := gather.OwnFrame(stack); pauses == nil || own == nil || own.Display == in {
		return nil
	}
	return []profile.Verdict{{
		Cause: profile.CauseStalled, Certainty: profile.Possible,
		Text: fmt.Sprintf("The same failure comes again and again: %s catches %s %s a second, thrown %s, and pauses "+
			"between the tries.", in, phrase.Number(rate), t.Type, gather.ThrownAt(stack)),
		Evidence: []profile.Evidence{
			{Text: "The exceptions are thrown here:", Frames: stack}, {Text: "The pause:", Frames: pauses},
		},
		Commands: []string{fmt.Sprintf("clrsnap record %d --event exception -d 10s", e.Process.PID)},
	}}
}

// endsOfWaits are the exceptions at the end of a wait, by the ends of their names.
var endsOfWaits = []string{"CanceledException", "TimeoutException", "SocketException"}

// spread reports whether the exceptions of one place come one by one, not in bursts: there is a pause behind each.
func (e *evidence) spread(node int32) bool {
	var at []time.Duration
	for i := range e.Samples.Samples {
		if x := &e.Samples.Samples[i]; x.Mode == profile.Exception && x.Node == node {
			at = append(at, x.At)
		}
	}
	slices.Sort(at)
	close := 0
	for i := 1; i < len(at); i++ {
		if at[i]-at[i-1] < time.Millisecond {
			close++
		}
	}
	return 5*close < len(at)
}

// pausesIn is the stack of a thread that sleeps in a method in most looks, or of an async method that waits for a timer
// there; nil: there is none.
func (e *evidence) pausesIn(method string) []snapshot.Frame {
	threads := e.Threads()
	for i := range threads {
		var asleep []*snapshot.Thread
		for _, t := range threads[i].Looks {
			if t.Wait != nil && t.Wait.Kind == snapshot.ThreadSleep && gather.OwnMethod(t) == method {
				asleep = append(asleep, t)
			}
		}
		if 2*len(asleep) > len(threads[i].Looks) {
			return asleep[0].Frames
		}
	}
	l := e.LastFlight()
	if l == nil {
		return nil
	}
	for i := range l.Tasks.Chains {
		c := &l.Tasks.Chains[i]
		own := gather.OwnFrame(c.Frames)
		if c.WaitsFor != nil && c.WaitsFor.Kind == snapshot.AwaitsTimer && own != nil && own.Display == method {
			return c.Frames
		}
	}
	return nil
}

// catcher is a method that has caught exceptions on a thread.
type catcher struct {
	thread int
	method string // display name
}

// caughtBy is how many exceptions a method has caught. node is the leaf of one of them.
type caughtBy struct {
	n    int64
	node int32
}

// caught counts the recorded exceptions by the methods that have caught them.
func (e *evidence) caught() map[catcher]caughtBy {
	r, out := e.Samples, map[catcher]caughtBy{}
	for i := range r.Samples {
		x := &r.Samples[i]
		if x.Mode != profile.Exception || x.Node == 0 {
			continue
		}
		if method, ok := profile.Catcher(r.Function(x.Node).Fate); ok {
			of := catcher{r.Threads[x.Thread].OSThreadID, method}
			out[of] = caughtBy{out[of].n + x.Weight, x.Node}
		}
	}
	return out
}

// sleepsWithin is the own frame of a call in which a thread has been in all looks, asleep in most; nil: there is none,
// or the call is at the base of the thread.
func sleepsWithin(w *gather.Watched) *snapshot.Frame {
	first, asleep := gather.OwnFrame(w.Looks[0].Frames), 0
	for _, t := range w.Looks {
		own := gather.OwnFrame(t.Frames)
		if first == nil || own == nil || !gather.SameCall(own, first) ||
			gather.OutermostOwn(t.Frames) == own.Module+"!"+own.Method {
			return nil
		}
		if t.Wait != nil && t.Wait.Kind == snapshot.ThreadSleep {
			asleep++
		}
	}
	if 2*asleep <= len(w.Looks) {
		return nil
	}
	return first
}

func (g *retries) verdict(e *evidence) profile.Verdict {
	r := e.Samples
	return profile.Verdict{
		Cause: profile.CauseStalled, Certainty: profile.Possible,
		Text: fmt.Sprintf("%d threads try something again and again, and fail each time: all were in %s in %d of %d "+
			"looks, and sleep there between the tries. The method has caught %s in %s, such as %s.",
			len(g.threads), phrase.Method(g.own), len(e.Looks), len(e.Looks),
			phrase.Counted(int(g.caught), "exception", "exceptions"), phrase.Seconds(r.Duration),
			r.Function(g.node).Display),
		Evidence: []profile.Evidence{
			{Text: "One of them, " + phrase.ThreadName(g.threads[0]) + ":", Frames: g.frames, Threads: g.threads},
			{Text: "One of the exceptions was thrown here:", Frames: gather.WithoutEvents(gather.Frames(r, g.node))},
		},
		Commands: []string{
			fmt.Sprintf("clrsnap record %d --event exception -d 10s", e.Process.PID),
			"clrsnap stack " + e.Again() + " --group",
		},
	}
}
