package report

import (
	"fmt"
	"strconv"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// line is one line of a stack.
type line struct {
	frame    *snapshot.Frame
	nameless int    // how many frames without names the line stands for; 0: a frame with a name
	modules  string // of frames without names
	plumbing string // the parts of .NET in a run of framework frames; "": no run
	run      [2]int // number of frames in the run: in a group, the least and the most
	apart    bool   // the threads of a group are at different source lines
	mixed    bool   // the method was inlined in only some of a group's threads
}

// equal reports whether two lines look the same.
func (l *line) equal(o *line) bool {
	a, b := l.frame, o.frame
	if l.plumbing != "" || o.plumbing != "" {
		return l.plumbing == o.plumbing && l.run == o.run
	}
	return l.nameless == o.nameless && l.modules == o.modules && a.Kind == b.Kind && a.Module == b.Module &&
		a.Display == b.Display && a.Signature == b.Signature && a.Inlined == b.Inlined && a.Waiter == b.Waiter &&
		(a.Display != "" || a.IP == b.IP)
}

// stack prints the frames of threads with one stack, and why some frames are missing.
func (p *printer) stack(g Group) {
	t := g[0]
	p.memory = p.lines(p.memory[:0], t.Stack(&p.frames))
	lines := p.memory
	p.join(lines, g[1:])
	for i := 0; i < len(lines); {
		r := repeat{1, 1}
		if !p.o.Full && !p.o.IP {
			r = repeatAt(lines, i, (*line).equal)
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
	case t.Complete && t.Depth() == 0:
		p.paint(dim, "    (no frames)")
		p.end()
	case !t.Complete && t.Depth() == 0:
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
	p.paint(red, "    ✗ "+what+": "+display.Clean(why))
	p.end()
}

// folds returns the runs of framework frames that share a line each.
func (p *printer) folds(frames []snapshot.Frame) []snapshot.Fold {
	if p.o.Plumbing || p.o.Full || p.o.IP {
		return nil
	}
	return snapshot.Folds(frames)
}

// join makes lines stand for the equal stacks of other threads, too. Lines of framework frames get the
// least and the most frames of these stacks, and join removes source lines that differ.
func (p *printer) join(lines []line, others []*snapshot.Thread) {
	for _, t := range others {
		p.otherLines = p.lines(p.otherLines[:0], t.Stack(&p.others))
		for i, o := range p.otherLines {
			if i == len(lines) {
				break
			}
			l := &lines[i]
			l.run = [2]int{min(l.run[0], o.run[0]), max(l.run[1], o.run[1])}
			l.apart = l.apart || !l.frame.Line.Same(o.frame.Line)
			l.mixed = l.mixed || l.frame.Inlined != o.frame.Inlined
		}
	}
}

// lines returns the lines for some frames. Runs of framework frames, and consecutive native frames
// without names, share a line. lines appends to out, which is empty.
func (p *printer) lines(out []line, frames []snapshot.Frame) []line {
	folds := p.folds(frames)
	for i := 0; i < len(frames); i++ {
		f := &frames[i]
		if len(folds) > 0 && folds[0].First == i {
			n := folds[0].Frames
			out = append(out, line{frame: f, plumbing: folds[0].Parts, run: [2]int{n, n}})
			i += n - 1
			folds = folds[1:]
			continue
		}
		if p.o.Managed && f.Kind != snapshot.Managed && f.Kind != snapshot.Async {
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
	if l.apart || l.mixed {
		without := *f
		if l.apart {
			without.Line = nil
		}
		without.Inlined = f.Inlined && !l.mixed
		f = &without
	}
	p.text("    ")
	if l.plumbing != "" {
		p.paint(dim, display.Plumbing(l.plumbing, l.run[0], l.run[1]))
		p.end()
		return
	}
	used := 4
	if p.o.IP {
		s := fmt.Sprintf("%#016x  ", f.IP)
		if f.Kind == snapshot.Async {
			s = strings.Repeat(" ", len(s))
		}
		p.paint(dim, s)
		used += len(s)
	}
	switch {
	case l.nameless > 1:
		p.paint(dim, fmt.Sprintf("%s (%d frames without symbols)", l.modules, l.nameless))
	case f.Display == "":
		p.nameless(f)
	case f.Kind == snapshot.Native:
		p.native(f, used)
	case f.Waiter != nil:
		p.paint(dim, waitedFor)
		p.text(threadText(f.Waiter))
	case f.Kind == snapshot.Async:
		p.paint(dim, awaitedBy)
		p.managed(f, used+len(awaitedBy))
	default:
		p.managed(f, used)
	}
	if p.o.Tier && f.Tier != "" {
		p.paint(green, "  "+display.Clean(f.Tier))
	}
	p.end()
}

// nameless prints native code without a symbol. The question mark says that the name belongs to a
// neighbour.
func (p *printer) nameless(f *snapshot.Frame) {
	if f.Nearest == "" || p.o.IP {
		p.paint(dim, moduleOf(f)+"!+"+hex(f.Offset))
		return
	}
	p.paint(dim, moduleOf(f)+"!"+display.Clean(f.Nearest)+"?")
}

func moduleOf(f *snapshot.Frame) string {
	if f.Module == "" {
		return "[unknown code]"
	}
	return display.Clean(f.Module)
}

func (p *printer) offset(f *snapshot.Frame) string {
	if !p.o.IP || f.Inlined || f.Kind == snapshot.Async {
		return ""
	}
	return "+" + hex(f.Offset)
}

func (p *printer) native(f *snapshot.Frame, used int) {
	module := ""
	if f.Module != "" {
		module = display.Clean(f.Module) + "!"
	}
	name := f.Display
	if !p.o.Full && f.Short != "" {
		name = f.Short
	}
	name, _ = p.shortened(display.Clean(name), "", used+display.Width(module))
	p.paint(dim, module+name+p.offset(f))
	if f.Line != nil {
		p.text(gap)
		p.place(f.Line, display.Source(f.Line, p.o.Full))
	}
}

func (p *printer) managed(f *snapshot.Frame, used int) {
	p.named(f, used, originStyle(f.Origin()))
}

func originStyle(o snapshot.Origin) style {
	switch o {
	case snapshot.OfUser:
		return boldCyan
	case snapshot.OfPackage:
		return blue
	}
	return cyan
}

// named prints a managed frame. If the frame is too long, named leaves out the module, then the
// parameters, then the namespaces, then the source file's folder. Only tables cut a name: see shortened.
func (p *printer) named(f *snapshot.Frame, used int, st style) {
	name, args, module := display.Clean(f.Display), display.Clean(f.Signature), ""
	short := name
	if f.Short != "" {
		short = display.Clean(f.Short)
	}
	if f.Module != "" {
		module = "  " + display.Clean(f.Module)
	}
	name, mark := display.CutMark(name)
	short, _ = display.CutMark(short)
	if p.o.Short {
		name, args, module = short, "", ""
	}
	offset, where := p.offset(f), ""
	if f.Inlined {
		offset += inlined
	}
	taken := used + display.Width(offset)
	if f.Line != nil {
		taken += len(gap)
	}
	if f.Line != nil {
		where = display.Source(f.Line, p.o.Full)
	}
	if most := p.room(f, taken); most > 0 && !p.o.Full {
		fits := func() bool {
			return display.Width(name)+display.Width(args)+display.Width(mark)+display.Width(where)+
				display.Width(module) <= most
		}
		if !fits() {
			module = ""
		}
		if !fits() && len(args) > len("()") {
			args = "(…)"
		}
		if !fits() {
			name = short
		}
		if !fits() && f.Line != nil {
			where = display.SourceFile(f.Line)
		}
	}
	name, args = p.shortened(name, args, used)
	p.paint(st, name)
	p.text(args + mark)
	if f.Inlined {
		p.paint(dim, offset)
	} else {
		p.text(offset)
	}
	if where != "" {
		p.text(gap)
		p.place(f.Line, where)
	}
	p.paint(dim, module)
}

// gap lies between a name and the following text.
const gap = "  "

// awaitedBy marks methods that await the method above.
const awaitedBy = "awaited by "

// waitedFor marks the thread that waits for the task of the method above.
const waitedFor = "waited for by "

// inlined marks methods without a frame of their own.
const inlined = " (inlined)"

// In tables, the columns that a name may take with its parameters, and the columns that a name always
// gets.
const (
	longestName  = 100
	shortestName = 24
)

// shortened cuts the middle of text that is too long for a table: the parameters first, then also the
// name.
func (p *printer) shortened(name, args string, used int) (string, string) {
	if p.longest == 0 {
		return name, args
	}
	most := p.longest
	if p.o.Width > 0 {
		most = max(p.o.Width-used, shortestName)
	}
	least := min(display.Width("(…)"), display.Width(args))
	name = display.Elide(name, most-least)
	return name, display.Elide(args, max(most-display.Width(name), least))
}

// room returns how many terminal columns a frame may take; 0: unlimited.
func (p *printer) room(f *snapshot.Frame, used int) int {
	if p.o.Width <= 0 {
		return 0
	}
	if p.o.Tier && f.Tier != "" {
		used += 2 + display.Width(f.Tier)
	}
	return max(1, p.o.Width-used)
}
