package report

import (
	"fmt"
	"io"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// Section has the checks of one thing.
type Section struct {
	Title  string // for example "process 4242"
	Checks []snapshot.Check
}

// outcomeMarks are the words for outcomes, of equal width, and their colours.
var outcomeMarks = [...]cell{
	snapshot.Fine: {"ok     ", green}, snapshot.Degraded: {"warning", yellow}, snapshot.Blocking: {"NOT OK ", red},
}

// Checks writes checks for people, one a line, and below each check the remedy. Of the
// options, Width has no effect.
func Checks(w io.Writer, sections []Section, o Terminal) error {
	p := newTable(w, Terminal{Color: o.Color})
	names := 0
	for i := range sections {
		for _, c := range sections[i].Checks {
			names = max(names, len(c.Name))
		}
	}
	for i := range sections {
		if i > 0 {
			p.end()
		}
		p.text(display.Clean(sections[i].Title) + ":\n")
		for _, c := range sections[i].Checks {
			mark := outcomeMarks[c.Outcome]
			p.paint(mark.style, mark.text)
			p.text(fmt.Sprintf("  %-*s  %s\n", names, c.Name, display.OneLine(c.Detail)))
			if c.Remedy != "" {
				p.text(fmt.Sprintf("%*s  → %s\n", len(mark.text)+2+names, "", display.OneLine(c.Remedy)))
			}
		}
	}
	return p.w.Flush()
}
