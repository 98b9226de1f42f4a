package profile

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"clrsnap/snapshot"
)

// stack adds a stack, written base first as "main>work>[libc.so]": names in
// brackets are native modules without symbols.
func stack(b *Builder, text string) int32 {
	var locations []int32
	for i, name := range strings.Split(text, ">") {
		f := Function{Kind: snapshot.Managed, Method: name, Display: name, Module: "App"}
		if strings.HasPrefix(name, "[") {
			f = Function{Kind: snapshot.Native, Display: name, Module: strings.Trim(name, "[]")}
		}
		locations = append([]int32{b.Location(Location{Function: b.Function(f), Offset: uint64(i)})}, locations...)
	}
	return b.Stack(locations)
}

func text(r *Recording, node int32) string {
	var names []string
	for l := range r.Stack(node) {
		names = append([]string{r.Functions[l.Function].Display}, names...)
	}
	return strings.Join(names, ">")
}

// TestCoarsen: many samples stay within the bound, and no weight is lost or goes
// to another thread, stack, mode or state.
func TestCoarsen(t *testing.T) {
	const limit, count = 1000, 200_000
	b := NewBuilder(Limits{Samples: limit})
	var nodes [40]int32
	for i := range nodes {
		nodes[i] = stack(b, fmt.Sprintf("main>f%d", i))
	}
	type key struct {
		thread, node int32
		mode         Mode
		state        State
		incomplete   bool
	}
	want, got := map[key]Sample{}, map[key]Sample{}
	sum := func(m map[key]Sample, s Sample) {
		k := key{s.Thread, s.Node, s.Mode, s.State, s.Incomplete}
		x := m[k]
		x.Weight += s.Weight
		x.Events += s.Events
		x.Count += s.Count
		m[k] = x
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range count {
		s := Sample{
			At:     time.Duration(i) * time.Millisecond,
			Weight: int64(rng.IntN(1000)), Events: int64(rng.IntN(9)), Count: 1,
			Thread: rng.Int32N(3), Node: nodes[rng.IntN(len(nodes))],
			Mode: []Mode{Wall, Alloc}[rng.IntN(2)], State: State(rng.IntN(2)), Incomplete: rng.IntN(50) == 0,
		}
		sum(want, s)
		b.Add(s)
		if len(b.r.Samples) > limit {
			t.Fatalf("%d samples are held", len(b.r.Samples))
		}
	}
	r := b.Recording()
	for i, s := range r.Samples {
		sum(got, s)
		if i > 0 && s.At < r.Samples[i-1].At {
			t.Fatal("not in the order of time")
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d sums, want %d", len(got), len(want))
	}
	for k, w := range want {
		if got[k] != w {
			t.Errorf("%+v: got %+v, want %+v", k, got[k], w)
		}
	}
	if b.Bin() == 0 {
		t.Error("the samples did not become fewer")
	}
	b.Add(Sample{At: time.Hour}) // the Builder can be used further
}

// TestAllDifferent: samples with different stacks cannot be added up, so the limit is raised.
func TestAllDifferent(t *testing.T) {
	b := NewBuilder(Limits{Samples: 100})
	for i := range 250 {
		b.Add(Sample{Node: int32(i), Weight: 1})
	}
	if n := len(b.Recording().Samples); n != 250 {
		t.Errorf("%d samples, want 250", n)
	}
}

func TestNodesBounded(t *testing.T) {
	b := NewBuilder(Limits{Nodes: 4})
	whole, cut := stack(b, "a>b>c"), stack(b, "a>x>y")
	if got := text(b.Recording(), whole); got != "a>b>c" {
		t.Errorf("the first stack is %q", got)
	}
	if got := text(b.Recording(), cut); got != "a" || b.Truncated() != 1 {
		t.Errorf("the cut stack is %q, %d are cut", got, b.Truncated())
	}
}

// TestDepthBounded: a stack that is too deep loses the frames near the leaf.
func TestDepthBounded(t *testing.T) {
	b := NewBuilder(Limits{})
	leaf := b.Location(Location{Function: b.Function(Function{Display: "leaf"})})
	locations := make([]int32, MaxDepth+2)
	for i := range locations {
		locations[i] = b.Location(Location{Function: b.Function(Function{Display: "caller"})})
	}
	locations[0] = leaf
	depth := 0
	for n := b.Stack(locations); n != 0; n = b.Recording().Nodes[n].Parent {
		depth++
		if b.Recording().Nodes[n].Location == leaf {
			t.Fatal("the leaf is there")
		}
	}
	if depth != MaxDepth || b.Truncated() != 1 {
		t.Errorf("%d frames, %d stacks are cut", depth, b.Truncated())
	}
}

func TestFunctionsBounded(t *testing.T) {
	b := NewBuilder(Limits{Functions: 2})
	first := b.Function(Function{Display: "a", Module: "m"})
	b.Function(Function{Display: "b", Module: "m"})
	other := b.Function(Function{Display: "c", Module: "m"})
	again := b.Function(Function{Display: "d", Module: "m"})
	if again != other || b.r.Functions[other].Display != "[other functions]" {
		t.Errorf("beyond the bound: %d, %d: %+v", other, again, b.r.Functions)
	}
	if b.Function(Function{Display: "a", Module: "m"}) != first ||
		b.Function(Function{Display: "e", Module: "n"}) == other {
		t.Errorf("%+v", b.r.Functions)
	}
}

func TestSelect(t *testing.T) {
	b := NewBuilder(Limits{})
	b.Thread(RecordedThread{Name: "main"})
	b.Thread(RecordedThread{Name: "worker"})
	n := stack(b, "Main>[libc]>[libc]>[libm]>Callback>[libc]>Leaf")
	b.Add(Sample{At: 1, Node: n, Thread: 0, Weight: 1})
	b.Add(Sample{At: 2, Node: n, Thread: 1, Weight: 2, Mode: Wall, State: Waiting})
	r := b.Recording()
	r.Modes = []ModeStats{{Mode: CPU}, {Mode: Wall}}

	for _, c := range []struct {
		name string
		s    Selection
		want string // the samples: weight, thread, stack
	}{
		{"everything", Selection{Native: true},
			"1 main Main>[libc]>[libc]>[libm]>Callback>[libc]>Leaf; " +
				"2 worker Main>[libc]>[libc]>[libm]>Callback>[libc]>Leaf"},
		{"runs become one", Selection{},
			"1 main Main>[libc]>[libm]>Callback>[libc]>Leaf; 2 worker Main>[libc]>[libm]>Callback>[libc]>Leaf"},
		{"managed", Selection{Managed: true}, "1 main Main>Callback>Leaf; 2 worker Main>Callback>Leaf"},
		{"threads", Selection{Managed: true, Threads: func(t *RecordedThread) bool { return t.Name == "worker" }},
			"2 worker Main>Callback>Leaf"},
		{"modes", Selection{Managed: true, Modes: []Mode{CPU}}, "1 main Main>Callback>Leaf"},
		{"states", Selection{Managed: true, States: []State{Waiting}}, "2 worker Main>Callback>Leaf"},
		{"from", Selection{Managed: true, From: 2}, "2 worker Main>Callback>Leaf"},
		{"to", Selection{Managed: true, To: 2}, "1 main Main>Callback>Leaf"},
	} {
		var got []string
		out := r.Select(c.s)
		for _, s := range out.Samples {
			got = append(got, fmt.Sprintf("%d %s %s", s.Weight, out.Threads[s.Thread].Name, text(out, s.Node)))
		}
		if g := strings.Join(got, "; "); g != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, g, c.want)
		}
	}
	other := stack(b, "Main>Other")
	b.Add(Sample{At: 3, Node: other, Thread: 0, Weight: 1})
	if out := b.Recording().Select(Selection{To: 2}); len(out.Threads) != 1 || len(out.Functions) != 5 {
		t.Errorf("%d threads and %d functions are left, want 1 and 5", len(out.Threads), len(out.Functions))
	}
	short := r.Rename(func(f *Function) Function { return Function{Kind: f.Kind, Display: f.Display[:1]} })
	if got := text(short, short.Samples[0].Node); got != "M>[>[>[>C>[>L" || len(short.Functions) != 5 {
		t.Errorf("renamed: %s, %d functions", got, len(short.Functions))
	}
	if m := r.Select(Selection{Modes: []Mode{Wall}}).Modes; len(m) != 1 || m[0].Mode != Wall || len(r.Modes) != 2 {
		t.Errorf("modes: %v of %v", m, r.Modes)
	}
}
