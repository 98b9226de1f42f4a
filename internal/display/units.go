package display

import (
	"fmt"
	"strconv"
	"time"

	"clrsnap/profile"
)

// Scale is a unit of weights for people.
type Scale struct {
	Name string // empty: things are counted
	Size int64  // in profile.Unit
}

// scales are the scales of each unit, the smallest first.
var scales = [...][]Scale{
	profile.Nanoseconds: {{"ns", 1}, {"µs", 1e3}, {"ms", 1e6}, {"s", 1e9}},
	profile.Bytes:       {{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}},
	profile.Count:       {{"", 1}},
}

// ScaleOf returns the scale for a weight and its parts: the largest scale in which the rounded
// weight is at least 1.
func ScaleOf(u profile.Unit, whole int64) Scale {
	list := scales[u]
	if u == profile.Nanoseconds && whole == 0 {
		return list[len(list)-1] // nothing is 0 s
	}
	for len(list) > 1 && whole >= list[1].Size-list[0].Size/2 {
		list = list[1:]
	}
	return list[0]
}

// Of returns a weight in the scale.
func (s Scale) Of(w int64) float64 { return float64(w) / float64(s.Size) }

// Text returns a number with the name of the scale.
func (s Scale) Text(number string) string {
	if s.Name == "" {
		return number
	}
	return number + " " + s.Name
}

// Weight returns a weight as text for people: "12.3 s", "4.56 MiB", "1,234".
func Weight(u profile.Unit, w int64) string {
	s := ScaleOf(u, w)
	if s.Size == 1 || w == 0 {
		return s.Text(Number(int(w)))
	}
	return s.Text(ThreeDigits(s.Of(w)))
}

// ThreeDigits returns a number with three significant digits, or rounded to an integer if the
// integer has more.
func ThreeDigits(v float64) string {
	decimals := 0
	switch {
	case v < 9.995:
		decimals = 2
	case v < 99.95:
		decimals = 1
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// EventNames are the names of a mode's events, in the singular and the plural.
var EventNames = [len(profile.Modes)][2]string{
	profile.Alloc: {"object", "objects"}, profile.Exception: {"exception", "exceptions"},
	profile.Contention: {"wait", "waits"}, profile.ThreadStart: {"thread", "threads"}, profile.GC: {"GC", "GCs"},
	profile.Waits: {"wait", "waits"}, profile.Live: {"object", "objects"},
}

// CountsEvents reports whether an amount of a mode has a number of events besides its weight.
func CountsEvents(m profile.Mode, a profile.Amount) bool {
	return m.Unit() != profile.Count && a.Events > 0
}

// Events returns a number of events as text for people: "3,400 objects".
func Events(m profile.Mode, n int64) string {
	return Number(int(n)) + Plural(int(n), " "+EventNames[m][0], " "+EventNames[m][1])
}

// Amount returns an amount of a mode as text for people: "1.23 GiB in 3,400 objects".
func Amount(m profile.Mode, a profile.Amount) string {
	switch {
	case m.Unit() == profile.Count:
		return Events(m, a.Weight)
	case CountsEvents(m, a):
		return Weight(m.Unit(), a.Weight) + " in " + Events(m, a.Events)
	}
	return Weight(m.Unit(), a.Weight)
}

// CPUs returns how many CPUs a program kept busy, and how many the machine has (0: not known):
// "used 0.50 of 2 CPUs".
func CPUs(cpu, duration time.Duration, cpus int) string {
	of := ""
	if cpus > 0 {
		of = fmt.Sprintf(" of %d", cpus)
	}
	return fmt.Sprintf("used %.2f%s CPUs", cpu.Seconds()/duration.Seconds(), of)
}

// Number returns a number with separators: "1,234,567".
func Number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural returns the word for n things.
func Plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
