package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/internal/gather"
	"clrsnap/internal/gone"
	"clrsnap/internal/phrase"
	"clrsnap/internal/tasks"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Thresholds of requests that stand still.
const (
	// If each request took as long as the oldest request has taken, so many requests would have ended during the look.
	// That none has ended is no accident then.
	dueToEnd   = 3.0
	mayBeDue   = 1.5
	longServed = 100 * time.Second // HttpClient's default timeout: nobody waits longer for an answer
	longAgo    = 10 * time.Second
)

// standing is requests that stood still in one place.
type standing struct {
	group  *snapshot.RequestGroup
	count  int
	oldest time.Time // zero: not known
	gone   int       // requests for clients that have gone

	threads []snapshot.ThreadRef // that run the requests
}

// judgeStalled looks for requests that neither end nor go on.
func judgeStalled(e *evidence) []profile.Verdict {
	before, after, ok := e.Progressed()
	if !ok {
		return nil
	}
	var list []standing
	then, now := placesOf(before.Requests), placesOf(after.Requests)
	for place, p := range now {
		if s := p.since(then[place]); s.count >= gather.FewRequests {
			list = append(list, s)
		}
	}
	list = joined(list)
	for i := range list {
		c := list[i].certainty(after.At-before.At, after.Requests.CapturedAt)
		switch own := awaitsSource(&list[i].group.Doing); {
		case own == "":
		case e.sourceEnds(own).never():
			c = profile.Likely
		case e.sourceEnds(own) == endsLater && !list[i].old(after.Requests.CapturedAt):
			continue
		}
		if c != "" {
			return []profile.Verdict{e.stalled(list[i:], c, before, after)}
		}
	}
	if out := e.stalledMethods(before, after); len(out) > 0 {
		return out
	}
	return e.stalledSources(before, after)
}

// joined makes one of the standings for one path in one own method with the same kind of wait, whatever calls of .NET
// lead to the wait. The standings with the most requests come first.
func joined(list []standing) (out []standing) {
	order := func(a, b standing) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(placeOf(a.group), placeOf(b.group)))
	}
	slices.SortFunc(list, order)
	by := map[string]int{}
	for _, s := range list {
		d := &s.group.Doing
		own := gather.OwnFrame(d.Frames)
		if d.Wait == nil || own == nil {
			out = append(out, s)
			continue
		}
		key := strings.Join([]string{s.group.Method, s.group.Path, string(d.Wait.Kind), d.Wait.Type, own.Module,
			own.Method}, "\x00")
		at, ok := by[key]
		if !ok {
			by[key] = len(out)
			out = append(out, s)
			continue
		}
		o := &out[at]
		o.count, o.gone, o.threads = o.count+s.count, o.gone+s.gone, append(o.threads, s.threads...)
		if o.oldest.IsZero() || !s.oldest.IsZero() && s.oldest.Before(o.oldest) {
			o.oldest = s.oldest
		}
	}
	slices.SortFunc(out, order)
	return out
}

// old reports whether no client waits so long for news.
func (s *standing) old(at time.Time) bool {
	return !s.oldest.IsZero() && at.Sub(s.oldest) >= longServed
}

// manyMethods is how many async methods in one place, all of which stand still, are worth a word.
const manyMethods = 10

// stalledMethods looks for a queue of async methods that only grows: none of the methods goes on, and more come. The
// methods that wait for room in a channel need not become more if the channel's reader has ended with an exception.
func (e *evidence) stalledMethods(before, after *gather.FlightLook) (out []profile.Verdict) {
	stood, was := e.stoodStill(), gather.WaitsOf(before)
	waits, others := e.readersWait(after.Tasks)
	most := 0
	for i := range after.Tasks.Chains {
		c := &after.Tasks.Chains[i]
		thing, own := gather.QueuedFor(c.WaitsFor), gather.OwnFrame(c.Frames)
		if thing == "" || own == nil || c.State != snapshot.TaskWaiting {
			continue
		}
		key := tasks.ChainKey(c)
		n, least, becomeMore, certainty := stood[key], manyMethods, ", and become more", profile.Likely
		switch {
		case c.Count > n:
		case thing == gather.FullChannel && e.readerFailed(after.Tasks):
			least, becomeMore = fewWaiters, ""
		case thing == gather.FullChannel && waits:
			if least, becomeMore = 1, ""; others > 0 {
				certainty = profile.Possible
			}
		default:
			continue
		}
		if n <= most || n < was[key] || n < least {
			continue
		}
		most = n
		who, has := fmt.Sprintf("none of the %d", n), "has"
		if n == 1 {
			who, has = "the one", "has not"
		}
		out = []profile.Verdict{{
			Cause: profile.CauseStalled, Certainty: certainty,
			Text: fmt.Sprintf("%s for %s, in %s%s: %s that waited %s ago %s gone on.",
				phrase.Counted(c.Count, "async method waits", "async methods wait"), thing,
				phrase.Method(own), becomeMore, who, phrase.Seconds(after.At-before.At), has),
			Evidence: []profile.Evidence{{Text: "The methods wait here:", Frames: c.Frames}},
			Commands: []string{"clrsnap tasks " + e.Again(), "clrsnap locks " + e.Again()},
		}}
		if thing == gather.FullChannel {
			e.addReaders(&out[0], after.Tasks)
		}
		e.addHolder(&out[0], c.WaitsFor, own)
	}
	return out
}

// readerFailed reports whether nobody is seen who takes items from a channel, and a method that did has ended with an
// exception.
func (e *evidence) readerFailed(tasks *snapshot.Tasks) bool {
	return len(e.Readers) == 0 && !slices.ContainsFunc(tasks.Chains, func(c snapshot.TaskChain) bool {
		return readsChannel(&c)
	}) && slices.ContainsFunc(tasks.Faults, func(f snapshot.TaskFault) bool { return f.ReadsChannel })
}

// readersWait reports whether all who are seen to take items from channels have waited for room in a channel since the
// first look: most likely somebody writes to the channel that nobody else reads. others is how many other methods of
// the program have not gone on either, and threads are at work: one of these may take items in a way that is not seen.
func (e *evidence) readersWait(all *snapshot.Tasks) (wait bool, others int) {
	stood := e.stoodStill()
	for i := range all.Chains {
		c := &all.Chains[i]
		reads, queues := readsChannel(c), gather.QueuedFor(c.WaitsFor) == gather.FullChannel && standsForRoom(c, stood)
		switch {
		case reads && !queues:
			return false, 0
		case reads:
			wait = true
		case !queues && gather.OwnFrame(c.Frames) != nil && (c.State != snapshot.TaskWaiting ||
			stood[tasks.ChainKey(c)] > 0):
			others++
		}
	}
	if !wait || len(e.Readers) > 0 {
		return false, 0
	}
	threads := e.Threads()
	for i := range threads {
		w := &threads[i]
		if t := w.Last(); gather.OwnFrame(t.Frames) != nil && !gather.Resting(t) &&
			(!w.Unmoved || t.Wait == nil || !forOtherCode(t.Wait)) {
			others++
		}
	}
	return true, others
}

// readsChannel reports whether a chain takes items from a channel. A writer to a full channel does not, most likely.
func readsChannel(c *snapshot.TaskChain) bool {
	return c.ReadsChannel && gather.OwnFrame(c.Frames) != nil &&
		!(gather.QueuedFor(c.WaitsFor) == gather.FullChannel && c.Count > 1)
}

// addReaders says who takes items from channels: suspended methods, threads, and, if there are none, methods that have
// ended with an exception. By the code alone, whether a reader reads the channel in question is not certain.
func (e *evidence) addReaders(v *profile.Verdict, tasks *snapshot.Tasks) {
	found := 0
	tell := func(what, does string, frames []snapshot.Frame, threads []snapshot.ThreadRef) {
		if found++; found > maxReaders {
			return
		}
		if found == 1 {
			v.Text += fmt.Sprintf(" %s takes items from a channel, perhaps this one, and %s.", what, does)
		}
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text:   fmt.Sprintf("%s takes items from a channel, by its code, and %s:", what, does),
			Frames: frames, Threads: threads,
		})
	}
	for i := range tasks.Chains {
		c := &tasks.Chains[i]
		if !readsChannel(c) {
			continue
		}
		does := chainDoes(c, c.Reader)
		if c.Count > 1 {
			does += fmt.Sprintf(" (%s such methods)", display.Number(c.Count))
		}
		tell(phrase.Method(&c.Frames[c.Reader]), does, c.Frames, nil)
	}
	for _, t := range e.Readers {
		tell(phrase.ThreadName(gather.Ref(t)), phrase.Doing(t), t.Frames, []snapshot.ThreadRef{gather.Ref(t)})
	}
	if found > 0 {
		if waits, _ := e.readersWait(tasks); waits {
			v.Text += " Nobody else is seen who takes items. Most likely the reader writes to the channel that " +
				"the reader reads, and waits for itself."
		}
		return
	}
	v.Text += " Nobody is seen who takes items from a channel."
	for i := range tasks.Faults {
		f := &tasks.Faults[i]
		if !f.ReadsChannel {
			continue
		}
		if found++; found == 1 {
			v.Text += fmt.Sprintf(" %s, which did, has ended with %s.", cmp.Or(f.Method, "A task"),
				phrase.Exception(f.Exception))
		}
		if found <= maxReaders {
			v.Evidence = append(v.Evidence, e.faultEvidence(f))
		}
	}
}

// maxReaders bounds the readers of channels that are told.
const maxReaders = 3

// place is the requests for one path in one place.
type place struct {
	group    *snapshot.RequestGroup // one of the groups: groups differ in what the requests wait for
	requests map[string]*snapshot.Request
}

func placesOf(r *snapshot.Requests) map[string]*place {
	out := map[string]*place{}
	for i := range r.Requests {
		g := &r.Requests[i]
		key := placeOf(g)
		if out[key] == nil {
			out[key] = &place{g, map[string]*snapshot.Request{}}
		}
		for k := range g.Requests {
			out[key].requests[g.Requests[k].ID] = &g.Requests[k]
		}
	}
	return out
}

// since counts the requests that were in the place at the first look. None is counted if a request has left the place.
// Requests whose answer has begun are not counted either: such a request may be a stream, or a WebSocket.
func (p *place) since(before *place) (s standing) {
	if before == nil || !standsIn(&p.group.Doing) {
		return s
	}
	s.group = p.group
	for id, b := range before.requests {
		r := p.requests[id]
		switch {
		case r == nil:
			return standing{}
		case b.Answering || r.Answering:
			continue
		}
		if r.Aborted {
			s.gone++
		}
		if r.Thread != nil {
			s.threads = append(s.threads, *r.Thread)
		}
		if s.count++; s.oldest.IsZero() || !r.Since.IsZero() && r.Since.Before(s.oldest) {
			s.oldest = r.Since
		}
	}
	return s
}

// standsIn reports whether a request can stand still in a place. The client sends a request's body, a timer ends by
// itself, and a thread may run a task or a method that the request waits for. A thread that sleeps may do so again and
// again.
func standsIn(d *snapshot.Doing) bool {
	if d.Wait != nil {
		return true
	}
	w := d.WaitsFor
	if d.State != snapshot.TaskWaiting || w == nil || w.HasDue {
		return false
	}
	switch w.Kind {
	case snapshot.AwaitsTimer, snapshot.AwaitsPipe, snapshot.AwaitsYield, snapshot.AwaitsTask, snapshot.AwaitsMethod:
		return false
	}
	return true
}

// placeOf is equal for requests of one path in one place.
func placeOf(g *snapshot.RequestGroup) string {
	place := []string{g.Method, g.Path, string(g.Doing.State)}
	if w := g.Doing.WaitsFor; w != nil {
		place = append(place, string(w.Kind), w.Type)
	}
	if w := g.Doing.Wait; w != nil {
		place = append(place, string(w.Kind), w.Type)
	}
	if own := gather.OwnFrame(g.Doing.Frames); own != nil {
		place = append(place, phrase.Method(own))
	}
	return strings.Join(place, "\x00")
}

// certainty is how sure it is that requests stand still; "": requests that take long look the same. span is the time
// between the looks, at is when the last look began.
func (s *standing) certainty(span time.Duration, at time.Time) profile.Certainty {
	if s.oldest.IsZero() {
		return profile.Possible
	}
	age := at.Sub(s.oldest)
	due := float64(s.count) * float64(span) / float64(max(age, span))
	d := &s.group.Doing
	remote := d.Call != nil || d.WaitsFor != nil && d.WaitsFor.Kind == snapshot.AwaitsSocket
	switch {
	case (due >= dueToEnd || age >= longServed) && age > 2*span && !remote:
		return profile.Likely
	case due >= mayBeDue && age > 2*span || age >= longAgo:
		return profile.Possible
	}
	return ""
}

func (e *evidence) stalled(list []standing, c profile.Certainty, before, after *gather.FlightLook) profile.Verdict {
	s := &list[0]
	span := after.At - before.At
	v := profile.Verdict{
		Cause: profile.CauseStalled, Certainty: c,
		Text: fmt.Sprintf("%s for %s %s stand still: none has ended or gone on in %s", phrase.Counted(s.count,
			"request",
			"requests"), s.group.Method, s.group.Path, phrase.Seconds(span)),
		Commands: []string{"clrsnap requests " + e.Again(), "clrsnap tasks " + e.Again()},
	}
	if !s.oldest.IsZero() {
		v.Text += fmt.Sprintf(", and the oldest was begun %s ago",
			phrase.Seconds(after.Requests.CapturedAt.Sub(s.oldest)))
	}
	v.Text += fmt.Sprintf(". %s, in %s.", e.waitsForText(&s.group.Doing),
		phrase.Method(placeFrame(s.group.Doing.Frames)))
	v.Text += gone.Text(s.gone, s.count)
	if limited(&s.group.Doing) {
		v.Text += permitsText(after.Requests, s)
	}
	switch d := &s.group.Doing; {
	case c != profile.Possible || d.Call != nil:
	case d.Wait != nil && d.Wait.Kind == snapshot.ThreadSleep:
		v.Text += " Requests that take long on purpose look the same."
	case d.Wait != nil, d.WaitsFor != nil && d.WaitsFor.Kind == snapshot.AwaitsSemaphore, limited(d):
		// nobody waits for news
	default:
		v.Text += " Requests that wait for news look the same."
	}
	v.Evidence = []profile.Evidence{
		{Text: "The requests have waited here in both looks:", Frames: s.group.Doing.Frames, Threads: s.threads},
	}
	if own := awaitsSource(&s.group.Doing); own != "" {
		e.addSource(&v, own)
	}
	if e.addHolder(&v, s.group.Doing.WaitsFor, gather.OwnFrame(s.group.Doing.Frames)) {
		v.Certainty = profile.Likely
	}
	switch n := e.RequestsEnded(); {
	case n == 0:
		v.Evidence = append(v.Evidence, profile.Evidence{Text: "No request ended meanwhile."})
	case n > 0:
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("%s ended meanwhile.", phrase.Counted(n, "other request", "other requests")),
		})
	}
	for i := 1; i < len(list) && i < maxShown; i++ {
		o := &list[i]
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("%s for %s %s stand still as well. %s.", phrase.Counted(o.count, "request", "requests"),
				o.group.Method, o.group.Path, e.waitsForText(&o.group.Doing)),
			Frames: o.group.Doing.Frames,
		})
	}
	return v
}

// placeFrame is the own method of a stack, or else the innermost method.
func placeFrame(frames []snapshot.Frame) *snapshot.Frame {
	if own := gather.OwnFrame(frames); own != nil || len(frames) == 0 {
		return own
	}
	return &frames[0]
}

// limited reports whether requests wait for a permit of a rate limiter (Microsoft.AspNetCore.RateLimiting).
func limited(d *snapshot.Doing) bool {
	return d.Wait == nil && d.Call == nil && len(d.Frames) > 0 &&
		d.Frames[0].Module == "Microsoft.AspNetCore.RateLimiting"
}

// permitsText says which requests most likely have the permits of a rate limiter: the others in flight.
func permitsText(all *snapshot.Requests, s *standing) string {
	others, most := 0, (*snapshot.RequestGroup)(nil)
	for i := range all.Requests {
		g := &all.Requests[i]
		if limited(&g.Doing) {
			continue
		}
		if others += len(g.Requests); most == nil || len(g.Requests) > len(most.Requests) {
			most = g
		}
	}
	if most == nil {
		return " No other request is in flight: most likely permits were not given back."
	}
	return fmt.Sprintf(" A request has its permit until the request ends. %s in flight without such a wait, first of "+
		"all for %s %s.", phrase.Counted(others, "request is", "requests are"), most.Method, most.Path)
}

// waitsForText is a clause about what requests wait for.
func (e *evidence) waitsForText(d *snapshot.Doing) string {
	switch {
	case limited(d):
		return "The requests wait for a permit of a rate limiter"
	case d.Call != nil:
		return "The requests wait for a call to " + d.Call.Authority
	case d.Wait != nil:
		return "Each request has blocked its thread, which " + phrase.Doing(&snapshot.Thread{Wait: d.Wait})
	case d.WaitsFor.Target != "":
		return "The requests wait for " + d.WaitsFor.Target
	}
	if thing := e.AwaitedThing(d.WaitsFor); thing != "" {
		return "The requests wait for " + thing
	}
	return "The requests wait for " + cmp.Or(display.ShortType(d.WaitsFor.Type), string(d.WaitsFor.Kind))
}
