package export

import (
	"fmt"
	"strconv"
	"strings"

	"clrsnap/profile"
)

// line is one line of a stack.
type line struct {
	frame    *profile.Frame
	nameless int    // how many frames without names the line stands for; 0: one with a name
	modules  string // of frames without names
}

// equal reports whether two lines look the same.
func (l *line) equal(o *line) bool {
	a, b := l.frame, o.frame
	return l.nameless == o.nameless && l.modules == o.modules && a.Kind == b.Kind && a.Module == b.Module &&
		a.Display == b.Display && a.Signature == b.Signature && (a.Display != "" || a.IP == b.IP)
}

// stack prints the frames of a thread, and why some are missing.
func (p *printer) stack(t *profile.Thread) {
	lines := p.lines(t.Frames)
	for i := 0; i < len(lines); {
		r := repeat{1, 1}
		if !p.o.Full && !p.o.IP {
			r = repeatAt(lines, i)
		}
		for k := range r.period {
			p.line(&lines[i+k])
		}
		if r.times > 1 {
			p.repeated(r)
		}
		i += r.period * r.times
	}
	switch {
	case t.Complete && len(t.Frames) == 0:
		p.paint(dim, "    (no frames)")
		p.end()
	case !t.Complete && len(t.Frames) == 0:
		p.trouble("no stack", t.Error)
	case !t.Complete:
		p.trouble("incomplete", t.Error)
	}
}

func (p *printer) repeated(r repeat) {
	what := "the frame above"
	if r.period > 1 {
		what = "the " + strconv.Itoa(r.period) + " frames above"
	}
	p.paint(yellow, fmt.Sprintf("    ↻ %s %d times more", what, r.times-1))
	p.end()
}

func (p *printer) trouble(what, why string) {
	if why == "" {
		why = "the walk did not reach the base of the stack"
	}
	p.paint(red, "    ✗ "+what+": "+Clean(why))
	p.end()
}

// lines returns the lines for some frames. Consecutive native frames without names share
// a line.
func (p *printer) lines(frames []profile.Frame) []line {
	out := make([]line, 0, len(frames))
	for i := range frames {
		f := &frames[i]
		if p.o.Managed && f.Kind != profile.Managed {
			continue
		}
		if f.Display != "" || p.o.Native || p.o.Full || p.o.IP {
			out = append(out, line{frame: f})
			continue
		}
		if n := len(out); n > 0 && out[n-1].nameless > 0 {
			l := &out[n-1]
			l.nameless++
			if m := moduleOf(f); m != l.modules && !strings.HasSuffix(l.modules, ", "+m) {
				l.modules += ", " + m
			}
			continue
		}
		out = append(out, line{frame: f, nameless: 1, modules: moduleOf(f)})
	}
	return out
}

// line prints one line of a stack.
func (p *printer) line(l *line) {
	f := l.frame
	p.text("    ")
	used := 4
	if p.o.IP {
		s := fmt.Sprintf("%#016x  ", f.IP)
		p.paint(dim, s)
		used += len(s)
	}
	switch {
	case l.nameless > 1:
		p.paint(dim, fmt.Sprintf("%s (%d frames without symbols)", l.modules, l.nameless))
	case f.Display == "":
		p.paint(dim, moduleOf(f)+"!+"+hex(f.Offset))
	case f.Kind == profile.Native:
		p.native(f, used)
	default:
		p.managed(f, used)
	}
	if p.o.Tier && f.Tier != "" {
		p.paint(green, "  "+Clean(f.Tier))
	}
	p.end()
}

func moduleOf(f *profile.Frame) string {
	if f.Module == "" {
		return "[unknown code]"
	}
	return Clean(f.Module)
}

func (p *printer) offset(f *profile.Frame) string {
	if !p.o.IP {
		return ""
	}
	return "+" + hex(f.Offset)
}

func (p *printer) native(f *profile.Frame, used int) {
	module := ""
	if f.Module != "" {
		module = Clean(f.Module) + "!"
	}
	name := f.Display
	if !p.o.Full && f.Short != "" {
		name = f.Short
	}
	p.paint(dim, module+Clean(name)+p.offset(f))
}

func (p *printer) managed(f *profile.Frame, used int) {
	st := cyan
	if !profile.Framework(f.Module) {
		st = boldCyan
	}
	p.named(f, used, st)
}

// named prints a managed frame. If it does not fit, it leaves out the module, then the
// parameters, then the namespaces. It never cuts a name.
func (p *printer) named(f *profile.Frame, used int, st style) {
	name, args, module := Clean(f.Display), Clean(f.Signature), ""
	short := name
	if f.Short != "" {
		short = Clean(f.Short)
	}
	if f.Module != "" {
		module = "  " + Clean(f.Module)
	}
	if p.o.Short {
		name, args, module = short, "", ""
	}
	offset := p.offset(f)
	if most := p.room(f, used+width(offset)); most > 0 && !p.o.Full {
		fits := func() bool { return width(name)+width(args)+width(module) <= most }
		if !fits() {
			module = ""
		}
		if !fits() && len(args) > len("()") {
			args = "(…)"
		}
		if !fits() {
			name = short
		}
	}
	p.paint(st, name)
	p.text(args)
	p.text(offset)
	p.paint(dim, module)
}

// room returns how many terminal columns a frame may take; 0: unlimited.
func (p *printer) room(f *profile.Frame, used int) int {
	if p.o.Width <= 0 {
		return 0
	}
	if p.o.Tier && f.Tier != "" {
		used += 2 + width(f.Tier)
	}
	return max(1, p.o.Width-used)
}
