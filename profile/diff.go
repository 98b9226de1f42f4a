package profile

import "math"

// Diff is how the weights of a recording's functions differ from those of another
// one, the base.
type Diff struct {
	Base, Now *Totals
	Functions []Change // of either recording, in no certain order
}

// Change is what became of one function.
type Change struct {
	Function    *Function // as the later recording has it, if it does
	Self, Total Shift
}

// Appeared reports whether the base has no sample of the function.
func (c *Change) Appeared() bool { return c.Total.Base.All().Samples == 0 }

// Vanished reports whether only the base has samples of the function.
func (c *Change) Vanished() bool { return c.Total.Now.All().Samples == 0 }

// Shift is what became of one amount.
type Shift struct {
	Base, Now           Part
	BaseShare, NowShare float64 // of all weight of the mode, from 0 to 1
	Noise               bool    // the shares differ by no more than chance can make them
}

// Change is by how much the share has grown: from -1 to 1.
func (s *Shift) Change() float64 { return s.NowShare - s.BaseShare }

// Compare compares the functions of two recordings in one mode. As ids and
// addresses differ from run to run, functions are the same if their kinds,
// modules, names and parameters are.
func Compare(base, now *Recording, m Mode) *Diff {
	d := &Diff{Base: base.Totals(m), Now: now.Totals(m)}
	index := map[functionName]int{}
	for i := range d.Now.Functions {
		t := &d.Now.Functions[i]
		f := &now.Functions[t.Function]
		index[nameOf(f)] = len(d.Functions)
		d.Functions = append(d.Functions, Change{Function: f, Self: Shift{Now: t.Self}, Total: Shift{Now: t.Total}})
	}
	for i := range d.Base.Functions {
		t := &d.Base.Functions[i]
		f := &base.Functions[t.Function]
		at, ok := index[nameOf(f)]
		if !ok {
			at = len(d.Functions)
			d.Functions = append(d.Functions, Change{Function: f})
		}
		d.Functions[at].Self.Base, d.Functions[at].Total.Base = t.Self, t.Total
	}
	for i := range d.Functions {
		d.weigh(&d.Functions[i].Self)
		d.weigh(&d.Functions[i].Total)
	}
	return d
}

func (d *Diff) weigh(s *Shift) {
	s.BaseShare, s.NowShare = d.Base.Share(s.Base.All().Weight), d.Now.Share(s.Now.All().Weight)
	s.Noise = noise(s.BaseShare, d.Base.Effective, s.NowShare, d.Now.Effective)
}

// NoiseSigmas is how many standard errors a change must exceed to be more than
// noise. A table has hundreds of functions and shows the largest changes: with the
// usual two, some would exceed them by chance in nearly every comparison.
const NoiseSigmas = 3

// noise reports whether two shares, each of so many samples, can be samples of
// one and the same: the test of two proportions, pooled, with Yates's correction,
// without which few samples are taken for too much. Samples that depend on one
// another, such as those of a program that does one thing for seconds, scatter
// more than this knows, as does what differs from run to run: a change that
// is no noise in this sense need not come from the program's code.
func noise(p, n, q, m float64) bool {
	if n <= 0 || m <= 0 || p == q {
		return true
	}
	pooled := (p*n + q*m) / (n + m)
	each := 1/n + 1/m
	sigma := math.Sqrt(pooled * (1 - pooled) * each)
	return math.Abs(p-q)-each/2 <= NoiseSigmas*sigma
}
