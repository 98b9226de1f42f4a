package report

import (
	"cmp"
	"slices"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// linesEach is how many lines a function has in a table with TopOptions.Lines, unless Rows is 0.
const linesEach = 5

// linesOf returns the lines of each function of a mode, in the order of o.Sort; nil: no lines are wanted. In
// event modes Self has the events in the function itself.
func linesOf(r *profile.Recording, m profile.Mode, o *TopOptions) map[int32][]profile.LineTotal {
	if !o.Lines {
		return nil
	}
	all := r.LineTotals(m)
	for _, lines := range all {
		for i := range lines {
			if m.OfEvents() {
				lines[i].Self, lines[i].SelfVariance = lines[i].Direct, lines[i].DirectVariance
			}
		}
		sortLines(lines, o.Sort)
	}
	return all
}

func sortLines(lines []profile.LineTotal, by Order) {
	slices.SortStableFunc(lines, func(a, b profile.LineTotal) int {
		self := cmp.Compare(b.Self.All().Weight, a.Self.All().Weight)
		total := cmp.Compare(b.Total.All().Weight, a.Total.All().Weight)
		if by == Cum {
			return cmp.Or(total, self)
		}
		return cmp.Or(self, total)
	})
}

// sourceLines prints the lines of a function below the function.
func (p *printer) sourceLines(r *profile.Recording, c *amounts, lines []profile.LineTotal, o *TopOptions) {
	shown := lines
	if o.Rows > 0 && len(shown) > linesEach {
		shown = shown[:linesEach]
	}
	for i := range shown {
		l := &shown[i]
		p.numbersRow(c.numbers, c.rows(
			estimate{&l.Self, &l.SelfVariance}, estimate{&l.Total, &l.TotalVariance})...)
		p.sourceLine(&r.Files[l.File], l, c.used)
	}
	if left := len(lines) - len(shown); left > 0 {
		p.text(strings.Repeat(" ", c.used+lineIndent))
		p.more(left, [2]string{"line", "lines"}, "--top 0 shows all")
	}
}

const lineIndent = 2

// sourceLine prints a line's file and number, and the line's text if the recording has the text.
func (p *printer) sourceLine(f *profile.SourceFile, l *profile.LineTotal, used int) {
	where := display.Source(&snapshot.SourceLine{
		File: f.Title(), Line: int(l.Line), Approximate: l.Approximate,
	}, p.o.Full)
	p.text(strings.Repeat(" ", lineIndent))
	p.paint(dim, where)
	text, ok := f.Line(l.Line)
	if text = display.OneLine(strings.TrimSpace(text)); ok && text != "" {
		most := longestName
		if p.o.Width > 0 {
			most = p.o.Width - used
		}
		if most -= lineIndent + display.Width(where) + 2; !p.o.Full && most > 0 {
			text = display.Clip(text, max(most, shortestName))
		}
		p.text("  " + text)
	}
	p.end()
}

// jsonLineTop is a source line of a function.
type jsonLineTop struct {
	File        string      `json:"file"`
	Line        int32       `json:"line"`
	URL         string      `json:"url,omitempty"`
	Approximate bool        `json:"approximate,omitempty"`
	Text        string      `json:"text,omitempty"`
	Flat        jsonAmount  `json:"flat"`
	Direct      *jsonAmount `json:"direct,omitempty"`
	Cum         jsonAmount  `json:"cum"`
}

func jsonLinesOf(r *profile.Recording, t *profile.Totals, lines []profile.LineTotal) []jsonLineTop {
	out := make([]jsonLineTop, len(lines))
	for i := range lines {
		l := &lines[i]
		f := &r.Files[l.File]
		text, _ := f.Line(l.Line)
		out[i] = jsonLineTop{
			File: f.Title(), Line: l.Line, URL: f.URL, Approximate: l.Approximate, Text: text,
			Flat: jsonAmountOf(t, &l.Self, l.SelfVariance), Cum: jsonAmountOf(t, &l.Total, l.TotalVariance),
		}
		if t.Mode.OfEvents() {
			direct := jsonAmountOf(t, &l.Direct, l.DirectVariance)
			out[i].Direct = &direct
		}
	}
	return out
}
