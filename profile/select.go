package profile

import (
	"slices"
	"time"
)

// Selection chooses a part of a recording. The zero value chooses every sample, and
// joins native frames without symbols (see Native).
type Selection struct {
	// Managed leaves out frames that are neither managed nor of kind Event.
	Managed bool
	// Native keeps every native frame. Without it, consecutive native frames of one
	// module that have no symbols become one.
	Native bool
	// Threads reports whether a thread is chosen; nil: all are.
	Threads func(*RecordedThread) bool
	// Modes and States choose samples by their mode and state; empty: all.
	Modes  []Mode
	States []State
	// From and To choose samples by their time At: From <= At < To. A To of 0 stands
	// for the end.
	From, To time.Duration

	rename func(*Function) Function
}

// Rename returns a copy of r with each function replaced by what rename returns for
// it. Functions that become equal are merged.
func (r *Recording) Rename(rename func(*Function) Function) *Recording {
	return r.Select(Selection{Native: true, rename: rename})
}

// Select returns the part of r that s chooses, as a recording. It does not change r.
// The two share data: neither may be changed afterwards.
func (r *Recording) Select(s Selection) *Recording {
	threads := make([]int32, len(r.Threads))
	for i := range threads {
		if threads[i] = unused; s.Threads != nil && !s.Threads(&r.Threads[i]) {
			threads[i] = refused
		}
	}
	count := 0
	used := make([]bool, len(r.Nodes))
	chosen := func(yield func(Sample) bool) {
		for _, x := range r.Samples {
			if threads[x.Thread] != refused && s.accepts(&x) && !yield(x) {
				return
			}
		}
	}
	for x := range chosen {
		count++
		for n := x.Node; n > 0 && !used[n]; n = r.Nodes[n].Parent {
			used[n] = true
		}
	}
	b := NewBuilder(Limits{Samples: len(r.Samples) + 2, Nodes: len(r.Nodes) + 1, Functions: len(r.Functions) + 1})
	b.r.Samples = slices.Grow(b.r.Samples, count)
	nodes := s.tree(r, b, used)
	for x := range chosen {
		if threads[x.Thread] == unused {
			threads[x.Thread] = b.Thread(r.Threads[x.Thread])
		}
		x.Thread, x.Node = threads[x.Thread], nodes[x.Node]
		b.Add(x)
	}
	out := *b.Recording() // a copy: the Builder's indices can be freed
	out.Version, out.Start, out.Duration, out.Processes = r.Version, r.Start, r.Duration, r.Processes
	out.Modes, out.Cost, out.Notes = r.Modes, r.Cost, r.Notes
	if len(s.Modes) > 0 {
		notChosen := func(m ModeStats) bool { return !slices.Contains(s.Modes, m.Mode) }
		out.Modes = slices.DeleteFunc(slices.Clone(r.Modes), notChosen)
	}
	return &out
}

// What stands for a new index where there is none.
const (
	unused  = -1 // not needed yet
	refused = -2 // not chosen
)

func (s *Selection) accepts(x *Sample) bool {
	return (len(s.Modes) == 0 || slices.Contains(s.Modes, x.Mode)) &&
		(len(s.States) == 0 || slices.Contains(s.States, x.State)) &&
		x.At >= s.From && (s.To <= 0 || x.At < s.To)
}

// tree adds the used frames that are kept to b, and returns the new node of each
// node. It relies on parents coming before their children. Each function and location
// is looked up once, because names can be long.
func (s *Selection) tree(r *Recording, b *Builder, used []bool) []int32 {
	nodes := make([]int32, len(r.Nodes))
	functions, locations := unknown(len(r.Functions)), unknown(len(r.Locations))
	for n := 1; n < len(r.Nodes); n++ {
		if !used[n] {
			continue
		}
		at := r.Nodes[n].Location
		l := r.Locations[at]
		of := l.Function
		f := &r.Functions[of]
		parent := nodes[r.Nodes[n].Parent]
		nodes[n] = parent
		nameless := !s.Native && f.Kind == Native && f.Method == ""
		if s.Managed && f.Kind != Managed && f.Kind != Event {
			continue
		}
		if functions[of] == unused {
			functions[of] = b.Function(s.renamed(f))
		}
		if nameless && b.isAt(parent, functions[of]) {
			continue
		}
		if locations[at] == unused {
			if nameless {
				l.Offset = 0
			}
			l.Function = functions[of]
			locations[at] = b.Location(l)
		}
		nodes[n] = b.Child(parent, locations[at])
	}
	return nodes
}

// unknown returns n indices that are not known yet.
func unknown(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = unused
	}
	return out
}

func (s *Selection) renamed(f *Function) Function {
	if s.rename != nil {
		return s.rename(f)
	}
	return *f
}

// isAt reports whether a node is in a function.
func (b *Builder) isAt(node, function int32) bool {
	return node > 0 && b.r.Locations[b.r.Nodes[node].Location].Function == function
}
