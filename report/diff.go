package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
)

// Diff writes a table for people that compares a recording with an earlier recording, the
// base, function by function. The functions with the largest changes of their shares come
// first. Diff compares only modes with samples in both recordings.
//
// ByThread is ignored, because two runs have different threads.
func Diff(w io.Writer, base, now *profile.Recording, o TopOptions) error {
	p := newTop(w, &o)
	p.paint(dim, "Base:")
	p.end()
	p.recording(base)
	p.end()
	p.paint(dim, "Compared with it:")
	p.end()
	p.recording(now)
	shown := bothModes(base, now)
	wasWork, isWork := o.worked(base), o.worked(now)
	for _, m := range shown {
		p.end()
		p.diffMode(wasWork, isWork, m, &o, func() {
			p.leftOut(base, m, &o, " of the base", true)
			p.leftOut(now, m, &o, "", true)
		})
	}
	if len(shown) == 0 {
		p.end()
		p.text("The two recordings have no samples of the same mode.")
		p.end()
	}
	p.notes(append(prefixed("of the base: ", notesOf(base, shown)), notesOf(now, shown)...))
	return p.w.Flush()
}

// bothModes returns the modes with samples in both recordings.
func bothModes(base, now *profile.Recording) []profile.Mode {
	there := base.SampledModes()
	return slices.DeleteFunc(now.SampledModes(), func(m profile.Mode) bool { return !slices.Contains(there, m) })
}

func (p *printer) diffMode(base, now *profile.Recording, m profile.Mode, o *TopOptions, leftOut func()) {
	d := profile.Compare(base, now, m)
	t := diffTable{printer: p, base: base, now: now, diff: d, sort: o.Sort}
	t.summary(m)
	leftOut()
	p.end()
	t.functions(o)
}

// diffTable prints one mode of a comparison.
type diffTable struct {
	*printer
	base, now *profile.Recording
	diff      *profile.Diff
	sort      Order
	rates     bool // there is room for columns of rates
	noise     bool // at least one row is noise
}

// rateColumn says how the rates of a mode are written. A rate is weight per second of the
// recording; the rate of a time has no unit.
type rateColumn struct {
	display.Scale
	decimals int
}

func (t *diffTable) rateColumn() rateColumn {
	u := t.diff.Now.Mode.Unit()
	if u == profile.Nanoseconds {
		return rateColumn{display.Scale{Name: "s/s", Size: int64(time.Second)}, 3}
	}
	was, is := t.diff.Base.All.All().Weight, t.diff.Now.All.All().Weight
	one := rateColumn{Scale: display.Scale{Size: 1}}
	larger := max(one.of(was, t.base), one.of(is, t.now))
	s := display.ScaleOf(u, int64(larger))
	return rateColumn{display.Scale{Name: s.Name + "/s", Size: s.Size}, decimalsOf(larger / float64(s.Size))}
}

// of returns the rate of a weight in a recording; 0: the recording's length is not known.
func (c rateColumn) of(w int64, r *profile.Recording) float64 {
	if r.Duration <= 0 {
		return 0
	}
	return c.Scale.Of(w) / r.Duration.Seconds()
}

func (c rateColumn) cell(w int64, r *profile.Recording) cell {
	v := c.of(w, r)
	if v == 0 {
		return cell{"-", dim}
	}
	return cell{strconv.FormatFloat(v, 'f', c.decimals, 64), plain}
}

// rateNames name a rate in words, if the unit does not.
var rateNames = [len(profile.Modes)]string{
	profile.CPU: "CPUs on average", profile.Wall: "threads on average",
	profile.Contention: "threads waiting on average", profile.GC: "% of the time",
	profile.Exception: "a second", profile.ThreadStart: "a second",
	profile.Waits: "threads waiting on average",
}

func (t *diffTable) summary(m profile.Mode) {
	was, is := t.diff.Base.All.All(), t.diff.Now.All.All()
	wasError, isError := t.diff.Base.Error(was, t.diff.Base.Variance), t.diff.Now.Error(is, t.diff.Now.Variance)
	text := func(w int64, e float64) string { return weightColumnOf(m.Unit(), w).textWithError(w, e) }
	out := []cell{{fmt.Sprintf("%s: %s → %s", m.Title(), text(was.Weight, wasError.Weight),
		text(is.Weight, isError.Weight)), bold}}
	if display.CountsEvents(m, was) || display.CountsEvents(m, is) {
		text := display.NumberWithError(was.Events, wasError.Events) + " → " +
			display.EventsWithError(m, is.Events, isError.Events)
		out = append(out, cell{text, plain})
	}
	if t.base.Duration > 0 && t.now.Duration > 0 {
		c := t.rateColumn()
		before, after := c.of(was.Weight, t.base), c.of(is.Weight, t.now)
		if m == profile.GC {
			before, after = 100*before, 100*after
		}
		text := fmt.Sprintf("%.2f → %.2f %s (%+.2f)", before, after, cmp.Or(rateNames[m], c.Name), after-before)
		out = append(out, cell{text, plain})
	}
	samples := display.Number(was.Samples) + " → " + samplesText(m, is.Samples)
	out = append(out, cell{samples, dim})
	t.parts(out...)
}

// diffWide is the least width for columns of rates.
const diffWide = 110

func (t *diffTable) functions(o *TopOptions) {
	rows := largest(t.diff, t.sort)
	left := 0
	if o.Rows > 0 && len(rows) > o.Rows {
		left = len(rows) - o.Rows
	}
	titles := []string{"flat %", "was", "change ", "cum %", "was", "change "}
	if t.rates = t.base.Duration > 0 && t.now.Duration > 0 && (o.Width <= 0 || o.Width >= diffWide); t.rates {
		titles = append(titles, [...]string{"flat ", "cum "}[t.sort]+t.rateColumn().Name, "was")
	}
	n := newNumbers(titles...)
	t.numbersHead(n, "function")
	for i := range rows[:len(rows)-left] {
		t.row(n, &rows[i])
	}
	if left > 0 {
		more := t.leftText(rows[len(rows)-left:])
		t.paint(dim, fmt.Sprintf("… and %s more, %s (--top 0 shows all)", functionCount(left), more))
		t.end()
	}
	if t.noise {
		t.paint(dim, fmt.Sprintf("≈ not significant with this many samples: within %d standard errors",
			profile.NoiseSigmas))
		t.end()
	}
}

func functionCount(n int) string {
	return display.Number(n) + display.Plural(n, " function", " functions")
}

func (t *diffTable) leftText(rows []profile.Change) string {
	n := 0
	for i := range rows {
		if !shiftOf(&rows[i], t.sort).Noise {
			n++
		}
	}
	if n == 0 {
		return "none changed significantly"
	}
	return fmt.Sprintf("%s of them changed significantly", display.Number(n))
}

// shiftOf returns the sort key of a function.
func shiftOf(c *profile.Change, o Order) *profile.Shift {
	if o == Cum {
		return &c.Total
	}
	return &c.Self
}

// largest returns the functions sorted: the largest changes first, then the larger
// functions.
func largest(d *profile.Diff, o Order) []profile.Change {
	rows := slices.Clone(d.Functions)
	slices.SortStableFunc(rows, func(a, b profile.Change) int {
		x, y := shiftOf(&a, o), shiftOf(&b, o)
		return cmp.Or(
			cmp.Compare(math.Abs(y.Change()), math.Abs(x.Change())),
			cmp.Compare(max(b.Total.BaseShare, b.Total.NowShare), max(a.Total.BaseShare, a.Total.NowShare)),
			cmp.Compare(display.FullName(a.Function), display.FullName(b.Function)))
	})
	return rows
}

func (t *diffTable) row(n *numbers, c *profile.Change) {
	cells := append(t.shift(&c.Self), t.shift(&c.Total)...)
	if t.rates {
		k := shiftOf(c, t.sort)
		c := t.rateColumn()
		cells = append(cells, c.cell(k.Now.All().Weight, t.now), c.cell(k.Base.All().Weight, t.base))
	}
	t.numbersRow(n, cells...)
	used := n.used
	mark, st := "", plain
	switch {
	case c.Appeared():
		mark, st = "new ", green
	case c.Vanished():
		mark, st = "gone ", dim
	}
	t.paint(st, mark)
	t.function(c.Function, used+len(mark))
}

// shift returns one change in three columns.
func (t *diffTable) shift(s *profile.Shift) []cell {
	change := cell{strconv.FormatFloat(100*s.Change(), 'f', 1, 64), plain}
	switch {
	case s.Base.All().Samples == 0 && s.Now.All().Samples == 0:
		change = cell{"- ", dim}
	case s.Noise:
		t.noise = true
		change = cell{signed(change.text) + "≈", dim}
	case s.Change() > 0:
		change = cell{signed(change.text) + " ", red}
	default:
		change = cell{signed(change.text) + " ", green}
	}
	return []cell{percentage(s.NowShare), percentage(s.BaseShare), change}
}

// signed writes a plus before a number without a sign.
func signed(s string) string {
	switch {
	case s == "-0.0":
		return "0.0"
	case s[0] == '-' || s == "0.0":
		return s
	}
	return "+" + s
}

func prefixed(prefix string, list []string) []string {
	for i := range list {
		list[i] = prefix + list[i]
	}
	return list
}
