package profile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// shares makes a recording that has, for each stack, this number of samples.
func shares(samples map[string]int) *Recording {
	b := NewBuilder(Limits{})
	b.Thread(RecordedThread{})
	for name, n := range samples {
		node := stack(b, name)
		for range n {
			b.Add(Sample{Node: node, Weight: 10_000_000})
		}
	}
	return b.Recording()
}

func TestCompare(t *testing.T) {
	base := shares(map[string]int{"main>a": 500, "main>b": 300, "main>old": 200})
	now := shares(map[string]int{"main>a": 1400, "main>b": 580, "main>new": 19, "main>lucky": 1})
	want := map[string]string{
		"main":  "self 0.0000 to 0.0000 noise, total 1.0000 to 1.0000 noise",
		"a":     "self 0.5000 to 0.7000, total 0.5000 to 0.7000",
		"b":     "self 0.3000 to 0.2900 noise, total 0.3000 to 0.2900 noise",
		"old":   "self 0.2000 to 0.0000, total 0.2000 to 0.0000 vanished",
		"new":   "self 0.0000 to 0.0095 noise, total 0.0000 to 0.0095 noise appeared",
		"lucky": "self 0.0000 to 0.0005 noise, total 0.0000 to 0.0005 noise appeared",
	}
	d := Compare(base, now, CPU)
	for i := range d.Functions {
		c := &d.Functions[i]
		text := func(s *Shift) string {
			out := fmt.Sprintf("%.4f to %.4f", s.BaseShare, s.NowShare)
			if math.Abs(s.Change()-(s.NowShare-s.BaseShare)) > 1e-12 {
				t.Errorf("%s: changed by %v", c.Function.Display, s.Change())
			}
			if s.Noise {
				out += " noise"
			}
			return out
		}
		got := "self " + text(&c.Self) + ", total " + text(&c.Total)
		if c.Appeared() {
			got += " appeared"
		}
		if c.Vanished() {
			got += " vanished"
		}
		if got != want[c.Function.Display] {
			t.Errorf("%s: %s, want %s", c.Function.Display, got, want[c.Function.Display])
		}
		delete(want, c.Function.Display)
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
	if d.Base.All.All() != (Amount{10_000_000_000, 0, 1000}) || d.Now.All.All() != (Amount{20_000_000_000, 0, 2000}) {
		t.Errorf("all: %v, %v", d.Base.All.All(), d.Now.All.All())
	}
}

// TestCompareNothing: compared with an empty recording, every change is noise.
func TestCompareNothing(t *testing.T) {
	full, empty := shares(map[string]int{"a": 1000}), shares(nil)
	for _, d := range []*Diff{Compare(full, empty, CPU), Compare(empty, full, CPU)} {
		f := d.Functions
		if len(f) != 1 || !f[0].Self.Noise || f[0].Appeared() == f[0].Vanished() {
			t.Errorf("got %+v", d.Functions)
		}
	}
}

func TestNoise(t *testing.T) {
	for _, c := range []struct {
		p, n, q, m float64
		want       bool
	}{
		{0.5, 1000, 0.5, 1000, true},
		{0.10, 2000, 0.13, 2000, true},   // 2.9 standard errors, corrected
		{0.10, 2000, 0.135, 2000, false}, // 3.4
		{0, 1000, 0.009, 1000, true},     // from 0 to 9 samples: 1 in 500 comparisons
		{0, 1000, 0.012, 1000, false},    // 12: 1 in 2000 comparisons
		{1, 1000, 0.98, 1000, false},
		{0.1, 0, 0.9, 1000, true},
	} {
		if got := noise(c.p, c.n, c.q, c.m); got != c.want {
			t.Errorf("%v of %v, %v of %v: %v", c.p, c.n, c.q, c.m, got)
		}
		if a, b := noise(c.p, c.n, c.q, c.m), noise(c.q, c.m, c.p, c.n); a != b {
			t.Errorf("%v of %v, %v of %v: depends on the order", c.p, c.n, c.q, c.m)
		}
	}
}

// TestGhosts: between two recordings of the same program, drawn at random, hardly any
// change counts as significant; if a function with a tenth of the time takes half as
// much again, that does.
func TestGhosts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const runs, samples, functions = 200, 2000, 200
	weights := make([]float64, functions) // as programs have it: the n-th hottest has 1/n of the hottest's time
	sum := 0.0
	for i := range weights {
		weights[i] = 1 / float64(i+1)
		sum += weights[i]
	}
	draw := func(boost float64) []float64 {
		count := make([]float64, functions)
		for range samples {
			x := rng.Float64() * (sum + boost)
			i := 0
			if x -= boost; x < 0 {
				i = 1
			}
			for ; i < functions-1 && x >= weights[i]; i++ {
				x -= weights[i]
			}
			count[i]++
		}
		return count
	}
	ghosts, found := 0, 0
	for range runs {
		a, b, c := draw(0), draw(0), draw(weights[1]/2)
		for i := range a {
			if !noise(a[i]/samples, samples, b[i]/samples, samples) {
				ghosts++
			}
		}
		if !noise(a[1]/samples, samples, c[1]/samples, samples) {
			found++
		}
	}
	t.Logf("%.3f ghosts in a comparison of %d functions; the change is found in %d of %d",
		float64(ghosts)/runs, functions, found, runs)
	if ghosts > runs/5 {
		t.Errorf("%d changes of nothing in %d comparisons", ghosts, runs)
	}
	if found < runs*8/10 {
		t.Errorf("a real change is found in %d of %d comparisons", found, runs)
	}
}
