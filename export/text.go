package export

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"clrsnap/profile"
)

// TextOptions change what Text shows. The zero value is the default view,
// without colours.
type TextOptions struct {
	Color bool
	Width int // columns to fit lines into, by leaving out modules and parameters; 0: no bound
	Group Grouping

	Managed bool // managed frames only
	Native  bool // every native frame on a line of its own, with or without a name
	Full    bool // nothing left out: no folded recursion, full native names, any width
	Short   bool // names without namespaces, no parameters, no modules
	Tier    bool // how the code of managed frames was compiled
	IP      bool // instruction pointers and offsets
}

// Text writes a snapshot for a person to read: threads with managed frames
// first, leaf first in each stack.
func Text(w io.Writer, s *profile.Snapshot, o TextOptions) error {
	p := &printer{w: bufio.NewWriterSize(w, 64<<10), o: o}
	p.process(s)
	threads := make([]*profile.Thread, len(s.Threads))
	for i := range s.Threads {
		threads[i] = &s.Threads[i]
	}
	slices.SortStableFunc(threads, func(a, b *profile.Thread) int { return cmp.Compare(rank(a), rank(b)) })
	var hidden []*profile.Thread
	if o.Managed {
		threads, hidden = splitManaged(threads)
	}
	for _, g := range p.groups(threads) {
		p.group(g)
	}
	if len(hidden) > 0 {
		p.list(strconv.Itoa(len(hidden))+plural(len(hidden), " thread", " threads")+" without managed frames:", hidden)
		p.end()
	}
	p.summary(s)
	return p.w.Flush()
}

// rank puts the thread first that crashed, then those that run the program's own code.
func rank(t *profile.Thread) int {
	switch {
	case t.Crashed:
		return -1
	case !t.Complete || hasManaged(t):
		return 0
	case t.ThreadID != 0:
		return 1
	}
	return 2
}

func hasManaged(t *profile.Thread) bool {
	return slices.ContainsFunc(t.Frames, func(f profile.Frame) bool { return f.Kind == profile.Managed })
}

// splitManaged sets threads aside that have nothing to show without native
// frames. What went wrong is always shown.
func splitManaged(threads []*profile.Thread) (show, hide []*profile.Thread) {
	for _, t := range threads {
		if !t.Complete || t.Crashed && !hasManaged(t) {
			show = append(show, t)
			continue
		}
		c := *t
		c.Frames = nil
		for i := range t.Frames {
			if t.Frames[i].Kind == profile.Managed {
				c.Frames = append(c.Frames, t.Frames[i])
			}
		}
		if c.Frames == nil {
			hide = append(hide, t)
		} else {
			show = append(show, &c)
		}
	}
	return show, hide
}

// groups folds equal stacks as the options say. Those that are not folded stand
// one after the other.
func (p *printer) groups(threads []*profile.Thread) []Group {
	mode := p.o.Group
	if mode == GroupAuto && p.o.IP {
		mode = GroupNever // the addresses of one thread are not those of the others
	}
	var out []Group
	if mode == GroupNever {
		for _, t := range threads {
			out = append(out, Group{t})
		}
		return out
	}
	for _, g := range GroupThreads(threads) {
		if mode == GroupAlways || len(g) >= autoGroup {
			out = append(out, g)
			continue
		}
		for _, t := range g {
			out = append(out, Group{t})
		}
	}
	if mode == GroupAlways {
		slices.SortStableFunc(out, func(a, b Group) int { return cmp.Compare(len(b), len(a)) })
	}
	return out
}

// printer writes text. Errors stay in w until its Flush.
type printer struct {
	w *bufio.Writer
	o TextOptions
}

// process prints what the snapshot is of.
func (p *printer) process(s *profile.Snapshot) {
	p.paint(bold, "Process "+strconv.Itoa(s.Process.PID))
	if r := &s.Process.Runtime; *r != (profile.Runtime{}) {
		p.text(" · " + RuntimeText(r))
	}
	if s.Process.Core != nil {
		p.property(plain, coreText(s.Process.Core))
	}
	p.paint(dim, " · "+s.CapturedAt.Format("2006-01-02 15:04:05.000 -07:00"))
	p.end()
	if s.Process.Command != "" {
		p.paint(dim, Clean(s.Process.Command))
		p.end()
	}
	if c := s.Process.Core; c != nil && c.Signal != nil {
		p.paint(red, "Ended by "+Clean(c.Signal.String()))
		p.end()
	}
	p.end()
}

// RuntimeText is a runtime for people: ".NET 10.0.9 (shared)".
func RuntimeText(r *profile.Runtime) string {
	s := ".NET"
	if r.Version != "" {
		s += " " + Clean(r.Version)
	}
	if r.Shape != "" {
		s += " (" + Clean(r.Shape) + ")"
	}
	return s
}

// coreText says what a core dump is: "core dump by createdump".
func coreText(c *profile.Core) string { return "core dump by " + c.Writer }

// summary closes the text.
func (p *printer) summary(s *profile.Snapshot) {
	p.paint(dim, Summary(s))
	p.end()
	if s.Process.Core == nil {
		return
	}
	for _, m := range s.Process.Core.Missing {
		p.paint(yellow, "missing: "+Clean(m))
		p.end()
	}
}

// Summary says in one line what a snapshot cost the process, and what is
// missing in it.
func Summary(s *profile.Snapshot) string {
	var stopped, incomplete, missing int
	for i := range s.Threads {
		t := &s.Threads[i]
		if t.Pause > 0 {
			stopped++
		}
		switch {
		case len(t.Frames) == 0:
			missing++
		case !t.Complete:
			incomplete++
		}
	}
	out := fmt.Sprintf("%d %s", len(s.Threads), plural(len(s.Threads), "thread", "threads"))
	if s.Process.Core == nil {
		out += fmt.Sprintf(", %d stopped", stopped)
	}
	if p := s.Pauses(); p.Count > 0 {
		out += fmt.Sprintf(" (pauses: p50 %s, p99 %s, max %s)", Pause(p.P50), Pause(p.P99), Pause(p.Max))
	}
	if s.Released > 0 {
		out += fmt.Sprintf(", %d %s ended by the watchdog", s.Released, plural(s.Released, "stop", "stops"))
	}
	if incomplete > 0 {
		out += fmt.Sprintf(", %d incomplete", incomplete)
	}
	if missing > 0 {
		out += fmt.Sprintf(", %d without a stack", missing)
	}
	if s.Unlisted > 0 {
		out += fmt.Sprintf(", %d more that had only just started", s.Unlisted)
	}
	return out
}

// Pause is a short time for people.
func Pause(d time.Duration) string {
	switch us := float64(d.Nanoseconds()) / 1e3; {
	case us < 10:
		return strconv.FormatFloat(us, 'f', 1, 64) + " µs"
	case us < 10000:
		return strconv.FormatFloat(us, 'f', 0, 64) + " µs"
	default:
		return strconv.FormatFloat(us/1e3, 'f', 0, 64) + " ms"
	}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// style is the parameters of an ANSI "select graphic rendition" sequence.
type style string

const (
	plain    style = ""
	bold     style = "1"
	dim      style = "2"
	red      style = "1;31"
	green    style = "32"
	yellow   style = "33"
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

func quoted(s string) string { return `"` + strings.ReplaceAll(Clean(s), `"`, `\"`) + `"` }
