package report

import (
	"fmt"
	"io"

	"clrsnap/internal/display"
)

// Verdict says what a check means for stacks and recordings.
type Verdict uint8

// The verdicts.
const (
	Fine     Verdict = iota
	Degraded         // something will be missing, or cost more
	Blocking         // no stacks can be taken
)

// Check is the outcome of one check.
type Check struct {
	Name    string // the checked thing
	Verdict Verdict
	Detail  string // the finding
	Remedy  string // advice; empty: nothing to do
}

// Section has the checks of one thing.
type Section struct {
	Title  string // for example "process 4242"
	Checks []Check
}

// verdictMarks are the words for verdicts, of equal width, and their colours.
var verdictMarks = [...]cell{
	Fine: {"ok     ", green}, Degraded: {"warning", yellow}, Blocking: {"NOT OK ", red},
}

// Checks writes checks for people, one a line, and below each check the remedy. Of the
// options, Width has no effect.
func Checks(w io.Writer, sections []Section, o TableOptions) error {
	p := newTable(w, o.Color, 0)
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
			mark := verdictMarks[c.Verdict]
			p.paint(mark.style, mark.text)
			p.text(fmt.Sprintf("  %-*s  %s\n", names, c.Name, display.OneLine(c.Detail)))
			if c.Remedy != "" {
				p.text(fmt.Sprintf("%*s  → %s\n", len(mark.text)+2+names, "", display.OneLine(c.Remedy)))
			}
		}
	}
	return p.w.Flush()
}
