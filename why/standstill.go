package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/internal/tasks"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// standstill is threads or async methods of one place that have not gone on since the first look, and that only other
// code of the program can let go on. A wait for work, for the time or for somebody outside is no such wait.
type standstill struct {
	kind    snapshot.WaitKind // of the threads
	frames  []snapshot.Frame
	example *snapshot.Thread
	threads []snapshot.ThreadRef
	methods int    // async methods, if there are no threads
	thing   string // that the methods wait for
	source  string // the method that waits for a TaskCompletionSource; "": a wait for one another, or for room
}

// amongCauses are the causes of which a standstill may be a consequence.
var amongCauses = []profile.Cause{
	profile.CauseStopped, profile.CauseDebugger, profile.CauseDeadlock, profile.CauseSuspension,
	profile.CauseFinalizer, profile.CauseShutdown, profile.CauseBlockedIO, profile.CauseRemoteCall,
	profile.CauseLockContention, profile.CausePoolStarvation, profile.CauseStalled,
}

// standstill looks for waits that nobody is left to end, if no judge has found another reason for waits.
func (e *evidence) standstill(found []profile.Verdict) []profile.Verdict {
	_, _, ok := e.Progressed()
	if !ok || e.Core() || e.Held() || e.Span() < gather.Enough || slices.ContainsFunc(found,
		func(v profile.Verdict) bool { return slices.Contains(amongCauses, v.Cause) }) {
		return nil
	}
	stood := e.stoodStill()
	list := append(e.standingGroups(stood), e.standingMethods(stood)...)
	slices.SortStableFunc(list, func(a, b *standstill) int {
		return cmp.Or(cmp.Compare(len(b.threads), len(a.threads)), cmp.Compare(b.methods, a.methods))
	})
	still := e.stillWaiting()
	for _, s := range list {
		if c := e.standstillCertainty(s, stood, still); c != "" {
			return []profile.Verdict{e.standstillVerdict(s, c)}
		}
	}
	return nil
}

// standingGroups groups the threads that wait for other code of the program, by place.
func (e *evidence) standingGroups(stood map[uint64]int) []*standstill {
	groups := map[string]*standstill{}
	threads := e.Threads()
	for i := range threads {
		w := &threads[i]
		t := w.Last()
		own := gather.OwnFrame(t.Frames)
		if !w.Unmoved || own == nil || t.Wait == nil || t.Wait.Timeout > 0 || t.OSThreadID == e.Process.PID ||
			strings.HasPrefix(t.Role, "ThreadPool") {
			continue
		}
		source := ""
		switch k := t.Wait.Kind; {
		case k == snapshot.BarrierWait, k == snapshot.CountdownWait:
		case k == snapshot.TaskWait:
			if source = e.sourceBehind(t, own, stood); source == "" {
				continue
			}
		default:
			continue
		}
		key := string(t.Wait.Kind) + " " + gather.OutermostOwn(t.Frames)
		g := groups[key]
		if g == nil {
			g = &standstill{kind: t.Wait.Kind, frames: t.Frames, example: t, source: source}
			groups[key] = g
		}
		g.threads = append(g.threads, gather.Ref(t))
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b *standstill) int {
		return cmp.Compare(a.threads[0].OSThreadID, b.threads[0].OSThreadID)
	})
}

// sourceBehind is the method that waits for a TaskCompletionSource on behalf of a blocked thread; "": the thread waits
// for something else, or it is not known.
func (e *evidence) sourceBehind(t *snapshot.Thread, own *snapshot.Frame, stood map[uint64]int) (source string) {
	if t.Wait.Method == "" {
		if _, waits := e.Sources[own.Display].Threads[t.OSThreadID]; waits {
			return own.Display
		}
		return ""
	}
	for i := range e.LastFlight().Tasks.Chains {
		c := &e.LastFlight().Tasks.Chains[i]
		if !gather.HasMethod(c, t.Wait.Method) {
			continue
		}
		if !standsForSource(c, stood) {
			return ""
		}
		source = c.Frames[0].Display
	}
	return source
}

// standsForSource reports whether a method of the program waits for a TaskCompletionSource, and has waited since the
// first look.
func standsForSource(c *snapshot.TaskChain, stood map[uint64]int) bool {
	return c.State == snapshot.TaskWaiting && c.WaitsFor != nil && c.WaitsFor.Kind == snapshot.AwaitsCompletion &&
		len(c.Frames) > 0 && c.Frames[0].Origin() == snapshot.OfUser && stood[tasks.ChainKey(c)] >= c.Count
}

// standsForRoom reports whether a method of the program waits for room in a channel or in a pipe, and has waited since
// the first look.
func standsForRoom(c *snapshot.TaskChain, stood map[uint64]int) bool {
	return c.State == snapshot.TaskWaiting && c.WaitsFor != nil && c.WaitsFor.Kind != snapshot.AwaitsSemaphore &&
		gather.QueuedFor(c.WaitsFor) != "" && gather.OwnFrame(c.Frames) != nil && stood[tasks.ChainKey(c)] >= c.Count
}

// standingMethods are the async methods that have waited since the first look: for room, or for TaskCompletionSources,
// each for a source of its own. A source for all is a gate, which a signal may open.
func (e *evidence) standingMethods(stood map[uint64]int) (out []*standstill) {
	for i := range e.LastFlight().Tasks.Chains {
		switch c := &e.LastFlight().Tasks.Chains[i]; {
		case standsForRoom(c, stood):
			out = append(out, &standstill{frames: c.Frames, methods: c.Count, thing: gather.QueuedFor(c.WaitsFor)})
		case standsForSource(c, stood) && c.WaitsFor.Object == 0:
			out = append(out, &standstill{
				frames: c.Frames, methods: c.Count, thing: "a TaskCompletionSource", source: c.Frames[0].Display,
			})
		}
	}
	return out
}

// standstillCertainty is how sure it is that nobody ends the waits; "": a healthy program may look the same.
func (e *evidence) standstillCertainty(
	s *standstill, stood map[uint64]int, still map[int]bool,
) profile.Certainty {
	n := len(s.threads) + s.methods
	if s.source != "" && (n < manyMethods || e.sourceEnds(s.source) == endsLater) || s.source == "" && s.methods == 1 {
		return ""
	}
	related, others := e.movers(s, stood, still)
	switch {
	case related:
		return ""
	case others == 0:
		return profile.Likely
	case s.kind == snapshot.BarrierWait && n >= fewWaiters, s.kind == snapshot.TaskWait:
		return profile.Possible
	}
	return ""
}

// movers looks for what may end the waits. related: other code of the class in which the threads wait is on a stack,
// suspended, or called by a timer. others is how many other threads and async methods go on by themselves.
func (e *evidence) movers(s *standstill, stood map[uint64]int, still map[int]bool) (related bool, others int) {
	class := map[string]bool{gather.OuterType(gather.OwnFrame(s.frames).Method): true}
	of := func(frames []snapshot.Frame) bool {
		return slices.ContainsFunc(frames, func(f snapshot.Frame) bool {
			return f.Origin() != snapshot.OfFramework && gather.MemberOf(class, f.Method)
		})
	}
	waits := map[int]bool{}
	for _, t := range s.threads {
		waits[t.OSThreadID] = true
	}
	last := e.Last().Snap.Threads
	for i := range last {
		t := &last[i]
		if waits[t.OSThreadID] || gather.OwnFrame(t.Frames) == nil {
			continue
		}
		related = related || s.source == "" && of(t.Frames)
		if !still[t.OSThreadID] || t.Wait == nil || !forOtherCode(t.Wait) {
			others++
		}
	}
	flight := e.LastFlight().Tasks
	for i := range flight.Chains {
		c := &flight.Chains[i]
		if standsForRoom(c, stood) {
			continue
		}
		related = related || s.source == "" && of(c.Frames)
		if !standsForSource(c, stood) && !(c.State == snapshot.TaskWaiting && c.WaitsFor != nil &&
			c.WaitsFor.Kind == snapshot.AwaitsMethod) && !awaitsWork(c.WaitsFor) {
			others++
		}
	}
	for i := range flight.Timers {
		if callback := flight.Timers[i].Callback; !snapshot.Framework(callback) {
			related = related || gather.MemberOf(class, callback)
			others++
		}
	}
	if flight.Pool != nil {
		others += flight.Pool.Queued
	}
	return related, others
}

// awaitsWork reports whether an async method waits for other code of the program: for an item, or for a permit.
func awaitsWork(w *snapshot.Awaited) bool {
	return w != nil && (w.Kind == snapshot.AwaitsChannel || w.Kind == snapshot.AwaitsSemaphore ||
		w.Kind == snapshot.AwaitsEndless)
}

// forOtherCode reports whether other code of the process ends a wait, most likely.
func forOtherCode(w *snapshot.Wait) bool {
	switch w.Kind {
	case snapshot.WaitIO, snapshot.WaitRuntime, "":
		return false
	}
	return w.Timeout <= 0 && w.Rest <= 0
}

func (e *evidence) standstillVerdict(s *standstill, c profile.Certainty) profile.Verdict {
	in := phrase.Method(gather.OwnFrame(s.frames))
	who := phrase.Counted(s.methods, "async method waits", "async methods wait") + " for " + s.thing
	if n := len(s.threads); n == 1 {
		who = fmt.Sprintf("%s %s", phrase.ThreadName(s.threads[0]), phrase.Doing(s.example))
	} else if n > 1 {
		who = fmt.Sprintf("%d threads wait, such as %s, which %s", n, phrase.ThreadName(s.threads[0]),
			phrase.Doing(s.example))
	}
	gone := "has not gone on"
	if len(s.threads)+s.methods > 1 {
		gone = "none has gone on"
	}
	over := e.Span() // of the threads
	if s.methods > 0 {
		over = e.LastFlight().At - e.Flights[0].At
	}
	v := profile.Verdict{
		Cause: profile.CauseStalled, Certainty: c,
		Text: fmt.Sprintf("%s, in %s, and %s in %s.", who, in, gone, phrase.Seconds(over)),
		Evidence: []profile.Evidence{
			{Text: "One of the waits:", Frames: s.frames, Threads: s.threads},
		},
		Commands: []string{"clrsnap stack " + e.Again() + " --group", "clrsnap tasks " + e.Again()},
	}
	if s.source == "" {
		v.Text += fmt.Sprintf(" No other code of %s runs or is suspended.",
			gather.OuterType(gather.OwnFrame(s.frames).Method))
	} else {
		e.addSource(&v, s.source)
	}
	if c == profile.Likely {
		v.Text += " No other thread of the program runs, reads or sleeps for a time, nothing is queued, and no timer " +
			"of the program is armed: nobody is seen who could end the wait."
	} else {
		v.Text += " Threads that wait for news look the same."
	}
	return v
}
