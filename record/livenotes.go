package record

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"clrsnap/internal/display"
	"clrsnap/internal/heapwalk"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// How long the collections at the end may take, all together: less after an interrupt, because the
// user waits.
const (
	collectPatience = time.Minute
	collectShortly  = 20 * time.Second
)

// lastLook looks at the live heaps of all processes that still have an agent. When ctx ends, perhaps
// before the call, lastLook stops waiting for collections.
func (e *eventSampler) lastLook(ctx context.Context) {
	var all []*notifiedProcess
	for _, np := range e.of {
		if l := np.live; l != nil && !np.over && np.rp != nil && !np.link.HasEnded() {
			all = append(all, np)
		}
	}
	if e.r.o.Collect {
		e.collect(ctx, all)
	}
	for _, np := range all {
		np.lastLook()
	}
}

// collect has the runtimes of some processes make a garbage collection, side by side.
func (e *eventSampler) collect(ctx context.Context, all []*notifiedProcess) {
	patience := collectPatience
	if ctx.Err() != nil { // the end of ctx has ended the recording
		ctx, patience = context.WithoutCancel(ctx), collectShortly
	}
	late := fmt.Errorf("the collection takes longer than %v", patience)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, late)
	defer cancel()
	errs := make([]error, len(all))
	var wait sync.WaitGroup
	for i, np := range all {
		wait.Go(func() { np.live.collected, errs[i] = np.link.Collect(ctx) })
	}
	wait.Wait()
	for i, err := range errs {
		if err != nil {
			e.note("clrsnap could not make a garbage collection at the end of the recording of process %d: %v.",
				all[i].pid, err)
		}
	}
}

// lastLook looks at the handles of a process for the last time.
func (np *notifiedProcess) lastLook() {
	np.link.Settle()
	_ = np.take(func() bool { return false }) // an error is in the notes already, or comes there
	follow := func(h []heapwalk.Handle) ([]heapwalk.Followed, error) { return heapwalk.FollowPlaced(np.rp.p, h) }
	np.live.ended = np.live.deaf || !np.live.look(follow)
	np.live.finish()
}

// liveStats are the statistics of profile.Live.
func (e *eventSampler) liveStats() profile.ModeStats {
	m := profile.ModeStats{Mode: profile.Live, Every: e.every(profile.Alloc)}
	most := 1
	for _, l := range e.heaps {
		most = max(most, l.every)
		m.Samples += l.sum.samples
		m.Broken += l.sum.broken
		m.Lost += l.sum.missed
	}
	m.Every *= int64(most)
	return m
}

// liveRemarks are the notes about profile.Live.
func (e *eventSampler) liveRemarks() []string {
	var out []string
	for _, l := range e.heaps {
		text := l.remarks(e.until)
		if len(e.heaps) > 1 && l.p != nil {
			for i := range text {
				text[i] = fmt.Sprintf("Process %d: %s", l.p.PID(), text[i])
			}
		}
		out = append(out, text...)
	}
	return out
}

// remarks are the notes about one process. The recording has ended at until.
func (l *liveHeap) remarks(until time.Duration) []string {
	s := &l.sum
	if s.sampled == 0 {
		return nil
	}
	size := func(n int64) string { return display.Weight(profile.Bytes, n) }
	var out []string
	if when := l.when(); when != "" {
		out = append(out, fmt.Sprintf("Of %s of allocations, %s (%.1f %%) were alive %s%s. %s", size(s.sampled),
			size(s.alive), 100*float64(s.alive)/float64(s.sampled), when, s.places(), l.proof()))
	}
	if s.young > 0 {
		out = append(out, fmt.Sprintf("%s of objects allocated after the last garbage collection are left out: most "+
			"may be garbage. --gc makes a full collection at the end, and shows the live objects.", size(s.young)))
	}
	if s.unproven > 0 && l.collections.total() > 0 {
		out = append(out, fmt.Sprintf("%s of large and pinned objects are marked %q: there was no full collection "+
			"after their allocation. --gc makes a full collection at the end.", size(s.unproven), mark))
	}
	if l.every > 1 {
		out = append(out, fmt.Sprintf("There were very many live objects: one of %d sampled objects was followed. A "+
			"larger --alloc-every samples fewer objects.", l.every))
	}
	if s.missed > 0 {
		out = append(out, fmt.Sprintf("%s not followed, because there were too many: these objects are missing among "+
			"the live objects. A larger --alloc-every samples fewer objects.",
			counted(s.missed, "sampled object was", "sampled objects were")))
	}
	if s.unread > 0 {
		out = append(out, fmt.Sprintf("The handles of %s could not be read: the live objects lack these.",
			counted(s.unread, "sampled object", "sampled objects")))
	}
	if l.ended {
		out = append(out, l.endedText(until))
	}
	return out
}

// when says for which moment the live objects are known; "": for none.
func (l *liveHeap) when() string {
	switch {
	case !l.ended:
		return "at the end"
	case l.looked == 0:
		return ""
	}
	return "at the last look"
}

// places says in which generations the live objects are.
func (s *liveSum) places() string {
	var words []string
	for g, n := range s.in {
		if n > 0 {
			words = append(words, fmt.Sprintf("%s in %v", display.Weight(profile.Bytes, n), snapshot.Generation(g)))
		}
	}
	if s.unplaced > 0 && len(words) > 0 {
		words = append(words, display.Weight(profile.Bytes, s.unplaced)+" elsewhere")
	}
	if len(words) == 0 {
		return ""
	}
	return ": " + strings.Join(words, ", ")
}

// proof says how the live objects are known.
func (l *liveHeap) proof() string {
	c := &l.collections
	switch {
	case l.collected > 0 && !l.ended:
		return fmt.Sprintf("A full garbage collection came before the last look, as asked for with --gc; the "+
			"collection took %v.", l.collected.Round(100*time.Microsecond))
	case c.total() == 0:
		return fmt.Sprintf("There was no garbage collection, so no object is known to be dead: everything is "+
			"marked %q. Record for longer, or with --gc: a full collection at the end.", mark)
	}
	full := c.count[snapshot.Gen2]
	text := fmt.Sprintf("An object counts as alive if the last garbage collection of its generation has found the "+
		"object alive. There were %s, %d of all generations", counted(c.total(), "collection", "collections"), full)
	if full == c.total() {
		return text + "."
	}
	return text + "; objects of an older generation may have died since the generation's last collection. --gc makes " +
		"a full collection at the end."
}

// mark is unprovenSuffix without its parentheses.
var mark = strings.Trim(unprovenSuffix, " ()")

// endedText says from when the live heap of a process is, if the process has ended or its agent does
// not answer any more.
func (l *liveHeap) endedText(until time.Duration) string {
	why := "The program has ended"
	if l.deaf {
		why = "The agent in the program does not answer any more"
	}
	if l.looked == 0 {
		return why + ", and the live objects are not known: the shown objects had been allocated, and were not " +
			"looked at."
	}
	return fmt.Sprintf("%s: the shown objects were alive at the last look, %v before the end.", why,
		max(0, until-l.looked).Round(10*time.Millisecond))
}

// sortedObjects are the followed objects in the order of their allocation.
func (l *liveHeap) sortedObjects() []*followed {
	out := make([]*followed, 0, len(l.objects))
	for _, f := range l.objects {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *followed) int { return int(a.at - b.at) })
	return out
}
