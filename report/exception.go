package report

import (
	"fmt"
	"strconv"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// exceptions prints the exceptions of a thread, or how the thread ended the process.
func (p *printer) exceptions(t *snapshot.Thread) {
	traces := false
	show := func(intro string, e *snapshot.ExceptionInfo) {
		p.exception("  ", "    ", intro, e)
		traces = traces || len(e.Frames) > 0
	}
	if t.FailFast != nil {
		p.failFast(t.FailFast)
		if e := t.FailFast.Exception; e != nil {
			show("with ", e)
		}
	}
	if t.Exception != nil && (t.FailFast == nil || t.FailFast.Exception != t.Exception) {
		intro := ""
		switch {
		case t.FailFast != nil:
			intro = "last exception: "
		case !t.Crashed:
			intro = "exception: "
		}
		show(intro, t.Exception)
	}
	for _, e := range t.Handling {
		show("thrown while it handled ", e)
	}
	if traces { // without traces the next lines are clear
		p.paint(dim, "  the thread's stack:")
		p.end()
	}
}

// failFast prints how a program ended itself.
func (p *printer) failFast(f *snapshot.FailFast) {
	const what = "Environment.FailFast"
	switch {
	case f.Unknown:
		p.paint(red, "  "+what+" (its message was not found)")
		p.end()
	case f.Message == "":
		p.paint(red, "  "+what)
		p.end()
	default:
		p.message("  ", "    ", what+": ", f.Message, false)
	}
}

// exception prints an exception, indented by indent, its own stack trace, and its inner exceptions, indented by
// chain. The exceptions of an AggregateException are indented further.
func (p *printer) exception(indent, chain, intro string, e *snapshot.ExceptionInfo) {
	switch name := intro + display.Clean(e.Type); {
	case e.NoMessage:
		p.paint(red, indent+name+" (the message cannot be read)")
		p.end()
	case e.Message == "" && !e.CutMessage:
		p.paint(red, indent+name)
		p.end()
	default:
		p.message(indent, chain, name+": ", e.Message, e.CutMessage)
	}
	if e.Uncertain != "" {
		p.remark(chain, "uncertain: "+e.Uncertain)
	}
	p.remote(chain, e.Remote)
	p.trace(chain, e)
	switch {
	case len(e.Others) > 0:
		p.aggregated(chain, e)
	case e.Inner != nil:
		p.exception(chain, chain, "caused by ", e.Inner)
	}
	if e.LeftOut {
		p.remark(chain, "further inner exceptions are left out")
	}
}

// aggregated prints the exceptions of an AggregateException.
func (p *printer) aggregated(chain string, e *snapshot.ExceptionInfo) {
	n := 0
	for _, o := range append([]*snapshot.ExceptionInfo{e.Inner}, e.Others...) {
		if o != nil {
			n++
			p.exception(chain+"  ", chain+"    ", fmt.Sprintf("caused by #%d ", n), o)
		}
	}
}

// remark prints something about an exception.
func (p *printer) remark(chain, what string) {
	p.paint(yellow, chain+"  ("+display.Clean(what)+")")
	p.end()
}

// Bounds of a text without TextOptions.Full.
const (
	textLines = 20
	textChars = 2000
)

// message prints a text of the program after some words. Further lines of the text have a mark, so that nobody
// takes them for lines of clrsnap.
func (p *printer) message(indent, chain, intro, text string, cut bool) {
	shown := text
	if r := []rune(text); !p.o.Full && len(r) > textChars {
		shown = string(r[:textChars])
	}
	lines := splitLines(shown)
	if !p.o.Full && len(lines) > textLines {
		lines = lines[:textLines]
		shown = ""
	}
	for i, l := range lines {
		if i > 0 {
			indent, intro = chain, "│ "
		}
		p.paint(red, indent+intro+display.Clean(l))
		p.end()
	}
	switch {
	case shown != text:
		p.remark(chain, fmt.Sprintf("the message has %d bytes: --full shows all", len(text)))
	case cut:
		p.remark(chain, "the message is longer than the part that clrsnap reads")
	}
}

// splitLines splits a text into lines, with any kind of line end.
func splitLines(text string) []string {
	return strings.Split(strings.ReplaceAll(strings.TrimRight(text, "\r\n"), "\r\n", "\n"), "\n")
}

// remote prints an exception's stack trace in text form.
func (p *printer) remote(chain, text string) {
	if text == "" {
		return
	}
	lines := splitLines(text)
	for i, l := range lines {
		if i == textLines && !p.o.Full {
			p.remark(chain, fmt.Sprintf("%d lines more: --full shows all", len(lines)-i))
			return
		}
		p.paint(dim, chain+"  │ "+display.Clean(strings.TrimSpace(l)))
		p.end()
	}
}

// trace prints the stack trace of an exception.
func (p *printer) trace(chain string, e *snapshot.ExceptionInfo) {
	frames := make([]*snapshot.TraceFrame, 0, len(e.Frames))
	for i := range e.Frames {
		if f := &e.Frames[i]; !f.Hidden || p.o.Full {
			frames = append(frames, f)
		}
	}
	for i := 0; i < len(frames); {
		r := repeat{1, 1}
		if !p.o.Full && !p.o.IP {
			r = repeatAt(frames, i, sameTrace)
		}
		for k := range r.period {
			p.traceFrame(chain, frames[i+k])
		}
		if r.times > 1 {
			p.text(chain[2:])
			p.repeated(r)
		}
		i += r.period * r.times
	}
	switch {
	case e.NoFrames != "":
		p.remark(chain, "its stack trace cannot be read: "+e.NoFrames)
	case e.More > 0:
		p.remark(chain, "and "+strconv.Itoa(e.More)+display.Plural(e.More, " frame more", " frames more"))
	}
}

// sameTrace reports whether two frames look the same.
func sameTrace(a, b **snapshot.TraceFrame) bool {
	f, g := *a, *b
	return f.Display == g.Display && f.Signature == g.Signature && f.Module == g.Module && f.Line.Same(g.Line) &&
		f.EndsTrace == g.EndsTrace
}

// traceFrame prints a frame as .NET does.
func (p *printer) traceFrame(chain string, f *snapshot.TraceFrame) {
	p.text(chain + "  at ")
	if p.o.IP {
		p.paint(dim, fmt.Sprintf("%#016x  ", f.IP))
	}
	p.traceName(f)
	if f.IP != 0 {
		p.text(p.offset(&f.Frame))
	}
	if f.Line != nil {
		p.paint(dim, " in "+display.Source(f.Line, p.o.Full))
	}
	if p.o.Tier && f.Tier != "" {
		p.paint(green, "  "+display.Clean(f.Tier))
	}
	p.end()
	// An async method goes on after its await: .NET says nothing there.
	if f.EndsTrace && !strings.HasSuffix(f.Method, ".MoveNext") {
		p.paint(dim, chain+"  --- End of stack trace from previous location ---")
		p.end()
	}
}

func (p *printer) traceName(f *snapshot.TraceFrame) {
	name, args := f.Display, f.Signature
	if p.o.Short {
		args = ""
		if f.Short != "" {
			name = f.Short
		}
	}
	name, mark := display.CutMark(name)
	p.paint(originStyle(f.Origin()), display.Clean(name))
	p.text(display.Clean(args) + mark)
}
