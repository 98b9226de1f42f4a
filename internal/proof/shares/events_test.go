package shares

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// TestEventShares records the events of a program that counts its events itself,
// and compares the shares of each method, each class, each thread that holds a
// lock.
func TestEventShares(t *testing.T) {
	layer.Quiet(t)
	ways := map[string]record.Options{
		"with cpu and wall":  {Modes: []profile.Mode{profile.CPU, profile.Wall}},
		"one in three, 1 MB": {Events: events.Options{ExceptionEvery: 3, AllocationBytes: 1 << 20}},
	}
	if layer.Size(false, true) {
		ways["events"] = record.Options{} // as below, on the other runtimes
	}
	for _, runtime := range testenv.Versions() {
		t.Run(runtime, func(t *testing.T) {
			if !slices.Contains(supported, runtime) {
				ways = map[string]record.Options{"events": {}}
			}
			shareEvents(t, runtime, ways)
		})
	}
}

// shareEvents records one program on a runtime in several ways.
func shareEvents(t *testing.T, runtime string, ways map[string]record.Options) {
	testenv.Kit(t).Need(t, runtime)
	a := testenv.Start(t, "events", testenv.Options{Runtime: runtime, Args: []string{"--max-seconds", "600"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		o := ways[name]
		t.Run(name, func(t *testing.T) {
			o.Events.Monitor, o.Duration = events.MonitorAll, sharesTime()
			began, before := a.AskTruths()
			r, err := record.Record(context.Background(), p, o)
			if err != nil {
				t.Fatal(err)
			}
			ended, after := a.AskTruths()
			// The agent comes and goes meanwhile; the counted events go on evenly.
			recorded := r.Duration.Seconds() / (ended - began).Seconds()
			truths := truthsSince(after, before, recorded)
			compareEvents(t, r, truths, false)
		})
	}
	livetest.EndsWell(t, a)
}

// TestEventSharesFromStart is TestEventShares for a program started with the
// agent, with the runtime's own sampling and with every object reported.
func TestEventSharesFromStart(t *testing.T) {
	layer.Quiet(t)
	testenv.EachOf(t, supported, func(t *testing.T, runtime string) {
		for _, way := range []struct {
			name        string
			everyObject bool
		}{{"sampled", false}, {"every object", true}} {
			t.Run(way.name, func(t *testing.T) {
				kit := testenv.Kit(t)
				args := []string{kit.Host(runtime), testenv.BuildFor(t, "events", runtime), "--seconds", "8"}
				c := livetest.RecordCommand(t, args, clrsnap.Options{}, record.Options{
					Events: events.Options{Monitor: events.MonitorAll, EveryObject: way.everyObject,
						RingBytes: 4 << 20},
				})
				compareEvents(t, c.Good(t), testenv.Truths(t, c.Out.String()), true)
			})
		}
	})
}

// truthsSince is a part of the counts between two answers.
func truthsSince(after, before []testenv.Truth, part float64) []testenv.Truth {
	type key struct{ kind, method, class string }
	old := map[key]testenv.Truth{}
	for _, x := range before {
		old[key{x.Kind, x.Method, x.Type}] = x
	}
	var out []testenv.Truth
	for _, x := range after {
		o := old[key{x.Kind, x.Method, x.Type}]
		x.Count, x.Amount = int64(part*float64(x.Count-o.Count)), int64(part*float64(x.Amount-o.Amount))
		out = append(out, x)
	}
	return out
}

// eventKinds says which samples the truths of a kind are about.
var eventKinds = map[string]struct {
	mode profile.Mode
	// leaf makes the beginning of a leaf's name of a truth's type.
	leaf func(testenv.Truth) string
}{
	"alloc":      {profile.Alloc, func(x testenv.Truth) string { return csharpName(x.Type) }},
	"exception":  {profile.Exception, func(x testenv.Truth) string { return exceptionName(x.Type) + ", " }},
	"contention": {profile.Contention, func(testenv.Truth) string { return "held by " }},
	"holder":     {profile.Contention, func(x testenv.Truth) string { return "held by " + x.Type }},
	"thread":     {profile.ThreadStart, func(testenv.Truth) string { return "thread" }},
	"gc": {profile.GC, func(x testenv.Truth) string {
		return "gen " + strings.TrimPrefix(x.Type, "gen") + ", "
	}},
}

// holderName replaces the method of a lock's holder by the name of the holder's thread. Only the thread
// is known of an unseen holder.
func holderName(leaf string) string {
	for method, thread := range map[string]string{"HoldMonitor": "holds-monitor", "HoldLock": "holds-lock"} {
		leaf = strings.Replace(leaf, "Events.Contend."+method, thread, 1)
	}
	return leaf
}

// exceptionName is the name of an exception's type without the enclosing types.
func exceptionName(typeName string) string {
	return typeName[strings.LastIndexByte(typeName, '+')+1:]
}

// csharpName is a type's name in C#, unlike Type.ToString's.
func csharpName(typeName string) string {
	if strings.Contains(typeName, "AsyncStateMachineBox`1[System.Int64,Events.Allocate+<Suspended>") {
		return "System.Runtime.CompilerServices.AsyncTaskMethodBuilder<long>+" +
			"AsyncStateMachineBox<Events.Allocate.Suspended>"
	}
	if s, ok := map[string]string{
		"System.String": "string", "System.Byte[]": "byte[]", "System.Char[]": "char[]", "System.Int32[]": "int[]",
		"System.Int64[]": "long[]", "System.Double[]": "double[]", "System.Int32": "int",
		"System.Collections.Generic.List`1[System.Int64]": "System.Collections.Generic.List<long>",
		"System.Func`1[System.Int64]":                     "System.Func<long>",
	}[typeName]; ok {
		return s
	}
	return typeName
}

// eventPart is the samples of one truth.
type eventPart struct {
	truth          testenv.Truth
	amount, events int64
	samples        int
}

// compareEvents holds a recording against the program's counts.
func compareEvents(t *testing.T, r *profile.Recording, truths []testenv.Truth, all bool) {
	t.Helper()
	for _, n := range r.Notes {
		t.Log(n)
	}
	for _, kind := range []string{"alloc", "exception", "contention", "holder", "thread", "gc"} {
		var parts []*eventPart
		for _, x := range truths {
			known := x.Method != "-" && x.Type != "-"
			if known && x.Kind == kind {
				parts = append(parts, &eventPart{truth: x})
			}
		}
		if len(parts) == 0 {
			t.Errorf("the program has counted nothing of kind %s", kind)
			continue
		}
		mode := eventKinds[kind].mode
		assign(r, mode, parts)
		s, _ := r.Mode(mode)
		t.Logf("%s: %d samples of %d seen, %d lost, %d broken\n%s", kind, s.Samples, s.Seen, s.Lost, s.Broken,
			partsTable(kind, parts))
		checkParts(t, kind, parts)
		if s.Lost > 0 || s.Broken*100 > s.Samples {
			t.Errorf("%s: %d samples were lost and %d of %d have no stack", kind, s.Lost, s.Broken, s.Samples)
		}
		if all && (kind == "exception" || kind == "thread") {
			checkCounts(t, kind, parts)
		}
	}
	checkCatchers(t, r, truths)
}

// assign adds each sample of a mode to its truth: the truth whose method is nearest to the leaf.
func assign(r *profile.Recording, mode profile.Mode, parts []*eventPart) {
	byMethod := map[string][]*eventPart{}
	for _, p := range parts {
		byMethod[p.truth.Method] = append(byMethod[p.truth.Method], p)
	}
	for _, s := range r.Samples {
		if s.Mode != mode {
			continue
		}
		leaf := ""
		for l := range r.Stack(s.Node) {
			f := &r.Functions[l.Function]
			if f.Kind == snapshot.Event && leaf != "" {
				continue // the awaited lock
			}
			if f.Kind == snapshot.Event {
				leaf = holderName(f.Display)
				if mode == profile.Exception {
					leaf = exceptionName(leaf) + ", "
				}
				continue
			}
			if there := byMethod[strings.ReplaceAll(f.Method, "+<", ".<")]; there != nil {
				for _, p := range there {
					if strings.HasPrefix(leaf, eventKinds[p.truth.Kind].leaf(p.truth)) {
						p.amount, p.events, p.samples = p.amount+s.Weight, p.events+s.Events, p.samples+int(s.Count)
						break
					}
				}
				break
			}
		}
	}
}

// amountOf is the amount on which a kind's shares are based. For collections, the
// number is known, not the time.
func (p *eventPart) amountOf(kind string) (got, want int64) {
	if kind == "gc" {
		return p.events, p.truth.Count
	}
	return p.amount, p.truth.Amount
}

func partSums(kind string, parts []*eventPart) (got, want float64) {
	for _, p := range parts {
		g, w := p.amountOf(kind)
		got, want = got+float64(g), want+float64(w)
	}
	return max(got, 1), max(want, 1)
}

// checkParts requires that shares are right within three points and the sum within
// ten per cent, or as far as chance explains if there are few samples. The runtime
// chooses allocations by chance, each for as many bytes as make up for the others.
func checkParts(t *testing.T, kind string, parts []*eventPart) {
	t.Helper()
	got, want := partSums(kind, parts)
	samples := 0
	for _, p := range parts {
		samples += p.samples
	}
	for _, p := range parts {
		g, w := p.amountOf(kind)
		share, is := 100*float64(w)/want, 100*float64(g)/got
		allowed := max(3, 400*math.Sqrt(share/100*(1-share/100)/float64(max(samples, 1))))
		if math.Abs(is-share) > allowed {
			t.Errorf("%s in %s of %s: %.1f %%, and %.1f %% is true", kind, p.truth.Method, p.truth.Type, is, share)
		}
		const surely = 12 // samples: with so many expected, at least one comes
		if share > 1 && p.samples == 0 && (kind != "alloc" || share/100*float64(samples) > surely) {
			t.Errorf("%s in %s of %s: no sample, and %.1f %% is true", kind, p.truth.Method, p.truth.Type, share)
		}
	}
	allowed := 0.1
	if kind == "alloc" {
		allowed = max(allowed, 4/math.Sqrt(float64(max(samples, 1))))
	}
	if ratio := got / want; math.Abs(ratio-1) > allowed {
		t.Errorf("%s: the sum is %.3f of what is true", kind, ratio)
	}
}

// checkCounts requires that nothing is missing.
func checkCounts(t *testing.T, kind string, parts []*eventPart) {
	t.Helper()
	for _, p := range parts {
		missing := p.truth.Count - p.amount
		if missing != 0 {
			t.Errorf("%s in %s of %s: %d, and %d is true", kind, p.truth.Method, p.truth.Type, p.amount, p.truth.Count)
		}
	}
}

// checkCatchers requires the right catching method for each exception.
func checkCatchers(t *testing.T, r *profile.Recording, truths []testenv.Truth) {
	t.Helper()
	got, full := map[string]int64{}, map[string]int64{}
	var sum, uncaught float64
	for _, s := range r.Samples {
		if s.Mode != profile.Exception {
			continue
		}
		sum += float64(s.Weight)
		for l := range r.Stack(s.Node) {
			if f := &r.Functions[l.Function]; f.Kind == snapshot.Event {
				got[exceptionName(f.Display)+", "+f.Fate] += s.Weight
				full[f.Display+", "+f.Fate] += s.Weight
				if strings.HasSuffix(f.Fate, "not caught") || strings.Contains(f.Fate, "still in flight") {
					uncaught += float64(s.Weight)
				}
			}
		}
	}
	var all float64
	for _, x := range truths {
		if x.Kind == "exception" {
			all += float64(x.Count)
		}
	}
	for _, x := range truths {
		if x.Kind != "catch" || throwsAgain(x.Method) {
			continue
		}
		leaf := exceptionName(x.Type) + ", caught by " + friendlyMethod(x.Method)
		share, is := 100*float64(x.Count)/all, 100*float64(got[leaf])/sum
		if math.Abs(share-is) > 3 {
			t.Errorf("%q: %.1f %% of all exceptions, and %.1f %% is true; there are %v", leaf, is, share, got)
		}
	}
	const nested = "Events.Throw+Marked, caught by Events.Throw.ByFilter"
	if most := got[exceptionName(nested)]; full[nested] != most || most == 0 {
		t.Errorf("%d of %d nested exceptions have their full name: %v", full[nested], most, full)
	}
	if uncaught/sum > 0.005 {
		t.Errorf("%.1f %% of the exceptions are said not to be caught, and all are: %v", 100*uncaught/sum, got)
	}
}

// throwsAgain reports whether a method rethrows its caught exceptions, so that another method catches
// them last.
func throwsAgain(method string) bool {
	return method == "Events.Throw.Again" || strings.Contains(method, "<Failing>")
}

// friendlyMethod is the displayed name of a state machine's method.
func friendlyMethod(method string) string {
	before, rest, ok := strings.Cut(method, "<")
	if !ok {
		return method
	}
	name, _, _ := strings.Cut(rest, ">")
	return before + name + "{async}"
}

func partsTable(kind string, parts []*eventPart) string {
	got, want := partSums(kind, parts)
	slices.SortFunc(parts, func(a, b *eventPart) int { return cmp.Compare(b.truth.Amount, a.truth.Amount) })
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, p := range parts {
		g, x := p.amountOf(kind)
		fmt.Fprintf(w, "  %s\t%s\ttrue %.2f %%\tgot %.2f %%\t%d\t%d\t%d samples\n", p.truth.Method, p.truth.Type,
			100*float64(x)/want, 100*float64(g)/got, x, g, p.samples)
	}
	fmt.Fprintf(w, "  sum\t\t\t%.3f of what is true\n", got/want)
	w.Flush()
	return b.String()
}
