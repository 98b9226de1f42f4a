package export

import (
	"fmt"
	"strconv"

	"clrsnap/profile"
)

// scale is a unit that people read weights in.
type scale struct {
	name string // empty: things are counted
	size int64  // in profile.Unit
}

// scales are the scales of each unit, the smallest first.
var scales = [...][]scale{
	profile.Nanoseconds: {{"ns", 1}, {"µs", 1e3}, {"ms", 1e6}, {"s", 1e9}},
	profile.Bytes:       {{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}},
	profile.Count:       {{"", 1}},
}

// scaleOf returns the scale for a weight and its parts: the largest in which it is, rounded,
// at least 1.
func scaleOf(u profile.Unit, whole int64) scale {
	list := scales[u]
	if u == profile.Nanoseconds && whole == 0 {
		return list[len(list)-1] // nothing is 0 s
	}
	for len(list) > 1 && whole >= list[1].size-list[0].size/2 {
		list = list[1:]
	}
	return list[0]
}

// of returns a weight in the scale.
func (s scale) of(w int64) float64 { return float64(w) / float64(s.size) }

// behind returns a number followed by the name of the scale.
func (s scale) behind(number string) string {
	if s.name == "" {
		return number
	}
	return number + " " + s.name
}

// WeightText returns a weight as text for people: "12.3 s", "4.56 MiB", "1,234".
func WeightText(u profile.Unit, w int64) string {
	s := scaleOf(u, w)
	if s.size == 1 || w == 0 {
		return s.behind(grouped(int(w)))
	}
	return s.behind(threeDigits(s.of(w)))
}

// threeDigits returns a number with three significant digits, or rounded to an integer if
// that has more.
func threeDigits(v float64) string {
	decimals := 0
	switch {
	case v < 9.995:
		decimals = 2
	case v < 99.95:
		decimals = 1
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// eventNames are the names of a mode's events, in the singular and the plural.
var eventNames = [len(profile.Modes)][2]string{
	profile.Alloc: {"object", "objects"}, profile.Exception: {"exception", "exceptions"},
	profile.Contention: {"wait", "waits"}, profile.ThreadStart: {"thread", "threads"}, profile.GC: {"GC", "GCs"},
}

// countsEvents reports whether an amount of a mode has a number of events that is not its
// weight.
func countsEvents(m profile.Mode, a profile.Amount) bool {
	return m.Unit() != profile.Count && a.Events > 0
}

func eventsText(m profile.Mode, n int64) string {
	return grouped(int(n)) + plural(int(n), " "+eventNames[m][0], " "+eventNames[m][1])
}

// AmountText returns an amount of a mode as text for people: "1.23 GiB in 3,400 objects".
func AmountText(m profile.Mode, a profile.Amount) string {
	switch {
	case m.Unit() == profile.Count:
		return eventsText(m, a.Weight)
	case countsEvents(m, a):
		return WeightText(m.Unit(), a.Weight) + " in " + eventsText(m, a.Events)
	}
	return WeightText(m.Unit(), a.Weight)
}

// SamplingText returns how the samples of a mode were chosen, as text to follow their
// number: " at 99 Hz", " of 5,000 exceptions, one in 10". It is empty if each event is a
// sample.
func SamplingText(s *profile.ModeStats) string {
	switch {
	case s.Mode.OfEvents():
		return eventSamplingText(s)
	case s.Got > 0:
		return fmt.Sprintf(" at %.3g of %g Hz", s.Got, s.Rate)
	case s.Rate > 0:
		return fmt.Sprintf(" at %g Hz", s.Rate)
	}
	return ""
}

func eventSamplingText(s *profile.ModeStats) string {
	text := ""
	if s.Seen > int64(s.Samples) && s.Mode != profile.Alloc { // the runtime reports only some of the objects
		text = " of " + eventsText(s.Mode, s.Seen)
	}
	every := WeightText(s.Mode.Unit(), s.Every)
	switch {
	case s.Every == 0:
	case s.Mode == profile.Contention:
		text += ", those of " + every + " or longer"
	case s.Mode.Unit() == profile.Bytes:
		text += ", one for every " + every
	case s.Every > 1:
		text += ", one in " + every
	}
	return text
}

// weightColumn says how a column of weights is written. They are parts of a whole.
type weightColumn struct {
	scale
	decimals int
}

func weightColumnOf(u profile.Unit, whole int64) weightColumn {
	c := weightColumn{scale: scaleOf(u, whole)}
	if c.size > 1 {
		c.decimals = decimalsOf(c.of(whole))
	}
	return c
}

// decimalsOf returns how many decimals the parts of a whole have.
func decimalsOf(whole float64) int {
	switch {
	case whole >= 1000:
		return 1
	case whole >= 10:
		return 2
	}
	return 3
}

func (c weightColumn) number(w int64) string {
	if c.size == 1 {
		return grouped(int(w))
	}
	return strconv.FormatFloat(c.of(w), 'f', c.decimals, 64)
}

// cell returns a weight for a table, or a dash for 0.
func (c weightColumn) cell(w int64) cell {
	if w == 0 {
		return cell{"-", dim}
	}
	return cell{c.number(w), plain}
}

// text returns the weight with its unit.
func (c weightColumn) text(w int64) string { return c.behind(c.number(w)) }
