package report

import (
	"fmt"
	"strconv"

	"clrsnap/internal/display"
	"clrsnap/profile"
)

// Clean makes a name from a target safe to print on a terminal. Clean escapes control characters,
// characters that change the direction of writing, and invalid UTF-8, for example as \x1b: such
// characters could move the cursor or hide text.
func Clean(s string) string { return display.Clean(s) }

// WeightText returns a weight as text for people: "12.3 s", "4.56 MiB", "1,234".
func WeightText(u profile.Unit, w int64) string { return display.Weight(u, w) }

// AmountText returns an amount of a mode as text for people: "1.23 GiB in 3,400 objects".
func AmountText(m profile.Mode, a profile.Amount) string { return display.Amount(m, a) }

// samplesText returns a number of samples as text for people. Samples of GC are pauses: a
// collection can have several, or share one.
func samplesText(m profile.Mode, n int) string {
	if m == profile.GC {
		return display.Number(n) + display.Plural(n, " pause", " pauses")
	}
	return display.Number(n) + display.Plural(n, " sample", " samples")
}

// SamplingText returns how the samples of a mode were chosen, as text after their number: " at 99
// Hz", " of 5,000 exceptions, one in 10". The text is empty if each event is a sample.
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
	if s.Seen > int64(s.Samples) && !s.Mode.OfObjects() { // the runtime reports only some of the objects
		text = " of " + display.Events(s.Mode, s.Seen)
		if s.Mode == profile.GC {
			text = " of " + display.Number(int(s.Seen))
		}
	}
	every := display.Weight(s.Mode.Unit(), s.Every)
	switch {
	case s.Every == 0:
	case s.Mode.OfWaits():
		text += ", those of " + every + " or longer"
	case s.Mode.Unit() == profile.Bytes:
		text += ", one for every " + every
	case s.Every > 1:
		text += ", one in " + every
	}
	if n := int(s.Rethrown); n > 0 {
		text += ", and " + display.Number(n) + display.Plural(n, " rethrow", " rethrows")
	}
	return text
}

// weightColumn says how a column of weights is written. The weights are parts of a whole.
type weightColumn struct {
	display.Scale
	decimals int
}

func weightColumnOf(u profile.Unit, whole int64) weightColumn {
	c := weightColumn{Scale: display.ScaleOf(u, whole)}
	if c.Size > 1 {
		c.decimals = decimalsOf(c.Of(whole))
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
	if c.Size == 1 {
		return display.Number(int(w))
	}
	return strconv.FormatFloat(c.Of(w), 'f', c.decimals, 64)
}

// cell returns a weight for a table, or a dash for 0.
func (c weightColumn) cell(w int64) cell {
	if w == 0 {
		return cell{"-", dim}
	}
	return cell{c.number(w), plain}
}

// estimatedCell is cell for a weight with a standard error: "~4,500".
func (c weightColumn) estimatedCell(w int64, e float64) cell {
	switch {
	case w == 0 || e == 0:
		return c.cell(w)
	case c.Size == 1:
		return cell{display.EstimatedNumber(w, e), plain}
	}
	return cell{display.EstimatedDecimal(c.Of(w), e/float64(c.Size), c.decimals), plain}
}

// textWithError is text for a weight with a standard error: "1.2 ± 0.3 GiB".
func (c weightColumn) textWithError(w int64, e float64) string {
	return c.Text(display.WithError(c.Of(w), e/float64(c.Size), c.number(w)))
}

// text returns the weight with its unit.
func (c weightColumn) text(w int64) string { return c.Text(c.number(w)) }
