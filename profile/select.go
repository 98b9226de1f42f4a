package profile

import (
	"slices"
	"time"

	"clrsnap/snapshot"
)

// Selection chooses a part of a recording. The zero value chooses every sample, and
// joins native frames without symbols (see Native).
type Selection struct {
	// Managed leaves out frames that are neither managed nor of kind Async or Event.
	Managed bool
	// Native keeps every native frame. Otherwise, consecutive native frames of one module without symbols
	// become one frame.
	Native bool
	// Threads reports whether a thread is chosen; nil: all are chosen.
	Threads func(*RecordedThread) bool
	// Modes and States choose samples by their mode and state; empty: all.
	Modes  []Mode
	States []State
	// From and To choose samples by their time At: From <= At < To. A To of 0 stands
	// for the end.
	From, To time.Duration
	// Working leaves out the samples of idle threads (Recording.Idle).
	Working bool
	// NoInlined leaves out methods without a frame of their own (Location.Inlined).
	NoInlined bool
	// Roles names native code without symbols by the runtime's own work: [GC], [finalizer], [tiered
	// compilation] and so on by the role of the thread, and [JIT] on other threads. The role's name also
	// becomes the first frame of the thread's stacks. Stacks of events do not change.
	Roles bool

	rename func(*Function) Function
}

// Rename returns a copy of r with each function replaced by the result of rename. Equal results are merged.
func (r *Recording) Rename(rename func(*Function) Function) *Recording {
	return r.Select(Selection{Native: true, rename: rename})
}

// Select returns the part of r that s chooses, as a recording. r does not change. The part and r share
// data: neither may be changed afterwards.
func (r *Recording) Select(s Selection) *Recording {
	threads := make([]int32, len(r.Threads))
	for i := range threads {
		if threads[i] = unused; s.Threads != nil && !s.Threads(&r.Threads[i]) {
			threads[i] = refused
		}
	}
	var idle *idler
	if s.Working {
		idle = r.idler()
	}
	roles := s.roles(r)
	b := NewBuilder(Limits{
		Samples: len(r.Samples) + 2, Nodes: 2*len(r.Nodes)*(len(roles)+1) + 2*len(roles),
		Functions: len(r.Functions) + len(roles) + len(moduleWork) + 1,
	})
	for i, role := range roles {
		chosen := func(yield func(Sample) bool) {
			for _, x := range r.Samples {
				if threads[x.Thread] != refused && (len(roles) == 1 || s.role(r, &x) == role) && s.accepts(&x) &&
					(idle == nil || idle.of(&x) == "") && !yield(x) {
					return
				}
			}
		}
		count := 0
		used := make([]bool, len(r.Nodes))
		for x := range chosen {
			count++
			for n := x.Node; n > 0 && !used[n]; n = r.Nodes[n].Parent {
				used[n] = true
			}
		}
		if i == 0 {
			b.r.Samples = slices.Grow(b.r.Samples, count)
		}
		if count == 0 {
			continue
		}
		nodes := s.tree(r, b, used, role)
		for x := range chosen {
			if threads[x.Thread] == unused {
				threads[x.Thread] = b.Thread(r.Threads[x.Thread])
			}
			x.Thread, x.Node = threads[x.Thread], nodes[x.Node]
			b.Add(x)
		}
	}
	if holds := s.holds(r, threads); len(holds) > 0 {
		used := make([]bool, len(r.Nodes))
		for i := range holds {
			for n := holds[i].Node; n > 0 && !used[n]; n = r.Nodes[n].Parent {
				used[n] = true
			}
		}
		s.addHolds(r, b, holds, threads, s.tree(r, b, used, roles[0]))
	}
	out := *b.Recording() // a copy: the Builder's indices can be freed
	out.Version, out.Start, out.Duration, out.Processes = r.Version, r.Start, r.Duration, r.Processes
	out.Modes, out.Cost, out.Notes = r.Modes, r.Cost, r.Notes
	out.Assemblies, out.Libraries, out.Methods, out.Sites = r.Assemblies, r.Libraries, r.Methods, r.Sites
	out.Files, out.Lines = r.Files, r.Lines
	if len(s.Modes) > 0 {
		notChosen := func(m ModeStats) bool { return !slices.Contains(s.Modes, m.Mode) }
		out.Modes = slices.DeleteFunc(slices.Clone(r.Modes), notChosen)
	}
	if s.Threads == nil && s.From <= 0 && s.To <= 0 && (len(s.Modes) == 0 || slices.Contains(s.Modes, Exception)) {
		out.Messages = r.Messages // otherwise the messages of the part are not known
	}
	return &out
}

// holds returns the looks at holders of locks that s chooses, by the rules for waits.
func (s *Selection) holds(r *Recording, threads []int32) []Hold {
	var out []Hold
	for _, h := range r.Holds {
		if threads[h.Waiter] != refused && s.accepts(&Sample{Mode: Contention, State: Waiting, At: h.At}) {
			out = append(out, h)
		}
	}
	return out
}

// addHolds adds looks at holders of locks to b. The holder need not be a chosen thread.
func (s *Selection) addHolds(r *Recording, b *Builder, holds []Hold, threads, nodes []int32) {
	others := map[int32]int32{}
	thread := func(i int32) int32 {
		if threads[i] == unused {
			threads[i] = b.Thread(r.Threads[i])
		}
		if threads[i] != refused {
			return threads[i]
		}
		if _, ok := others[i]; !ok {
			others[i] = b.Thread(r.Threads[i])
		}
		return others[i]
	}
	for _, h := range holds {
		h.Waiter, h.Thread, h.Node = thread(h.Waiter), thread(h.Thread), nodes[h.Node]
		h.Lock = b.Function(s.renamed(&r.Functions[h.Lock]))
		h.Holder = b.Function(s.renamed(&r.Functions[h.Holder]))
		b.Hold(h)
	}
}

// Placeholders for a missing new index.
const (
	unused  = -1 // not needed yet
	refused = -2 // not chosen
)

func (s *Selection) accepts(x *Sample) bool {
	return (len(s.Modes) == 0 || slices.Contains(s.Modes, x.Mode)) &&
		(len(s.States) == 0 || slices.Contains(s.States, x.State)) &&
		x.At >= s.From && (s.To <= 0 || x.At < s.To)
}

// tree adds the used and kept frames to b, and returns the new node of each node. tree relies on parents
// coming before their children. Each function and location is looked up once, because names can be long.
func (s *Selection) tree(r *Recording, b *Builder, used []bool, role runtimeWork) []int32 {
	nodes := make([]int32, len(r.Nodes))
	functions, locations := unknown(len(r.Functions)), unknown(len(r.Locations))
	work := s.newWork(r, b, nodes, role)
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
		nameless := !s.Native && f.Kind == snapshot.Native && f.Method == ""
		if s.NoInlined && l.Inlined {
			continue
		}
		if s.Managed && f.Kind != snapshot.Managed && f.Kind != snapshot.Async && f.Kind != snapshot.Event {
			continue
		}
		if work != nil {
			named := false
			if parent, named = work.place(n, parent, f); named {
				nodes[n] = parent
				continue
			}
		}
		if functions[of] == unused {
			functions[of] = b.Function(s.renamed(f))
		}
		if nameless && b.isAt(parent, functions[of]) {
			continue
		}
		if locations[at] == unused {
			if nameless {
				l.Offset, l.Library, l.Address = 0, 0, 0
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
