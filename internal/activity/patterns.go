package activity

import (
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// pattern is a known way of using more CPU time than the work needs, recognised by the frames of samples.
type pattern struct {
	least float64                                      // of the CPU time
	in    func(r *profile.Recording, leaf int32) int32 // the node to begin at for the own method; 0: another way
	text  string                                       // behind the share; %s: the own method
}

const (
	structKeyText = "comparing and hashing structs by reflection (ValueType.Equals, ValueType.GetHashCode), in %s: a " +
		"struct without an Equals and a GetHashCode of its own, as a key for example."
	keysText = "looking up keys in a collection, in %s: very many look-ups, or many keys with equal hash codes, " +
		"compared one by one."
	regexText = "regular expressions, run by %s. A pattern that backtracks takes long with some texts."
	linqText  = "methods of LINQ, called in %s. In a loop LINQ goes through the same elements again and again."
	jsonText  = "reading or writing JSON, called in %s."
	pipeText  = "reading from a pipe (PipeReader), in %s. If AdvanceTo does not mark all that was examined, " +
		"ReadAsync returns the same bytes at once, again and again."
)

// patterns are the known ways. A sample counts for each way that it fits.
var patterns = []pattern{
	{0.10, structKey, structKeyText}, {0.30, keyLookup, keysText},
	{0.20, within("System.Text.RegularExpressions"), regexText}, {0.25, within("System.Linq"), linqText},
	{0.30, within("System.Text.Json"), jsonText}, {0.20, ownPipe, pipeText},
}

// searchedFrames bounds the frames from the leaf on in which a pattern is looked for.
const searchedFrames = 40

// upward calls f for the nodes of the managed frames from the leaf on, until f returns false.
func upward(r *profile.Recording, leaf int32, f func(n int32, fn *profile.Function) bool) {
	for n, i := leaf, 0; n > 0 && i < searchedFrames; n, i = r.Nodes[n].Parent, i+1 {
		if fn := r.Function(n); fn.Kind == snapshot.Managed && !f(n, fn) {
			return
		}
	}
}

// byReflection are the beginnings of the methods that compare and hash structs without methods of their own. The
// compiler may have inlined ValueType.Equals.
var byReflection = []string{"System.ValueType.", "System.Reflection.FieldAccessor.GetValue"}

// structKey finds the comparison or the hash of a struct, by reflection, in own code or in a collection.
func structKey(r *profile.Recording, leaf int32) (out int32) {
	upward(r, leaf, func(n int32, f *profile.Function) bool {
		if slices.ContainsFunc(byReflection, func(p string) bool { return strings.HasPrefix(f.Method, p) }) {
			out = n
			return true
		}
		if out != 0 && f.Module == "System.Private.CoreLib" && !strings.HasPrefix(f.Method, "System.Collections.") {
			out = 0 // a call of reflection
			return false
		}
		return out == 0 && f.Origin() == snapshot.OfFramework
	})
	return out
}

// lookups are the methods of collections that look up a key.
var lookups = []string{
	"System.Collections.Generic.Dictionary`2.FindValue", "System.Collections.Generic.Dictionary`2.TryInsert",
	"System.Collections.Generic.Dictionary`2.Remove", "System.Collections.Generic.HashSet`1.FindItemIndex",
	"System.Collections.Generic.HashSet`1.AddIfNotPresent",
	"System.Collections.Concurrent.ConcurrentDictionary`2.TryGetValue",
	"System.Collections.Concurrent.ConcurrentDictionary`2.TryAddInternal",
	"System.Collections.Generic.ObjectEqualityComparer`1.Equals", // of a look-up in own code, where inlined
}

// comparing are the beginnings of the names of methods that compare keys.
var comparing = []string{"Equals", "GetHashCode", "get_", "SequenceEqual"}

// keyLookup finds the collection that compares keys. Only comparisons are between the leaf and the collection.
func keyLookup(r *profile.Recording, leaf int32) (out int32) {
	upward(r, leaf, func(n int32, f *profile.Function) bool {
		for _, p := range lookups {
			if strings.HasPrefix(f.Method, p) {
				out = n
				return false
			}
		}
		name := f.Method[strings.LastIndexByte(f.Method, '.')+1:]
		return slices.ContainsFunc(comparing, func(p string) bool { return strings.HasPrefix(name, p) })
	})
	return out
}

// within finds the frame of an assembly nearest to the program's own code, if the leaf is close to the assembly: own
// code that the assembly calls may be in between.
func within(assembly string) func(*profile.Recording, int32) int32 {
	const own = 1 // methods of the program between the leaf and the assembly
	return func(r *profile.Recording, leaf int32) (out int32) {
		between := 0
		upward(r, leaf, func(n int32, f *profile.Function) bool {
			switch {
			case f.Module == assembly || phrase.IsGenerated(f.Method) &&
				strings.HasSuffix(assembly, "RegularExpressions"):
				out = n
			case f.Origin() != snapshot.OfFramework:
				between++
			}
			return out == 0 && between <= own || out != 0 && f.Origin() == snapshot.OfFramework
		})
		return out
	}
}

// pipeReads are the beginnings of the names of a pipe's reading methods.
var pipeReads = []string{"ReadAsync", "ReadAtLeastAsync", "TryRead", "AdvanceTo"}

// ownPipe finds a pipe's reading method with a caller in the program's own code.
func ownPipe(r *profile.Recording, leaf int32) (out int32) {
	last := int32(0)
	upward(r, leaf, func(n int32, f *profile.Function) bool {
		if f.Origin() == snapshot.OfFramework {
			last = n
			return true
		}
		if last == 0 || r.Function(last).Module != "System.IO.Pipelines" {
			return false
		}
		method := r.Function(last).Method
		name := method[strings.LastIndexByte(method, '.')+1:]
		if slices.ContainsFunc(pipeReads, func(p string) bool { return strings.HasPrefix(name, p) }) {
			out = last
		}
		return false
	})
	return out
}

// ofNote are the known ways of using CPU time for which the process used much of its time, with the stack of most
// samples each.
func ofNote(e *gather.Evidence, runs func(*profile.Sample) bool, all int64) (out []profile.Evidence) {
	r := e.Samples
	tell := func(share float64, text string, own *snapshot.Frame, leaf int32) {
		out = append(out, profile.Evidence{
			Text: fmt.Sprintf("%s of the CPU time is in ", phrase.Percent(share)) + fmt.Sprintf(text,
				phrase.Method(own)),
			Frames: gather.Frames(r, leaf),
		})
	}
	for i := range patterns {
		p := &patterns[i]
		sum := int64(0)
		list := gather.SitesBy(r, func(x *profile.Sample) bool {
			fits := runs(x) && p.in(r, x.Node) != 0
			if fits {
				sum += x.Weight
			}
			return fits
		}, func(r *profile.Recording, leaf int32) int32 { return gather.OwnNode(r, p.in(r, leaf)) })
		if share := float64(sum) / float64(all); share >= p.least && len(list) > 0 {
			tell(share, p.text, list[0].Frame(r), list[0].Leaf)
		}
	}
	if share := gather.ThrowingShare(r); share >= leastThrowing {
		list := gather.Sites(r, func(x *profile.Sample) bool { return runs(x) && gather.Throws(r, x.Node) })
		if len(list) > 0 {
			tell(share, "throwing and catching exceptions, most of them below %s.", list[0].Frame(r), list[0].Leaf)
		}
	}
	return slices.Concat(out, stampede(e, runs, all), boxes(e), longTexts(e))
}

// Thresholds of values that many threads compute for one cache.
const (
	leastComputed = 0.30 // of the CPU time
	manyComputing = 4    // threads
)

// caches are the beginnings of the methods that look up a value, and compute the value without a lock if there is none.
var caches = []string{
	"System.Collections.Concurrent.ConcurrentDictionary`2.GetOrAdd",
	"Microsoft.Extensions.Caching.Memory.CacheExtensions.GetOrCreate",
}

// stampede tells of many threads that compute values for a cache in one method.
func stampede(e *gather.Evidence, runs func(*profile.Sample) bool, all int64) []profile.Evidence {
	r := e.Samples
	computes := func(r *profile.Recording, leaf int32) (own int32) {
		cached := false
		upward(r, leaf, func(n int32, f *profile.Function) bool {
			looksUp := func(method string) bool { return strings.HasPrefix(f.Method, method) }
			cached = own != 0 && slices.ContainsFunc(caches, looksUp)
			if f.Origin() != snapshot.OfFramework {
				own = n // the outermost below the cache
			}
			return !cached
		})
		if !cached {
			return 0
		}
		return own
	}
	list := gather.SitesBy(r, runs, computes)
	if len(list) == 0 {
		return nil
	}
	s := &list[0]
	share := float64(s.Weight) / float64(all)
	if share < leastComputed {
		return nil
	}
	threads := map[int32]bool{}
	for i := range r.Samples {
		if x := &r.Samples[i]; runs(x) {
			if n := computes(r, x.Node); n != 0 && r.Function(n) == r.Function(s.Node) {
				threads[x.Thread] = true
			}
		}
	}
	if len(threads) < manyComputing {
		return nil
	}
	return []profile.Evidence{{
		Text: fmt.Sprintf("%s of the CPU time is in %s, which computes values for a cache (GetOrAdd, GetOrCreate), in "+
			"%s. The cache takes no lock: if threads miss a key at the same time, each thread computes the value.",
			phrase.Percent(share), phrase.Method(s.Frame(r)), phrase.ThreadsOf(len(threads))),
		Frames: gather.Frames(r, s.Leaf),
	}}
}

// Thresholds: of throwing as a share of the CPU time, of boxing and of texts as a share of the allocated bytes and in
// bytes a second, of the average text in bytes.
const (
	leastThrowing = 0.10
	leastBoxed    = 0.20
	leastBoxes    = 1 << 20
	leastTexts    = 0.50
	leastTextRate = 64 << 20
	longText      = 2 << 10
)

// boxes tells of values that are boxed in great number.
func boxes(e *gather.Evidence) []profile.Evidence {
	s, ok := allocates(e, func(typ string) bool { return gather.Boxed[typ] }, leastBoxed, leastBoxes)
	if !ok {
		return nil
	}
	return s.evidence(fmt.Sprintf("boxed values such as %s, most of them", s.of))
}

// longTexts tells of long texts that are made in great number.
func longTexts(e *gather.Evidence) []profile.Evidence {
	s, ok := allocates(e, func(typ string) bool { return typ == "string" }, leastTexts, leastTextRate)
	if !ok || s.average < longText {
		return nil
	}
	made := ""
	if s.by != nil {
		made = " made by " + s.by.Display
	}
	out := s.evidence(fmt.Sprintf("strings of %s on average, most of them%s", phrase.BytesOf(s.average), made))
	// string.Concat of two texts is inlined into busy code.
	if s.by == nil || joinsTwo[s.by.Signature] && strings.HasSuffix(s.by.Method, "String.Concat") {
		out[0].Text += " Perhaps a text grows in a loop: it is copied each time."
	}
	return out
}

// joinsTwo are the signatures of string.Concat for a few texts. Other methods get all texts at once.
var joinsTwo = map[string]bool{
	"(string, string)": true, "(string, string, string)": true, "(string, string, string, string)": true,
}

// allocations is what a process allocates of some types.
type allocations struct {
	share         float64 // of all bytes
	rate, average int64   // bytes a second, and of an object
	of            string  // the type at the place with the most bytes
	own           *snapshot.Frame
	by            *profile.Function // that own calls to allocate most; nil: own itself allocates
	frames        []snapshot.Frame
}

// allocates sums up the allocations of some types; false: less than a share of all bytes, or less than so many bytes a
// second.
func allocates(
	e *gather.Evidence, typ func(string) bool, leastShare float64, leastRate int64,
) (out allocations, ok bool) {
	r := e.Samples
	if !gather.HasMode(r, profile.Alloc) {
		return out, false
	}
	all, _ := gather.Weigh(r, func(x *profile.Sample) bool { return x.Mode == profile.Alloc })
	is := func(x *profile.Sample) bool { return x.Mode == profile.Alloc && typ(r.Function(x.Node).Display) }
	sum, _ := gather.Weigh(r, is)
	list := gather.Sites(r, is)
	out.share, out.rate = float64(sum)/float64(max(all, 1)), phrase.Rate(sum, r.Duration)
	if len(list) == 0 || out.share < leastShare || out.rate < leastRate {
		return out, false
	}
	events := int64(0)
	for i := range list {
		events += list[i].Events
	}
	s := &list[0]
	out.average, out.of = sum/max(events, 1), r.Function(s.Leaf).Display
	out.by = firstCalled(r, waysDown(r, is, s))
	out.own, out.frames = s.Frame(r), gather.WithoutEvents(gather.Frames(r, s.Leaf))
	return out, true
}

func (a *allocations) evidence(what string) []profile.Evidence {
	return []profile.Evidence{{
		Text: fmt.Sprintf("%s of the allocated bytes, %s a second, are %s in %s.", phrase.Percent(a.share),
			phrase.BytesOf(a.rate), what, phrase.Method(a.own)),
		Frames: a.frames,
	}}
}
