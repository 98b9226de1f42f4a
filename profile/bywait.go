package profile

import (
	"fmt"
	"slices"

	"clrsnap/snapshot"
)

// ByWait returns a copy of r in which the stacks of waiting threads begin with a frame for the wait, for example
// "[SemaphoreSlim.Wait]". The frame's function has no Method. The copy and r share data: neither may be changed
// afterwards.
func (r *Recording) ByWait() *Recording {
	w := r.waiter()
	g := waitGrouper{
		r: r, roots: map[WaitingFor]int32{}, nodes: map[[2]int32]int32{}, functions: unknown(len(r.Functions)),
		locations: unknown(len(r.Locations)),
	}
	g.b = NewBuilder(Limits{
		Samples: len(r.Samples) + 2, Nodes: len(r.Nodes) + maxShared, Functions: 2*len(r.Functions) + 2,
	})
	for i := range r.Threads {
		g.b.Thread(r.Threads[i])
	}
	for _, x := range r.Samples {
		root := int32(0)
		if what, ok := w.of(&x); ok {
			root = g.root(what)
		}
		x.Node = g.below(root, x.Node)
		g.b.Add(x)
	}
	for _, h := range r.Holds {
		h.Node = g.below(0, h.Node)
		h.Lock, h.Holder = g.function(h.Lock), g.function(h.Holder)
		g.b.Hold(h)
	}
	out := r.rebuilt(g.b)
	if n := g.b.Truncated(); n > 0 {
		out.Notes = append(slices.Clone(out.Notes), fmt.Sprintf("There are very many different stacks: grouped by "+
			"wait, the stacks of %d samples lack frames near the leaf.", n))
	}
	return out
}

// maxShared is how many nodes ByWait may add, because threads with equal callers wait for different things.
const maxShared = 1 << 19

// rebuilt is a copy of r with the samples that b has built.
func (r *Recording) rebuilt(b *Builder) *Recording {
	out := *b.Recording()
	out.Version, out.Start, out.Duration, out.Processes = r.Version, r.Start, r.Duration, r.Processes
	out.Modes, out.Cost, out.Notes, out.Messages = r.Modes, r.Cost, r.Notes, r.Messages
	out.Assemblies, out.Libraries, out.Methods, out.Sites = r.Assemblies, r.Libraries, r.Methods, r.Sites
	out.Files, out.Lines = r.Files, r.Lines
	return &out
}

// waitGrouper puts stacks below the frames of their waits.
type waitGrouper struct {
	r     *Recording
	b     *Builder
	roots map[WaitingFor]int32
	nodes map[[2]int32]int32 // new nodes, by root and node

	functions, locations []int32 // new indices
}

// root returns the node for a wait.
func (g *waitGrouper) root(w WaitingFor) int32 {
	n, ok := g.roots[w]
	if !ok {
		name := "[" + w.String() + "]"
		f := Function{Kind: snapshot.Managed, Display: name, Short: name, Owner: snapshot.OfFramework}
		n = g.b.Child(0, g.b.Location(Location{Function: g.b.Function(f)}))
		g.roots[w] = n
	}
	return n
}

// below returns the new node of a node, below a root.
func (g *waitGrouper) below(root, node int32) int32 {
	var missing []int32
	at := root
	for n := node; n > 0; n = g.r.Nodes[n].Parent {
		if known, ok := g.nodes[[2]int32{root, n}]; ok {
			at = known
			break
		}
		missing = append(missing, n)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		at = g.b.Child(at, g.location(g.r.Nodes[missing[i]].Location))
		g.nodes[[2]int32{root, missing[i]}] = at
	}
	return at
}

func (g *waitGrouper) location(i int32) int32 {
	if g.locations[i] == unused {
		l := g.r.Locations[i]
		l.Function = g.function(l.Function)
		g.locations[i] = g.b.Location(l)
	}
	return g.locations[i]
}

func (g *waitGrouper) function(i int32) int32 {
	if g.functions[i] == unused {
		g.functions[i] = g.b.Function(g.r.Functions[i])
	}
	return g.functions[i]
}
