package profile

import (
	"slices"

	"clrsnap/snapshot"
)

// FoldFramework returns a copy of r in which each run of framework frames is one frame. The frame's function is
// named after the parts of .NET in the run, for example "[pool → Kestrel]". As in Folds, no run contains the leaf
// of a stack, nor the managed frame nearest to the leaf. The copy and r share data: neither may be changed
// afterwards.
func (r *Recording) FoldFramework() *Recording {
	f := folder{
		r: r, runs: runsOf(r), closed: unknown(len(r.Nodes)), leaves: unknown(len(r.Nodes)),
		functions: unknown(len(r.Functions)), locations: unknown(len(r.Locations)),
	}
	f.folds = unknown(len(f.runs.labels))
	f.b = NewBuilder(Limits{
		Samples: len(r.Samples) + 2, Nodes: 2*len(r.Nodes) + 2, Functions: 2*len(r.Functions) + 2,
	})
	f.closed[0], f.leaves[0] = 0, 0
	for i := range r.Threads {
		f.b.Thread(r.Threads[i])
	}
	for _, x := range r.Samples {
		x.Node = f.leaf(x.Node)
		f.b.Add(x)
	}
	for _, h := range r.Holds {
		h.Node = f.leaf(h.Node)
		h.Lock, h.Holder = f.function(h.Lock), f.function(h.Holder)
		f.b.Hold(h)
	}
	return r.rebuilt(f.b)
}

// run is the run of framework frames that ends at a node.
type run struct {
	frames int32 // up to the node
	before int32 // the node that called the run's first frame
	parts  int32 // the parts of .NET in the run, as an index in runs.labels
}

type runs struct {
	of     []run // by node; none if frames is 0
	labels []string
}

func runsOf(r *Recording) runs {
	type step struct {
		list int32
		part string
	}
	out := runs{of: make([]run, len(r.Nodes)), labels: []string{""}}
	lists, known := [][]string{nil}, map[step]int32{}
	parts := make([]string, len(r.Functions))
	for i := range r.Functions {
		parts[i] = r.Functions[i].FrameworkPart()
	}
	for n := 1; n < len(r.Nodes); n++ {
		parent := r.Nodes[n].Parent
		part := r.frameworkPartAt(int32(n), parts)
		if part == "" {
			continue
		}
		here := run{1, parent, 0}
		if up := out.of[parent]; up.frames > 0 {
			here = run{up.frames + 1, up.before, up.parts}
		}
		if s := (step{here.parts, part}); !slices.Contains(lists[here.parts], part) {
			at, ok := known[s]
			if !ok {
				list := append(slices.Clone(lists[here.parts]), part)
				at = int32(len(lists))
				known[s], lists = at, append(lists, list)
				out.labels = append(out.labels, "["+snapshot.JoinFrameworkParts(list)+"]")
			}
			here.parts = at
		}
		out.of[n] = here
	}
	return out
}

// frameworkPartAt is the part of .NET of a node's frame, given the parts by function. As in Folds, an inlined method of
// .NET is a framework frame by itself, or if its frame is.
func (r *Recording) frameworkPartAt(node int32, parts []string) string {
	function := r.Locations[r.Nodes[node].Location].Function
	for parts[function] == "" && r.inlined(node) && r.Functions[function].Origin() == snapshot.OfFramework {
		node = r.Nodes[node].Parent
		function = r.Locations[r.Nodes[max(1, node)].Location].Function
	}
	return parts[function]
}

// folder folds the stacks of a recording.
type folder struct {
	r      *Recording
	b      *Builder
	runs   runs
	closed []int32 // new nodes of nodes that are not near a leaf
	leaves []int32 // new nodes of leaves

	functions, locations []int32 // new indices: each name is looked up once, because names can be long
	folds                []int32 // new locations of runs, by runs.labels
}

func (f *folder) isFold(n int32) bool { return f.runs.of[n].frames >= snapshot.MinFold }

// leaf returns the new node of a leaf. All frames between the leaf and the nearest managed frame are shown.
func (f *folder) leaf(leaf int32) int32 {
	var missing []int32
	n := leaf
	for n > 0 && f.leaves[n] == unused {
		missing = append(missing, n)
		managed := f.r.Function(n).Kind == snapshot.Managed
		if n = f.r.Nodes[n].Parent; managed {
			break
		}
	}
	at := int32(0)
	switch {
	case len(missing) == 0 || n > 0 && f.r.Function(missing[len(missing)-1]).Kind != snapshot.Managed:
		at = max(0, f.leaves[n])
	case n > 0:
		at = f.inner(n)
	}
	for _, m := range slices.Backward(missing) {
		at = f.copy(at, m)
		f.leaves[m] = at
	}
	return at
}

// inner returns the new node of a node that is not near a leaf.
func (f *folder) inner(n int32) int32 {
	var missing []int32
	for ; f.closed[n] == unused; n = f.caller(n) {
		missing = append(missing, n)
	}
	at := f.closed[n]
	for _, m := range slices.Backward(missing) {
		if f.isFold(m) {
			at = f.b.Child(at, f.fold(f.runs.of[m].parts))
		} else {
			at = f.copy(at, m)
		}
		f.closed[m] = at
	}
	return at
}

func (f *folder) caller(n int32) int32 {
	if f.isFold(n) {
		return f.runs.of[n].before
	}
	return f.r.Nodes[n].Parent
}

// fold returns the location that stands for runs with a label.
func (f *folder) fold(label int32) int32 {
	if f.folds[label] == unused {
		name := f.runs.labels[label]
		fn := Function{Kind: snapshot.Managed, Display: name, Short: name, Owner: snapshot.OfFramework}
		f.folds[label] = f.b.Location(Location{Function: f.b.Function(fn)})
	}
	return f.folds[label]
}

// copy adds an unchanged node.
func (f *folder) copy(parent, n int32) int32 {
	at := f.r.Nodes[n].Location
	if f.locations[at] == unused {
		l := f.r.Locations[at]
		l.Function = f.function(l.Function)
		f.locations[at] = f.b.Location(l)
	}
	return f.b.Child(parent, f.locations[at])
}

func (f *folder) function(i int32) int32 {
	if f.functions[i] == unused {
		f.functions[i] = f.b.Function(f.r.Functions[i])
	}
	return f.functions[i]
}
