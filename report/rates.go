package report

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
)

// The least widths at which tables have columns of rates.
const (
	rateWide      = 110 // tables of functions
	eventRateWide = 90  // tables of events, with fewer columns
)

// wide reports whether the terminal has room for a number of columns.
func (o *TopOptions) wide(least int) bool { return o.Width <= 0 || o.Width >= least }

// rated says how a mode's weights per time are written. A time per time is a share of the recording's
// length: 100 % is one CPU, or one thread, all the time.
type rated struct {
	title    string
	scale    float64 // of weight per second
	decimals int
	length   time.Duration // of the recording
}

// ratedOf returns the form of the rates of a whole weight's parts.
func ratedOf(m profile.Mode, whole int64, length time.Duration) rated {
	switch m.Unit() {
	case profile.Nanoseconds:
		title := "wall %"
		if m == profile.CPU {
			title = "CPU %"
		}
		return rated{title, float64(time.Second) / 100, 1, length}
	case profile.Bytes:
		perSecond := float64(whole) / length.Seconds()
		s := display.ScaleOf(profile.Bytes, int64(perSecond))
		return rated{s.Name + "/s", float64(s.Size), decimalsOf(perSecond / float64(s.Size)), length}
	}
	return rated{"per s", 1, decimalsOf(float64(whole) / length.Seconds()), length}
}

// cell returns a weight per time; e is the weight's standard error.
func (k *rated) cell(w int64, e float64) cell {
	if w == 0 {
		return cell{"-", dim}
	}
	unit := k.length.Seconds() * k.scale
	if e > 0 {
		return cell{display.EstimatedDecimal(float64(w)/unit, e/unit, k.decimals), plain}
	}
	return cell{strconv.FormatFloat(float64(w)/unit, 'f', k.decimals, 64), plain}
}

// meanTitle is the title of the mean weight of one event: "B/object".
func meanTitle(m profile.Mode, s display.Scale) string {
	return s.Name + "/" + display.EventNames[m][0]
}

// rateText returns a mode's weight per time, for its summary; e is the weight's standard error.
func rateText(m profile.Mode, weight int64, e float64, length time.Duration) string {
	if length <= 0 || weight <= 0 {
		return ""
	}
	v := float64(weight) / length.Seconds()
	switch {
	case m == profile.GC:
		return display.Percent(v/1e9) + " of the time"
	case m.Unit() == profile.Nanoseconds:
		if v < 5e6 {
			return "less than 0.01 " + rateNames[m]
		}
		return threeDigits(v/1e9) + " " + rateNames[m]
	case m.Unit() == profile.Bytes:
		return weightColumnOf(profile.Bytes, int64(v)).textWithError(int64(v), e/length.Seconds()) + "/s"
	}
	return estimatedDigits(v, e/length.Seconds()) + " per second"
}

// eventRateText returns the number of a mode's events per time, and an event's mean weight.
func eventRateText(m profile.Mode, all profile.Amount, e profile.Error, length time.Duration) string {
	text := ""
	if length > 0 {
		text = estimatedDigits(float64(all.Events)/length.Seconds(), e.Events/length.Seconds()) + " per second, "
	}
	mean := all.Weight / all.Events
	each := display.Weight(m.Unit(), mean)
	if e.Events > 0 {
		c := weightColumnOf(m.Unit(), mean)
		each = c.Text(c.estimatedCell(mean, float64(mean)*e.Events/float64(all.Events)).text)
	}
	return fmt.Sprintf(" (%s%s each)", text, each)
}

// estimatedDigits is threeDigits for a number with a standard error.
func estimatedDigits(v, e float64) string {
	if e == 0 {
		return threeDigits(v)
	}
	return display.EstimatedDecimal(v, e, 2)
}

// threeDigits returns a number with about three significant digits, and separators.
func threeDigits(v float64) string {
	if v < 1000 {
		return display.ThreeDigits(v)
	}
	step := math.Pow(10, math.Floor(math.Log10(v))-2)
	return display.Number(int(math.Round(v/step) * step))
}
