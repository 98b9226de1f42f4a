package gather

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/heapwalk"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Thresholds of growth. No design has so many handlers of one event, and the number grows only if handlers come and
// do not go.
const (
	manyPiled    = 1000
	grownPile    = 50
	manyQueued   = 100 // of a queue: see Pile.Small
	grownQueue   = 10
	grownShare   = 0.01
	leastBetween = time.Second
	fastHandlers = 100 // more in a second; fewer may belong to a start

	manyAssemblies  = 50
	grownAssemblies = 10
)

// AssemblyClass is the class of the objects that stand for loaded assemblies (System.Private.CoreLib).
const AssemblyClass = "System.Reflection.RuntimeAssembly"

// Many elements of a collection, or many timers, can well be a design. Time makes the difference: a cache fills up
// and stays, and a starting program stores much. So collections and timers count only in a program that has run for a
// while, and only if the growth has been steady: at the present rate, the whole growth would have taken about as long
// as the program has run.
const (
	longAge     = 10 * time.Minute
	leastOfLife = 0.4 // of the program's age
	mostOfLife  = 2.5

	// In a young program a cache may not have filled yet: the growth must have been steadier.
	leastOfYoungLife = 0.7
	mostOfYoungLife  = 1.35

	// A linked list is no cache: the rate may have fallen.
	mostOfListLife = 8
)

// LeastAge is the least age of a program for these thresholds, and a program below YoungAge is young. A test has less
// time.
var LeastAge, YoungAge = 25 * time.Second, time.Minute

// Pile is a large collection that has grown: elements of a collection, handlers of an event, timers, callbacks of a
// token, handles.
type Pile struct {
	heapwalk.Pile
	Before int
	took   time.Duration
	linked bool // a linked list, which is no cache
	Small  bool // a queue with so few elements that only a standing reader makes the growth worth a word
	Same   bool // at the address from before: as elements were added, somebody refers to the collection
}

// Growing are the piles with unusual growth, the largest growth first.
func (e *Evidence) Growing() (out []Pile) {
	if len(e.Heaps) < 2 {
		return nil
	}
	first, last := &e.Heaps[0], &e.Heaps[len(e.Heaps)-1]
	took := last.At - first.At
	if took < leastBetween {
		return nil
	}
	for _, p := range Pairs(first.Piles, last.Piles) {
		p.took = took
		p.Small = p.IsQueue() && p.Count < manyPiled && p.Count >= manyQueued && p.grown() >= grownQueue &&
			p.steady(e.Age)
		if p.Small || p.Grows(e.Age) {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b Pile) int {
		if a.Small != b.Small {
			return cmp.Compare(absent(b.Small), absent(a.Small))
		}
		return cmp.Compare(b.grown(), a.grown())
	})
	return out
}

// absent is 0 if there is true, and 1 otherwise.
func absent(there bool) int {
	if there {
		return 0
	}
	return 1
}

// Pairs matches the piles of two looks by address. Moved collections, and events, match the largest rest of equal
// kind and types.
func Pairs(before, now []heapwalk.Pile) (out []Pile) {
	taken := make([]bool, len(before))
	find := func(p *heapwalk.Pile, same func(*heapwalk.Pile) bool) bool {
		for i := range before {
			b := &before[i]
			if !taken[i] && b.Kind == p.Kind && b.Type == p.Type &&
				(b.Element == p.Element || b.Kind == heapwalk.Handles) && same(b) {
				taken[i] = true
				out = append(out, Pile{Pile: *p, Before: b.Count, Same: p.At != 0 && p.At == b.At})
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

func (p *Pile) grown() int { return p.Count - p.Before }

// Grows reports whether a pile grows unusually, in a process of some age.
func (p *Pile) Grows(age time.Duration) bool {
	least, more := manyPiled, grownPile
	if p.Type == AssemblyClass {
		least, more = manyAssemblies, grownAssemblies
	}
	if p.Count < least || p.grown() < more {
		return false
	}
	if p.Kind == heapwalk.Event && float64(p.grown()) >= grownShare*float64(p.Before) {
		return true
	}
	return p.steady(age)
}

// Steady reports whether a number has grown steadily since the process started, some time ago.
func Steady(before, now int, took, age time.Duration) bool {
	p := Pile{Pile: heapwalk.Pile{Count: now}, Before: before, took: took}
	return p.steady(age)
}

// steady reports whether the growth has been steady since the process started.
func (p *Pile) steady(age time.Duration) bool {
	life, least, most := p.life(), leastOfLife, mostOfLife
	switch {
	case p.linked:
		most = mostOfListLife
	case age < YoungAge:
		least, most = leastOfYoungLife, mostOfYoungLife
	}
	return age >= LeastAge && life >= least*age.Seconds() && life <= most*age.Seconds()
}

// life is how many seconds the whole growth would have taken at the present rate.
func (p *Pile) life() float64 {
	return float64(p.Count) / (float64(p.grown()) / p.took.Seconds())
}

// Certainty: many handlers, quickly added to an event that is certainly kept, are no design. The purpose of a
// collection cannot be told from outside.
func (p *Pile) Certainty(age time.Duration, path *snapshot.HeapPath) profile.Certainty {
	fast := phrase.Rate(int64(p.grown()), p.took) >= fastHandlers
	switch {
	case p.Kind == heapwalk.Handles, p.Kind == heapwalk.Collection && path == nil:
		return profile.Possible
	case p.Kind == heapwalk.Event && fast && path != nil:
		return profile.Certain
	case p.Kind == heapwalk.Event && fast, p.Kind != heapwalk.Event && (age >= longAge || p.IsQueue()):
		return profile.Likely
	}
	return profile.Possible
}

// IsQueue reports whether a pile is a queue: its elements wait to be taken out.
func (p *Pile) IsQueue() bool {
	return p.Kind == heapwalk.Collection && slices.ContainsFunc(queueTypes, func(t string) bool {
		return strings.HasPrefix(p.Type, t+"<")
	})
}

var queueTypes = []string{
	"System.Collections.Concurrent.ConcurrentQueue", "System.Collections.Generic.Queue",
	"System.Collections.Generic.Deque",
}

// Unused reports whether far fewer requests and async methods are in flight than a token has callbacks, or than there
// are timers: nothing in flight needs these.
func (p *Pile) Unused(e *Evidence) bool {
	l := e.LastFlight()
	return (p.Kind == heapwalk.Token || p.Kind == heapwalk.Timers) && l != nil && !l.Tasks.Partial &&
		leastPerFlight*l.Tasks.Methods < p.Count
}

// leastPerFlight is the least number of callbacks, or timers, for each async method in flight that is unusual.
const leastPerFlight = 4

// Text describes the growth.
func (p *Pile) Text(age time.Duration) string {
	more, all := p.More(), p.Whole(age)
	switch p.Kind {
	case heapwalk.Event:
		targets := p.Element
		if targets == "" {
			targets = "static methods"
		}
		return fmt.Sprintf("an event (%s) has %s handlers, %s, most of them of %s. More objects subscribe than "+
			"unsubscribe, and subscribers live as long as the owner of the event.", p.Type,
			phrase.Number(int64(p.Count)),
			more, targets)
	case heapwalk.Timers:
		return fmt.Sprintf("%s timers are active, %s%s. Timers are started and not disposed of, and each timer "+
			"keeps the target of its callback. %s", phrase.Number(int64(p.Count)), more,
			p.calls("most of them for "), all)
	case heapwalk.Token:
		return fmt.Sprintf("a CancellationToken has %s callbacks, %s%s. Registrations and linked sources are not "+
			"disposed of, and stay until the token is cancelled. %s", phrase.Number(int64(p.Count)), more,
			p.calls("most of them of "), all)
	case heapwalk.Handles:
		of := ""
		if p.Element != "" {
			of = ", most often of the type " + p.Element
		}
		return fmt.Sprintf("%s handles, such as GCHandles, keep an object each, %s%s. More handles are allocated than "+
			"freed. %s", phrase.Number(int64(p.Count)), more, of, all)
	}
	if p.IsQueue() {
		return fmt.Sprintf("a %s has %s elements, %s. %s More is put in than is taken out.", p.Type,
			phrase.Number(int64(p.Count)), more, all)
	}
	last := ""
	if p.Holds != "" && p.Holds != p.Element {
		last = fmt.Sprintf(" Most of the last ones are of the type %s.", p.Holds)
	}
	return fmt.Sprintf("a %s has %s elements, %s.%s %s Fewer elements are removed than added. A collection that is "+
		"meant to grow looks the same.",
		strings.TrimSuffix(p.Type, "+Tables"), // a ConcurrentDictionary keeps its elements there
		phrase.Number(int64(p.Count)), more, last, all)
}

// More says how much the pile has grown.
func (p *Pile) More() string {
	return fmt.Sprintf("%s more than %s before (%s a second)", phrase.Number(int64(p.grown())), phrase.Seconds(p.took),
		phrase.Number(phrase.Rate(int64(p.grown()), p.took)))
}

// Whole says how long the whole growth takes at the present rate, and how long ago the program started.
func (p *Pile) Whole(age time.Duration) string {
	return fmt.Sprintf("At this rate it has grown for about %s, and the program started %s ago.",
		phrase.Seconds(time.Duration(p.life()*float64(time.Second))), phrase.Seconds(age))
}

// calls says what most objects of a sample call; empty: not known.
func (p *Pile) calls(begin string) string {
	if p.Calls == "" {
		return ""
	}
	return ", " + begin + p.Calls
}

// Short names the pile in a few words.
func (p *Pile) Short() string {
	what := p.Type
	switch p.Kind {
	case heapwalk.Timers:
		what = "active timers"
	case heapwalk.Token:
		what = "callbacks of a CancellationToken"
	case heapwalk.Handles:
		what = "handles"
	}
	return fmt.Sprintf("%s, from %s to %s", what, phrase.Number(int64(p.Before)), phrase.Number(int64(p.Count)))
}

// Commands returns the commands that show more.
func (p *Pile) Commands(pid int) []string {
	out := []string{fmt.Sprintf("clrsnap heap %d --every 30s", pid)}
	element := cmp.Or(p.Holds, p.Element)
	if p.Kind == heapwalk.Token {
		element = p.Calls
	}
	if element == "" || element == "object" || Boxed[element] || strings.ContainsAny(element, "'\\") ||
		strings.HasPrefix(element, "[") {
		return out
	}
	return append(out, fmt.Sprintf("clrsnap heap %d --roots '^%s$'", pid, regexp.QuoteMeta(element)))
}

// typeGrowth is a type with more objects than before.
type typeGrowth struct {
	Name          string
	Count, Bytes  int64 // more than before
	before, after int64 // objects
}

// Grown are the growing types, by bytes. of says which objects of a type count.
func Grown(first, last *HeapLook, of func(*snapshot.HeapType) snapshot.HeapAmount) (out []typeGrowth) {
	before := map[[2]string]snapshot.HeapAmount{}
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
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	return out
}
