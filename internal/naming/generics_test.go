package naming_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestGenerics compares the names of generic frames with the program's own names by typeof, in code of every kind. A
// name with an instantiation must be the program's name.
func TestGenerics(t *testing.T) { testenv.EachVersion(t, testGenerics) }

// genericCode is a way to compile the program, and the tier of code that must be met.
var genericCode = []struct {
	name   string
	always bool // on each runtime, also in the short form
	o      testenv.Options
	tier   string
}{
	{"tier0", true, testenv.Options{}, "tier-0"},
	{"debug", false, testenv.Options{Compile: []string{"-o-"}}, "minopts"},
	{"optimized", true, testenv.Options{Env: []string{"DOTNET_TieredCompilation=0"}}, "optimized"},
	{"osr", false, testenv.Options{Env: []string{
		"DOTNET_TC_QuickJitForLoops=1", "DOTNET_OSR_HitLimit=1", "DOTNET_TC_OnStackReplacement_InitialCounter=1",
		"DOTNET_TC_OnStackReplacement=1",
	}}, "OSR"},
	{"jitted", false, testenv.Options{Env: []string{"DOTNET_ReadyToRun=0"}}, "tier-0"},
	{"precompiled", false, testenv.Options{ReadyToRun: true}, "ReadyToRun"},
}

func testGenerics(t *testing.T, runtime string) {
	for _, c := range genericCode {
		if c.o.ReadyToRun && testenv.Framework(runtime) != "net10" || // crossgen2 is of .NET 10
			!c.always && layer.Size(runtime != testenv.DefaultRuntime, false) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			c.o.Runtime = runtime
			a := testenv.Start(t, "generics", c.o)
			places := a.Ask("places")
			p := livetest.Open(t, a, clrsnap.Options{ExactGenerics: true})
			snap, err := p.SnapshotAll(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			livetest.Unmark(snap)
			tally := judgeGenerics(t, snap, places)
			t.Log(&tally)
			tally.check(t, c.tier)
			if snap, err = p.SnapshotAtOnce(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
			tally = judgeGenerics(t, snap, places)
			tally.check(t, c.tier)
			if c.name == "tier0" {
				judgeGenericsDump(t, a, places, c.tier)
			}
			livetest.EndsWell(t, a)
		})
	}
}

// judgeGenericsDump is for a core dump of the same program.
func judgeGenericsDump(t *testing.T, a *testenv.App, places []string, tier string) {
	t.Helper()
	o := clrsnap.CoreOptions{Options: clrsnap.Options{ExactGenerics: true}}
	p, err := clrsnap.OpenCore(context.Background(), testenv.GCoreDump(t, a.PID), o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	livetest.Unmark(snap)
	tally := judgeGenerics(t, snap, places)
	tally.check(t, tier)
}

// genericTally counts frames of shared code.
type genericTally struct {
	exact, shared  int
	tiers          map[string]int // of exact frames
	untold, others map[string]int // by name: no instantiation found; found, but the program does not tell the frame
}

// check requires an instantiation for most frames, some frames of a tier among them.
func (g *genericTally) check(t *testing.T, tier string) {
	t.Helper()
	const percent = 80
	if all := g.exact + g.shared; all < 200 || g.exact*100 < all*percent || g.tiers[tier] < 5 {
		t.Errorf("%d of %d frames are told, want %d %%; by tier: %v", g.exact, all, percent, g.tiers)
	}
}

func (g *genericTally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d told, %d not; %v", g.exact, g.shared, g.tiers)
	for _, m := range []map[string]int{g.untold, g.others} {
		b.WriteString("\n")
		for _, name := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(&b, "\n\t%3d %s", m[name], name)
		}
	}
	return b.String()
}

// judgeGenerics compares a snapshot with the program's lines: place, thread, the method whose lambdas are on the
// thread's stack, and the stack's other generic frames.
func judgeGenerics(t *testing.T, snap *snapshot.Snapshot, places []string) genericTally {
	t.Helper()
	tally := genericTally{tiers: map[string]int{}, untold: map[string]int{}, others: map[string]int{}}
	for _, line := range places {
		parts := strings.Split(line, "|")
		tid, err := strconv.Atoi(parts[1])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		i := slices.IndexFunc(snap.Threads, func(th snapshot.Thread) bool { return th.OSThreadID == tid })
		if i < 0 {
			t.Errorf("%s: no thread %d", parts[0], tid)
			continue
		}
		g := genericStack{t: t, place: parts[0], outermost: parts[2], want: parts[3:], tally: &tally}
		for k := range snap.Threads[i].Frames {
			g.frame(&snap.Threads[i].Frames[k])
		}
		if len(g.want) > 0 {
			t.Errorf("%s: no frame of %v\n%s", g.place, g.want, livetest.Text(snap.Threads[i].Frames))
		}
	}
	return tally
}

// genericStack is a stack, from its leaf on.
type genericStack struct {
	t                *testing.T
	place, outermost string
	want             []string // generic frames that are still to come
	tally            *genericTally
}

func (g *genericStack) frame(f *snapshot.Frame) {
	name, _, _ := strings.Cut(f.Display, "{")
	own, want := f.Module == "generics", ""
	if f.Kind != snapshot.Managed || !strings.Contains(name, "<") {
		return
	}
	switch {
	case livetest.Unbound(name) == livetest.Unbound(g.outermost):
		want = g.outermost
	case len(g.want) > 0 && livetest.Unbound(name) == livetest.Unbound(g.want[0]):
		want = g.want[0]
		g.want = g.want[1:]
	case own:
		g.t.Errorf("%s: %s, want %v", g.place, f.Display, g.want)
		return
	}
	switch {
	case f.Generics == snapshot.SharedGenerics:
		g.tally.shared++
		g.tally.untold[f.Display+" "+f.Tier]++
		if !strings.Contains(f.Display, "__Canon") {
			g.t.Errorf("%s: %s is said to be shared", g.place, f.Display)
		}
		return
	case f.Generics == snapshot.ExactGenerics:
		g.tally.exact++
		g.tally.tiers[f.Tier]++
		if strings.Contains(f.Display+f.Signature, "__Canon") {
			g.t.Errorf("%s: %s%s is said to be exact", g.place, f.Display, f.Signature)
		}
	}
	if want == "" && f.Generics == "" {
		return
	}
	if want == "" {
		g.tally.others[f.Display+" "+f.Tier]++
	} else if name != want {
		g.t.Errorf("%s: %s (%s), want %s", g.place, f.Display, f.Tier, want)
	}
}
