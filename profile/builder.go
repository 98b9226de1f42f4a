package profile

import (
	"cmp"
	"slices"
	"time"
)

// Builder collects a Recording. What it holds is bounded: see Limits.
type Builder struct {
	r         Recording
	limits    Limits
	functions map[Function]int32
	locations map[Location]int32
	nodes     map[Node]int32
	open      map[sampleKey]int32 // samples that further ones are added to, once there are too many
	bin       time.Duration       // how much time one sample can stand for; 0: each is kept
	cut       int                 // stacks that were cut for want of nodes
}

// Limits bound a Builder. Zero fields stand for good ones.
type Limits struct {
	// Samples is how many samples are kept apart: one million (40 MB). Beyond
	// that, equal stacks of one thread within some time, that doubles as often as
	// need be, become one.
	Samples int
	// Nodes is how many nodes the tree of stacks may have: one million (60 MB
	// with its index). Beyond that, stacks are cut where they leave the tree.
	Nodes int
	// Functions is how many functions are kept apart: 65,536 (40 MB, more or less,
	// with their names). Beyond that, new ones of a module share one entry.
	Functions int
}

type sampleKey struct {
	bin          int64
	thread, node int32
	mode         Mode
	state        State
	incomplete   bool
}

// NewBuilder returns an empty Builder.
func NewBuilder(l Limits) *Builder {
	if l.Samples <= 0 {
		l.Samples = 1 << 20
	}
	if l.Nodes <= 0 {
		l.Nodes = 1 << 20
	}
	if l.Functions <= 0 {
		l.Functions = 1 << 16
	}
	return &Builder{
		r:         Recording{Nodes: []Node{{Parent: -1, Location: -1}}},
		limits:    l,
		functions: map[Function]int32{}, locations: map[Location]int32{}, nodes: map[Node]int32{},
	}
}

// Recording returns what was collected, in the order of time. The Builder may go
// on to be used; its owner fills in what does not come from samples.
func (b *Builder) Recording() *Recording {
	slices.SortStableFunc(b.r.Samples, func(x, y Sample) int { return cmp.Compare(x.At, y.At) })
	clear(b.open) // places have changed
	return &b.r
}

// Cut is how many stacks were cut for want of nodes.
func (b *Builder) Cut() int { return b.cut }

// Bin is the time within which equal samples have become one; 0: none has.
func (b *Builder) Bin() time.Duration { return b.bin }

// Function returns the index of a function.
func (b *Builder) Function(f Function) int32 {
	i, ok := b.functions[f]
	if ok || len(b.r.Functions) < b.limits.Functions {
		if !ok {
			i = intern(b.functions, &b.r.Functions, f)
		}
		return i
	}
	const name = "[other functions]"
	return intern(b.functions, &b.r.Functions, Function{Kind: f.Kind, Display: name, Short: name, Module: f.Module})
}

// Location returns the index of a location.
func (b *Builder) Location(l Location) int32 { return intern(b.locations, &b.r.Locations, l) }

// FunctionOf returns the index of the function of a location.
func (b *Builder) FunctionOf(location int32) int32 { return b.r.Locations[location].Function }

// At returns a location and its function by the location's index.
func (b *Builder) At(location int32) (Location, Function) {
	l := b.r.Locations[location]
	return l, b.r.Functions[l.Function]
}

// Thread adds a thread and returns its index.
func (b *Builder) Thread(t RecordedThread) int32 {
	b.r.Threads = append(b.r.Threads, t)
	return int32(len(b.r.Threads) - 1)
}

func intern[T comparable](index map[T]int32, list *[]T, v T) int32 {
	i, ok := index[v]
	if !ok {
		i = int32(len(*list))
		index[v] = i
		*list = append(*list, v)
	}
	return i
}

// MaxDepth is how many frames a stack of a recording has at most: what shows recordings
// goes down their trees.
const MaxDepth = 1 << 18

// Stack returns the node of a stack, given as locations, leaf first. What is deeper than
// MaxDepth is cut off.
func (b *Builder) Stack(locations []int32) int32 {
	if deeper := len(locations) - MaxDepth; deeper > 0 {
		b.cut++
		locations = locations[deeper:]
	}
	at := int32(0)
	for _, l := range slices.Backward(locations) {
		next := b.Child(at, l)
		if next == at {
			b.cut++
			break
		}
		at = next
	}
	return at
}

// Child returns the node for a call from a node to a location; the node itself
// where there is no room for another one.
func (b *Builder) Child(parent, location int32) int32 {
	n := Node{Parent: parent, Location: location}
	if at, ok := b.nodes[n]; ok || len(b.r.Nodes) < b.limits.Nodes {
		if !ok {
			at = intern(b.nodes, &b.r.Nodes, n)
		}
		return at
	}
	return parent
}

// Add adds a sample. A Count of 0 stands for 1.
func (b *Builder) Add(s Sample) {
	s.Count = max(s.Count, 1)
	if b.bin > 0 && b.join(s) {
		return
	}
	b.r.Samples = append(b.r.Samples, s)
	for len(b.r.Samples) >= b.limits.Samples {
		b.coarsen()
	}
}

// join adds s to a sample of the same stack, if there is one near in time.
func (b *Builder) join(s Sample) bool {
	key := b.key(&s)
	if i, ok := b.open[key]; ok {
		b.r.Samples[i].add(&s)
		return true
	}
	b.open[key] = int32(len(b.r.Samples))
	return false
}

func (b *Builder) key(s *Sample) sampleKey {
	return sampleKey{int64(s.At / b.bin), s.Thread, s.Node, s.Mode, s.State, s.Incomplete}
}

func (s *Sample) add(t *Sample) {
	s.At = min(s.At, t.At)
	s.Weight += t.Weight
	s.Events += t.Events
	s.Count += t.Count
}

// firstBin is within how much time samples become one at first.
const firstBin = 50 * time.Millisecond

// coarsen makes fewer samples of those that there are. Where that no longer
// helps, because so many stacks differ, the bound is raised.
func (b *Builder) coarsen() {
	b.bin = max(firstBin, 2*b.bin)
	before := b.r.Samples
	b.open, b.r.Samples = make(map[sampleKey]int32, len(before)/2), before[:0]
	for _, s := range before {
		if !b.join(s) {
			b.r.Samples = append(b.r.Samples, s)
		}
	}
	if b.bin > time.Hour {
		b.limits.Samples *= 2
	}
}

// SetThread changes what is known of a thread.
func (b *Builder) SetThread(i int32, t RecordedThread) { b.r.Threads[i] = t }
