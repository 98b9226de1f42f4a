package report

import (
	"cmp"
	"fmt"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// How much of the holders of one lock is shown.
const (
	shownHolders = 3
	shownCallers = 3 // methods of own code among the holder's callers
)

// locks prints the locks with the longest waits, and their holders' work meanwhile.
func (p *printer) locks(r *profile.Recording, t *profile.Totals, o *TopOptions) {
	all := r.Locks()
	if len(all) == 0 {
		return
	}
	rows := all
	if o.Rows > 0 {
		rows = all[:min(len(all), o.Rows)]
	}
	c := newAmounts(r, t, false, true, "%")
	p.numbersHead(c.numbers, "lock")
	for i := range rows {
		l := &rows[i]
		p.numbersRow(c.numbers, c.rows(estimate{part: &profile.Part{profile.Waiting: l.Waits}})...)
		p.function(withoutPrefix(&r.Functions[l.Function], "lock "), c.used)
		p.holders(r, l, c.used)
	}
	if left := len(all) - len(rows); left > 0 {
		p.more(left, [2]string{"lock", "locks"}, "--top 0 shows all")
	}
	p.end()
}

// withoutPrefix returns an event without the first word of its name.
func withoutPrefix(f *profile.Function, prefix string) *profile.Function {
	out := *f
	out.Display, out.Short = strings.TrimPrefix(f.Display, prefix), strings.TrimPrefix(f.Short, prefix)
	return &out
}

// holders prints the holders of a lock, below the lock's row: with the share of the waits' time, and
// the methods of own code that called the holder's most frequent place.
func (p *printer) holders(r *profile.Recording, l *profile.LockTotal, used int) {
	rows := l.Holders
	if !p.o.Full {
		rows = rows[:min(len(rows), shownHolders)]
	}
	for i := range rows {
		h := &rows[i]
		share := fmt.Sprintf("%3.0f %%  ", 100*float64(h.Waits.Weight)/float64(max(l.Waits.Weight, 1)))
		if strings.HasPrefix(share, "  0 ") {
			share = " <1 %  "
		}
		p.text(strings.Repeat(" ", used))
		p.paint(dim, share)
		name := withoutPrefix(&r.Functions[h.Function], "held by ")
		text := display.Clean(cmp.Or(name.Short, name.Display))
		if p.o.Full {
			text = display.Clean(name.Display)
		}
		if len(h.Stacks) > 0 {
			text += p.callers(r, h.Stacks[0].Node, name.Display)
		}
		most := p.longest
		if p.o.Width > 0 && !p.o.Full {
			most = max(p.o.Width-used-len(share), shortestName)
		}
		p.text(display.Elide(text, most))
		p.end()
	}
	if left := len(l.Holders) - len(rows); left > 0 {
		p.text(strings.Repeat(" ", used))
		p.more(left, [2]string{"holder", "holders"}, "--full shows all")
	}
}

// callers returns the methods of own code that called the method with a name, on a stack.
func (p *printer) callers(r *profile.Recording, node int32, name string) string {
	text, found, n := "", false, 0
	for l := range r.Stack(node) {
		f := &r.Functions[l.Function]
		switch {
		case f.Kind != snapshot.Managed || f.Origin() != snapshot.OfUser && f.Display != name:
		case !found:
			found = f.Display == name
		case n == shownCallers && !p.o.Full:
			return text + " ← …"
		case p.o.Full:
			text += " ← " + display.Clean(f.Display)
		default:
			n++
			text += " ← " + display.Clean(cmp.Or(f.Short, f.Display))
		}
	}
	return text
}
