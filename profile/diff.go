package profile

import "math"

// Diff is the difference between a base recording and a later recording, function by
// function, in one mode.
type Diff struct {
	Base, Now *Totals
	Functions []Change // of functions in either recording, in no particular order
}

// Change is the difference of one function.
type Change struct {
	Function    *Function // from the later recording if it has the function, else from the base
	Self, Total Shift
}

// Appeared reports whether the base has no sample of the function.
func (c *Change) Appeared() bool { return c.Total.Base.All().Samples == 0 }

// Vanished reports whether only the base has samples of the function.
func (c *Change) Vanished() bool { return c.Total.Now.All().Samples == 0 }

// Shift is the difference of one sum.
type Shift struct {
	Base, Now           Part
	BaseShare, NowShare float64 // of the mode's whole weight, from 0 to 1
	Noise               bool    // the difference of the shares is not significant: see NoiseSigmas
}

// Change returns by how much the share has grown: from -1 to 1.
func (s *Shift) Change() float64 { return s.NowShare - s.BaseShare }

// Compare compares the functions of two recordings in one mode. Two functions are
// the same if their kinds, modules, names and parameters are: ids and addresses
// differ from run to run.
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

// NoiseSigmas is how many standard errors a change must exceed to count as
// significant. The usual two are too few: a table has hundreds of functions and shows
// the largest changes, so some would exceed two by chance in nearly every comparison.
const NoiseSigmas = 3

// noise reports whether two shares p and q, of n and m samples, may differ by chance
// alone. The test is the two-proportion z-test, pooled, with Yates's continuity
// correction. Without the correction, small samples would count as significant too
// often.
//
// The test takes samples as independent. The samples of a program that does one thing
// for seconds are not independent, and runs differ from each other anyway. So a
// significant change need not come from a change of the program's code.
func noise(p, n, q, m float64) bool {
	if n <= 0 || m <= 0 || p == q {
		return true
	}
	pooled := (p*n + q*m) / (n + m)
	each := 1/n + 1/m
	sigma := math.Sqrt(pooled * (1 - pooled) * each)
	return math.Abs(p-q)-each/2 <= NoiseSigmas*sigma
}
