package snapshot

// components calls found with the strongly connected components of a graph. All nodes of a component can reach
// each other. out has, for each node, the targets of the node's edges. found must not keep its argument.
//
// The algorithm is Tarjan's (Depth-first search and linear graph algorithms, 1972), without recursion: a chain can
// be as long as the graph is large.
func components(out [][]int, found func(members []int)) {
	c := finder{out: out, found: found, order: make([]int, len(out)), low: make([]int, len(out)),
		on: make([]bool, len(out))}
	for root := range out {
		if c.order[root] == 0 {
			c.from(root)
		}
	}
}

// finder is the state of a search for components.
type finder struct {
	out   [][]int
	found func([]int)
	order []int  // by node: when the search met the node, from 1; 0: not yet
	low   []int  // by node: the earliest node, by order, known to be within reach
	on    []bool // by node: whether stack has the node
	stack []int  // nodes of incomplete components
	path  []step
	count int
}

// step is a node on the way to the current node, and how many of the node's edges have been followed.
type step struct{ node, edges int }

func (c *finder) from(root int) {
	c.enter(root)
	for len(c.path) > 0 {
		s := &c.path[len(c.path)-1]
		n := s.node
		if s.edges == len(c.out[n]) {
			c.leave(n)
			continue
		}
		to := c.out[n][s.edges]
		s.edges++
		switch {
		case c.order[to] == 0:
			c.enter(to)
		case c.on[to]:
			c.low[n] = min(c.low[n], c.order[to])
		}
	}
}

func (c *finder) enter(n int) {
	c.count++
	c.order[n], c.low[n], c.on[n] = c.count, c.count, true
	c.stack, c.path = append(c.stack, n), append(c.path, step{node: n})
}

func (c *finder) leave(n int) {
	c.path = c.path[:len(c.path)-1]
	if len(c.path) > 0 {
		up := c.path[len(c.path)-1].node
		c.low[up] = min(c.low[up], c.low[n])
	}
	if c.low[n] != c.order[n] {
		return
	}
	at := len(c.stack) - 1
	for c.stack[at] != n {
		at--
	}
	for _, m := range c.stack[at:] {
		c.on[m] = false
	}
	c.found(c.stack[at:])
	c.stack = c.stack[:at]
}
