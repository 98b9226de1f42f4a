package lines

import (
	"fmt"
	"strings"
	"testing"

	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// place is a line of a source file.
type place struct {
	file string
	line int
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// observed is a frame with all statements about its line.
type observed struct {
	c    *comparison
	want testenv.Stack
	i    int // of w in want
	w    testenv.Frame
	got  *snapshot.Frame

	ours, theirs place // theirs is StackTrace's
	leaf         place // where Stop was called, according to the compiler
}

// isLeaf: the frame called Stop.
func (o *observed) isLeaf() bool { return o.i == 1 }

// inHere: a method of Here. The lines of Here are on all stacks, and are not marked.
func (o *observed) inHere() bool { return strings.HasPrefix(o.w.Method, "Lines.Here") }

// optimized reports whether the frame's code is optimised.
func (o *observed) optimized() bool {
	return o.got.Tier != "minopts" && o.c.mode.name != "unoptimized"
}

// right reports whether the sources say that a line is on the stack.
func (o *observed) right(p place) bool {
	return o.c.marked.has(o.want.Scenario, p) || o.isLeaf() && p == o.leaf
}

// none reports whether both are without a line.
func (o *observed) none() bool { return o.ours.line == 0 && o.theirs.line == 0 }

// approximate reports whether our line is marked as only near.
func (o *observed) approximate() bool { return o.got.Line != nil && o.got.Line.Approximate }

// judge compares the statements, and has a rule explain each difference.
func (o *observed) judge() {
	o.c.t.Helper()
	if !o.none() && o.ours != o.theirs {
		o.explain(rules, "StackTrace says", o.theirs)
	}
	if !o.inHere() && !o.right(o.ours) {
		o.explain(sourceRules, "the sources do not, StackTrace says", o.theirs)
	}
	if o.isLeaf() && o.ours != o.leaf {
		o.explain(leafRules, "the compiler says", o.leaf)
	}
}

func (o *observed) explain(rules []rule, who string, says place) {
	o.c.t.Helper()
	what := fmt.Sprintf("%s: %s+%#x (%s): line %v, %s %v",
		o.want.Scenario, o.w.Method, o.got.Offset, o.got.Tier, o.ours, who, says)
	for _, r := range rules {
		if r.explains(o) {
			o.c.ruled[r.name]++
			o.c.why[r.name] = append(o.c.why[r.name], what)
			return
		}
	}
	o.c.t.Error(what)
}

// A rule explains why a line is right in spite of a contradiction.
type rule struct {
	name     string
	explains func(o *observed) bool
}

// rules are about StackTrace's lines.
var rules = []rule{
	// StackTrace has the method where the method left the handler's protected code: at the call that threw, or
	// that led to the end of the try. The sources say where the handler is.
	{"handler", func(o *observed) bool {
		return (o.right(o.ours) || o.approximate()) && !o.right(o.theirs) && handles(o.want.Scenario)
	}},
	// StackTrace of .NET 8 has no lines at all in a stack with a dynamic method.
	{"dynamic method on .NET 8", func(o *observed) bool {
		return testenv.Framework(o.c.runtime) == "net8" && o.theirs.line == 0 && (o.right(o.ours) || o.inHere()) &&
			len(o.want.Names(testenv.Dynamic)) > 0
	}},
	// The JIT has no point for a call while a value is on the evaluation stack, and has merged statements.
	// StackTrace takes the point before the call; the sources say that the call is on another line.
	{"call without a point", func(o *observed) bool { return o.right(o.ours) }},
	{"approximate", (*observed).approximate},
}

// handles reports whether handlers run at a place.
func handles(place string) bool {
	for _, word := range []string{
		"catch", "finally", "filter", "fault", "using", "dispose", "thrown", "rethrow", "null-reference", "divide",
	} {
		if strings.Contains(place, word) {
			return true
		}
	}
	return false
}

// sourceRules are about comments in the sources.
var sourceRules = []rule{
	// For example the method that starts an async method's state machine, and the members of a record.
	{"method without a text", (*observed).none},
	{"approximate", (*observed).approximate},
}

// leafRules are about the compiler's lines.
var leafRules = []rule{
	{"approximate", (*observed).approximate},
	// A statement's line is its first line.
	{"statement of several lines", func(o *observed) bool {
		return o.right(o.ours) && o.ours.file == o.leaf.file && o.ours.line < o.leaf.line &&
			o.leaf.line-o.ours.line <= 3
	}},
	// Hidden text has the lines of the text before.
	{"hidden text", func(o *observed) bool { return o.right(o.ours) && o.want.Scenario == "line-hidden" }},
	// The caller of Stop has no frame of its own.
	{"inlined", func(o *observed) bool { return o.optimized() && (o.right(o.ours) || o.none()) }},
}

func TestMarks(t *testing.T) {
	m := readMarks(t)
	if len(m) < 150 {
		t.Errorf("%d places are marked", len(m))
	}
}
