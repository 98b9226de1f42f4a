package profile

import (
	"slices"
	"time"
)

// Selection chooses a part of a recording. The zero value is everything.
type Selection struct {
	// Managed leaves out frames that are not managed. What happened in a managed
	// method, an Event, stays.
	Managed bool
	// Native keeps every native frame. Else native frames without a symbol that
	// follow one another in one module become one.
	Native bool
	// Threads chooses threads; nil: all.
	Threads func(*RecordedThread) bool
	// Modes and States choose samples; none: all.
	Modes  []Mode
	States []State
	// From and To choose samples by when they were taken; To 0: to the end.
	From, To time.Duration

	rename func(*Function) Function
}

// Rename returns a recording with the functions that rename makes of those of r.
// Those that become equal become one.
func (r *Recording) Rename(rename func(*Function) Function) *Recording {
	return r.Select(Selection{Native: true, rename: rename})
}

// Select returns the part of r that s chooses. r is not changed; what both share
// must not be changed either.
func (r *Recording) Select(s Selection) *Recording {
	b := NewBuilder(Limits{Samples: len(r.Samples) + 2, Nodes: len(r.Nodes) + 1, Functions: len(r.Functions) + 1})
	threads := make([]int32, len(r.Threads))
	for i := range threads {
		if threads[i] = unused; s.Threads != nil && !s.Threads(&r.Threads[i]) {
			threads[i] = refused
		}
	}
	var chosen []Sample
	used := make([]bool, len(r.Nodes))
	for _, x := range r.Samples {
		if threads[x.Thread] == refused || !s.accepts(&x) {
			continue
		}
		chosen = append(chosen, x)
		for n := x.Node; n > 0 && !used[n]; n = r.Nodes[n].Parent {
			used[n] = true
		}
	}
	nodes := s.tree(r, b, used)
	for _, x := range chosen {
		if threads[x.Thread] == unused {
			threads[x.Thread] = b.Thread(r.Threads[x.Thread])
		}
		x.Thread, x.Node = threads[x.Thread], nodes[x.Node]
		b.Add(x)
	}
	out := b.Recording()
	out.Version, out.Start, out.Duration, out.Processes = r.Version, r.Start, r.Duration, r.Processes
	out.Modes, out.Cost, out.Notes = r.Modes, r.Cost, r.Notes
	if len(s.Modes) > 0 {
		out.Modes = slices.DeleteFunc(slices.Clone(r.Modes), func(m ModeStats) bool { return !slices.Contains(s.Modes, m.Mode) })
	}
	return out
}

// What stands for the new index of a thread that has none.
const (
	unused  = -1 // not yet
	refused = -2
)

func (s *Selection) accepts(x *Sample) bool {
	return (len(s.Modes) == 0 || slices.Contains(s.Modes, x.Mode)) &&
		(len(s.States) == 0 || slices.Contains(s.States, x.State)) &&
		x.At >= s.From && (s.To <= 0 || x.At < s.To)
}

// tree puts those of the used frames that are kept into b, and returns the new
// node of each node. A parent comes before its children.
func (s *Selection) tree(r *Recording, b *Builder, used []bool) []int32 {
	nodes := make([]int32, len(r.Nodes))
	for n := 1; n < len(r.Nodes); n++ {
		if !used[n] {
			continue
		}
		l := r.Locations[r.Nodes[n].Location]
		f := &r.Functions[l.Function]
		parent := nodes[r.Nodes[n].Parent]
		nodes[n] = parent
		nameless := !s.Native && f.Kind == Native && f.Method == ""
		if s.Managed && f.Kind != Managed && f.Kind != Event || nameless && sameFunction(b.r.Function(parent), f) {
			continue
		}
		if nameless {
			l.Offset = 0
		}
		g := *f
		if s.rename != nil {
			g = s.rename(f)
		}
		l.Function = b.Function(g)
		nodes[n] = b.Child(parent, b.Location(l))
	}
	return nodes
}

func sameFunction(f, g *Function) bool { return f != nil && *f == *g }
