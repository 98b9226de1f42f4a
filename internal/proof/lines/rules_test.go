package lines

import (
	"fmt"
	"strings"
	"testing"

	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

// place is a line of a source file.
type place struct {
	file string
	line int
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// observed is a frame with all that is said of its line.
type observed struct {
	c    *comparison
	want testenv.Stack
	i    int // of w in want
	w    testenv.Frame
	got  *profile.Frame

	ours, theirs place // theirs is StackTrace's
	leaf         place // where Stop was called, as the compiler knows it
}

// isLeaf: it called Stop.
func (o *observed) isLeaf() bool { return o.i == 1 }

// optimized reports whether the frame's code is optimised.
func (o *observed) optimized() bool {
	return !strings.HasPrefix(o.got.Tier, "tier-0") && o.got.Tier != "minimally optimized"
}

// right reports whether the sources say that a line is on the stack.
func (o *observed) right(p place) bool {
	return o.c.marked.has(o.want.Scenario, p) || o.isLeaf() && p == o.leaf
}

// judge compares what is said, and has a rule explain each difference.
func (o *observed) judge() {
	o.c.t.Helper()
	if o.ours != o.theirs && !o.ruled(rules) {
		o.c.t.Errorf("%s: %s+%#x (%s): line %v, StackTrace says %v",
			o.want.Scenario, o.w.Method, o.got.Offset, o.got.Tier, o.ours, o.theirs)
	}
	if !strings.Contains(o.w.Method, "Lines.Here") && !o.right(o.ours) && !o.ruled(sourceRules) {
		o.c.t.Errorf("%s: %s+%#x (%s): line %v is not marked in the source",
			o.want.Scenario, o.w.Method, o.got.Offset, o.got.Tier, o.ours)
	}
	if o.isLeaf() && o.ours != o.leaf && !o.ruled(leafRules) {
		o.c.t.Errorf("%s: %s+%#x (%s): line %v, the compiler says %v",
			o.want.Scenario, o.w.Method, o.got.Offset, o.got.Tier, o.ours, o.leaf)
	}
}

func (o *observed) ruled(rules []rule) bool {
	for _, r := range rules {
		if r.explains(o) {
			o.c.ruled[r.name]++
			o.c.why[r.name] = append(o.c.why[r.name],
				fmt.Sprintf("%s %s (%s) %v, StackTrace %v", o.want.Scenario, o.w.Method, o.got.Tier, o.ours, o.theirs))
			return true
		}
	}
	return false
}

// A rule explains why a line is right although something else is said.
type rule struct {
	name     string
	explains func(o *observed) bool
}

// rules are about what StackTrace says.
var rules = []rule{}

// sourceRules are about comments in the sources.
var sourceRules = []rule{}

// leafRules are about what the compiler knew.
var leafRules = []rule{}

// exact is a frame's name as profile.Frame.Method has it: without type arguments.
func exact(f testenv.Frame) string {
	var b strings.Builder
	depth := 0
	for _, r := range f.Method {
		switch {
		case r == '[':
			depth++
		case r == ']' && depth > 0:
			depth--
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func TestMarks(t *testing.T) {
	m := readMarks(t)
	if len(m) < 150 {
		t.Errorf("%d places are marked", len(m))
	}
}
