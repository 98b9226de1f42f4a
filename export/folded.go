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
the leaf with ; between them, then a space and a number: microseconds, bytes, or
how many, as the mode is. A ; in a name is written \x3b, control characters
likewise; kernel functions end with _[k], what was allocated, thrown or waited for
with _[e]; stacks whose beginning is missing begin with [incomplete stack]. One
mode only. flamegraph.pl --countname=us, inferno and speedscope read them.`

// Folded writes the folded stacks of a recording, as FoldedHelp describes them, in
// the order in which the stacks first came. The numbers are weights and not counts
// of samples, because samples need not stand for equal weights. Stacks of less than
// half a microsecond are left out.
func Folded(w io.Writer, r *profile.Recording, o FoldedOptions) error {
	out := bufio.NewWriterSize(w, 1<<16)
	names := make([]string, len(r.Functions))
	for i := range names {
		names[i] = foldedName(&r.Functions[i])
	}
	lines := foldedLines{r: r, names: names, weight: map[string]int64{}}
	weight := map[sampleGroup]int64{}
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
		if n := foldedNumber(o.Mode, lines.weight[line]); n > 0 {
			fmt.Fprintf(out, "%s %d\n", line, n)
		}
	}
	return out.Flush()
}

// foldedNumber is what stands behind a stack: times are in microseconds, as other
// tools have it.
func foldedNumber(m profile.Mode, weight int64) int64 {
	if m.Unit() == profile.Nanoseconds {
		return time.Duration(weight).Round(time.Microsecond).Microseconds()
	}
	return weight
}

// What is written for stacks without frames, and behind kernel functions and
// events.
const (
	emptyStack   = "[no stack]"
	foldedKernel = "_[k]"
	foldedEvent  = "_[e]"
)

func foldedName(f *profile.Function) string {
	name := foldedText(fullName(f))
	switch f.Kind {
	case profile.Kernel:
		name += foldedKernel
	case profile.Event:
		name += foldedEvent
	}
	return name
}

func foldedText(s string) string { return strings.ReplaceAll(Clean(s), ";", `\x3b`) }

// foldedLines are the lines of the output. Different nodes can make the same line:
// nodes tell the places in a function apart.
type foldedLines struct {
	r      *profile.Recording
	names  []string // by function
	weight map[string]int64
	order  []string
	stack  []int32
}

// add adds the weight of a group of samples; its thread is one more than the index.
func (l *foldedLines) add(g sampleGroup, weight int64) {
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
