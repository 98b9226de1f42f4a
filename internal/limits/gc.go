package limits

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

// Thresholds of garbage collection.
const (
	muchPause    = 0.15 // of the time, in which the program stood still for collections
	mostPause    = 0.30
	somePause    = 0.05      // if the program asks for collections
	manyInduced  = 2.0       // full collections a second that the program asks for
	manyFull     = 1.0       // full collections a second, if large objects are their reason
	largeObject  = 85_000    // bytes from which on an object is large (gcconfig.h, LOHThreshold)
	muchLarge    = 100 << 20 // bytes of large objects a second
	leastPauses  = 3
	largeReasons = "large"
	inducedBy    = "induced"
	// Reasons of collections for lack of space: the heap may not become larger.
	spaceReasons = "out of space"
	manyNoSpace  = 2.0 // of these collections, a second
)

// collections is the work of the garbage collector.
type collections struct {
	pause    time.Duration
	count    int64
	full     int64 // generation 2
	large    int64 // of full, because of large objects
	induced  int64 // of full, because the program asked for a collection
	noSpace  int64 // of count, for lack of space
	longest  time.Duration
	duration time.Duration
	reasons  gather.Tally
}

func collectionsOf(r *profile.Recording) collections {
	c := collections{duration: r.Duration, reasons: gather.Tally{}}
	for i := range r.Samples {
		x := &r.Samples[i]
		if x.Mode != profile.GC {
			continue
		}
		c.pause += time.Duration(x.Weight)
		c.count += x.Events
		f := r.Function(x.Node)
		if f == nil || f.Kind != snapshot.Event {
			continue
		}
		if d := time.Duration(x.Weight); d > c.longest {
			c.longest = d
		}
		c.reasons[f.Display] += int(x.Events)
		if strings.Contains(f.Display, spaceReasons) {
			c.noSpace += x.Events
		}
		if strings.HasPrefix(f.Display, "gen 2") {
			c.full += x.Events
			if strings.Contains(f.Display, largeReasons) {
				c.large += x.Events
			}
			if strings.Contains(f.Display, inducedBy) {
				c.induced += x.Events
			}
		}
	}
	return c
}

// noRoom reports whether collections happen again and again because the heap may not become larger.
func (c *collections) noRoom() bool {
	return float64(c.noSpace) >= manyNoSpace*c.duration.Seconds() && c.noSpace > 0
}

// GC looks for a program that spends its time on garbage collections.
func GC(e *gather.Evidence) []profile.Verdict {
	r := e.Samples
	if !gather.HasMode(r, profile.GC) || r.Duration < gather.Enough {
		return nil
	}
	c := collectionsOf(r)
	share := gather.AtOnce(int64(c.pause), c.duration)
	own := share * e.Served() // without the time in which other processes had the CPUs
	large := largeRate(r)
	often := float64(c.large) >= manyFull*c.duration.Seconds() && large >= muchLarge
	full := c.noRoom() && len(Memory(e)) == 0 && len(HeapLimit(e)) == 0 // else these judges name the limit
	// The program asks for collections, however busy the machine is.
	asked := share >= somePause && float64(c.induced) >= manyInduced*c.duration.Seconds()
	if c.count < leastPauses || own < muchPause && !often && !full && !asked {
		return nil
	}
	v := profile.Verdict{
		Cause: profile.CauseGC, Certainty: profile.Likely,
		Commands: []string{fmt.Sprintf("clrsnap record %d --event alloc,gc -d 10s", e.Process.PID)},
	}
	if own >= mostPause {
		v.Certainty = profile.Certain
	}
	allocated := r.Weight(profile.Alloc)
	v.Text = "Garbage collections take the program's time: "
	switch {
	case asked:
		v.Text = fmt.Sprintf("The program asks for %.1f full garbage collections a second (GC.Collect): ",
			float64(c.induced)/c.duration.Seconds())
	case own < muchPause && often:
		v.Text = fmt.Sprintf("Large objects cause %.1f full garbage collections a second: ",
			float64(c.large)/c.duration.Seconds())
	}
	ofThem := "all of them full ones"
	if c.full < c.count {
		ofThem = fmt.Sprintf("%d of them full ones", c.full)
	}
	allocates := "allocates"
	if full { // some requests fail
		allocates = "asks for"
	}
	v.Text += fmt.Sprintf("the program stood still for %s of %s (%s), in %s, %s. The program %s %s a second.",
		phrase.Seconds(c.pause), phrase.Seconds(c.duration), phrase.Percent(share), phrase.Counted(int(c.count),
			"collection", "collections"),
		ofThem, allocates, phrase.BytesOf(phrase.Rate(allocated, c.duration)))
	if full {
		v.Cause = profile.CauseMemoryPressure
		v.Text = fmt.Sprintf("The managed heap is full and may not grow: %d of %s in %s were made because no "+
			"space was left. ",
			c.noSpace, phrase.Counted(int(c.count), "collection", "collections"), phrase.Seconds(c.duration)) + v.Text
		v.Commands = append(v.Commands, fmt.Sprintf("clrsnap heap %d", e.Process.PID))
		v.Evidence = append(v.Evidence, heapLimits(e)...)
	}
	if often {
		v.Text += fmt.Sprintf(" %s a second are objects of %s bytes and more, which only full collections free.",
			phrase.BytesOf(large), "85,000")
	}
	why, _ := c.reasons.Top()
	v.Evidence = append(v.Evidence, profile.Evidence{
		Text: fmt.Sprintf("%.1f pauses a second, the longest %s; most collections are: %s.",
			float64(c.count)/c.duration.Seconds(), phrase.Seconds(c.longest), why),
	})
	addAllocations(&v, r, often)
	return []profile.Verdict{v}
}

// heapLimits are the limits of memory that may limit the heap.
func heapLimits(e *gather.Evidence) (out []profile.Evidence) {
	if len(e.Moments) == 0 {
		return nil
	}
	for _, m := range e.Moments[len(e.Moments)-1].Groups.Memory {
		if m.Max == 0 {
			continue
		}
		out = append(out, profile.Evidence{
			Text: fmt.Sprintf("Control group %s may have %s and has %s. .NET lets the heap have three quarters of "+
				"that, unless it is told otherwise (System.GC.HeapHardLimit).", m.Group, phrase.BytesOf(m.Max),
				phrase.BytesOf(m.Used)),
		})
	}
	return out
}

// largeRate is the allocation rate of large objects, in bytes a second.
func largeRate(r *profile.Recording) int64 {
	sum := int64(0)
	for i := range r.Samples {
		if x := &r.Samples[i]; isLarge(x) {
			sum += x.Weight
		}
	}
	return phrase.Rate(sum, r.Duration)
}

func isLarge(x *profile.Sample) bool {
	return x.Mode == profile.Alloc && x.Events > 0 && x.Weight/x.Events >= largeObject
}

// allocation is a type with the allocating method.
type allocation struct {
	typ    string
	weight int64
	events int64
	node   int32 // of the event
	most   int64
}

// addAllocations adds the methods that allocate the most.
func addAllocations(v *profile.Verdict, r *profile.Recording, large bool) {
	by := map[string]*allocation{}
	for i := range r.Samples {
		x := &r.Samples[i]
		f := r.Function(x.Node)
		if x.Mode != profile.Alloc || f == nil || large && !isLarge(x) {
			continue
		}
		own := ""
		if n := gather.OwnNode(r, x.Node); n > 0 {
			own = r.Function(n).Display
		}
		key := f.Display + " in " + own
		a := by[key]
		if a == nil {
			a = &allocation{typ: f.Display}
			by[key] = a
		}
		a.weight, a.events = a.weight+x.Weight, a.events+x.Events
		if x.Weight > a.most {
			a.most, a.node = x.Weight, x.Node
		}
	}
	list := slices.SortedFunc(maps.Values(by), func(a, b *allocation) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.typ, b.typ))
	})
	for i, a := range list[:min(len(list), phrase.ShownSites)] {
		stack := gather.Frames(r, a.node)
		own := gather.Place(stack)
		all, size := phrase.BytesOf(phrase.Rate(a.weight, r.Duration)), phrase.BytesOf(a.weight/max(a.events, 1))
		text := fmt.Sprintf("%s a second of %s, about %s each, are allocated in %s:", all, a.typ, size, own)
		if i == 0 {
			v.Text += fmt.Sprintf(" Most, %s a second, are %s of about %s each, in %s.", all, a.typ, size, own)
		}
		v.Evidence = append(v.Evidence, profile.Evidence{Text: text, Frames: gather.WithoutEvents(stack)})
	}
}
