package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// TextOptions are the options of Text. The zero value is the default view, without
// colours.
type TextOptions struct {
	Terminal
	Group Grouping // when equal stacks are shown once

	Managed  bool // only managed frames
	Native   bool // each native frame on a line of its own, with or without a name
	Plumbing bool // each framework frame: without Plumbing, runs of framework frames share a line
	Full     bool // leave nothing out: nothing folded, full native names, any width, ThreadIDs, GC modes
	Short    bool // names without namespaces, parameters and modules
	Tier     bool // with the tier of managed code
	IP       bool // with instruction pointers and offsets
	ByLine   bool // different source lines make different stacks; without ByLine, these lines are left out

	// Link returns the URL that a terminal opens for a source line; "": no link. nil: the terminal knows no
	// links.
	Link func(*snapshot.SourceLine) string
}

// Text writes a snapshot for people. Threads with managed frames come first, then idle threads, then native
// threads. Stacks are written leaf first.
func Text(w io.Writer, s *snapshot.Snapshot, o TextOptions) error {
	p := &printer{w: bufio.NewWriterSize(w, 64<<10), o: o}
	p.process(s)
	threads := make([]*snapshot.Thread, len(s.Threads))
	for i := range s.Threads {
		threads[i] = &s.Threads[i]
	}
	slices.SortStableFunc(threads, func(a, b *snapshot.Thread) int { return cmp.Compare(rank(a), rank(b)) })
	var hidden []*snapshot.Thread
	if o.Managed {
		threads, hidden = splitManaged(threads)
	}
	for _, g := range p.groups(threads) {
		p.group(g)
	}
	if len(hidden) > 0 {
		what := display.Plural(len(hidden), " thread", " threads")
		p.list(strconv.Itoa(len(hidden))+what+" without managed frames:", hidden)
		p.end()
	}
	p.summary(s)
	return p.w.Flush()
}

// rank puts the crashed thread first, then threads that run the program's own code.
func rank(t *snapshot.Thread) int {
	switch {
	case t.Crashed:
		return -1
	case !t.Complete:
		return 0
	case t.Idle() != "" && t.ThreadID != 0:
		return 1
	case hasManaged(t):
		return 0
	case t.ThreadID != 0:
		return 1
	}
	return 2
}

func hasManaged(t *snapshot.Thread) bool {
	for i := range t.Depth() {
		if t.Frame(i).Kind == snapshot.Managed {
			return true
		}
	}
	return false
}

// splitManaged removes native frames from stacks. Threads with only native frames go to hide, unless their stacks
// are incomplete or the thread crashed.
func splitManaged(threads []*snapshot.Thread) (show, hide []*snapshot.Thread) {
	var table snapshot.FrameTable
	var kept []snapshot.Frame
	for _, t := range threads {
		if !t.Complete || t.Crashed && !hasManaged(t) {
			show = append(show, t)
			continue
		}
		c := *t
		kept = kept[:0]
		for i := range t.Depth() {
			if f := t.Frame(i); f.Kind == snapshot.Managed || f.Kind == snapshot.Async {
				kept = append(kept, *f)
			}
		}
		if len(kept) == 0 {
			hide = append(hide, t)
			continue
		}
		c.Frames, c.Packed = nil, table.Pack(kept)
		show = append(show, &c)
	}
	return show, hide
}

// groups groups threads with equal stacks as the options say. An ungrouped thread has a group of its own.
func (p *printer) groups(threads []*snapshot.Thread) []Group {
	grouping := p.o.Group
	if grouping == GroupAuto && p.o.IP {
		grouping = GroupNever // the addresses in equal stacks differ
	}
	var out []Group
	if grouping == GroupNever {
		for _, t := range threads {
			out = append(out, Group{t})
		}
		return out
	}
	for _, g := range groupThreads(threads, p.folds, p.o.ByLine) {
		if grouping == GroupAlways || len(g) >= autoGroup {
			out = append(out, g)
			continue
		}
		for _, t := range g {
			out = append(out, Group{t})
		}
	}
	if grouping == GroupAlways {
		slices.SortStableFunc(out, func(a, b Group) int { return cmp.Compare(len(b), len(a)) })
	}
	return out
}

// printer writes text. w.Flush returns the errors.
type printer struct {
	w       *bufio.Writer
	o       TextOptions
	longest int // how many columns a name may take if Width is 0; 0: names are never cut

	// Memory for the stacks of a group's first thread, and of another thread: for unpacked frames, and lines.
	frames, others     []snapshot.Frame
	memory, otherLines []line
}

// process prints the process, or the core dump, of a snapshot.
func (p *printer) process(s *snapshot.Snapshot) {
	p.paint(bold, "Process "+strconv.Itoa(s.Process.PID))
	if r := &s.Process.Runtime; *r != (snapshot.Runtime{}) {
		p.text(" · " + RuntimeText(r))
	}
	if s.Process.Core != nil {
		p.property(plain, coreText(s.Process.Core))
	}
	p.paint(dim, " · "+s.CapturedAt.Format("2006-01-02 15:04:05.000 -07:00"))
	p.end()
	if s.Process.Command != "" {
		p.paint(dim, display.Clean(s.Process.Command))
		p.end()
	}
	if c := s.Process.Core; c != nil && c.Signal != nil {
		p.paint(red, "Ended by "+display.Clean(c.Signal.String()))
		p.end()
	}
	p.end()
}

// RuntimeText returns a runtime as text for people: ".NET 10.0.9 (shared)".
func RuntimeText(r *snapshot.Runtime) string {
	s := ".NET"
	if r.Version != "" {
		s += " " + display.Clean(r.Version)
	}
	if r.Shape != "" {
		s += " (" + display.Clean(r.Shape) + ")"
	}
	return s
}

// coreText names the writer of a core dump: "core dump by createdump".
func coreText(c *snapshot.Core) string { return "core dump by " + c.Writer }

// summary prints the last lines of the text.
func (p *printer) summary(s *snapshot.Snapshot) {
	p.paint(dim, Summary(s))
	p.end()
	p.missing(s.Process.Core)
}

// missing prints what a core dump lacks; nil: no core dump.
func (p *printer) missing(c *snapshot.Core) {
	if c == nil {
		return
	}
	for _, m := range c.Missing {
		p.paint(yellow, "missing: "+display.Clean(m))
		p.end()
	}
}

// Summary returns one line: how many threads were stopped and for how long, and what the snapshot lacks.
func Summary(s *snapshot.Snapshot) string {
	var stopped, incomplete, missing int
	for i := range s.Threads {
		t := &s.Threads[i]
		if t.Pause > 0 {
			stopped++
		}
		switch {
		case t.Depth() == 0:
			missing++
		case !t.Complete:
			incomplete++
		}
	}
	out := fmt.Sprintf("%d %s", len(s.Threads), display.Plural(len(s.Threads), "thread", "threads"))
	if s.Process.Core == nil {
		out += fmt.Sprintf(", %d stopped", stopped)
	}
	if p := s.Pauses(); p.Count > 0 {
		out += fmt.Sprintf(" (pauses: p50 %s, p99 %s, max %s)", PauseText(p.P50), PauseText(p.P99), PauseText(p.Max))
	}
	if s.Released > 0 {
		out += fmt.Sprintf(", %d %s ended by the watchdog", s.Released, display.Plural(s.Released, "stop", "stops"))
	}
	if incomplete > 0 {
		out += fmt.Sprintf(", %d incomplete", incomplete)
	}
	if missing > 0 {
		out += fmt.Sprintf(", %d without a stack", missing)
	}
	if s.Unlisted > 0 {
		out += fmt.Sprintf(", %d more that had just been started", s.Unlisted)
	}
	return out + partialHolds(s)
}

// partialHolds says that threads may hold further locks.
func partialHolds(s *snapshot.Snapshot) string {
	if !s.HoldsPartial {
		return ""
	}
	return "; threads may hold more locks than are shown: not all monitors could be looked through"
}

// PauseText returns a short time as text for people: "14 µs".
func PauseText(d time.Duration) string {
	switch us := float64(d.Nanoseconds()) / 1e3; {
	case us < 10:
		return strconv.FormatFloat(us, 'f', 1, 64) + " µs"
	case us < 10000:
		return strconv.FormatFloat(us, 'f', 0, 64) + " µs"
	default:
		return strconv.FormatFloat(us/1e3, 'f', 0, 64) + " ms"
	}
}

// style has the parameters of an ANSI "select graphic rendition" sequence.
type style string

const (
	plain    style = ""
	bold     style = "1"
	dim      style = "2"
	red      style = "1;31"
	darkRed  style = "31"
	green    style = "32"
	yellow   style = "33"
	blue     style = "1;34" // bold: plain blue is too dark on black
	magenta  style = "35"
	cyan     style = "36"
	boldCyan style = "1;36"
)

func (p *printer) text(s string) { p.w.WriteString(s) }
func (p *printer) end()          { p.w.WriteByte('\n') }

func (p *printer) paint(st style, s string) {
	if !p.o.Color || st == plain || s == "" {
		p.w.WriteString(s)
		return
	}
	p.w.WriteString("\x1b[" + string(st) + "m")
	p.w.WriteString(s)
	p.w.WriteString("\x1b[0m")
}

// place prints a source line, dim, as a link if there is a URL.
func (p *printer) place(l *snapshot.SourceLine, text string) {
	to := ""
	if p.o.Link != nil {
		to = p.o.Link(l)
	}
	// A URL has no other characters (RFC 3986). Other characters could end the sequence.
	if strings.ContainsFunc(to, func(r rune) bool { return r <= ' ' || r >= 0x7f }) || len(to) > maxLink {
		to = ""
	}
	if to == "" {
		p.paint(dim, text)
		return
	}
	const link, end = "\x1b]8;;", "\x1b\\"
	p.text(link + to + end)
	p.paint(dim, text)
	p.text(link + end)
}

// maxLink is the longest URL in bytes: terminals ignore longer URLs.
const maxLink = 2048

func quoted(s string) string { return `"` + strings.ReplaceAll(display.Clean(s), `"`, `\"`) + `"` }
