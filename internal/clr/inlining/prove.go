package inlining

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
)

// A Frame is a method that was inlined, at the moment of a call within it.
type Frame struct {
	Definition
	Desc  arch.Addr // its MethodDesc; 0: only the definition is known
	IL    uint32    // of the call, in bytes from the start of its IL
	HasIL bool      // IL is known
}

// Range is a part of a method's IL, in bytes; its end is not part of it.
type Range struct{ Start, End uint32 }

// All is a range that every IL offset is in.
var All = Range{0, ^uint32(0)}

const maxNodes = 1 << 9

// Prove returns methods that were certainly inlined between the code c, at a call within some range
// of its IL, and the method that the call calls: outermost first. There may be others between them,
// of which that is not certain. None means that nothing is certain.
//
// The machine's call is one that the IL of the method, or of one that was inlined into it, makes.
// Which was inlined is known (inlinees), and which of these can call which (site.may). So the call
// is the end of a path from the method to the callee, in the graph of these calls. A method that all
// such paths lead through was inlined there. That does not depend on how the compiler has ordered
// the code, nor on what it knew of types: a call that it has devirtualised, be it on trust, is a
// path in the graph like any other.
//
// The path that was taken would not be in the graph if no IL made the call. Callees that the
// compiler calls on its own account, and IL that is not the assembly's, are left alone.
func (r *Reader) Prove(c *codemap.Code, of, callee Definition, calls Range) ([]Frame, error) {
	g, err := r.graph(c, of, callee)
	if err != nil || g == nil {
		return nil, err
	}
	g.calls = calls
	return g.certain(), nil
}

// graph has the method as its first node, the callee as its last, and between them what was inlined.
type graph struct {
	nodes []*node
	edges [][]edge // by node
	calls Range    // of the first node, which are considered
}

type edge struct {
	to   int
	at   uint32
	vain bool // any method can be at its end
}

// graph builds the graph; nil: nothing can be proved.
func (r *Reader) graph(c *codemap.Code, of, callee Definition) (*graph, error) {
	inlined, err := r.inlinees(c, of)
	if err != nil || len(inlined) == 0 {
		return nil, err
	}
	if len(inlined) > maxNodes-2 {
		return nil, nil
	}
	g := &graph{}
	for _, d := range append(append([]Definition{of}, inlined...), callee) {
		n, err := r.node(d)
		if err != nil {
			return nil, err
		}
		g.nodes = append(g.nodes, n)
	}
	first, last := g.nodes[0], g.nodes[len(g.nodes)-1]
	if !first.known || last.helper || first.synchronized && last.owner == "System.Threading.Monitor" {
		return nil, nil
	}
	// Methods of CoreLib that never change are inlined into other images without a note of it.
	if c.Kind == codemap.ReadyToRun && last.coreLib && !first.coreLib {
		return nil, nil
	}
	g.connect()
	return g, nil
}

// connect finds the edges.
func (g *graph) connect() {
	g.edges = make([][]edge, len(g.nodes))
	for i, n := range g.nodes[:len(g.nodes)-1] {
		if !n.known {
			for to := 1; to < len(g.nodes); to++ {
				g.edges[i] = append(g.edges[i], edge{to: to, vain: true})
			}
			continue
		}
		for k := range n.il {
			s := &n.il[k]
			for to := 1; to < len(g.nodes); to++ {
				if s.may(g.nodes[to]) {
					g.edges[i] = append(g.edges[i], edge{to, s.at, s.any})
				}
			}
		}
	}
}

// usable reports whether an edge from a node counts.
func (g *graph) usable(from int, e *edge) bool {
	return from != 0 || e.at >= g.calls.Start && e.at < g.calls.End
}

// certain returns the nodes that all paths from the first node to the last lead through.
func (g *graph) certain() []Frame {
	last := len(g.nodes) - 1
	path := g.path(-1, false)
	if path == nil {
		return nil
	}
	useful := g.useful()
	var out []Frame
	for _, i := range path {
		if i == 0 || i == last || g.path(i, true) != nil {
			continue
		}
		f := Frame{Definition: g.nodes[i].def}
		f.IL, f.HasIL = g.onlyCall(i, useful)
		out = append(out, f)
	}
	return out
}

// path finds a path from the first node to the last that avoids a node; nil: there is none. Only if
// vain is set may it lead over calls that could call anything.
func (g *graph) path(avoid int, vain bool) []int {
	last := len(g.nodes) - 1
	before := make([]int, len(g.nodes))
	for i := range before {
		before[i] = -1
	}
	for queue := []int{0}; len(queue) > 0; queue = queue[1:] {
		i := queue[0]
		for k := range g.edges[i] {
			e := &g.edges[i][k]
			if e.to == avoid || e.to == 0 || before[e.to] >= 0 || e.vain && !vain || !g.usable(i, e) {
				continue
			}
			before[e.to] = i
			queue = append(queue, e.to)
		}
	}
	if before[last] < 0 {
		return nil
	}
	var out []int
	for i := last; i != 0; i = before[i] {
		out = append([]int{i}, out...)
	}
	return append([]int{0}, out...)
}

// useful returns the nodes that a path to the last node leads on from.
func (g *graph) useful() []bool {
	out := make([]bool, len(g.nodes))
	out[len(out)-1] = true
	for changed := true; changed; {
		changed = false
		for i := range g.edges {
			for k := range g.edges[i] {
				if e := &g.edges[i][k]; !out[i] && out[e.to] && g.usable(i, e) {
					out[i], changed = true, true
				}
			}
		}
	}
	return out
}

// onlyCall returns where the only call of a node is that leads on; false: there are several.
func (g *graph) onlyCall(i int, useful []bool) (at uint32, ok bool) {
	if !g.nodes[i].known {
		return 0, false
	}
	for _, e := range g.edges[i] {
		if !useful[e.to] {
			continue
		}
		if ok && e.at != at {
			return 0, false
		}
		at, ok = e.at, true
	}
	return at, ok
}
