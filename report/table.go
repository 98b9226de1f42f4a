package report

import (
	"cmp"
	"strconv"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// cell is a text in a colour.
type cell struct {
	text  string
	style style
}

// numbers are the columns of a table with numbers, right-aligned, before a name.
type numbers struct {
	titles []string
	widths []int
	used   int // terminal columns of the numbers, with all gaps
}

// numbersGap is the gap between the numbers and the name.
const numbersGap = 2

func newNumbers(titles ...string) *numbers {
	n := &numbers{titles: titles, used: numbersGap}
	for _, t := range titles {
		w := max(display.Width(t), 6) + 2 // "-100.0", and a gap before it
		n.widths = append(n.widths, w)
		n.used += w
	}
	return n
}

// fit makes a column wide enough for a number.
func (n *numbers) fit(column int, number string) {
	wider := max(display.Width(number)+2-n.widths[column], 0)
	n.widths[column] += wider
	n.used += wider
}

func (p *printer) numbersHead(n *numbers, what string) {
	var b strings.Builder
	for i, t := range n.titles {
		b.WriteString(leftPadded(t, n.widths[i]))
	}
	b.WriteString(strings.Repeat(" ", numbersGap) + what)
	p.paint(dim, b.String())
	p.end()
}

func (p *printer) numbersRow(n *numbers, cells ...cell) {
	for i, c := range cells {
		p.text(strings.Repeat(" ", max(n.widths[i]-display.Width(c.text), 1)))
		p.paint(c.style, c.text)
	}
	p.text(strings.Repeat(" ", numbersGap))
}

func leftPadded(s string, n int) string { return strings.Repeat(" ", max(n-display.Width(s), 0)) + s }

// parts prints cells with dots between them, on as many lines as necessary.
func (p *printer) parts(cells ...cell) {
	const between, indent = " · ", "  "
	at := 0
	for i, c := range cells {
		n := display.Width(c.text)
		switch {
		case i == 0:
		case p.o.Width > 0 && at+len(between)-1+n > p.o.Width:
			p.end()
			p.text(indent)
			at = len(indent)
		default:
			p.paint(dim, between)
			at += 3
		}
		p.paint(c.style, c.text)
		at += n
	}
	p.end()
}

// function prints the name of a function in the colour of its kind, as in stacks, and
// ends the line. used is how many terminal columns have been printed.
func (p *printer) function(f *profile.Function, used int) {
	frame := snapshot.Frame{
		Kind: f.Kind, Method: f.Method, Display: cmp.Or(f.Display, f.Method), Short: f.Short,
		Signature: f.Signature, Module: f.Module, Owner: f.Owner,
	}
	switch {
	case f.Kind == snapshot.Event && f.Fate != "":
		p.fate(f, used)
	case f.Kind == snapshot.Event:
		p.named(&frame, used, magenta)
	case f.Method == "" && f.Kind != snapshot.Managed: // no symbol
		p.paint(dim, display.Clean(cmp.Or(f.Display, display.Nameless(f.Module))))
	case frame.Display == "":
		p.paint(dim, display.Clean(display.Nameless(f.Module)))
	case f.Kind == snapshot.Async:
		p.paint(dim, awaitedBy)
		p.managed(&frame, used+len(awaitedBy))
	case f.Kind == snapshot.Managed:
		p.managed(&frame, used)
	default:
		p.native(&frame, used)
	}
	p.end()
}

// fate prints the name of an exception, its module, and its fate. If the text is too long, fate leaves
// out the module, then the namespaces.
func (p *printer) fate(f *profile.Function, used int) {
	name, module, fate := display.Clean(f.Display), "", ", "+display.Clean(f.Fate)
	if f.Module != "" {
		module = " (" + display.Clean(f.Module) + ")"
	}
	most := p.longest
	if p.o.Width > 0 {
		most = max(p.o.Width-used, shortestName)
	}
	if most > 0 && !p.o.Full {
		width := func() int { return display.Width(name) + display.Width(module) + display.Width(fate) }
		if width() > most {
			module = ""
		}
		if width() > most {
			name = display.Clean(cmp.Or(f.Short, f.Display))
			fate = ", " + display.Clean(display.ShortFate(f.Fate))
		}
		if width() > most {
			name = display.Elide(name, max(most-display.Width(fate), shortestName))
			fate = display.Elide(fate, max(most-display.Width(name), shortestName))
		}
	}
	p.paint(magenta, name)
	p.paint(dim, module)
	p.text(fate)
}

// estimatedPercentage is percentage for a share with a standard error: "~12" if the error leaves no
// decimal.
func estimatedPercentage(share, e float64) cell {
	if share == 0 {
		return cell{"-", dim}
	}
	return cell{display.EstimatedDecimal(100*share, 100*e, 1), plain}
}

// percentage returns a share for a table: "12.3", or a dash for 0.
func percentage(share float64) cell {
	if share == 0 {
		return cell{"-", dim}
	}
	return cell{strconv.FormatFloat(100*share, 'f', 1, 64), plain}
}
