package profile

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"clrsnap/snapshot"
)

// handmade is small enough to be summed up by hand.
func handmade() *Recording {
	b := NewBuilder(Limits{})
	main, worker := b.Thread(RecordedThread{Name: "main"}), b.Thread(RecordedThread{Name: "worker"})
	b.Thread(RecordedThread{Name: "never seen"})
	add := func(thread int32, text string, weight int64, count int32, mode Mode, state State) {
		node := int32(0)
		if text != "" {
			node = stack(b, text)
		}
		b.Add(Sample{Thread: thread, Node: node, Weight: weight, Count: count, Mode: mode, State: state})
	}
	add(main, "main>work", 10, 1, CPU, Running)
	add(main, "main>fib>fib>fib", 20, 2, CPU, Running)
	add(main, "main>fib>work>fib", 5, 1, CPU, Running)
	add(main, "main>fib", 3, 1, CPU, Running)
	add(worker, "work>[libc]", 40, 4, CPU, Running)
	add(worker, "", 2, 1, CPU, Running)
	add(worker, "work>[libc]", 100, 3, Wall, Waiting)
	add(worker, "work", 7, 1, Wall, Running)
	b.Add(Sample{Thread: main, Node: stack(b, "fib"), Weight: 30, Mode: Wall, State: Waiting, Incomplete: true})
	return b.Recording()
}

func TestTotals(t *testing.T) {
	type sums struct {
		self, total       Amount
		waiting, selfWait int64
	}
	for _, c := range []struct {
		mode       Mode
		want       map[string]sums
		all, empty Amount
		incomplete Amount
		threads    string
		origins    map[snapshot.Origin]int64
	}{
		{CPU, map[string]sums{
			"main":   {total: Amount{38, 0, 5}},
			"fib":    {self: Amount{28, 0, 4}, total: Amount{28, 0, 4}},
			"work":   {self: Amount{10, 0, 1}, total: Amount{55, 0, 6}},
			"[libc]": {self: Amount{40, 0, 4}, total: Amount{40, 0, 4}},
		}, Amount{80, 0, 10}, Amount{2, 0, 1}, Amount{}, "worker 42, main 38",
			map[snapshot.Origin]int64{snapshot.OfUser: 38, snapshot.OfNative: 40}},
		{Wall, map[string]sums{
			"fib":    {self: Amount{30, 0, 1}, total: Amount{30, 0, 1}, waiting: 30, selfWait: 30},
			"work":   {self: Amount{7, 0, 1}, total: Amount{107, 0, 4}, waiting: 100},
			"[libc]": {self: Amount{100, 0, 3}, total: Amount{100, 0, 3}, waiting: 100, selfWait: 100},
		}, Amount{137, 0, 5}, Amount{}, Amount{30, 0, 1}, "worker 107, main 30",
			map[snapshot.Origin]int64{snapshot.OfUser: 37, snapshot.OfNative: 100}},
	} {
		r := handmade()
		got := r.Totals(c.mode)
		if got.All.All() != c.all || got.Empty.All() != c.empty || got.Incomplete != c.incomplete {
			t.Errorf("%v: all %v, empty %v, incomplete %v", c.mode, got.All.All(), got.Empty, got.Incomplete)
		}
		if len(got.Functions) != len(c.want) {
			t.Errorf("%v: %d functions, want %d", c.mode, len(got.Functions), len(c.want))
		}
		for _, f := range got.Functions {
			name := r.Functions[f.Function].Display
			s := sums{f.Self.All(), f.Total.All(), f.Total[Waiting].Weight, f.Self[Waiting].Weight}
			if s != c.want[name] {
				t.Errorf("%v: %s: got %v, want %v", c.mode, name, s, c.want[name])
			}
		}
		threads := ""
		for i, x := range got.Threads {
			threads += fmt.Sprintf("%s%s %d",
				[2]string{"", ", "}[min(i, 1)], r.Threads[x.Thread].Name, x.Total.All().Weight)
		}
		if threads != c.threads {
			t.Errorf("%v: threads: %s, want %s", c.mode, threads, c.threads)
		}
		for o, w := range c.origins {
			if got.Origins[o] == nil || got.Origins[o].All().Weight != w {
				t.Errorf("%v: %s: got %v, want %d", c.mode, o, got.Origins[o], w)
			}
		}
	}
}

// TestTotalsSameName: functions that look equal are one function, also where one
// calls the other. A function with another signature or module is another function.
func TestTotalsSameName(t *testing.T) {
	b := NewBuilder(Limits{})
	b.Thread(RecordedThread{})
	at := func(f Function) int32 { return b.Location(Location{Function: b.Function(f)}) }
	one := at(Function{Kind: snapshot.Managed, Method: "F`1", Display: "F", Signature: "(int)", Module: "M"})
	two := at(Function{Kind: snapshot.Managed, Method: "F`2", Display: "F", Signature: "(int)", Module: "M"})
	other := at(Function{Kind: snapshot.Managed, Method: "F", Display: "F", Signature: "(long)", Module: "M"})
	b.Add(Sample{Node: b.Stack([]int32{other, two, one}), Weight: 8})
	b.Add(Sample{Node: b.Stack([]int32{two}), Weight: 1})
	got := b.Recording().Totals(CPU).Functions
	if len(got) != 2 || got[0].Total.All() != (Amount{9, 0, 2}) || got[0].Self.All() != (Amount{1, 0, 1}) ||
		got[1].Total.All() != (Amount{8, 0, 1}) {
		t.Errorf("got %v", got)
	}
}

func TestTotalsOfNothing(t *testing.T) {
	for _, r := range []*Recording{{}, NewBuilder(Limits{}).Recording()} {
		if got := r.Totals(Wall); len(got.Functions)+len(got.Threads) != 0 || got.Share(5) != 0 || got.Effective != 0 {
			t.Errorf("got %+v", got)
		}
	}
}

func TestEffective(t *testing.T) {
	for _, c := range []struct {
		samples []Sample
		want    float64
	}{
		{[]Sample{{Weight: 7, Count: 1}, {Weight: 7, Count: 1}, {Weight: 7, Count: 1}}, 3},
		{[]Sample{{Weight: 21, Count: 3}}, 3},
		{[]Sample{{Weight: 3, Count: 1}, {Weight: 1, Count: 1}}, 1.6},
		{[]Sample{{Weight: 0, Count: 1}}, 0},
	} {
		r := &Recording{Nodes: []Node{{-1, -1}}, Threads: []RecordedThread{{}}, Samples: c.samples}
		if got := r.Totals(CPU).Effective; got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%v: %v, want %v", c.samples, got, c.want)
		}
	}
}

// drawn is a random recording; few names, so that functions recur.
func drawn(t *rapid.T) *Recording {
	b := NewBuilder(Limits{})
	threads := rapid.Int32Range(1, 4).Draw(t, "threads")
	for range threads {
		b.Thread(RecordedThread{})
	}
	for range rapid.IntRange(0, 40).Draw(t, "samples") {
		names := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "[e]", "[f]"}), 0, 7).Draw(t, "stack")
		node := int32(0)
		for _, name := range names {
			f := b.Function(Function{Kind: snapshot.Managed, Display: name})
			node = b.Child(node, b.Location(Location{Function: f, Offset: rapid.Uint64Range(0, 1).Draw(t, "offset")}))
		}
		b.Add(Sample{
			Node: node, Thread: rapid.Int32Range(0, threads-1).Draw(t, "thread"),
			Count:  rapid.Int32Range(1, 3).Draw(t, "count"),
			Weight: rapid.Int64Range(0, 1000).Draw(t, "weight"), Mode: Mode(rapid.IntRange(0, 1).Draw(t, "mode")),
			State: State(rapid.IntRange(0, 1).Draw(t, "state")), Incomplete: rapid.Bool().Draw(t, "incomplete"),
		})
	}
	return b.Recording()
}

// TestTotalsProperties: the sums equal the sums of a slow reference that adds sample
// by sample and frame by frame, and no time is lost or counted twice.
func TestTotalsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawn(t)
		for _, m := range []Mode{CPU, Wall} {
			got := r.Totals(m)
			var want Totals
			self, total := make([]Part, len(r.Functions)), make([]Part, len(r.Functions))
			for i := range r.Samples {
				s := &r.Samples[i]
				if s.Mode != m {
					continue
				}
				a := Amount{s.Weight, s.Events, int(s.Count)}
				want.All[s.State].Add(a)
				var seen []int32
				for l := range r.Stack(s.Node) {
					if len(seen) == 0 {
						self[l.Function][s.State].Add(a)
					}
					if !slices.Contains(seen, l.Function) {
						total[l.Function][s.State].Add(a)
					}
					seen = append(seen, l.Function)
				}
			}
			sum, threads, origins := got.Empty.All(), Amount{}, got.Empty.All()
			for _, f := range got.Functions {
				if f.Self != self[f.Function] || f.Direct != f.Self || f.Total != total[f.Function] {
					t.Fatalf("%v %s: got %v, %v; want %v, %v",
						m, r.Functions[f.Function].Display, f.Self, f.Total, self[f.Function], total[f.Function])
				}
				sum.Add(f.Self.All())
				total[f.Function] = Part{}
			}
			for f := range total {
				if total[f] != (Part{}) {
					t.Fatalf("%v: %s is missing", m, r.Functions[f].Display)
				}
			}
			for _, x := range got.Threads {
				threads.Add(x.Total.All())
			}
			for _, p := range got.Origins {
				origins.Add(p.All())
			}
			if got.All != want.All || sum != want.All.All() || threads != sum || origins != sum {
				t.Fatalf("%v: %v, want %v; functions %v, threads %v, origins %v",
					m, got.All, want.All, sum, threads, origins)
			}
			if n := float64(want.All.All().Samples); got.Effective > n*(1+1e-9) {
				t.Fatalf("%v samples are worth %v", n, got.Effective)
			}
		}
	})
}

// BenchmarkTotals: a million nodes, half of them in one deep recursion.
func BenchmarkTotals(b *testing.B) {
	bu := NewBuilder(Limits{})
	bu.Thread(RecordedThread{})
	node := int32(0)
	for i := range 1 << 20 {
		parent := node
		if i >= 1<<19 {
			parent = int32(i % (1 << 10))
		}
		f := bu.Function(Function{Display: fmt.Sprint(i % 5000)})
		node = bu.Child(parent, bu.Location(Location{Function: f, Offset: uint64(i)}))
		if i%2 == 0 {
			bu.Add(Sample{Node: node, Weight: 1})
		}
	}
	r := bu.Recording()
	for b.Loop() {
		r.Totals(CPU)
	}
}
