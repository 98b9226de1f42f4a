package display

import (
	"math"
	"strconv"

	"clrsnap/profile"
)

// Estimates are written with the known digits: up to the first digit of the standard error. A ~ marks
// an estimate with fewer digits than an exact number.

// place returns the power of ten of an error's first digit.
func place(e float64) int { return int(math.Floor(math.Log10(e))) }

// rounded returns v as text, rounded to a multiple of 10^place.
func rounded(v float64, place int) string {
	if place < 0 {
		return strconv.FormatFloat(v, 'f', -place, 64)
	}
	unit := math.Pow10(place)
	return Number(int(math.Round(v/unit) * unit))
}

// known reports whether e is the standard error of an inexact number.
func known(e float64) bool { return e > 0 && !math.IsInf(e, 0) && !math.IsNaN(e) }

// exactNumber is the standard error below which a number of things counts as exact.
const exactNumber = 0.5

// EstimatedNumber returns a number of things whose standard error is e: "~4,500", or "4,486" if e is 0.
func EstimatedNumber(n int64, e float64) string {
	if !known(e) || e < exactNumber {
		return Number(int(n))
	}
	return "~" + rounded(float64(n), max(place(e), 0))
}

// EstimatedDecimal returns a number with its known decimals: "12.34", or "~12" if the standard error e
// leaves no more. An error in the last decimal alone does not count.
func EstimatedDecimal(v, e float64, decimals int) string {
	if !known(e) || place(e) <= -decimals {
		return strconv.FormatFloat(v, 'f', decimals, 64)
	}
	return "~" + rounded(v, place(e))
}

// WithError returns a number with its standard error: "4,500 ± 800", or exact for an exact number.
func WithError(v, e float64, exact string) string {
	const mostDecimals = 3
	if !known(e) {
		return exact
	}
	p := place(e)
	if e = math.Round(e/math.Pow10(p)) * math.Pow10(p); p < -mostDecimals || v == 0 {
		return exact
	}
	p = place(e * (1 + 1e-9)) // 0.96 is 1.0
	return rounded(v, p) + " ± " + rounded(e, p)
}

// WeightWithError is Weight with a standard error: "1.2 ± 0.3 GiB".
func WeightWithError(u profile.Unit, w int64, e float64) string {
	s := ScaleOf(u, w)
	number := Number(int(w))
	if s.Size > 1 && w != 0 {
		number = ThreeDigits(s.Of(w))
	}
	return s.Text(WithError(s.Of(w), e/float64(s.Size), number))
}

// NumberWithError returns a number of things with its standard error: "4,500 ± 800".
func NumberWithError(n int64, e float64) string {
	if e < exactNumber {
		return Number(int(n))
	}
	return WithError(float64(n), e, Number(int(n)))
}

// EventsWithError is Events with a standard error: "4,500 ± 800 objects".
func EventsWithError(m profile.Mode, n int64, e float64) string {
	return NumberWithError(n, e) + Plural(int(n), " "+EventNames[m][0], " "+EventNames[m][1])
}

// AmountWithError is Amount with its standard error: "1.2 ± 0.3 GiB in 4,500 ± 800 objects".
func AmountWithError(m profile.Mode, a profile.Amount, e profile.Error) string {
	switch {
	case m.Unit() == profile.Count:
		return EventsWithError(m, a.Weight, e.Weight)
	case CountsEvents(m, a):
		return WeightWithError(m.Unit(), a.Weight, e.Weight) + " in " + EventsWithError(m, a.Events, e.Events)
	}
	return WeightWithError(m.Unit(), a.Weight, e.Weight)
}
