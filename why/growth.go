package why

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/heapwalk"
	"clrsnap/profile"
)

// Thresholds of growth. No design has so many handlers of one event, and the number grows only if handlers come and
// do not go.
const (
	manyPiled    = 1000
	grownPile    = 50
	grownShare   = 0.01
	leastBetween = time.Second
	fastHandlers = 100 // more in a second; fewer may belong to a start
)

// Many elements of a collection, or many timers, can well be a design. Time makes the difference: a cache fills up
// and stays, and a starting program stores much. So collections and timers count only in a program that has run for a
// while, and only if the growth has been steady: at the present rate, the whole growth would have taken about as long
// as the program has run.
const (
	longAge      = 10 * time.Minute
	leastOfLife  = 0.4 // of the program's age
	mostOfLife   = 2.5
	shownOnPaths = 12 // steps

	// In a young program a cache may not have filled yet: the growth must have been steadier.
	leastOfYoungLife = 0.7
	mostOfYoungLife  = 1.35

	// A linked list is no cache: the rate may have fallen.
	mostOfListLife = 8
)

// leastAge is the least age of a program for these thresholds, and a program below youngAge is young. A test has less
// time.
var leastAge, youngAge = 25 * time.Second, time.Minute

// pile is a large collection that has grown: elements of a collection, handlers of an event, timers, callbacks of a
// token.
type pile struct {
	heapwalk.Pile
	before int
	took   time.Duration
	linked bool // a linked list, which is no cache
}

// keptPile is a pile with a path that keeps the pile.
type keptPile struct {
	heapwalk.Pile
	path *profile.HeapPath
}

// judgeGrowth looks for growing large collections: handlers of an event that never leave, timers and callbacks of
// tokens that are never disposed of, and collections that only grow.
func judgeGrowth(e *evidence) []profile.Verdict {
	growing := e.growing()
	best := -1
	var path *profile.HeapPath
	for i := range growing {
		k := e.keeper(&growing[i])
		if k != nil && strings.HasPrefix(k.Static, "System.Threading.ThreadPool.") {
			continue // work that waits for a worker is judged with the pool
		}
		if k != nil && (path == nil || ownField(path) == "" && ownField(k) != "") {
			best, path = i, k
		}
		if best < 0 && growing[i].Kind == heapwalk.Event {
			best = i
		}
	}
	if l := e.grownList(); l != nil && (best < 0 || growing[best].certainty(e.age, path) == profile.Possible) {
		return []profile.Verdict{l.verdict(e)}
	}
	if best < 0 {
		return nil // no path is known: the collection may be dead and replaced
	}
	v := growing[best].verdict(e, path)
	for i := range growing[:min(len(growing), shownSites+1)] {
		if p := &growing[i]; i != best {
			v.Evidence = append(v.Evidence, profile.Evidence{Text: "Grows as well: " + p.short() + "."})
		}
	}
	return []profile.Verdict{v}
}

// keeper is the path that keeps a pile; nil: not known.
func (e *evidence) keeper(p *pile) *profile.HeapPath {
	for i := range e.kept {
		if k := &e.kept[i]; k.Kind == p.Kind && k.Type == p.Type && k.Element == p.Element && k.At == p.At {
			return k.path
		}
	}
	return nil
}

// growing are the piles with unusual growth, the largest growth first.
func (e *evidence) growing() (out []pile) {
	if len(e.heaps) < 2 {
		return nil
	}
	first, last := &e.heaps[0], &e.heaps[len(e.heaps)-1]
	took := last.at - first.at
	if took < leastBetween {
		return nil
	}
	for _, p := range pairs(first.piles, last.piles) {
		if p.took = took; p.grows(e.age) {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b pile) int { return cmp.Compare(b.grown(), a.grown()) })
	return out
}

// pairs matches the piles of two looks by address. Moved collections, and events, match the largest rest of equal
// kind and types.
func pairs(before, now []heapwalk.Pile) (out []pile) {
	taken := make([]bool, len(before))
	find := func(p *heapwalk.Pile, same func(*heapwalk.Pile) bool) bool {
		for i := range before {
			b := &before[i]
			if !taken[i] && b.Kind == p.Kind && b.Type == p.Type && b.Element == p.Element && same(b) {
				taken[i] = true
				out = append(out, pile{Pile: *p, before: b.Count})
				return true
			}
		}
		return false
	}
	var moved []*heapwalk.Pile
	for i := range now {
		p := &now[i]
		if p.Kind == heapwalk.Event || !find(p, func(b *heapwalk.Pile) bool { return b.At == p.At }) {
			moved = append(moved, p)
		}
	}
	for _, p := range moved {
		find(p, func(*heapwalk.Pile) bool { return true })
	}
	return out
}

func (p *pile) grown() int { return p.Count - p.before }

// grows reports whether a pile grows unusually, in a process of some age.
func (p *pile) grows(age time.Duration) bool {
	if p.Count < manyPiled || p.grown() < grownPile {
		return false
	}
	if p.Kind == heapwalk.Event && float64(p.grown()) >= grownShare*float64(p.before) {
		return true
	}
	return p.steady(age)
}

// steady reports whether the growth has been steady since the process started.
func (p *pile) steady(age time.Duration) bool {
	life, least, most := p.life(), leastOfLife, mostOfLife
	switch {
	case p.linked:
		most = mostOfListLife
	case age < youngAge:
		least, most = leastOfYoungLife, mostOfYoungLife
	}
	return age >= leastAge && life >= least*age.Seconds() && life <= most*age.Seconds()
}

// life is how many seconds the whole growth would have taken at the present rate.
func (p *pile) life() float64 {
	return float64(p.Count) / (float64(p.grown()) / p.took.Seconds())
}

func (p *pile) verdict(e *evidence, path *profile.HeapPath) profile.Verdict {
	v := profile.Verdict{
		Cause: profile.CauseHeapGrowth, Certainty: p.certainty(e.age, path), Text: "Objects pile up: " + p.text(e.age),
		Commands: p.commands(e.process.PID),
	}
	if p.unused(e) {
		v.Certainty = profile.Likely
		v.Text += fmt.Sprintf(" Only %s in flight.", counted(e.lastFlight().Tasks.Methods, "async method is",
			"async methods are"))
	}
	if i := slices.IndexFunc(e.rows, func(r heapwalk.Row) bool { return r.Type == p.Element }); i >= 0 &&
		e.rows[i].Bytes > 0 {
		v.Text += fmt.Sprintf(" All kept objects of %s keep %s.", p.Element, bytesOf(int64(e.rows[i].Bytes)))
	}
	if path != nil {
		v.Text += keptBy(path)
		if l := e.lastFlight(); l != nil && throughChannel(path) {
			e.addReaders(&v, l.Tasks)
		}
		v.Evidence = append(v.Evidence, profile.Evidence{Text: "The way to it: " + wayText(path) + "."})
	}
	v.Evidence = append(v.Evidence, e.grownOld()...)
	return v
}

// grownOld tells the growth of the old generations and large objects.
func (e *evidence) grownOld() (out []profile.Evidence) {
	first, last := &e.heaps[0], &e.heaps[len(e.heaps)-1]
	out = append(out, profile.Evidence{
		Text: fmt.Sprintf("The old generations and large objects had %s, and have %s now.", bytesOf(oldBytes(first)),
			bytesOf(oldBytes(last))),
	})
	if min(first.ConsistentShare, last.ConsistentShare) < leastConsistent {
		return out
	}
	list := grown(first, last, old)
	for _, g := range list[:min(len(list), shownSites)] {
		out = append(out, profile.Evidence{
			Text: fmt.Sprintf("%s: %s more objects, %s more.", g.name, number(g.count), bytesOf(g.bytes)),
		})
	}
	return out
}

// certainty: many handlers, quickly added to an event that is certainly kept, are no design. The purpose of a
// collection cannot be told from outside.
func (p *pile) certainty(age time.Duration, path *profile.HeapPath) profile.Certainty {
	fast := rate(int64(p.grown()), p.took) >= fastHandlers
	switch {
	case p.Kind == heapwalk.Event && fast && path != nil:
		return profile.Certain
	case p.Kind == heapwalk.Event && fast, p.Kind != heapwalk.Event && (age >= longAge || p.isQueue()):
		return profile.Likely
	}
	return profile.Possible
}

// isQueue reports whether a pile is a queue: what is in it waits to be taken out.
func (p *pile) isQueue() bool {
	return p.Kind == heapwalk.Collection && slices.ContainsFunc(queueTypes, func(t string) bool {
		return strings.HasPrefix(p.Type, t+"<")
	})
}

var queueTypes = []string{
	"System.Collections.Concurrent.ConcurrentQueue", "System.Collections.Generic.Queue",
	"System.Collections.Generic.Deque",
}

// unused reports whether far fewer requests and async methods are in flight than a token has callbacks, or than there
// are timers: nothing in flight needs these.
func (p *pile) unused(e *evidence) bool {
	l := e.lastFlight()
	return (p.Kind == heapwalk.Token || p.Kind == heapwalk.Timers) && l != nil && !l.Tasks.Partial &&
		leastPerFlight*l.Tasks.Methods < p.Count
}

// leastPerFlight is the least number of callbacks, or timers, for each async method in flight that is unusual.
const leastPerFlight = 4

// text describes the growth.
func (p *pile) text(age time.Duration) string {
	more, all := p.more(), p.sinceStart(age)
	switch p.Kind {
	case heapwalk.Event:
		targets := p.Element
		if targets == "" {
			targets = "static methods"
		}
		return fmt.Sprintf("an event (%s) has %s handlers, %s, most of them of %s. More objects subscribe than "+
			"unsubscribe, and what has subscribed is not freed before the event is.", p.Type, number(int64(p.Count)),
			more, targets)
	case heapwalk.Timers:
		return fmt.Sprintf("%s timers are active, %s%s. Timers are started and not disposed of, and each keeps what "+
			"it calls. %s", number(int64(p.Count)), more, p.calls("most of them for "), all)
	case heapwalk.Token:
		return fmt.Sprintf("a CancellationToken has %s callbacks, %s%s. What registers with it, or is linked to it, "+
			"is not disposed of, and is kept until it is cancelled. %s", number(int64(p.Count)), more,
			p.calls("most of them of "), all)
	}
	if p.isQueue() {
		return fmt.Sprintf("a %s has %s elements, %s. %s More is put into it than is taken out.", p.Type,
			number(int64(p.Count)), more, all)
	}
	return fmt.Sprintf("a %s has %s elements, %s. %s Something is added and not removed, or it is meant to grow.",
		strings.TrimSuffix(p.Type, "+Tables"), // a ConcurrentDictionary keeps its elements there
		number(int64(p.Count)), more, all)
}

// more says how much the pile has grown, and sinceStart since when.
func (p *pile) more() string {
	return fmt.Sprintf("%s more than %s before (%s a second)", number(int64(p.grown())), seconds(p.took),
		number(rate(int64(p.grown()), p.took)))
}

func (p *pile) sinceStart(age time.Duration) string {
	return fmt.Sprintf("It has grown like this since the program started, %s ago.", seconds(age))
}

// calls says what most objects of a sample call; empty: not known.
func (p *pile) calls(begin string) string {
	if p.Calls == "" {
		return ""
	}
	return ", " + begin + p.Calls
}

// keptBy says in which field a path ends, and at which root the path begins: a root of .NET is an accident, because the
// shortest way begins there. The text begins with a blank; "": neither is known.
func keptBy(path *profile.HeapPath) string {
	field, own := ownField(path), path.Static == "" || !profile.Framework(path.Static)
	switch {
	case field != "" && own:
		return " It is in " + field + ", kept by " + path.Beginning() + "."
	case field != "":
		return " It is in " + field + "."
	case own:
		return " It is kept by " + path.Beginning() + "."
	}
	return ""
}

// throughChannel reports whether a path leads to the items of a channel.
func throughChannel(path *profile.HeapPath) bool {
	return slices.ContainsFunc(path.Steps, func(s profile.HeapStep) bool {
		return strings.HasPrefix(s.Type, "System.Threading.Channels.")
	})
}

// short names the pile in a few words.
func (p *pile) short() string {
	what := p.Type
	switch p.Kind {
	case heapwalk.Timers:
		what = "active timers"
	case heapwalk.Token:
		what = "callbacks of a CancellationToken"
	}
	return fmt.Sprintf("%s, from %s to %s", what, number(int64(p.before)), number(int64(p.Count)))
}

// commands returns the commands that show more.
func (p *pile) commands(pid int) []string {
	out := []string{fmt.Sprintf("clrsnap heap %d --every 30s", pid)}
	element := p.Element
	if p.Kind == heapwalk.Token {
		element = p.Calls
	}
	if element == "" || boxed[element] || strings.ContainsAny(element, "'\\") || strings.HasPrefix(element, "[") {
		return out
	}
	return append(out, fmt.Sprintf("clrsnap heap %d --roots '^%s$'", pid, regexp.QuoteMeta(element)))
}

// ownField is the field nearest to the end of a path that belongs to no type of the framework; "": none is known.
func ownField(path *profile.HeapPath) string {
	for _, s := range slices.Backward(path.Steps) {
		if s.Field != "" && !profile.Framework(s.Type) {
			return "field " + s.Type + "." + s.Field
		}
	}
	return ""
}

// wayText is a path as one line: the beginning and the end. The program's own code knows the end.
func wayText(path *profile.HeapPath) string {
	parts := []string{path.Beginning()}
	left := len(path.Steps) - shownOnPaths
	for i, s := range path.Steps {
		if first := shownOnPaths / 4; left > 0 && i >= first && i < first+left {
			if i == first {
				parts = append(parts, "…")
			}
			continue
		}
		name := s.Type
		if s.Field != "" {
			name += "." + s.Field
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, " → ")
}

// oldBytes is the size of the old generations and large objects.
func oldBytes(h *heapLook) (n int64) {
	for i := range h.Types {
		n += int64(old(&h.Types[i]).Bytes)
	}
	return n
}

// old is the amount of a type that has survived for a while, or is large.
func old(t *profile.HeapType) (a profile.HeapAmount) {
	for _, g := range []profile.Generation{profile.Gen1, profile.Gen2, profile.LargeObjects, profile.PinnedObjects} {
		a.Add(t.Generations[g])
	}
	return a
}

// typeGrowth is a type with more objects than before.
type typeGrowth struct {
	name          string
	count, bytes  int64 // more than before
	before, after int64 // objects
}

// grown are the growing types, by bytes. of says which objects of a type count.
func grown(first, last *heapLook, of func(*profile.HeapType) profile.HeapAmount) (out []typeGrowth) {
	before := map[[2]string]profile.HeapAmount{}
	for i := range first.Types {
		t := &first.Types[i]
		before[[2]string{t.Name, t.Assembly}] = of(t)
	}
	for i := range last.Types {
		t := &last.Types[i]
		b, now := before[[2]string{t.Name, t.Assembly}], of(t)
		if now.Bytes > b.Bytes {
			out = append(out, typeGrowth{t.Name, int64(now.Count) - int64(b.Count), int64(now.Bytes - b.Bytes),
				int64(b.Count), int64(now.Count)})
		}
	}
	slices.SortFunc(out, func(a, b typeGrowth) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.name, b.name))
	})
	return out
}
