package export

import (
	"cmp"
	"strconv"
	"strings"

	"clrsnap/profile"
)

// cell is a text in a colour.
type cell struct {
	text  string
	style style
}

// numbers are the columns of a table that hold numbers, right-aligned, before a name.
type numbers struct {
	titles []string
	widths []int
	used   int // terminal columns that they take, with all gaps
}

// numbersGap is the gap between the numbers and the name.
const numbersGap = 2

func newNumbers(titles ...string) *numbers {
	n := &numbers{titles: titles, used: numbersGap}
	for _, t := range titles {
		w := max(width(t), 6) + 2 // "-100.0", and a gap before it
		n.widths = append(n.widths, w)
		n.used += w
	}
	return n
}

// fit makes a column wide enough for a number.
func (n *numbers) fit(column int, number string) {
	wider := max(width(number)+2-n.widths[column], 0)
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
		p.text(strings.Repeat(" ", max(n.widths[i]-width(c.text), 1)))
		p.paint(c.style, c.text)
	}
	p.text(strings.Repeat(" ", numbersGap))
}

func leftPadded(s string, n int) string { return strings.Repeat(" ", max(n-width(s), 0)) + s }

// parts prints cells with dots between them, on as many lines as the width needs.
func (p *printer) parts(cells ...cell) {
	const between, indent = " · ", "  "
	at := 0
	for i, c := range cells {
		n := width(c.text)
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
	frame := profile.Frame{
		Kind: f.Kind, Method: f.Method, Display: cmp.Or(f.Display, f.Method), Short: f.Short,
		Signature: f.Signature, Module: f.Module,
	}
	switch {
	case f.Kind == profile.Event:
		p.named(&frame, used, magenta)
	case f.Method == "" && f.Kind != profile.Managed: // no symbol
		p.paint(dim, Clean(cmp.Or(f.Display, nameless(f.Module))))
	case frame.Display == "":
		p.paint(dim, Clean(nameless(f.Module)))
	case f.Kind == profile.Managed:
		p.managed(&frame, used)
	default:
		p.native(&frame, used)
	}
	p.end()
}

// percentage returns a share for a table: "12.3", or a dash for 0.
func percentage(share float64) cell {
	if share == 0 {
		return cell{"-", dim}
	}
	return cell{strconv.FormatFloat(100*share, 'f', 1, 64), plain}
}

// grouped returns a number with separators: "1,234,567".
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
