package export

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"clrsnap/profile"
)

// Difference writes how the functions of a recording differ from those of another
// one, the base: the largest changes of their shares first.
//
// Of the options ByThread is ignored: threads of two runs are not the same.
func Difference(w io.Writer, base, now *profile.Recording, o TopOptions) error {
	p := newTable(w, o.Color, o.Width)
	p.paint(dim, "Base:")
	p.end()
	p.recording(base)
	p.end()
	p.paint(dim, "Compared with it:")
	p.end()
	p.recording(now)
	shown := o.modes(bothModes(base, now))
	for _, m := range shown {
		p.end()
		p.diffMode(base, now, m, &o)
	}
	if len(shown) == 0 {
		p.end()
		p.text("There is no mode that both recordings have samples of.")
		p.end()
	}
	p.notes(append(prefixed("of the base: ", notesOf(base, shown)), notesOf(now, shown)...))
	return p.w.Flush()
}

// bothModes are the modes of which both have samples: nothing else can be
// compared.
func bothModes(base, now *profile.Recording) []profile.Mode {
	var out []profile.Mode
	for _, m := range modes {
		has := func(s profile.Sample) bool { return s.Mode == m }
		if slices.ContainsFunc(base.Samples, has) && slices.ContainsFunc(now.Samples, has) {
			out = append(out, m)
		}
	}
	return out
}

func (p *printer) diffMode(base, now *profile.Recording, m profile.Mode, o *TopOptions) {
	d := profile.Compare(base, now, m)
	t := diffTable{printer: p, base: base, now: now, diff: d, sort: o.Sort}
	t.summary(m)
	p.end()
	t.functions(o)
}

// diffTable prints one mode of a comparison.
type diffTable struct {
	*printer
	base, now *profile.Recording
	diff      *profile.Diff
	sort      Order
	rates     bool // there is room for seconds
	some      bool // a row is noise
}

// rate is how much of a time goes by in a second of a recording; 0: who knows?
func rate(d time.Duration, r *profile.Recording) float64 {
	if r.Duration <= 0 {
		return 0
	}
	return d.Seconds() / r.Duration.Seconds()
}

func (t *diffTable) summary(m profile.Mode) {
	was, is := t.diff.Base.All.All(), t.diff.Now.All.All()
	out := []cell{{fmt.Sprintf("%s: %s s → %s s", modeNames[m], secondsText(was.Weight)(was.Weight).text, secondsText(is.Weight)(is.Weight).text), bold}}
	if t.base.Duration > 0 && t.now.Duration > 0 {
		before, after := rate(was.Weight, t.base), rate(is.Weight, t.now)
		what := "processors"
		if m == profile.Wall {
			what = "threads"
		}
		out = append(out, cell{fmt.Sprintf("%.2f → %.2f %s on average (%+.2f)", before, after, what, after-before), plain})
	}
	out = append(out, cell{fmt.Sprintf("%s → %s samples", grouped(was.Samples), grouped(is.Samples)), dim})
	t.parts(out...)
}

// diffWide is from which width on there are columns of seconds, too.
const diffWide = 110

func (t *diffTable) functions(o *TopOptions) {
	rows := largest(t.diff, t.sort)
	left := 0
	if o.Rows > 0 && len(rows) > o.Rows {
		left = len(rows) - o.Rows
	}
	titles := []string{"flat %", "was", "change ", "cum %", "was", "change "}
	if t.rates = t.base.Duration > 0 && t.now.Duration > 0 && (o.Width <= 0 || o.Width >= diffWide); t.rates {
		titles = append(titles, [...]string{"flat s/s", "cum s/s"}[t.sort], "was")
	}
	n := newNumbers(titles...)
	t.numbersHead(n, "function")
	for i := range rows[:len(rows)-left] {
		t.row(n, &rows[i])
	}
	if left > 0 {
		t.paint(dim, fmt.Sprintf("… and %s more, %s (--top 0 shows all)", functionCount(left), t.leftText(rows[len(rows)-left:])))
		t.end()
	}
	if t.some {
		t.paint(dim, fmt.Sprintf("≈ no more than chance can bring about with this many samples (%d standard errors)", profile.NoiseSigmas))
		t.end()
	}
}

func functionCount(n int) string { return grouped(n) + plural(n, " function", " functions") }

func (t *diffTable) leftText(rows []profile.Change) string {
	n := 0
	for i := range rows {
		if !shiftOf(&rows[i], t.sort).Noise {
			n++
		}
	}
	if n == 0 {
		return "none changed beyond chance"
	}
	return fmt.Sprintf("%s of them changed beyond chance", grouped(n))
}

// shiftOf is the amount of a function that decides the order.
func shiftOf(c *profile.Change, o Order) *profile.Shift {
	if o == Cum {
		return &c.Total
	}
	return &c.Self
}

// largest puts the largest changes first, then the larger functions.
func largest(d *profile.Diff, o Order) []profile.Change {
	rows := slices.Clone(d.Functions)
	slices.SortStableFunc(rows, func(a, b profile.Change) int {
		x, y := shiftOf(&a, o), shiftOf(&b, o)
		return cmp.Or(
			cmp.Compare(math.Abs(y.Change()), math.Abs(x.Change())),
			cmp.Compare(max(b.Total.BaseShare, b.Total.NowShare), max(a.Total.BaseShare, a.Total.NowShare)),
			cmp.Compare(fullName(a.Function), fullName(b.Function)))
	})
	return rows
}

func (t *diffTable) row(n *numbers, c *profile.Change) {
	cells := append(t.shift(&c.Self), t.shift(&c.Total)...)
	if t.rates {
		k := shiftOf(c, t.sort)
		cells = append(cells, rateCell(rate(k.Now.All().Weight, t.now)), rateCell(rate(k.Base.All().Weight, t.base)))
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

// shift is one change in three columns.
func (t *diffTable) shift(s *profile.Shift) []cell {
	change := cell{strconv.FormatFloat(100*s.Change(), 'f', 1, 64), plain}
	switch {
	case s.Base.All().Samples == 0 && s.Now.All().Samples == 0:
		change = cell{"- ", dim}
	case s.Noise:
		t.some = true
		change = cell{signed(change.text) + "≈", dim}
	case s.Change() > 0:
		change = cell{signed(change.text) + " ", red}
	default:
		change = cell{signed(change.text) + " ", green}
	}
	return []cell{percentage(s.NowShare), percentage(s.BaseShare), change}
}

// signed writes a plus before what has no sign.
func signed(s string) string {
	switch {
	case s == "-0.0":
		return "0.0"
	case s[0] == '-' || s == "0.0":
		return s
	}
	return "+" + s
}

func rateCell(v float64) cell {
	if v == 0 {
		return cell{"-", dim}
	}
	return cell{strconv.FormatFloat(v, 'f', 3, 64), plain}
}

func prefixed(prefix string, list []string) []string {
	for i := range list {
		list[i] = prefix + list[i]
	}
	return list
}
