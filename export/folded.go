package export

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// FoldedOptions are the options of Folded. The zero value works.
type FoldedOptions struct {
	// Modes are the modes to write; nil: all modes with samples.
	Modes    []profile.Mode
	ByThread bool // a frame with the thread's name stands before each stack
}

// Folded writes a recording as folded stacks for flamegraph.pl --countname=us, inferno and speedscope.
// There is one line for each different stack, in the order of their first samples: the frames from the
// base to the leaf, separated by ;, then a space and the weight.
//
// The weight is in microseconds, bytes, or a count, depending on the mode. If several modes are
// written, the first frame of each stack names its mode and the unit: [cpu: microseconds], [alloc:
// bytes], [exception: count]. Stacks of less than half a microsecond are left out.
//
// In names, ; is written as \x3b, and control characters likewise. Names of kernel functions end with
// _[k], names of events (an allocated class, for example) with _[e]. A stack without its frames near
// the base begins with [incomplete stack].
func Folded(w io.Writer, r *profile.Recording, o FoldedOptions) error {
	modes := o.Modes
	if modes == nil {
		modes = r.SampledModes()
	}
	lines := newFoldedLines(r)
	for _, m := range modes {
		if len(modes) > 1 {
			lines.roots[m] = FoldedRoot(m)
		}
	}
	for i := range r.Samples {
		if s := &r.Samples[i]; slices.Contains(modes, s.Mode) {
			lines.add(s, o.ByThread)
		}
	}
	out := bufio.NewWriterSize(w, 1<<16)
	if lines.size() > MaxOutput {
		return ErrTooLarge
	}
	for _, mode := range modes {
		if err := lines.write(out, mode); err != nil {
			return err
		}
	}
	return out.Flush()
}

// FoldedRoot returns the first frame of the stacks of a mode where Folded writes several modes. The
// frame names the mode and the unit.
func FoldedRoot(m profile.Mode) string {
	unit := m.Unit().String()
	if m.Unit() == profile.Nanoseconds {
		unit = "microseconds"
	}
	return "[" + m.String() + ": " + unit + "]"
}

// foldedNumber returns the number after a stack. Times are in microseconds, because other tools expect
// microseconds.
func foldedNumber(m profile.Mode, weight int64) int64 {
	if m.Unit() == profile.Nanoseconds {
		return time.Duration(weight).Round(time.Microsecond).Microseconds()
	}
	return weight
}

// The suffixes of names of kernel functions and events.
const (
	foldedKernel = "_[k]"
	foldedEvent  = "_[e]"
)

func foldedName(f *profile.Function) string {
	name := foldedText(display.FullName(f))
	switch f.Kind {
	case snapshot.Kernel:
		name += foldedKernel
	case snapshot.Event:
		name += foldedEvent
	}
	return name
}

func foldedText(s string) string { return strings.ReplaceAll(display.Clean(s), ";", `\x3b`) }

// foldedLines are the lines of the output. Lines have a tree of names of their own, because
// several nodes of the recording can have the same line: nodes distinguish the locations in a
// function, lines do not.
type foldedLines struct {
	r      *profile.Recording
	names  []string
	index  map[string]int32 // of names
	nodes  []profile.Node   // the tree of names; a node's location is the index of a name
	places []int32          // for each node of the recording, its index in nodes
	lines  []foldedStack
	known  map[foldedKey]int32        // the index of each line
	labels []int32                    // by thread: the index of its name; 0: not known yet
	roots  [len(profile.Modes)]string // the first frame of each mode's lines; empty: none
}

// noName takes index 0 of the names. No real name equals noName: real names have no control
// characters.
const noName = "\x00"

// foldedKey identifies a line. The thread is the index of its name, or 0.
type foldedKey struct {
	thread, node int32
	mode         profile.Mode
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
		name := functions[r.Locations[r.Nodes[n].Location].Function]
		child := profile.Node{Parent: l.places[r.Nodes[n].Parent], Location: name}
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
	key := foldedKey{0, l.places[s.Node], s.Mode, s.Incomplete}
	if byThread {
		if l.labels[s.Thread] == 0 {
			l.labels[s.Thread] = l.name(foldedText(display.Thread(&l.r.Threads[s.Thread])))
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

// write writes the lines of a mode.
func (l *foldedLines) write(out *bufio.Writer, m profile.Mode) error {
	var frames []string
	for i := range l.lines {
		line := &l.lines[i]
		if n := foldedNumber(m, line.weight); n > 0 && line.mode == m {
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

// size returns about how many bytes all lines have. It stops once the sum exceeds MaxOutput.
func (l *foldedLines) size() int {
	long := make([]int, len(l.nodes)) // bytes of the stack of each node
	for n := 1; n < len(long); n++ {
		long[n] = long[l.nodes[n].Parent] + len(l.names[l.nodes[n].Location]) + 1
	}
	sum := 0
	for i := range l.lines {
		if sum += long[l.lines[i].node] + 1; l.lines[i].thread > 0 {
			sum += len(l.names[l.lines[i].thread])
		}
		sum += len(l.roots[l.lines[i].mode])
		if sum > MaxOutput {
			break
		}
	}
	return sum
}

// frames appends the frames of a line, leaf first.
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
		frames = append(frames, display.NoStack)
	}
	if root := l.roots[line.mode]; root != "" {
		frames = append(frames, root)
	}
	return frames
}
