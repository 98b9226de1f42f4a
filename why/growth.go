package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/heapwalk"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// leastConsistent is the share of the heap that must be proved for a comparison of counts.
const leastConsistent = 0.9

// judgeGrowth looks for growing large collections: handlers of an event that never leave, timers and callbacks of
// tokens that are never disposed of, and collections that only grow.
func judgeGrowth(e *evidence) []profile.Verdict {
	growing := e.Growing()
	best := -1
	var path *snapshot.HeapPath
	for i := range growing {
		k := e.keeper(&growing[i])
		if v := e.backlog(&growing[i], k); v != nil {
			return []profile.Verdict{*v}
		}
		if growing[i].Small {
			continue
		}
		if k != nil && strings.HasPrefix(k.Static, "System.Threading.ThreadPool.") {
			continue // work that waits for a worker is judged with the pool
		}
		if k != nil && (path == nil || phrase.KeptBy("", path) == "" && phrase.KeptBy("", k) != "" ||
			phrase.OwnField(path) == "" && phrase.OwnField(k) != "") {
			best, path = i, k
		}
		if best < 0 && known(&growing[i]) {
			best = i
		}
	}
	if l := e.grownList(); l != nil && (best < 0 || lessSure(&growing[best], e.Age, path)) {
		return []profile.Verdict{l.listVerdict(e)}
	}
	// No path is known: the collection may be dead and replaced, or a stack alone keeps the collection.
	if best < 0 || path == nil && growing[best].Kind == heapwalk.Collection {
		if l := e.grownObjects(); l != nil {
			return []profile.Verdict{l.objectsVerdict(e)}
		}
	}
	if best < 0 {
		return nil
	}
	v := pileVerdict(&growing[best], e, path)
	for i := range growing[:min(len(growing), phrase.ShownSites+1)] {
		if p := &growing[i]; i != best && !p.Small {
			v.Evidence = append(v.Evidence, profile.Evidence{Text: "Grows as well: " + p.Short() + "."})
		}
	}
	return []profile.Verdict{v}
}

// known reports whether a growing collection is certainly kept, although nobody knows by whom. Somebody has added own
// objects to the same collection.
func known(p *gather.Pile) bool {
	switch p.Kind {
	case heapwalk.Event, heapwalk.Handles:
		return true
	case heapwalk.Collection:
		return p.Same && namesOwn(p.Type+" "+p.Element)
	}
	return false
}

// namesOwn reports whether a type outside .NET is among types and their arguments.
func namesOwn(types string) bool {
	between := func(c rune) bool { return strings.ContainsRune(" <>,()[]", c) }
	return slices.ContainsFunc(strings.FieldsFunc(types, between), func(name string) bool {
		return strings.Contains(name, ".") && !snapshot.Framework(name)
	})
}

// lessSure reports whether a linked list says more than a pile. Timers and the callbacks of a token are linked lists
// themselves.
func lessSure(p *gather.Pile, age time.Duration, path *snapshot.HeapPath) bool {
	return p.Certainty(age, path) == profile.Possible && p.Kind != heapwalk.Timers && p.Kind != heapwalk.Token
}

// keeper is the path that keeps a pile; nil: not known.
func (e *evidence) keeper(p *gather.Pile) *snapshot.HeapPath {
	for i := range e.Kept {
		if k := &e.Kept[i]; k.Kind == p.Kind && k.Type == p.Type && k.Element == p.Element && k.At == p.At {
			return k.Path
		}
	}
	return nil
}

func pileVerdict(p *gather.Pile, e *evidence, path *snapshot.HeapPath) profile.Verdict {
	v := profile.Verdict{
		Cause: profile.CauseHeapGrowth, Certainty: p.Certainty(e.Age, path), Text: "Objects pile up: " + p.Text(e.Age),
		Commands: p.Commands(e.Process.PID),
	}
	if p.Unused(&e.Evidence) {
		v.Certainty = profile.Likely
		v.Text += " " + fewMethods(e.LastFlight().Tasks.Methods)
	}
	if i := slices.IndexFunc(e.Rows, func(r heapwalk.Row) bool { return r.Type == p.Element }); i >= 0 &&
		e.Rows[i].Bytes > 0 {
		v.Text += fmt.Sprintf(" All kept objects of %s keep %s.", p.Element, phrase.BytesOf(int64(e.Rows[i].Bytes)))
	}
	if path != nil {
		v.Text += phrase.KeptBy("The objects are", path) + meaning(path)
		if l := e.LastFlight(); l != nil && throughChannel(path) {
			e.addReaders(&v, l.Tasks)
		} else {
			e.addFailed(&v, path)
		}
		if l := e.LastFlight(); l != nil && p.IsQueue() && len(l.Tasks.Ended) > 0 {
			v.Text += fmt.Sprintf(" Perhaps a background service took the elements out that has ended: %s.",
				phrase.List(l.Tasks.Ended))
		}
		v.Evidence = append(v.Evidence, profile.Evidence{Text: "The way to it: " + phrase.Way(path) + "."})
	}
	if s := e.allocatedIn(p.Element); s != nil {
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("Most objects of %s are allocated in %s:", p.Element,
				phrase.Method(s.Frame(e.Samples))),
			Frames: gather.WithoutEvents(gather.Frames(e.Samples, s.Leaf)),
		})
	}
	v.Evidence = append(v.Evidence, e.grownOld()...)
	return v
}

// meaning says what a known collection of a package is for.
func meaning(path *snapshot.HeapPath) string {
	for _, s := range path.Steps {
		switch {
		case strings.HasPrefix(s.Type, "Microsoft.Extensions.Caching.Memory.MemoryCache+"):
			return " A MemoryCache without a size limit keeps each entry until the entry expires. Where nearly each " +
				"lookup adds an entry, the keys may differ each time."
		case s.Type == "Microsoft.Extensions.DependencyInjection.ServiceLookup.ServiceProviderEngineScope" &&
			s.Field == "_disposables":
			return " A service provider keeps each IDisposable that it has made until its scope ends. The scope of " +
				"the root provider ends with the program."
		}
	}
	return ""
}

// allocatedIn is where most objects of a type were allocated, by bytes, in the recording; nil: in many places, or not
// known.
func (e *evidence) allocatedIn(typ string) *gather.Site {
	r := e.Samples
	if !gather.HasMode(r, profile.Alloc) {
		return nil
	}
	is := func(x *profile.Sample) bool { return x.Mode == profile.Alloc && r.Function(x.Node).Display == typ }
	all, events := gather.Weigh(r, is)
	list := gather.Sites(r, is)
	if events < fewAllocations || len(list) == 0 || float64(list[0].Weight) < mostAllocated*float64(all) {
		return nil
	}
	return &list[0]
}

// Thresholds of the place where most objects are allocated: samples, and the share of the bytes.
const (
	fewAllocations = 5
	mostAllocated  = 0.6
)

func fewMethods(n int) string {
	if n == 0 {
		return "No async method is in flight."
	}
	return fmt.Sprintf("Only %s in flight.", phrase.Counted(n, "async method is", "async methods are"))
}

// addFailed tells of the failed tasks whose methods belong to the classes on the way to a collection: such a method may
// have taken elements out of the collection.
func (e *evidence) addFailed(v *profile.Verdict, path *snapshot.HeapPath) {
	l, types := e.LastFlight(), gather.OwnTypes(path)
	if l == nil {
		return
	}
	told := 0
	for i := range l.Tasks.Faults {
		f := &l.Tasks.Faults[i]
		if f.Method == "" || !gather.MemberOf(types, f.Method) || told == maxReaders {
			continue
		}
		if told++; told == 1 {
			v.Text += fmt.Sprintf(" %s, a method of the class that keeps it, has ended with %s.", f.Method,
				phrase.Exception(f.Exception))
		}
		v.Evidence = append(v.Evidence, e.faultEvidence(f))
	}
}

// A type whose old objects grew less, in bytes, or less than a part of the most grown type, is not worth a line.
const (
	leastOld   = 64 << 10
	notableOld = 20
)

// grownOld tells the growth of the old generations and large objects.
func (e *evidence) grownOld() (out []profile.Evidence) {
	first, last := &e.Heaps[0], &e.Heaps[len(e.Heaps)-1]
	text := fmt.Sprintf("The old generations and large objects had %s, and have %s now.",
		phrase.BytesOf(first.OldBytes()), phrase.BytesOf(last.OldBytes()))
	if diff := last.OldBytes() - first.OldBytes(); max(diff, -diff) < leastOld {
		text = fmt.Sprintf("The old generations and large objects have %s, as before: new objects are young.",
			phrase.BytesOf(last.OldBytes()))
	}
	out = append(out, profile.Evidence{Text: text})
	list := gather.Grown(first, last, gather.Old)
	if min(first.ConsistentShare, last.ConsistentShare) < leastConsistent || len(list) == 0 {
		return out
	}
	for _, g := range list[:min(len(list), phrase.ShownSites)] {
		if g.Bytes < leastOld || notableOld*g.Bytes < list[0].Bytes {
			break
		}
		out = append(out, profile.Evidence{
			Text: fmt.Sprintf("%s: %s more objects, %s more.", g.Name, phrase.Number(g.Count), phrase.BytesOf(g.Bytes)),
		})
	}
	return out
}

// throughChannel reports whether a path leads to the items of a channel.
func throughChannel(path *snapshot.HeapPath) bool {
	return slices.ContainsFunc(path.Steps, func(s snapshot.HeapStep) bool {
		return strings.HasPrefix(s.Type, "System.Threading.Channels.")
	})
}
