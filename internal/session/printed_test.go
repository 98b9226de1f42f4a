package session_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// printed is an exception in .NET's printed form.
type printed struct {
	head   string // type and message
	frames []printedFrame
	inner  *printed
	others []*printed // "(Inner Exception #1)" and so on
}

type printedFrame struct {
	method string // in the form of testenv.MethodName
	file   string
	line   int  // 0: no line is printed
	ends   bool // "End of stack trace from previous location" follows
}

// Lines of Exception.ToString (System.Private.CoreLib, Exception.cs and AggregateException.cs).
const (
	innerBegins = " ---> "
	otherBegins = " ---> (Inner Exception #"
	otherEnds   = "<---"
	innerEnds   = "   --- End of inner exception stack trace ---"
	traceEnds   = "--- End of stack trace from previous location ---"
)

// printedParser reads lines.
type printedParser struct {
	t     *testing.T
	lines []string
}

// parsePrinted parses the text of an exception.
func parsePrinted(t *testing.T, text string) *printed {
	t.Helper()
	r := &printedParser{t, strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
	e := r.exception(r.next(), "")
	if len(r.lines) > 0 {
		t.Errorf("after the exception: %q", r.lines)
	}
	return e
}

func (r *printedParser) next() string {
	l := r.lines[0]
	r.lines = r.lines[1:]
	return l
}

// exception parses an exception up to the line that ends the exception. The first line has been read.
func (r *printedParser) exception(first, end string) *printed {
	e := &printed{}
	first, ended := cutEnd(first, end)
	e.head = first
	for !ended && len(r.lines) > 0 {
		var line string
		line, ended = cutEnd(r.next(), end)
		switch {
		case strings.HasPrefix(line, otherBegins):
			_, head, _ := strings.Cut(line, ") ")
			e.others = append(e.others, r.exception(head, otherEnds))
		case strings.HasPrefix(line, innerBegins):
			e.inner = r.exception(strings.TrimPrefix(line, innerBegins), innerEnds)
		case line == traceEnds && len(e.frames) > 0:
			e.frames[len(e.frames)-1].ends = true
		case strings.HasPrefix(line, "   at "):
			e.frames = append(e.frames, parsePrintedFrame(r.t, line))
		case line == "" || ended:
		default:
			e.head += "\n" + line
		}
	}
	if !ended && end != "" {
		r.t.Errorf("%q is not ended by %q", e.head, end)
	}
	return e
}

// cutEnd removes the end of an exception from a line.
func cutEnd(line, end string) (rest string, ended bool) {
	if end == "" {
		return line, false
	}
	return strings.CutSuffix(line, end)
}

var printedPlace = regexp.MustCompile(` in (.*):line (\d+)$`)

func parsePrintedFrame(t *testing.T, line string) printedFrame {
	t.Helper()
	var f printedFrame
	if place := printedPlace.FindStringSubmatch(line); place != nil {
		f.file = place[1]
		f.line, _ = strconv.Atoi(place[2])
	}
	var ok bool
	if f.method, ok = testenv.MethodName(line); !ok {
		t.Errorf("no frame: %q", line)
	}
	return f
}

// stateMachine is the compiler's class for an async method or an iterator.
var stateMachine = regexp.MustCompile(`^(.*)\+<([^>]+)>d(?:__\d+)?(?:` + "`" + `\d+)?\.MoveNext$`)

// asPrinted spells a method in .NET's printed form: nested types after a dot, and MoveNext of a state machine as the
// method behind the state machine.
func asPrinted(method string) string {
	if m := stateMachine.FindStringSubmatch(method); m != nil {
		method = m[1] + "." + m[2]
	}
	return strings.ReplaceAll(method, "+", ".")
}

// comparison compares exceptions with .NET's printed text.
type comparison struct {
	t        *testing.T
	old      bool // the runtime is .NET 8
	compared int  // frames
	lines    int
}

// same requires that e is the exception that .NET has printed, with the inner exceptions.
func (c *comparison) same(what string, e *snapshot.ExceptionInfo, want *printed) {
	c.t.Helper()
	switch {
	case e == nil && want == nil:
		return
	case e == nil || want == nil:
		c.t.Errorf("%s: exception %v, .NET prints %v", what, e != nil, want != nil)
		return
	}
	c.head(what, e, want)
	c.frames(what, e, want.frames)
	c.same(what+", inner", e.Inner, want.inner)
	if len(e.Others) != len(want.others) {
		c.t.Errorf("%s: %d other inner exceptions, .NET prints %d", what, len(e.Others), len(want.others))
		return
	}
	for i, o := range e.Others {
		c.same(fmt.Sprintf("%s, inner #%d", what, i+1), o, want.others[i])
	}
}

// head compares type and message. .NET adds the messages of an AggregateException's inner exceptions to the message of
// the AggregateException, and makes up a message for an exception without a message.
func (c *comparison) head(what string, e *snapshot.ExceptionInfo, want *printed) {
	c.t.Helper()
	head := e.Type + ": " + e.Message
	switch {
	case e.Message == "":
		head = fmt.Sprintf("%s: Exception of type '%s' was thrown.", e.Type, e.Type)
	case e.CutMessage, e.Type == "System.AggregateException":
		if !strings.HasPrefix(want.head, head) {
			c.t.Errorf("%s: %.200q, .NET prints %.200q", what, head, want.head)
		}
		return
	}
	if head != want.head {
		c.t.Errorf("%s: %.200q, .NET prints %.200q", what, head, want.head)
	}
}

func (c *comparison) frames(what string, e *snapshot.ExceptionInfo, want []printedFrame) {
	c.t.Helper()
	if e.NoFrames != "" {
		c.t.Errorf("%s: its frames cannot be read: %s", what, e.NoFrames)
	}
	if e.Remote != "" { // printed before
		n := strings.Count(e.Remote, "   at ")
		want = want[min(n, len(want)):]
	}
	// .NET prints a hidden frame, too, if it is the last: the frame that resumed the methods that the exception has
	// left.
	if n := len(want); n > 1 && strings.HasSuffix(want[n-1].method, ".DispatchContinuations") {
		want = want[:n-1]
	}
	shown, lost := visible(e.Frames), dynamicHere(e.Frames)
	if len(shown)+e.More != len(want) {
		c.t.Errorf("%s: %d frames and %d more, .NET prints %d\n%v\n%v", what, len(shown), e.More, len(want),
			shown, want)
		return
	}
	for i, f := range shown {
		w := want[i]
		c.compared++
		if got := asPrinted(f.Method); got != strings.TrimSuffix(w.method, "+MoveNext") {
			c.t.Errorf("%s, frame %d: %s, .NET prints %s", what, i, got, w.method)
		}
		if c.line(what, &f, w, lost); f.EndsTrace != w.ends && !stateMachine.MatchString(f.Method) {
			c.t.Errorf("%s, frame %d: ends a trace %v, .NET prints %v", what, i, f.EndsTrace, w.ends)
		}
	}
}

// line compares the source line of a frame. lost says that .NET may have lost the line.
func (c *comparison) line(what string, f *snapshot.TraceFrame, want printedFrame, lost bool) {
	c.t.Helper()
	switch {
	case want.line == 0 && (f.Line == nil || lost):
		return
	case want.line == 0 || f.Line == nil:
		c.t.Errorf("%s: %s is at %+v, .NET prints line %d", what, f.Method, f.Line, want.line)
		return
	}
	c.lines++
	if f.Line.Line != want.line || f.Line.File != want.file {
		c.t.Errorf("%s: %s is at %s:%d, .NET prints %s:%d", what, f.Method, f.Line.File, f.Line.Line, want.file,
			want.line)
	}
}

// visible are the frames that .NET prints.
func visible(frames []snapshot.TraceFrame) (out []snapshot.TraceFrame) {
	for _, f := range frames {
		if !f.Hidden {
			out = append(out, f)
		}
	}
	return out
}

// dynamicHere reports whether any method is dynamic. .NET 8 prints no lines at all in a stack trace with a dynamic
// method.
func dynamicHere(frames []snapshot.TraceFrame) bool {
	for _, f := range frames {
		if f.Tier == "dynamic" {
			return true
		}
	}
	return false
}
