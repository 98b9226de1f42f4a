package why

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"clrsnap/internal/session"
	"clrsnap/profile"
)

// Thresholds of what piles up. So many handlers of one event are no design, and only some that come and do not go
// make their number grow.
const (
	manyHandlers  = 1000
	grownHandlers = 50
	grownShare    = 0.01
	leastBetween  = time.Second
	fastHandlers  = 100 // more in a second; fewer may be those of a start
)

// pile is an event whose handlers become more.
type pile struct {
	session.Handlers
	before int
}

// judgeGrowth looks for objects that pile up: the handlers of an event that nobody leaves.
func judgeGrowth(e *evidence) []profile.Verdict {
	if len(e.heaps) < 2 {
		return nil
	}
	first, last := &e.heaps[0], &e.heaps[len(e.heaps)-1]
	took := last.at - first.at
	if took < leastBetween {
		return nil
	}
	var worst *pile
	for _, p := range piles(first, last) {
		if p.grows() && (worst == nil || p.Count-p.before > worst.Count-worst.before) {
			worst = &p
		}
	}
	if worst == nil {
		return nil
	}
	return []profile.Verdict{worst.verdict(e, first, last)}
}

// piles are the events of the last look that were there in the first one.
func piles(first, last *heapLook) (out []pile) {
	for _, h := range last.events {
		i := slices.IndexFunc(first.events, func(b session.Handlers) bool { return b.Type == h.Type && b.Targets == h.Targets })
		if i >= 0 {
			out = append(out, pile{h, first.events[i].Count})
		}
	}
	return out
}

func (p *pile) grows() bool {
	grown := p.Count - p.before
	return p.Count >= manyHandlers && grown >= grownHandlers && float64(grown) >= grownShare*float64(p.before)
}

func (p *pile) verdict(e *evidence, first, last *heapLook) profile.Verdict {
	took := last.at - first.at
	targets := p.Targets
	if targets == "" {
		targets = "static methods"
	}
	v := profile.Verdict{
		Cause: profile.CauseHeapGrowth, Certainty: profile.Likely,
		Text: fmt.Sprintf("Objects pile up: an event (%s) has %s handlers, %s more than %s before (%s a second), most of them of %s. "+
			"More objects subscribe than unsubscribe, and what has subscribed is not freed before the event is.", p.Type,
			number(int64(p.Count)), number(int64(p.Count-p.before)), seconds(took),
			number(rate(int64(p.Count-p.before), took)), targets),
		Commands: []string{fmt.Sprintf("clrsnap heap %d --every 30s", e.process.PID)},
	}
	if rate(int64(p.Count-p.before), took) < fastHandlers {
		v.Certainty = profile.Possible
	}
	before, after := oldBytes(first), oldBytes(last)
	v.Evidence = append(v.Evidence, profile.Evidence{
		Text: fmt.Sprintf("The old generations and large objects had %s, and have %s now.", bytesOf(before), bytesOf(after)),
	})
	if min(first.ConsistentShare, last.ConsistentShare) < leastConsistent {
		return v
	}
	for _, g := range grown(first, last) {
		if len(v.Evidence) > shownSites {
			break
		}
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("%s: %s more objects, %s more.", g.name, number(g.count), bytesOf(g.bytes)),
		})
	}
	return v
}

// oldBytes is how much is in what is not collected at every opportunity.
func oldBytes(h *heapLook) (n int64) {
	for i := range h.Types {
		n += int64(old(&h.Types[i]).Bytes)
	}
	return n
}

// old is what of a type has survived for a while, or is large.
func old(t *profile.HeapType) (a profile.HeapAmount) {
	for _, g := range []profile.Generation{profile.Gen1, profile.Gen2, profile.LargeObjects, profile.PinnedObjects} {
		a.Add(t.Generations[g])
	}
	return a
}

// typeGrowth is a type of which there is more than before.
type typeGrowth struct {
	name         string
	count, bytes int64
}

// grown are the types of which there is more, by bytes.
func grown(first, last *heapLook) (out []typeGrowth) {
	before := map[[2]string]profile.HeapAmount{}
	for i := range first.Types {
		t := &first.Types[i]
		before[[2]string{t.Name, t.Assembly}] = old(t)
	}
	for i := range last.Types {
		t := &last.Types[i]
		b, now := before[[2]string{t.Name, t.Assembly}], old(t)
		if now.Bytes > b.Bytes {
			out = append(out, typeGrowth{t.Name, int64(now.Count) - int64(b.Count), int64(now.Bytes - b.Bytes)})
		}
	}
	slices.SortFunc(out, func(a, b typeGrowth) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.name, b.name))
	})
	return out
}
