package export

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"clrsnap/profile"
)

// FoldedOptions say what Folded writes.
type FoldedOptions struct {
	Mode     profile.Mode // whose samples: the format cannot keep two modes apart
	ByThread bool         // a stack's first frame is its thread
}

// FoldedHelp is about Folded, for people.
const FoldedHelp = `folded stacks: one line for each different stack, its frames from the base to
the leaf with ; between them, then a space and its time in microseconds. A ; in
a name is written \x3b, control characters likewise; kernel functions end with
_[k], stacks whose beginning is missing begin with [incomplete stack]. One mode
only. flamegraph.pl --countname=us, inferno and speedscope read them.`

// Folded writes the folded stacks of a recording, as FoldedHelp describes them, in
// the order in which the stacks first came. The numbers are times and not counts
// of samples, because samples need not stand for equal times. Stacks of less than
// half a microsecond are left out.
func Folded(w io.Writer, r *profile.Recording, o FoldedOptions) error {
	out := bufio.NewWriterSize(w, 1<<16)
	names := make([]string, len(r.Functions))
	for i := range names {
		names[i] = foldedName(&r.Functions[i])
	}
	lines := foldedLines{r: r, names: names, weight: map[string]time.Duration{}}
	weight := map[sampleGroup]time.Duration{}
	var order []sampleGroup
	for i := range r.Samples {
		s := &r.Samples[i]
		if s.Mode != o.Mode {
			continue
		}
		g := sampleGroup{node: s.Node, incomplete: s.Incomplete}
		if o.ByThread {
			g.thread = s.Thread + 1
		}
		if _, ok := weight[g]; !ok {
			order = append(order, g)
		}
		weight[g] += s.Weight
	}
	for _, g := range order {
		lines.add(g, weight[g])
	}
	for _, line := range lines.order {
		if us := lines.weight[line].Round(time.Microsecond).Microseconds(); us > 0 {
			fmt.Fprintf(out, "%s %d\n", line, us)
		}
	}
	return out.Flush()
}

// What is written for stacks without frames, and behind kernel functions.
const (
	emptyStack   = "[no stack]"
	foldedKernel = "_[k]"
)

func foldedName(f *profile.Function) string {
	name := foldedText(fullName(f))
	if f.Kind == profile.Kernel {
		name += foldedKernel
	}
	return name
}

func foldedText(s string) string { return strings.ReplaceAll(Clean(s), ";", `\x3b`) }

// foldedLines are the lines of the output. Different nodes can make the same line:
// nodes tell the places in a function apart.
type foldedLines struct {
	r      *profile.Recording
	names  []string // by function
	weight map[string]time.Duration
	order  []string
	stack  []int32
}

// add adds the time of a group of samples; its thread is one more than the index.
func (l *foldedLines) add(g sampleGroup, weight time.Duration) {
	var frames []string
	if g.thread > 0 {
		frames = append(frames, foldedText(threadLabel(&l.r.Threads[g.thread-1])))
	}
	if g.incomplete {
		frames = append(frames, incompleteFrame)
	}
	l.stack = path(l.r, g.node, l.stack)
	for _, f := range l.stack {
		frames = append(frames, l.names[f])
	}
	if len(frames) == 0 {
		frames = append(frames, emptyStack)
	}
	line := strings.Join(frames, ";")
	if _, ok := l.weight[line]; !ok {
		l.order = append(l.order, line)
	}
	l.weight[line] += weight
}
