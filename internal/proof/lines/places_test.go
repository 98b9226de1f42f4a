package lines

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// A mode is a way to compile the program's methods.
type mode struct {
	name  string
	form  form
	o     testenv.Options
	tiers []string // must appear in frames of the program
	most  int      // per cent of its lines that may be approximate
}

// form says when a mode is tested.
type form int

const (
	always form = iota // in the short form on every major version
	newest             // in the short form on the newest runtime only
	full
)

// modes are all ways. Environment variables: src/coreclr/inc/clrconfigvalues.h, src/coreclr/jit/jitconfigvalues.h.
var modes = []mode{
	{name: "debug", form: newest, o: testenv.Options{Compile: debug}, tiers: []string{"minopts"}, most: 2},
	{name: "tier-0", form: always, tiers: []string{"tier-0", "OSR"}, most: 6},
	{name: "instrumented", form: full, o: testenv.Options{
		Env: []string{"DOTNET_TieredPGO_InstrumentOnlyHotCode=0", "DOTNET_OSR_HitLimit=1"},
	}, tiers: []string{"tier-0", "OSR"}, most: 6},
	{name: "no OSR", form: full, o: testenv.Options{
		Env: []string{"DOTNET_TC_QuickJitForLoops=0"},
	}, tiers: []string{"tier-0", "optimized"}, most: 6},
	{name: "tier-1", form: full, o: testenv.Options{
		Args: []string{"--warm", "40"}, Env: soon,
	}, tiers: []string{"tier-1"}, most: 50},
	{name: "tier-1 without a profile", form: full, o: testenv.Options{
		Args: []string{"--warm", "40"}, Env: append([]string{"DOTNET_TieredPGO=0"}, soon...),
	}, tiers: []string{"tier-1"}, most: 20},
	{name: "replaced", form: newest, o: testenv.Options{
		Args: []string{"--after", "40"}, Env: soon,
	}, tiers: []string{"tier-0", "OSR"}, most: 50},
	{name: "optimized", form: always, o: testenv.Options{
		Env: []string{"DOTNET_TieredCompilation=0"},
	}, tiers: []string{"optimized"}, most: 20},
	{name: "unoptimized", form: full, o: testenv.Options{
		Env: []string{"DOTNET_JITMinOpts=1"},
	}, most: 6},
	{name: "ReadyToRun", form: newest, o: testenv.Options{ReadyToRun: true}, tiers: []string{"ReadyToRun"}, most: 20},
}

var debug = []string{"-o-", "-define:DEBUG"}

// soon has methods tier up as soon as possible.
var soon = []string{"DOTNET_TC_CallCountingDelayMs=0", "DOTNET_TC_CallCountThreshold=5",
	"DOTNET_TC_BackgroundWorkerTimeoutMs=0"}

// TestPlaces compares the line of each frame with the runtime's own StackTrace, with the sources, and for
// the leaf with the compiler's line.
func TestPlaces(t *testing.T) {
	layer.Proof(t)
	testenv.EachRuntime(t, func(t *testing.T, runtime string) {
		if !slices.ContainsFunc(modes, func(m mode) bool { return m.belongs(runtime) }) {
			t.Skip("in the full form only")
		}
		for _, m := range modes {
			if !m.belongs(runtime) {
				continue
			}
			t.Run(m.name, func(t *testing.T) { testMode(t, runtime, m) })
		}
	})
}

// belongs reports whether a mode is to be tested on a runtime in this form of the proof.
func (m *mode) belongs(runtime string) bool {
	if m.o.ReadyToRun && testenv.Framework(runtime) != "net10" { // crossgen2 is of .NET 10
		return false
	}
	short := m.form == always && !strings.Contains(runtime, ":") ||
		m.form == newest && runtime == testenv.DefaultRuntime
	return layer.Size(short, true)
}

func testMode(t *testing.T, runtime string, m mode) {
	m.o.Runtime = runtime
	a := testenv.Start(t, "lines", m.o)
	p := livetest.Open(t, a, clrsnap.Options{Lines: true})
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := newComparison(t, a, runtime, m)
	for i := range snap.Threads {
		c.thread(&snap.Threads[i])
	}
	livetest.EndsWell(t, a)
	c.report()
}

// comparison holds the frames of one process against the witnesses.
type comparison struct {
	t       *testing.T
	runtime string
	mode    mode
	stacks  map[int]testenv.Stack // by thread id
	marked  marks
	callers map[string]place // the line of the leaf, by place

	places, frames, lines, approximate int
	tiers                              map[string]int
	ruled                              map[string]int
	why                                map[string][]string // frames explained by a rule
}

func newComparison(t *testing.T, a *testenv.App, runtime string, m mode) *comparison {
	t.Helper()
	c := &comparison{
		t: t, runtime: runtime, mode: m, stacks: map[int]testenv.Stack{}, marked: readMarks(t),
		callers: map[string]place{}, tiers: map[string]int{}, ruled: map[string]int{}, why: map[string][]string{},
	}
	for _, s := range a.Stacks {
		c.stacks[s.TID] = s
	}
	for _, line := range a.Ask("callers") {
		var name string
		var at place
		if _, err := fmt.Sscanf(line, "%s %d %s", &name, &at.line, &at.file); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		c.callers[name] = at
	}
	if len(c.callers) != len(a.Stacks) || len(c.callers) < 160 {
		t.Errorf("%d places, %d stacks", len(c.callers), len(a.Stacks))
	}
	return c
}

// thread compares a thread's frames, in their order.
func (c *comparison) thread(th *snapshot.Thread) {
	want, ok := c.stacks[th.OSThreadID]
	if !ok {
		return
	}
	c.places++
	at := 0 // our next frame
	for i, w := range want.Frames {
		if i == 0 {
			continue // Here.Stop itself has moved on
		}
		n := slices.IndexFunc(th.Frames[at:], func(f snapshot.Frame) bool { return same(&f, &w) })
		if n < 0 {
			if w.Kind != testenv.PInvoke && w.Kind != testenv.Dynamic {
				c.t.Errorf("%s: no frame %s+%#x in\n%s", want.Scenario, w.Method, w.NativeOffset,
					livetest.Text(th.Frames))
			}
			continue
		}
		for _, f := range th.Frames[at : at+n] {
			// StackTrace has no frames for inlined callees and native functions.
			if f.Line != nil && at > 0 && f.Kind == snapshot.Managed && !f.Inlined {
				c.t.Errorf("%s: %s has line %s:%d, but StackTrace has no such frame", want.Scenario, f.Method,
					f.Line.File, f.Line.Line)
			}
		}
		at += n
		c.frame(want, i, &th.Frames[at])
		at++
	}
}

// same reports whether both are the same frame. Frames of the framework are only passed: a framework frame
// that has called native code may have moved on.
func same(f *snapshot.Frame, w *testenv.Frame) bool {
	return f.Kind == snapshot.Managed && !f.Inlined && f.Method == w.Exact() &&
		(f.Offset == uint64(w.NativeOffset) || w.Assembly != "lines" || inNative(f, w))
}

// inNative reports whether a frame has called native code, which calls back, where StackTrace has another place
// for the frame. In a ReadyToRun image StackTrace has the place before the call.
func inNative(f *snapshot.Frame, w *testenv.Frame) bool {
	return f.Tier == "ReadyToRun" && strings.HasPrefix(w.Method, "Lines.Outside.UnmanagedCallersOnly")
}

// frame compares a frame with StackTrace's frame, frame i of want.
func (c *comparison) frame(want testenv.Stack, i int, got *snapshot.Frame) {
	w := want.Frames[i]
	c.frames++
	if w.Assembly != "lines" {
		if got.Line != nil { // no other assembly has a PDB
			c.t.Errorf("%s: %s of %s has line %s:%d", want.Scenario, w.Method, w.Assembly, got.Line.File, got.Line.Line)
		}
		return
	}
	c.tiers[got.Tier]++
	o := observed{want: want, i: i, w: w, got: got, theirs: place{w.File, w.Line}, leaf: c.callers[want.Scenario], c: c}
	if got.Line != nil {
		c.lines++
		o.ours = place{got.Line.File, got.Line.Line}
		if got.Line.Approximate {
			c.approximate++
		}
	}
	o.judge()
}

func (c *comparison) report() {
	c.t.Helper()
	c.t.Logf("%d places, %d frames, %d with a line, %d of them approximate; tiers %v; explained: %v",
		c.places, c.frames, c.lines, c.approximate, c.tiers, c.ruled)
	for name, frames := range c.why {
		slices.Sort(frames)
		c.t.Logf("%s: %s", name, strings.Join(frames, "; "))
	}
	if c.places != len(c.callers) {
		c.t.Errorf("%d of %d places were looked at", c.places, len(c.callers))
	}
	if c.approximate*100 > c.lines*c.mode.most {
		c.t.Errorf("%d of %d lines are approximate", c.approximate, c.lines)
	}
	// StackTrace has the right line, and ours is approximate and different.
	if worse := c.ruled["approximate"]; worse > 40 {
		c.t.Errorf("%d approximate lines are wrong", worse)
	}
	for _, tier := range c.mode.tiers {
		if c.tiers[tier] == 0 {
			c.t.Errorf("no frame of %s code", tier)
		}
	}
}
