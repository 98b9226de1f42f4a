package clrsnap_test

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

// TestPerfMap compares each managed frame of jitted code with what the runtime's
// own perf map says of its instruction pointer.
func TestPerfMap(t *testing.T) {
	t.Run("blocked", func(t *testing.T) {
		a := testenv.Start(t, "scenarios", testenv.Options{PerfMap: true, Args: []string{"--finalizer"}})
		checkPerfMap(t, a, open(t, a, clrsnap.Options{}), 1, 60, "tier-0", "optimized", "dynamic", "IL stub")
		endsWell(t, a)
	})
	t.Run("busy", func(t *testing.T) {
		// As long as new methods come the runtime puts off what it wants to compile
		// again, and here they always come: without that delay there is tier-1 code.
		env := []string{"DOTNET_TC_CallCountingDelayMs=0"}
		a := testenv.Start(t, "scenarios", testenv.Options{PerfMap: true, Env: env, Args: []string{"--no-blocked", "--busy", "600"}})
		checkPerfMap(t, a, open(t, a, clrsnap.Options{}), 20, 30, "tier-1", "OSR")
		endsWell(t, a)
	})
}

// checkPerfMap takes rounds of snapshots and compares; least is how many
// different methods must have been met, and tiers is what they must have been
// compiled as.
func checkPerfMap(t *testing.T, a *testenv.App, p *clrsnap.Process, rounds, least int, tiers ...string) {
	t.Helper()
	var all []profile.Thread
	seen := map[string]bool{}
	missing := func() bool { return slices.ContainsFunc(tiers, func(tier string) bool { return !seen[tier] }) }
	for n := 0; n < rounds || n < 50*rounds && missing(); n++ { // tiers come with time
		snap, err := p.SnapshotAll(nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, snap.Threads...)
		for _, th := range snap.Threads {
			for _, f := range th.Frames {
				seen[f.Tier] = true
			}
		}
	}
	j := newJudge(a.PerfMap())
	for i := range all {
		j.thread(&all[i])
	}
	j.report(t)
	for _, tier := range tiers {
		if !j.met[tier] {
			t.Errorf("met no code of tier %q", tier)
		}
	}
	if len(j.methods) < least {
		t.Errorf("met only %d jitted methods", len(j.methods))
	}
	t.Logf("%d frames of %d jitted methods compared, %d of code that has been reused", j.compared, len(j.methods), j.reused)
}

// judge compares frames with a perf map.
//
// The map only grows: an entry is written when code has been compiled, and none
// when it is unloaded, after which other code may get the same place. A frame is
// therefore right if one of the entries that cover its ip has its name. Only
// code of dynamic methods, IL stubs and collectible assemblies is ever unloaded,
// so an ip that entries with more than one name cover must belong to one of
// these: their names are few and known, and all else is an error. The map is
// read after the frames were taken, because an entry follows its code.
type judge struct {
	m        *testenv.PerfMap
	methods  map[string]bool
	met      map[string]bool // tiers
	wrong    map[string]int
	compared int
	reused   int
	tiers    map[string]int // wrong tiers
	byIP     map[uint64][]testenv.PerfEntry
	longest  uint64 // entry
}

func newJudge(m *testenv.PerfMap) *judge {
	j := &judge{m: m, methods: map[string]bool{}, met: map[string]bool{}, wrong: map[string]int{}, tiers: map[string]int{}, byIP: map[uint64][]testenv.PerfEntry{}}
	for _, e := range m.Entries {
		j.longest = max(j.longest, e.End-e.Start)
	}
	return j
}

func (j *judge) thread(th *profile.Thread) {
	for i := range th.Frames {
		if f := &th.Frames[i]; f.Kind == profile.Managed && f.Tier != "ReadyToRun" {
			j.frame(f)
		}
	}
}

func (j *judge) frame(f *profile.Frame) {
	j.compared++
	entries := j.entries(f.IP)
	names := map[string]bool{}
	for _, e := range entries {
		n := parsePerfName(e.Name)
		names[n.method] = true
		if n.method == f.Method {
			j.methods[f.Method] = true
			j.details(f, e, n)
			if len(names) > 1 {
				j.reused++
				j.unloadable(f, entries)
			}
			return
		}
	}
	if len(entries) == 0 {
		j.wrong[fmt.Sprintf("%s [%s]: the perf map knows no code there", f.Method, f.Tier)]++
		return
	}
	j.wrong[fmt.Sprintf("%s [%s]: the perf map says %s", f.Method, f.Tier, entries[0].Name)]++
}

// unloadable requires that newer code in a frame's place took that of code that
// can be unloaded.
func (j *judge) unloadable(f *profile.Frame, entries []testenv.PerfEntry) {
	if f.Tier == "dynamic" || f.Tier == "IL stub" || strings.HasPrefix(f.Method, "Scenarios.Plugin") {
		return
	}
	for _, e := range entries {
		if n := parsePerfName(e.Name); n.method != f.Method && !n.dynamic && !strings.HasPrefix(n.method, "Scenarios.Plugin") {
			j.wrong[fmt.Sprintf("%s [%s]: the newest entry of the perf map is %s", f.Method, f.Tier, entries[0].Name)]++
			return
		}
	}
}

// details compares what else the entry says: start, assembly and tier.
func (j *judge) details(f *profile.Frame, e testenv.PerfEntry, n perfName) {
	if start := f.IP - f.Offset; start != e.Start {
		j.wrong[fmt.Sprintf("%s: starts at %#x, in the perf map at %#x", f.Method, start, e.Start)]++
	}
	if f.Module != n.assembly && !n.dynamic { // dynamic methods belong to no assembly, the map names their host
		j.wrong[fmt.Sprintf("%s is in %q, the perf map says %s", f.Method, f.Module, e.Name)]++
	}
	for _, tier := range perfTiers[n.tier] {
		if f.Tier == tier {
			j.met[tier] = true
			return
		}
	}
	if f.Tier == "tier-0" && n.tier == "Optimized" && switched[f.Method] {
		return
	}
	j.tiers[fmt.Sprintf("%s: tier %q, the perf map says %s", f.Method, f.Tier, e.Name)]++
}

// entries lists the entries that cover ip, the newest first.
func (j *judge) entries(ip uint64) []testenv.PerfEntry {
	if all, ok := j.byIP[ip]; ok {
		return all
	}
	var all []testenv.PerfEntry
	i := sort.Search(len(j.m.Entries), func(i int) bool { return j.m.Entries[i].Start > ip }) - 1
	for ; i >= 0 && ip-j.m.Entries[i].Start < j.longest; i-- {
		if e := j.m.Entries[i]; ip < e.End {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b testenv.PerfEntry) int { return b.Seq - a.Seq })
	j.byIP[ip] = all
	return all
}

func (j *judge) report(t *testing.T) {
	t.Helper()
	for what, n := range j.wrong {
		t.Errorf("wrong frame, %d times: %s", n, what)
	}
	for what, n := range j.tiers {
		t.Errorf("wrong tier, %d times: %s", n, what)
	}
}

// perfTiers are our names for the perf map's tiers (perfmap.cpp and
// NativeCodeVersion's names in eventtrace.cpp). Code without tiering is
// "Optimized" there, whatever it is.
var perfTiers = map[string][]string{
	"QuickJitted":               {"tier-0"},
	"InstrumentedTier":          {"tier-0 instrumented"},
	"InstrumentedTierOptimized": {"tier-1 instrumented"},
	"OptimizedTier1":            {"tier-1"},
	"OptimizedTier1OSR":         {"OSR"},
	"Optimized":                 {"optimized", "dynamic", "IL stub"},
	"MinOptJitted":              {"minopts"},
	"PreJIT":                    {"ReadyToRun"},
}

// switched are methods of which the JIT compiled optimised code although it was
// asked for tier 0 (it has a stackalloc in a loop, an explicit tail call, a
// caller in native code): only the runtime's call counting table knows, which
// its data descriptor does not describe.
var switched = map[string]bool{
	"Emitted.TailLoop.Loop": true, "Scenarios.Calls.StackAlloc": true,
	"Scenarios.Native.CompareAndBlock": true, "Scenarios.Native.CompareAndSleep": true,
	"Scenarios.Workers.Compare": true, "Scenarios.Workers.QsortStorm": true,
}

// perfName is the name of a perf map's entry, taken apart:
//
//	int32 [scenarios] Scenarios.Calls+Shape`1[System.__Canon]::Area(int32)[QuickJitted]
//
// Rules: the return type and the parameters are left out, because they are
// written as in IL; so are the type's arguments; the type dynamicClass stands
// for no type; nested types have a plus, as ours.
type perfName struct {
	method   string // as profile.Frame.Method
	assembly string
	tier     string
	dynamic  bool
}

func parsePerfName(s string) perfName {
	var n perfName
	if i := strings.LastIndexByte(s, '['); i >= 0 && strings.HasSuffix(s, "]") {
		s, n.tier = s[:i], s[i+1:len(s)-1]
	}
	left, right, ok := strings.Cut(s, "::")
	if !ok {
		n.method = s
		return n
	}
	method, _, _ := strings.Cut(right, "(")
	if i := strings.LastIndex(left, "] "); i >= 0 {
		n.assembly = left[strings.LastIndexByte(left[:i], '[')+1 : i]
		left = left[i+2:]
	}
	typ, _, _ := strings.Cut(left, "[")
	if n.dynamic = typ == "dynamicClass"; n.dynamic {
		n.method = method
		return n
	}
	n.method = typ + "." + method
	return n
}
