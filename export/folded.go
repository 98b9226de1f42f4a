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
	lines := newFoldedLines(r)
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Mode == o.Mode {
			lines.add(s, o.ByThread)
		}
	}
	out := bufio.NewWriterSize(w, 1<<16)
	if err := lines.write(out, o.Mode); err != nil {
		return err
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

// foldedLines are the lines of the output. Different nodes can make the same line: nodes tell
// the places in a function apart. Therefore lines have a tree of their own, of names.
type foldedLines struct {
	r      *profile.Recording
	names  []string
	index  map[string]int32 // of names
	nodes  []profile.Node   // whose location is the index of a name
	places []int32          // for each node of the recording one of these
	lines  []foldedStack
	known  map[foldedKey]int32 // lines
	labels []int32             // by thread: the index of a name; 0: not known yet
}

// noName is the first name, which stands for none: no other has a control character.
const noName = "\x00"

// foldedKey is what tells lines apart. The thread is the index of its name, or 0.
type foldedKey struct {
	thread, node int32
	incomplete   bool
}

type foldedStack struct {
	foldedKey
	weight int64
}

func newFoldedLines(r *profile.Recording) *foldedLines {
	l := &foldedLines{
		r: r, index: map[string]int32{}, known: map[foldedKey]int32{}, labels: make([]int32, len(r.Threads)),
		places: make([]int32, len(r.Nodes)), nodes: make([]profile.Node, 1, max(len(r.Nodes), 1)),
	}
	l.name(noName)
	functions := make([]int32, len(r.Functions))
	for i := range functions {
		functions[i] = l.name(foldedName(&r.Functions[i]))
	}
	children := make(map[profile.Node]int32, len(r.Nodes))
	for n := 1; n < len(r.Nodes); n++ {
		child := profile.Node{Parent: l.places[r.Nodes[n].Parent], Location: functions[r.Locations[r.Nodes[n].Location].Function]}
		at, ok := children[child]
		if !ok {
			at = int32(len(l.nodes))
			children[child] = at
			l.nodes = append(l.nodes, child)
		}
		l.places[n] = at
	}
	return l
}

// name returns the index of a name.
func (l *foldedLines) name(s string) int32 {
	i, ok := l.index[s]
	if !ok {
		i = int32(len(l.names))
		l.index[s] = i
		l.names = append(l.names, s)
	}
	return i
}

// add adds the weight of a sample to its line.
func (l *foldedLines) add(s *profile.Sample, byThread bool) {
	key := foldedKey{0, l.places[s.Node], s.Incomplete}
	if byThread {
		if l.labels[s.Thread] == 0 {
			l.labels[s.Thread] = l.name(foldedText(threadLabel(&l.r.Threads[s.Thread])))
		}
		key.thread = l.labels[s.Thread]
	}
	i, ok := l.known[key]
	if !ok {
		i = int32(len(l.lines))
		l.known[key] = i
		l.lines = append(l.lines, foldedStack{foldedKey: key})
	}
	l.lines[i].weight += s.Weight
}

func (l *foldedLines) write(out *bufio.Writer, m profile.Mode) error {
	if l.size() > maxOutput {
		return outputTooLarge(FormatFolded)
	}
	var frames []string
	for i := range l.lines {
		line := &l.lines[i]
		if n := foldedNumber(m, line.weight); n > 0 {
			frames = l.frames(line, frames[:0])
			for k := len(frames) - 1; k >= 0; k-- {
				out.WriteString(frames[k])
				if k > 0 {
					out.WriteByte(';')
				}
			}
			if _, err := fmt.Fprintf(out, " %d\n", n); err != nil {
				return err
			}
		}
	}
	return nil
}

// size is how long all lines are together, about.
func (l *foldedLines) size() int {
	long := make([]int, len(l.nodes)) // the stack of each node
	for n := 1; n < len(long); n++ {
		long[n] = long[l.nodes[n].Parent] + len(l.names[l.nodes[n].Location]) + 1
	}
	sum := 0
	for i := range l.lines {
		if sum += long[l.lines[i].node] + 1; l.lines[i].thread > 0 {
			sum += len(l.names[l.lines[i].thread])
		}
		if sum > maxOutput {
			break
		}
	}
	return sum
}

// frames appends what a line consists of, leaf first.
func (l *foldedLines) frames(line *foldedStack, frames []string) []string {
	for n := line.node; n > 0; n = l.nodes[n].Parent {
		frames = append(frames, l.names[l.nodes[n].Location])
	}
	if line.incomplete {
		frames = append(frames, incompleteFrame)
	}
	if line.thread > 0 {
		frames = append(frames, l.names[line.thread])
	}
	if len(frames) == 0 {
		frames = append(frames, emptyStack)
	}
	return frames
}
