package profile

import "math"

// Variance is by how much the sums of an Amount may differ from the truth, because chance has chosen the
// samples: the square of the standard error.
type Variance struct{ Weight, Events float64 }

// Add adds the variance of other samples.
func (v *Variance) Add(w Variance) {
	v.Weight += w.Weight
	v.Events += w.Events
}

// Error is the standard error of an Amount, and of the Amount's share of the whole. Exact numbers have no
// error.
type Error struct {
	Weight float64 // in Mode.Unit
	Events float64
	Share  float64 // from 0 to 1
}

// estimation is where the numbers of a mode come from.
type estimation uint8

const (
	exact         estimation = iota // every event is there, or the choice of events is not known
	ofTime                          // a thread was sampled from time to time
	ofChosenEvent                   // chance has chosen some events, and each stands for several
)

func (r *Recording) estimation(m Mode) estimation {
	s, ok := r.Mode(m)
	switch {
	case !ok:
		return exact
	case !m.OfEvents() && s.Rate > 0:
		return ofTime
	case (m.OfObjects() || m == Exception) && s.Every > 1:
		return ofChosenEvent
	}
	return exact
}

// Estimated reports whether chance has chosen the events in a mode's samples.
func (r *Recording) Estimated(m Mode) bool { return r.estimation(m) == ofChosenEvent }

// Error is the standard error of a sum with this variance. The share's error is not known.
func (v Variance) Error() Error {
	return Error{Weight: math.Sqrt(v.Weight), Events: math.Sqrt(v.Events)}
}

// Variance is what a sample contributes to the variance of a sum, if chance has chosen the sample. The
// event was chosen with a probability of p, and so stands for 1/p events. Each event is chosen
// independently. So the estimator of Horvitz and Thompson gives the sum's variance: the sum of
// weight²(1-p). Events are whole numbers, so p is 1 where p is more than two thirds.
func (s *Sample) Variance() Variance {
	n := float64(max(s.Count, 1))
	p := n / float64(max(s.Events, 1))
	if p >= 1 {
		return Variance{}
	}
	w, e := float64(s.Weight)/n, float64(s.Events)/n
	return Variance{n * w * w * (1 - p), n * e * e * (1 - p)}
}

// equalVariance is the variance of an amount if all its samples are equal.
func (a *Amount) equalVariance() Variance {
	s := Sample{Weight: a.Weight, Events: a.Events, Count: int32(min(a.Samples, math.MaxInt32))}
	return s.Variance()
}

// Error returns the standard error of a part of the whole. of is the part's variance, from a FunctionTotal
// or ThreadTotal. Without a variance, Error takes the samples of the part as equal.
//
// The share of a time follows a binomial distribution with Effective samples: Error takes samples as
// independent. The samples of a program that does one thing for long are not independent.
func (t *Totals) Error(a Amount, of ...Variance) Error {
	switch t.estimation {
	case ofTime:
		if t.Effective <= 0 {
			return Error{}
		}
		p := min(t.Share(a.Weight), 1)
		share := math.Sqrt(p * (1 - p) / t.Effective)
		return Error{Weight: share * float64(t.All.All().Weight), Share: share}
	case ofChosenEvent:
		v := a.equalVariance()
		if len(of) > 0 {
			v = of[0]
		}
		return Error{math.Sqrt(v.Weight), math.Sqrt(v.Events), t.shareError(a, v)}
	}
	return Error{}
}

// shareError is the standard error of the ratio of a part to the whole. The whole contains the part.
func (t *Totals) shareError(a Amount, v Variance) float64 {
	whole := float64(t.All.All().Weight)
	if whole <= 0 {
		return 0
	}
	p := float64(a.Weight) / whole
	return math.Sqrt(max(v.Weight*(1-2*p)+p*p*t.Variance.Weight, 0)) / whole
}
