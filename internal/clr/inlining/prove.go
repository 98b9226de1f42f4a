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
	g, err := r.graph(c, of, callee, calls)
	if err != nil || g == nil {
		return nil, err
	}
	return g.certain(&r.work)
}

// graph has the method as its first node, the callee as its last, and between them what was inlined.
type graph struct {
	nodes []*node
	edges [][]edge // by node; of all calls of one method one that is in vain, and one that is not
	calls Range    // of the first node, which are considered
}

type edge struct {
	to   int
	at   uint32
	more bool // there are such calls at other places, too
	vain bool // any method can be at its end
}

// work is how much may still be done to prove things of one moment, in comparisons. A proof takes some thousands.
type work int

const maxWork = 1 << 26

// take takes n; the error is ErrWork.
func (w *work) take(n int) error {
	if n < 0 || work(n) > *w {
		*w = 0
		return ErrWork
	}
	*w -= work(n)
	return nil
}

// graph builds the graph; nil: nothing can be proved.
func (r *Reader) graph(c *codemap.Code, of, callee Definition, calls Range) (*graph, error) {
	inlined, err := r.inlinees(c, of)
	if err != nil || len(inlined) == 0 {
		return nil, err
	}
	if len(inlined) > maxNodes-2 {
		return nil, nil
	}
	g := &graph{calls: calls}
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
	return g, g.connect(&r.work)
}

// connect finds the edges.
func (g *graph) connect(w *work) error {
	g.edges = make([][]edge, len(g.nodes))
	for i, n := range g.nodes[:len(g.nodes)-1] {
		if err := w.take((len(n.il) + 1) * len(g.nodes)); err != nil {
			return err
		}
		if !n.known {
			for to := 1; to < len(g.nodes); to++ {
				g.edges[i] = append(g.edges[i], edge{to: to, vain: true})
			}
			continue
		}
		there := make([]int, 2*len(g.nodes)) // their indices plus 1, by node and whether they are in vain
		for k := range n.il {
			s := &n.il[k]
			if i == 0 && (s.at < g.calls.Start || s.at >= g.calls.End) {
				continue
			}
			for to := 1; to < len(g.nodes); to++ {
				if s.may(g.nodes[to]) {
					g.connectBy(there, i, edge{to: to, at: s.at, vain: s.any})
				}
			}
		}
	}
	return nil
}

// connectBy adds an edge to a node, unless there is such a one.
func (g *graph) connectBy(there []int, from int, e edge) {
	at := 2 * e.to
	if e.vain {
		at++
	}
	if k := there[at]; k > 0 {
		known := &g.edges[from][k-1]
		known.more = known.more || known.at != e.at
		return
	}
	g.edges[from] = append(g.edges[from], e)
	there[at] = len(g.edges[from])
}

// size is how many edges there are.
func (g *graph) size() (n int) {
	for _, edges := range g.edges {
		n += len(edges)
	}
	return n
}

// certain returns the nodes that all paths from the first node to the last lead through.
func (g *graph) certain(w *work) ([]Frame, error) {
	last := len(g.nodes) - 1
	path := g.path(-1, false)
	if path == nil {
		return nil, nil
	}
	if err := w.take((len(path) + 2) * g.size()); err != nil {
		return nil, err
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
	return out, nil
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
			if e.to == avoid || e.to == 0 || before[e.to] >= 0 || e.vain && !vain {
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
	last := len(g.nodes) - 1
	before := make([][]int, len(g.nodes)) // the nodes with an edge to a node
	for i := range g.edges {
		for k := range g.edges[i] {
			to := g.edges[i][k].to
			before[to] = append(before[to], i)
		}
	}
	out := make([]bool, len(g.nodes))
	out[last] = true
	for left := []int{last}; len(left) > 0; {
		n := left[len(left)-1]
		left = left[:len(left)-1]
		for _, i := range before[n] {
			if !out[i] {
				out[i] = true
				left = append(left, i)
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
		if e.more || ok && e.at != at {
			return 0, false
		}
		at, ok = e.at, true
	}
	return at, ok
}
