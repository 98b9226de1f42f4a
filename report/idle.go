package report

import (
	"strings"

	"clrsnap/internal/display"
	"clrsnap/profile"
)

// worked returns the recording for people's tables: without the samples of idle threads, with names for
// the runtime's work on its own behalf, and with runs of framework frames as one function.
func (o *TopOptions) worked(r *profile.Recording) *profile.Recording {
	work := r.Select(profile.Selection{Native: true, Working: !o.Idle, Roles: true})
	if o.Plumbing || len(work.Nodes) > maxFolded || len(work.Samples) > maxFolded {
		return work
	}
	return work.FoldFramework()
}

// maxFolded bounds the recordings whose framework frames are folded, in nodes of stacks and in samples:
// folding takes as much memory again.
const maxFolded = 1 << 20

// leftOut prints what a mode's tables leave out, and, if there is a rest, that the rest is the tables'
// 100 %.
func (p *printer) leftOut(r *profile.Recording, m profile.Mode, o *TopOptions, of string, rest bool) {
	if text := display.Idle(r, m); !o.Idle && text != "" {
		text = "Left out" + of + ": " + text + " (--idle shows them)."
		if rest {
			text += " 100 % is the rest."
		}
		p.wrapped(dim, text)
	}
}

// wrapped prints a text on as many lines as necessary.
func (p *printer) wrapped(st style, text string) {
	const indent = "  "
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		if p.o.Width > 0 && line != "" && display.Width(line)+1+display.Width(word) > p.o.Width {
			p.paint(st, line)
			p.end()
			line = indent + word
			continue
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	p.paint(st, line)
	p.end()
}
