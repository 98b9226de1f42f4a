package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/internal/jsonwriter"
	"clrsnap/profile"
)

// Waits writes tables for people of what the waiting threads of a recording wait for: one table for each mode with
// waits. Below each row are the methods of the program's own code that waited the longest. Without a mode with
// waits the error is ErrNoWaits.
func Waits(w io.Writer, r *profile.Recording, o TopOptions) error {
	p := newTop(w, &o)
	shown := waitModes(r)
	if len(shown) == 0 {
		return ErrNoWaits
	}
	p.recording(r)
	work := r.Select(profile.Selection{Native: true, Working: !o.Idle})
	for _, m := range shown {
		p.end()
		p.waitMode(work, r, m, &o)
	}
	p.notes(notesOf(work, shown))
	return p.w.Flush()
}

// ErrNoWaits: no sample of a recording says what a thread waits for.
var ErrNoWaits = errors.New("no sample says what threads wait for: record with --mode wall, --event wait or " +
	"--event contention")

// waitModes returns the modes of a recording with samples of waiting threads.
func waitModes(r *profile.Recording) []profile.Mode {
	var out []profile.Mode
	for _, m := range r.RecordedModes() {
		if m == profile.Wall || m.OfWaits() {
			out = append(out, m)
		}
	}
	return out
}

// waitMode prints the waits in one mode.
func (p *printer) waitMode(r, whole *profile.Recording, m profile.Mode, o *TopOptions) {
	p.modeSummary(r, whole, r.Totals(m))
	all := r.WaitTotals(m)
	p.leftOut(whole, m, o, "", len(all) > 0)
	if len(all) == 0 {
		return
	}
	p.end()
	rows := all
	if o.Rows > 0 {
		rows = all[:min(len(all), o.Rows)]
	}
	waiting := r.Select(profile.Selection{Native: true, States: []profile.State{profile.Waiting}})
	c := newAmounts(waiting, waiting.Totals(m), o.wide(rateWide), m.OfEvents(), "%")
	p.numbersHead(c.numbers, "waits for")
	for i := range rows {
		x := &rows[i]
		p.numbersRow(c.numbers, c.rows(estimate{part: &profile.Part{profile.Waiting: x.Waits}})...)
		p.waitingFor(&x.WaitingFor, c.used)
		p.waitMethods(r, x, c.used)
	}
	if left := len(all) - len(rows); left > 0 {
		p.more(left, [2]string{"kind of wait", "kinds of wait"}, "--top 0 shows all")
	}
}

// waitingFor prints the kind of a wait, and the type if known.
func (p *printer) waitingFor(w *profile.WaitingFor, used int) {
	kind := profile.WaitingFor{Kind: w.Kind}
	text, class := kind.String(), display.Clean(w.Type)
	p.paint(magenta, text)
	if class != "" {
		if most := p.longest; !p.o.Full {
			if p.o.Width > 0 {
				most = max(p.o.Width-used-len(text)-1, shortestName)
			}
			class = display.Elide(display.WithoutNamespaces(class), most)
		}
		p.text(" " + class)
	}
	p.end()
}

// How many waiting methods to show for a row.
const shownWaitMethods = 3

// waitMethods prints the methods that waited the longest, below their wait: with the share of the wait's time.
func (p *printer) waitMethods(r *profile.Recording, x *profile.WaitTotal, used int) {
	rows := x.Methods
	if !p.o.Full {
		rows = rows[:min(len(rows), shownWaitMethods)]
	}
	for i := range rows {
		share := fmt.Sprintf("%3.0f %%  ", 100*float64(rows[i].Waits.Weight)/float64(max(x.Waits.Weight, 1)))
		if strings.HasPrefix(share, "  0 ") {
			share = " <1 %  "
		}
		p.text(strings.Repeat(" ", used))
		p.paint(dim, share)
		f := &r.Functions[rows[i].Function]
		text := display.Clean(cmp.Or(f.Short, f.Display))
		if p.o.Full {
			text = display.Clean(f.Display)
		}
		most := p.longest
		if p.o.Width > 0 && !p.o.Full {
			most = max(p.o.Width-used-len(share), shortestName)
		}
		p.text(display.Elide(text, most))
		p.end()
	}
	if left := len(x.Methods) - len(rows); left > 0 {
		p.text(strings.Repeat(" ", used))
		p.more(left, [2]string{"method", "methods"}, "--full shows all")
	}
}

// Waits and waiting methods, by docs/json.md.
type (
	jsonWaitTotal struct {
		Kind    string            `json:"kind"`
		Type    string            `json:"type,omitempty"`
		Module  string            `json:"module,omitempty"`
		Total   jsonAmount        `json:"total"`
		Methods []jsonWaitMethods `json:"methods"`
	}
	jsonWaitMethods struct {
		jsonFunction
		Total jsonAmount `json:"total"`
	}
)

// waitList writes the waits of a mode.
func waitList(c *jsonwriter.Writer, r *profile.Recording, t *profile.Totals, o *TopOptions) {
	all := r.WaitTotals(t.Mode)
	if o.Rows > 0 {
		all = all[:min(len(all), o.Rows)]
	}
	amount := func(a profile.Amount) jsonAmount { return jsonAmountOf(t, &profile.Part{profile.Waiting: a}) }
	c.Text(`,"waits":`)
	c.List(len(all), func(i int) {
		x := &all[i]
		kind := profile.WaitingFor{Kind: x.Kind}
		out := jsonWaitTotal{
			Kind: kind.String(), Type: x.Type, Module: x.Module, Total: amount(x.Waits), Methods: []jsonWaitMethods{},
		}
		for _, m := range x.Methods {
			out.Methods = append(out.Methods,
				jsonWaitMethods{jsonFunctionOf(&r.Functions[m.Function]), amount(m.Waits)})
		}
		c.Value(out)
	})
}
