package cost

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"clrsnap/internal/proof/observer"
)

// mean returns the mean and its standard error; 0 and 0 for an empty slice.
func mean(x []float64) (m, e float64) {
	for _, v := range x {
		m += v / float64(len(x))
	}
	for _, v := range x {
		e += (v - m) * (v - m)
	}
	return m, math.Sqrt(e / float64(max(1, len(x))) / float64(max(1, len(x)-1)))
}

// changes are a quantity without an observer and with an observer, for each pair.
type changes struct{ without, with []float64 }

func (c *changes) add(without, with float64) {
	c.without, c.with = append(c.without, without), append(c.with, with)
}

// lost is the loss of each pair, in per cent of the average without an observer. Per cent of the pair's own value
// without an observer would give too small a mean for a varying value: a pair with less work would count for more.
func (c *changes) lost() []float64 {
	usual, _ := mean(c.without)
	out := make([]float64, len(c.with))
	for i := range out {
		out[i] = 100 * (c.without[i] - c.with[i]) / usual
	}
	return out
}

// more is the gain of each pair.
func (c *changes) more() []float64 {
	out := c.lost()
	for i := range out {
		out[i] = -out[i]
	}
	return out
}

// median returns the median; 0 for an empty slice.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// spread is a mean and its standard error; a single value has no standard error.
func spread(x []float64) string {
	switch m, e := mean(x); len(x) {
	case 0:
		return "–"
	case 1:
		return fmt.Sprintf("%.2f", m)
	default:
		return fmt.Sprintf("%.2f ± %.2f", m, e)
	}
}

// middle is a median.
func middle(x []float64) string {
	if len(x) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", median(x))
}

// columns is a table in Markdown.
type columns struct{ rows [][]string }

func newColumns(head string) *columns {
	t := new(columns)
	t.row("%s", head)
	return t
}

// row adds a row; tabs are between its cells.
func (t *columns) row(format string, args ...any) {
	t.rows = append(t.rows, strings.Split(fmt.Sprintf(format, args...), "\t"))
}

// String aligns the first column to the left, and the other columns, the numbers, to the right.
func (t *columns) String() string {
	width := make([]int, len(t.rows[0]))
	for _, r := range t.rows {
		for i, cell := range r {
			width[i] = max(width[i], utf8.RuneCountInString(cell), len("---:"))
		}
	}
	var out strings.Builder
	line := func(r []string) {
		for i, cell := range r {
			if pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)); i == 0 {
				cell += pad
			} else {
				cell = pad + cell
			}
			out.WriteString("| " + cell + " ")
		}
		out.WriteString("|\n")
	}
	line(t.rows[0])
	rule := make([]string, len(width))
	for i, w := range width {
		rule[i] = strings.Repeat("-", w-1) + ":"
	}
	rule[0] = strings.Repeat("-", width[0])
	line(rule)
	for _, r := range t.rows[1:] {
		line(r)
	}
	return out.String()
}

// metric reports a figure, and hides the meaningless time of an iteration.
func metric(b *testing.B, v float64, unit string) {
	b.ReportMetric(v, strings.NewReplacer(" ", "-", ",", "").Replace(unit))
	b.ReportMetric(0, "ns/op")
}

// grouped writes a number as 12,345.
func grouped(n float64) string {
	s := fmt.Sprintf("%.0f", n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func TestFigures(t *testing.T) {
	for _, tt := range []struct {
		x               []float64
		mean, e, median float64
		spread, middle  string
	}{
		{nil, 0, 0, 0, "–", "–"},
		{[]float64{3}, 3, 0, 3, "3.00", "3.00"},
		{[]float64{1, 3}, 2, 1, 2, "2.00 ± 1.00", "2.00"},
		{[]float64{9, 1, 2}, 4, math.Sqrt(38. / 6), 2, "4.00 ± 2.52", "2.00"},
		{[]float64{-1, -1, -1, -1}, -1, 0, -1, "-1.00 ± 0.00", "-1.00"},
	} {
		m, e := mean(tt.x)
		if math.Abs(m-tt.mean) > 1e-12 || math.Abs(e-tt.e) > 1e-12 || median(tt.x) != tt.median ||
			spread(tt.x) != tt.spread || middle(tt.x) != tt.middle {
			t.Errorf("%v: %g ± %g, median %g; %q, %q", tt.x, m, e, median(tt.x), spread(tt.x), middle(tt.x))
		}
	}
	for n, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567.4: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%g: %s, want %s", n, got, want)
		}
	}
}

func TestColumns(t *testing.T) {
	table := newColumns("way\tlost %\tn")
	table.row("%s\t%s\t%d", "nothing", "0.10 ± 0.20", 7)
	table.row("%s\t%s\t%d", "-r 99", "–", 1200)
	const want = `| way     |      lost % |    n |
| ------- | ----------: | ---: |
| nothing | 0.10 ± 0.20 |    7 |
| -r 99   |           – | 1200 |
`
	if got := table.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestChanges: a quantity that varies around the same value has not changed on average.
func TestChanges(t *testing.T) {
	var c changes
	c.add(80, 120)
	c.add(120, 80)
	if m, _ := mean(c.lost()); m != 0 || middle(c.more()) != "0.00" || c.lost()[1] != 40 {
		t.Errorf("%v lost, %v more", c.lost(), c.more())
	}
}

// TestLosses: a slow change cancels out. A pair does not count if others disturb the pair, or if
// the machine changes meanwhile.
func TestLosses(t *testing.T) {
	made := func(perSecond, cpuPerUnit, others float64) phase {
		return phase{perSecond: perSecond, cpuPerUnit: cpuPerUnit, others: others}
	}
	defer func(quiet float64) { *quietFlag = quiet }(*quietFlag)
	*quietFlag = 0.04
	pairs := func(w *way) int { return len(w.perSecond.with) }
	w := new(way)
	seen := &observer.Quality{Memory: 5}
	seen.Samples = 10
	// The machine becomes slower all the time, and the observer takes a tenth of the CPU.
	rest := made(92, 1.2, 0)
	last := w.compare(made(100, 1, 0), func() (phase, *observer.Quality) {
		return made(86.4, 1.21, 0), seen
	}, func() phase { return rest })
	if last != rest || pairs(w) != 1 || math.Abs(w.perSecond.lost()[0]-10) > 1e-9 ||
		math.Abs(w.cpuPerUnit.more()[0]-10) > 1e-9 ||
		w.disturbed != 0 || w.seen.Samples != 10 {
		t.Errorf("%+v", w)
	}
	// Another process comes, and stays.
	times := 0
	w.compare(last, func() (phase, *observer.Quality) {
		times++
		return made(10, 3, 1), seen
	}, func() phase { return made(100, 1, 0) })
	if times != repeats+1 || pairs(w) != 1 || w.disturbed != 1 || w.seen.Samples != 10 {
		t.Errorf("after %d times %+v", times, w)
	}
	// The speed of the machine changes with every phase.
	does := 100.0
	w.compare(last, func() (phase, *observer.Quality) {
		return made(90, 1, 0), seen
	}, func() phase {
		does = 180 - does
		return made(does, 1, 0)
	})
	if pairs(w) != 1 || w.disturbed != 2 || w.seen.Samples != 10 {
		t.Errorf("%+v", w)
	}
	// Another process comes, and leaves.
	others := []float64{0, .5}
	w.compare(last, func() (phase, *observer.Quality) {
		i := len(others) - 1
		p := made(90, 1, others[i])
		others = others[:i]
		return p, seen
	}, func() phase { return made(100, 1, 0) })
	if pairs(w) != 2 || math.Abs(w.perSecond.lost()[1]-1000./98) > 1e-9 || w.cpuPerUnit.more()[1] != 0 ||
		w.disturbed != 2 || w.seen.Samples != 20 || w.seen.Memory != 5 {
		t.Errorf("%+v", w)
	}
}
