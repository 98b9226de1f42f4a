package profile

import (
	"math"
	"math/rand/v2"
	"testing"

	"clrsnap/snapshot"
)

// TestErrorIsHonest samples objects of different sizes by chance, again and again, like the runtime's
// sampling. The estimates must be right on average, and differ from the truth by as much as Error says.
func TestErrorIsHonest(t *testing.T) {
	const every, runs = 10_000, 400
	type class struct {
		size   int64
		number int
	}
	classes := map[string]class{"small": {50, 20_000}, "medium": {4000, 300}, "large": {300_000, 2}}
	rng := rand.New(rand.NewPCG(1, 2))
	type deviation struct{ weight, events, share []float64 }
	found := map[string]*deviation{"small": {}, "medium": {}, "large": {}, "main": {}}
	var bytes, objects float64
	for _, c := range classes {
		bytes, objects = bytes+float64(c.size)*float64(c.number), objects+float64(c.number)
	}
	for range runs {
		b := NewBuilder(Limits{})
		at := func(name string) int32 {
			return b.Location(Location{Function: b.Function(Function{Kind: snapshot.Managed, Display: name,
				Method: name})})
		}
		thread := b.Thread(RecordedThread{})
		for _, name := range []string{"small", "medium", "large"} {
			c := classes[name]
			node := b.Stack([]int32{at(name), at("main")})
			p := -math.Expm1(-float64(c.size) / every)
			for range c.number {
				if rng.Float64() < p {
					b.Add(Sample{
						Weight: int64(float64(c.size)/p + 0.5), Events: int64(1/p + 0.5), Thread: thread, Node: node,
						Mode: Alloc,
					})
				}
			}
		}
		r := b.Recording()
		r.Modes = []ModeStats{{Mode: Alloc, Every: every}}
		totals := r.Totals(Alloc)
		for i := range totals.Functions {
			f := &totals.Functions[i]
			name, a := r.Functions[f.Function].Display, f.Total.All()
			e := totals.Error(a, f.TotalVariance)
			trueBytes, trueObjects := bytes, objects
			if c, ok := classes[name]; ok {
				trueBytes, trueObjects = float64(c.size)*float64(c.number), float64(c.number)
			}
			d := found[name]
			d.weight = append(d.weight, (float64(a.Weight)-trueBytes)/max(e.Weight, 10))
			d.events = append(d.events, (float64(a.Events)-trueObjects)/max(e.Events, 1))
			if name != "main" { // the share of main is exact
				d.share = append(d.share, (totals.Share(a.Weight)-trueBytes/bytes)/e.Share)
			} else if e.Share > 1e-6 {
				t.Errorf("the share of everything has an error of %v", e.Share)
			}
		}
	}
	for name, d := range found {
		for what, all := range map[string][]float64{"bytes": d.weight, "objects": d.events, "share": d.share} {
			var sum, squares float64
			for _, z := range all {
				sum, squares = sum+z, squares+z*z
			}
			n := float64(len(all))
			if name == "large" { // each object is sampled
				if squares > 0.01*n && what != "share" {
					t.Errorf("%s: %v squared standard errors off, but it is exact", what, squares)
				}
			} else if n > 0 && (math.Abs(sum/n) > 0.25 || squares/n < 0.7 || squares/n > 1.4) {
				t.Errorf("%s, %s: %.2f standard errors off on average, squared %.2f", name, what, sum/n, squares/n)
			}
		}
	}
}

// TestErrorOf: exact numbers have no error, and times have the error of a binomial distribution.
func TestErrorOf(t *testing.T) {
	b := NewBuilder(Limits{})
	at := func(name string) int32 {
		return b.Location(Location{Function: b.Function(Function{Kind: snapshot.Managed, Display: name})})
	}
	thread := b.Thread(RecordedThread{})
	for mode, events := range map[Mode]int64{CPU: 0, Exception: 10, Contention: 1, GC: 3} {
		for range 25 {
			b.Add(Sample{Weight: 10, Events: events, Thread: thread, Node: b.Stack([]int32{at("a")}), Mode: mode})
			b.Add(Sample{Weight: 10, Events: events, Thread: thread, Node: b.Stack([]int32{at("b")}), Mode: mode})
		}
	}
	r := b.Recording()
	r.Modes = []ModeStats{
		{Mode: CPU, Rate: 99}, {Mode: Exception, Every: 10}, {Mode: Contention, Every: 1e6}, {Mode: GC},
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }
	for mode, want := range map[Mode]Error{
		CPU:       {Weight: 500 * math.Sqrt(0.25/50), Share: math.Sqrt(0.25 / 50)},
		Exception: {Weight: 10 * math.Sqrt(25*0.9), Events: 10 * math.Sqrt(25*0.9), Share: math.Sqrt(0.9 * 0.25 / 50)},
	} {
		totals := r.Totals(mode)
		f := &totals.Functions[0]
		for _, got := range []Error{totals.Error(f.Total.All(), f.TotalVariance), totals.Error(f.Total.All())} {
			if !near(got.Weight, want.Weight) || !near(got.Events, want.Events) || !near(got.Share, want.Share) {
				t.Errorf("%v: %+v, want %+v", mode, got, want)
			}
		}
	}
	r.Modes = append(r.Modes[:1:1], r.Modes[2:]...) // the choice of exceptions is not known
	r.Modes[0].Rate = 0                             // a profile of another tool
	for _, mode := range []Mode{CPU, Exception, Contention, GC, Wall} {
		totals := r.Totals(mode)
		if e := totals.Error(totals.All.All(), totals.Variance); e != (Error{}) {
			t.Errorf("%v: %+v", mode, e)
		}
	}
}
