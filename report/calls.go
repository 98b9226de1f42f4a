package report

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"clrsnap/internal/display"
	"clrsnap/profile"
)

// CallsKind is what a tree of calls shows.
type CallsKind uint8

// The kinds.
const (
	Callers CallsKind = iota // who calls the matching functions
	Callees                  // what the matching functions call
	Path                     // the heaviest calls from the base of the stacks on, of all functions
)

// CallsOptions are the options of Calls and CallsJSON. Sort and ByThread have no effect. Rows is how many
// calls a tree has; 0: all, but at most MaxCalls.
type CallsOptions struct {
	TopOptions
	Kind    CallsKind
	Pattern string // a function's name, or a part of names, or a regular expression; not for Path
}

// MaxCalls bounds the calls of a tree that are shown.
const MaxCalls = 10_000

// Why there can be no tree of calls, besides NoMatchError.
var (
	ErrOnlyIdle = errors.New("there are only idle threads")
	ErrNoStacks = errors.New("there are no stacks")
)

// Calls writes the callers of the functions whose names match a pattern, the callees, or the heaviest path, for
// each mode, for people. If no function matches, Calls writes nothing and returns a *NoMatchError, ErrOnlyIdle
// or ErrNoStacks.
func Calls(w io.Writer, r *profile.Recording, o CallsOptions) error {
	work := o.worked(r)
	trees, err := o.trees(work)
	if err != nil && !o.Plumbing { // the function may be a framework frame
		o.Plumbing = true
		unfolded := o.worked(r)
		if t, e := o.trees(unfolded); e == nil {
			work, trees, err = unfolded, t, nil
		}
	}
	if err != nil {
		if all, _ := o.trees(r); len(all) > 0 {
			if o.Kind == Path {
				return fmt.Errorf("%w: --idle shows them", ErrOnlyIdle)
			}
			return fmt.Errorf("%w in functions that match %q: --idle shows them",
				ErrOnlyIdle, display.Clip(o.Pattern, 100))
		}
		return err
	}
	p := newTop(w, &o.TopOptions)
	p.recording(r)
	for _, c := range trees {
		p.end()
		p.calls(work, r, c, &o)
	}
	return p.w.Flush()
}

// trees returns the trees of the modes with matching calls.
func (o *CallsOptions) trees(r *profile.Recording) ([]*profile.Calls, error) {
	var match func(*profile.Function) bool
	if o.Kind != Path {
		var err error
		if match, err = matching(r, o.Pattern); err != nil {
			return nil, err
		}
	}
	var out []*profile.Calls
	for _, m := range r.SampledModes() {
		c := r.Callees(m, match)
		if o.Kind == Callers {
			c = r.Callers(m, match)
		}
		if o.Kind == Path {
			c.List = c.HeaviestPath()
		}
		if len(c.List) > 0 {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, ErrNoStacks
	}
	return out, nil
}

// calls prints one mode.
func (p *printer) calls(r, whole *profile.Recording, c *profile.Calls, o *CallsOptions) {
	unit := c.Mode.Unit()
	all, matched := c.All.All().Weight, c.Matched.All()
	share := func(w int64) float64 { return float64(w) / float64(max(all, 1)) }
	what := "the heaviest path"
	if o.Kind != Path {
		what = fmt.Sprintf("%s of %q, %s of %s (%s)", [...]string{"callers", "callees"}[o.Kind],
			display.Clean(display.Clip(o.Pattern, 100)), display.Amount(c.Mode, matched), display.Weight(unit, all),
			display.Percent(share(matched.Weight)))
	}
	p.wrapped(bold, c.Mode.Title()+": "+what)
	p.leftOut(whole, c.Mode, &o.TopOptions, "", true)
	p.end()
	k := newCallColumns(r, c.Mode, o.Kind)
	p.numbersHead(k.numbers, "function")
	row := func(prefix string, call *profile.Call) {
		p.numbersRow(k.numbers, k.row(call)...)
		p.paint(dim, prefix)
		p.function(&r.Functions[call.Function], k.used+display.Width(prefix))
	}
	if o.Kind == Path {
		p.path(c.List, o.Rows, row)
		return
	}
	d := drawing{list: c.List, shown: shownCalls(c, o.Rows), arrow: [...]string{"← ", "→ "}[o.Kind]}
	d.draw(row)
	left := 0
	for _, s := range d.shown {
		if !s {
			left++
		}
	}
	if left > 0 {
		p.more(left, [2]string{"call", "calls"}, "--top 0 shows all")
	}
	if c.Cut {
		p.paint(dim, "The tree is not complete: it has too many calls or levels.")
		p.end()
	}
}

// path prints the first and the last calls of a path, as many as there are rows.
func (p *printer) path(list []profile.Call, rows int, row func(string, *profile.Call)) {
	if rows == 0 || rows > MaxCalls {
		rows = MaxCalls
	}
	left := max(len(list)-rows, 0)
	for i := range list {
		from := (rows + 1) / 2
		switch {
		case left > 0 && i == from:
			p.more(left, [2]string{"call", "calls"}, "--top 0 shows all")
		case left > 0 && i > from && i < from+left: // among the left-out calls
		default:
			row("", &list[i])
		}
	}
}

// callColumns are the columns of a tree of calls. Trees of callees have the share of the function itself first.
type callColumns struct {
	*numbers
	totals *amounts
	self   bool
}

func newCallColumns(r *profile.Recording, m profile.Mode, kind CallsKind) *callColumns {
	title := "cum %"
	if kind == Callers {
		title = "%"
	}
	t := r.Totals(m)
	k := &callColumns{totals: newAmounts(r, t, false, false, title), self: kind != Callers}
	k.numbers = k.totals.numbers
	if k.self {
		k.numbers = newNumbers(append([]string{"flat %"}, k.totals.titles...)...)
		for i, c := range k.totals.rows(estimate{&t.All, &t.Variance}) {
			k.fit(i+1, c.text)
		}
	}
	return k
}

func (k *callColumns) row(call *profile.Call) []cell {
	cells := k.totals.rows(estimate{part: &call.Total})
	if k.self {
		cells = append([]cell{percentage(k.totals.totals.Share(call.Self.All().Weight))}, cells...)
	}
	return cells
}

// leastCall is the least share of the whole tree for a shown call, unless all calls are shown.
const leastCall = 0.01

// shownCalls chooses the heaviest calls of a tree. The parent of a call is never lighter than the call.
func shownCalls(c *profile.Calls, rows int) []bool {
	list, least := c.List, 0.0
	if rows > 0 {
		least = leastCall * float64(c.Matched.All().Weight)
	}
	if rows == 0 || rows > MaxCalls {
		rows = MaxCalls
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := list[a].Total.All().Weight, list[b].Total.All().Weight
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	shown := make([]bool, len(list))
	for _, i := range order[:min(len(order), rows)] {
		shown[i] = float64(list[i].Total.All().Weight) >= least
	}
	return shown
}

// drawing draws a tree of calls with lines. An only child stands right below its parent, so that deep stacks
// stay narrow.
type drawing struct {
	list  []profile.Call
	shown []bool
	arrow string
}

// maxIndent is the maximum number of indented levels of branches.
const maxIndent = 16

// draw calls row for each shown call, with the text before the call's name.
func (d *drawing) draw(row func(prefix string, call *profile.Call)) {
	children := make([]int, len(d.list)+1) // number of shown children, by parent; [0]: the roots
	for i := range d.list {
		if d.shown[i] {
			children[d.list[i].Parent+1]++
		}
	}
	// The text before the children of a call, and the number of its branches.
	inside, levels := make([]string, len(d.list)+1), make([]int, len(d.list)+1)
	drawn := make([]int, len(d.list)+1)
	for i := range d.list {
		if !d.shown[i] {
			continue
		}
		call := &d.list[i]
		p := call.Parent + 1
		drawn[p]++
		prefix, within, level := inside[p], inside[p], levels[p]
		if p > 0 {
			if children[p] > 1 && level < maxIndent {
				level++
				if drawn[p] < children[p] {
					prefix, within = prefix+"├ ", within+"│ "
				} else {
					prefix, within = prefix+"└ ", within+"  "
				}
			}
			prefix += d.arrow
		}
		inside[i+1], levels[i+1] = within, level
		row(prefix, call)
	}
}
