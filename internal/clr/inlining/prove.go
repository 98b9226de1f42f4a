package inlining

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
)

// A Frame is an inlined method, at the moment of a call in the method.
type Frame struct {
	Definition
	Desc  arch.Addr // MethodDesc; 0: only the definition is known
	IL    uint32    // of the call, in bytes from the start of the IL
	HasIL bool      // IL is known
}

// Range is a part of a method's IL, in bytes, without the byte at End.
type Range struct{ Start, End uint32 }

// All is a range with every IL offset.
var All = Range{0, ^uint32(0)}

const maxNodes = 1 << 9

// Prove returns methods that were certainly inlined between the code c, at a call within a range of its IL, and the
// callee of the call: outermost first. Other methods, which are not certain, may lie between them. An empty result
// means that nothing is certain.
//
// The machine's call is a call in the IL of the method, or in the IL of a method that was inlined into it. The
// inlined methods are known (inlinees), and so are the possible calls among them (site.may). So the machine's call is
// the end of a path from the method to the callee, in the graph of the possible calls. A method on all such paths was
// inlined there. The proof depends neither on the compiler's order of the code, nor on the compiler's knowledge of
// types: a call that the compiler has devirtualised, even on a guess, is a path in the graph like any other.
//
// The graph would lack the path if no IL made the call. So Prove leaves callees alone that the compiler calls on its
// own account, and methods whose IL is not the assembly's.
func (r *Reader) Prove(c *codemap.Code, of, callee Definition, calls Range) ([]Frame, error) {
	g, err := r.graph(c, of, callee, calls)
	if err != nil || g == nil {
		return nil, err
	}
	return g.certain(&r.work)
}

// graph has the method as its first node, the callee as its last node, and the inlined methods between them.
type graph struct {
	nodes []*node
	edges [][]edge // by node; for all calls of one method at most two edges: a vain edge and another
	calls Range    // of the first node: the calls to consider
}

type edge struct {
	to   int
	at   uint32
	more bool // calls with the same end at other places, too
	vain bool // any method can be at the edge's end
}

// work is the number of comparisons that the proofs of a moment may still take. A proof takes some thousands.
type work int

const maxWork = 1 << 26

// take takes n comparisons; the error is ErrWork.
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
	// Methods of CoreLib that never change are inlined into other images without a record.
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
		for to := 1; to < len(g.nodes); to++ {
			if n.replaced && g.nodes[to].replaced || !n.known && !n.replaced {
				g.edges[i] = append(g.edges[i], edge{to: to, vain: true})
			}
		}
		there := make([]int, 2*len(g.nodes)) // indexes of edges plus 1, by node, for edges in vain and others
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

// connectBy adds an edge to a node, unless the node has an equal edge.
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

// size returns the number of edges.
func (g *graph) size() (n int) {
	for _, edges := range g.edges {
		n += len(edges)
	}
	return n
}

// certain returns the nodes on all paths from the first node to the last.
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

// path finds a path from the first node to the last that avoids a node; nil: there is none. vain allows calls that
// could call anything.
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

// useful returns the nodes with a path to the last node.
func (g *graph) useful() []bool {
	last := len(g.nodes) - 1
	before := make([][]int, len(g.nodes)) // by node: the nodes with an edge to the node
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

// onlyCall returns the place of a node's only call with a path to the last node; false: there are several such calls.
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
