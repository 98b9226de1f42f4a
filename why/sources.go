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

// awaitsSource is the innermost method of requests that wait for a TaskCompletionSource; "": others.
func awaitsSource(d *snapshot.Doing) string {
	if w := d.WaitsFor; w == nil || w.Kind != snapshot.AwaitsCompletion || len(d.Frames) == 0 {
		return ""
	}
	return d.Frames[0].Display
}

// sourceEnd says whether the waits of a method for TaskCompletionSources end.
type sourceEnd uint8

const (
	notKnown   sourceEnd = iota
	endsLater            // a method that completes such sources waits for the time only
	neverEnds            // nobody can complete the sources
	failedEnd            // the methods that complete such sources have ended with exceptions
	blockedEnd           // who completes such sources waits for such a source
)

func (s sourceEnd) never() bool { return s >= neverEnds }

// sourceEnds judges the waits of a method. behind are methods that wait for this method, directly or not.
func (e *evidence) sourceEnds(method string, behind ...string) sourceEnd {
	s, ok := e.Sources[method]
	switch {
	case !ok:
		return notKnown
	case s.Missing == s.Waits:
		return neverEnds
	case s.Missing > 0 || s.Path == nil:
		return notKnown
	}
	list := e.completersOf(&s, method)
	for i := range list {
		if c := list[i].chain; c != nil && c.State == snapshot.TaskWaiting && c.WaitsFor != nil &&
			c.WaitsFor.Kind == snapshot.AwaitsTimer {
			return endsLater
		}
	}
	switch {
	case len(list) == 0 && len(e.failedCompleters(&s)) > 0:
		return failedEnd
	case len(list) > 0 && e.waitToo(list, &s, append(slices.Clip(behind), method)):
		return blockedEnd
	}
	return notKnown
}

// waitToo reports whether all completers of a source wait all the time themselves: for sources that are kept in the
// same field. Who has to answer a letter may also wait for a source of a method behind, or for a source that nobody
// completes.
func (e *evidence) waitToo(list []completer, s *gather.KeptSource, behind []string) bool {
	known := map[string]bool{} // by method
	for i := range list {
		in, field := e.waitsIn(&list[i])
		if field == "" {
			return false
		}
		if _, ok := known[in]; !ok {
			known[in] = field == gather.SourceField(s.Path) || inLetter(s.Path) && (slices.Contains(behind, in) ||
				len(behind) < mostBehind && e.sourceEnds(in, behind...).never())
		}
		if !known[in] {
			return false
		}
	}
	return true
}

// inLetter reports whether a source is in an own object that is in a collection, or with an async method: a letter to
// somebody who has to answer. A source in an object that other own objects refer to may be a signal for idle workers.
func inLetter(path *snapshot.HeapPath) bool {
	n := len(path.Steps)
	if n < 3 || snapshot.Framework(path.Steps[n-2].Type) {
		return false
	}
	in := path.Steps[n-3].Type
	return strings.HasSuffix(in, "[]") || snapshot.Framework(in)
}

// stoodStill are the async methods that have not gone on since the first look, by the key of their chain.
func (e *evidence) stoodStill() map[uint64]int {
	if e.stood == nil {
		e.stood = gather.StoodStill(&e.Flights[0], e.LastFlight())
	}
	return e.stood
}

// mostBehind bounds the methods that wait for one another.
const mostBehind = 8

// waitsIn is the method in which a completer has waited for a source itself, all the time, and the field that keeps the
// source; "": none.
func (e *evidence) waitsIn(c *completer) (method, field string) {
	if c.chain == nil {
		return e.blockedFor(c.thread)
	}
	if c.chain.WaitsFor == nil || c.chain.WaitsFor.Kind != snapshot.AwaitsCompletion || len(c.chain.Frames) == 0 ||
		e.stoodStill()[tasks.ChainKey(c.chain)] < c.chain.Count {
		return "", ""
	}
	method = c.chain.Frames[0].Display
	if s := e.Sources[method]; s.Path != nil && s.Missing == 0 {
		return method, gather.SourceField(s.Path)
	}
	return "", ""
}

// blockedFor is waitsIn of a thread, which waits for a source directly, or for an async method that waits for a source.
func (e *evidence) blockedFor(t *snapshot.Thread) (method, field string) {
	own, w := gather.OwnFrame(t.Frames), t.Wait
	switch {
	case own == nil || w == nil || w.Kind != snapshot.TaskWait:
		return "", ""
	case w.Method == "":
		return own.Display, e.Sources[own.Display].Threads[t.OSThreadID]
	case !e.stillWaiting()[t.OSThreadID]:
		return "", ""
	}
	for i := range e.LastFlight().Tasks.Chains {
		c := &e.LastFlight().Tasks.Chains[i]
		if !gather.HasMethod(c, w.Method) {
			continue
		}
		s := e.Sources[c.Frames[0].Display]
		if s.Path == nil || s.Missing > 0 || field != "" && field != gather.SourceField(s.Path) {
			return "", "" // the method may wait for something else
		}
		method, field = c.Frames[0].Display, gather.SourceField(s.Path)
	}
	return method, field
}

// completer is an async method or a thread that completes TaskCompletionSources, by its code.
type completer struct {
	chain  *snapshot.TaskChain // nil: a thread
	thread *snapshot.Thread
}

// completersOf are the completers in the types that keep sources, other than the waiting method. If the types have
// none, nobody is named: any other code may complete something else.
func (e *evidence) completersOf(s *gather.KeptSource, waiting string) (out []completer) {
	types := gather.OwnTypes(s.Path)
	for i := range e.LastFlight().Tasks.Chains {
		c := &e.LastFlight().Tasks.Chains[i]
		own := gather.OwnFrame(c.Frames)
		if c.Completes && own != nil && gather.HasCodeOf(types, c.Frames) && (own.Display != waiting ||
			inLetter(s.Path) && c.Frames[c.Completer].Display != waiting) {
			out = append(out, completer{chain: c})
		}
	}
	for _, t := range e.Completers {
		if gather.HasCodeOf(types, t.Frames) {
			out = append(out, completer{thread: t})
		}
	}
	return out
}

// failedCompleters are the failed tasks of methods that complete sources, in the types that keep sources.
func (e *evidence) failedCompleters(s *gather.KeptSource) (out []*snapshot.TaskFault) {
	types := gather.OwnTypes(s.Path)
	for i := range e.LastFlight().Tasks.Faults {
		f := &e.LastFlight().Tasks.Faults[i]
		if f.Completes && (gather.MemberOf(types, f.Method) || gather.HasCodeOf(types, f.Exception.Shown())) {
			out = append(out, f)
		}
	}
	return out
}

// addSource says what could complete the sources that a method waits for.
func (e *evidence) addSource(v *profile.Verdict, waiting string) {
	s, ok := e.Sources[waiting]
	if !ok {
		return
	}
	if s.Missing > 0 || s.Path == nil {
		if s.Missing == s.Waits {
			v.Text += " Nothing refers to the TaskCompletionSource any more, as far as the heap tells: nobody can " +
				"complete it, and the wait does not end."
		}
		return
	}
	if len(gather.OwnTypes(s.Path)) == 0 {
		return // the framework keeps the source, such as a timer for its timeout: any code may complete the source
	}
	v.Text += " What could complete it: the TaskCompletionSource is kept by " + gather.SourceField(s.Path) + "."
	v.Evidence = append(v.Evidence, profile.Evidence{
		Text: "The way to the TaskCompletionSource: " + phrase.Way(s.Path) + ".",
	})
	list := e.completersOf(&s, waiting)
	for i := range list[:min(len(list), maxReaders)] {
		c := &list[i]
		who, does, frames := "", "", []snapshot.Frame(nil)
		if c.chain != nil {
			who, frames = phrase.Method(&c.chain.Frames[c.chain.Completer]), c.chain.Frames
			does = chainDoes(c.chain, c.chain.Completer)
		} else {
			who, does, frames = phrase.ThreadName(gather.Ref(c.thread)), phrase.Doing(c.thread), c.thread.Frames
		}
		if i == 0 {
			v.Text += fmt.Sprintf(" %s completes such sources, by the code, and %s.", who, does)
		}
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("%s completes TaskCompletionSources, by the code, and %s:", who, does), Frames: frames,
		})
	}
	if len(list) > 0 {
		if e.sourceEnds(waiting) == blockedEnd {
			v.Text += " It waits for such a source as well, and nobody else is seen who would complete any of them."
		}
		return
	}
	v.Text += " No code of the types on the way to it that could complete it runs or is suspended."
	failed := e.failedCompleters(&s)
	for i, f := range failed[:min(len(failed), maxReaders)] {
		if i == 0 {
			v.Text += fmt.Sprintf(" %s, which completed such sources, by its code, has ended with %s.",
				cmp.Or(f.Method, "A task"), phrase.Exception(f.Exception))
		}
		v.Evidence = append(v.Evidence, e.faultEvidence(f))
	}
}

// chainDoes says what an async method of a chain does, or the method that it waits for.
func chainDoes(c *snapshot.TaskChain, of int) string {
	does := "is " + string(c.State)
	if w := c.WaitsFor; c.State == snapshot.TaskWaiting && w != nil {
		timer := ""
		if w.Kind == snapshot.AwaitsTimer {
			timer = "a timer"
			if w.HasDue && w.Due > 0 {
				timer += " that fires in " + phrase.Seconds(w.Due)
			}
		}
		does = awaits(w, ofClient(c.Frames), gather.QueuedFor(w), timer)
	}
	if own := gather.OwnFrame(c.Frames); own != nil && own.Method != c.Frames[of].Method {
		does += ", in " + phrase.Method(own)
	}
	return does
}

// sourceWaiters are the async methods and threads that wait in one method for TaskCompletionSources.
type sourceWaiters struct {
	frames  []snapshot.Frame
	count   int // async methods
	stood   int // of them: have waited since the first look
	threads []snapshot.ThreadRef
}

// sourceWaiters groups what waits for sources, by the innermost method.
func (e *evidence) sourceWaiters(after *gather.FlightLook) map[string]*sourceWaiters {
	out := map[string]*sourceWaiters{}
	of := func(method string, frames []snapshot.Frame) *sourceWaiters {
		if out[method] == nil {
			out[method] = &sourceWaiters{frames: frames}
		}
		return out[method]
	}
	stood := e.stoodStill()
	for i := range after.Tasks.Chains {
		c := &after.Tasks.Chains[i]
		if w := c.WaitsFor; w == nil || w.Kind != snapshot.AwaitsCompletion || gather.OwnFrame(c.Frames) == nil {
			continue
		}
		s := of(c.Frames[0].Display, c.Frames)
		s.count, s.stood = s.count+c.Count, s.stood+stood[tasks.ChainKey(c)]
	}
	last := e.Last().Snap.Threads
	for i := range last {
		own := gather.OwnFrame(last[i].Frames)
		if own == nil {
			continue
		}
		if _, waits := e.Sources[own.Display].Threads[last[i].OSThreadID]; waits {
			s := of(own.Display, last[i].Frames)
			s.threads = append(s.threads, gather.Ref(&last[i]))
		}
	}
	return out
}

// onlyCompleters reports whether nothing but threads that complete sources waits: each may wait for news.
func (e *evidence) onlyCompleters(w *sourceWaiters) bool {
	return w.stood == 0 && !slices.ContainsFunc(w.threads, func(t snapshot.ThreadRef) bool {
		return !slices.ContainsFunc(e.Completers, func(c *snapshot.Thread) bool { return c.OSThreadID == t.OSThreadID })
	})
}

// stalledSources looks for async methods and threads that wait for what nobody can complete, for what a failed method
// was to complete, or for one another.
func (e *evidence) stalledSources(before, after *gather.FlightLook) (out []profile.Verdict) {
	most := 0
	waiters := e.sourceWaiters(after)
	for _, in := range slices.Sorted(maps.Keys(waiters)) {
		w, end := waiters[in], e.sourceEnds(in)
		n := w.stood + len(w.threads)
		if n <= most || n < gather.FewRequests || !end.never() || end == blockedEnd && e.onlyCompleters(w) {
			continue
		}
		most = n
		who := phrase.Counted(w.count, "async method waits", "async methods wait")
		switch {
		case w.count == 0:
			who = phrase.ThreadsWait(len(w.threads))
		case len(w.threads) > 0:
			who = phrase.Counted(w.count, "async method",
				"async methods") + " and " + phrase.ThreadsOf(len(w.threads)) + " wait"
		}
		out = []profile.Verdict{{
			Cause: profile.CauseStalled, Certainty: profile.Likely,
			Text: fmt.Sprintf("%s for a TaskCompletionSource, in %s, and none of the %d that waited %s ago has gone "+
				"on.", who, phrase.Method(gather.OwnFrame(w.frames)), n, phrase.Seconds(after.At-before.At)),
			Evidence: []profile.Evidence{{Text: "One of them waits here:", Frames: w.frames, Threads: w.threads}},
			Commands: []string{"clrsnap tasks " + e.Again()},
		}}
		e.addSource(&out[0], in)
		if end == blockedEnd && inLetter(e.Sources[in].Path) {
			out[0].Certainty = profile.Possible
			out[0].Text += " Workers that wait for work may look the same."
		}
	}
	return out
}

// keeperText says what keeps a failed task. It begins with a blank; "": not known.
func (e *evidence) keeperText(f *snapshot.TaskFault) string {
	k, ok := e.KeptTasks[f.Object]
	switch {
	case !ok:
		return ""
	case k.Path == nil:
		return "; nothing known keeps the task"
	}
	return "; the task is kept by " + cmp.Or(phrase.OwnField(k.Path), k.Path.Beginning())
}
