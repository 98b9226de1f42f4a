package snapshot

import (
	"cmp"
	"slices"
)

// WaitNode is a node of the likely wait graph: a thread, or a suspended async method.
type WaitNode struct {
	Thread int // index in Snapshot.Threads; -1: an async method
	Await  int // index in Snapshot.Awaits; -1: a thread
}

// ThreadNode is a thread as a WaitNode, by its index in Snapshot.Threads.
func ThreadNode(i int) WaitNode { return WaitNode{i, -1} }

// AwaitNode is an async method as a WaitNode, by its index in Snapshot.Awaits.
func AwaitNode(i int) WaitNode { return WaitNode{-1, i} }

// Await is a suspended async method.
type Await struct {
	Object   uint64   // the method's task, or the object that stands for the task, at that moment
	Frames   []Frame  // of kind Async: the method, with the line of its await, and the methods that await it
	WaitsFor *Awaited // what the method awaits; nil: not known
}

// LikelyEdge is a likely wait edge: the waiter most likely cannot go on before one of the holders acts. The holder
// releases a semaphore, completes a TaskCompletionSource, or comes to the end of an async method. The code of the
// waiters and holders tells the edge.
type LikelyEdge struct {
	Waiter WaitNode
	Kind   LockKind // SemaphoreLock, CompletionLock, TaskLock, ContextLock
	Object uint64   // the semaphore, or the task
	Type   string
	Field  string // as in Wait
	// Holders: one holder must act; none: the holders are not known. There may be more holders than these.
	Holders []WaitNode
	// Elsewhere is how many permits of a semaphore have holders outside Holders.
	Elsewhere int
	// Ends: the wait may end by itself, when a token is cancelled.
	Ends bool
}

// PermitQueue is the async methods that wait for a SemaphoreSlim whose permits are all taken.
type PermitQueue struct {
	Object  uint64 // the semaphore, at that moment
	Type    string
	Field   string     // as in Wait
	Awaits  int        // number of async methods in the queue
	Frames  []Frame    // of kind Async: the longest waiter, and the methods that await it; none: not known
	Holders []WaitNode // of permits, most likely, by their code; none: not known
}

// Lost is a SemaphoreSlim whose permits are all taken, though no thread and no suspended async method is between
// taking and releasing a permit, by its code. The waiters are async methods. Most likely somebody did not release a
// permit: after an exception, for example. If only threads wait, the permits are Leased.
type Lost struct {
	Object  uint64 // the semaphore, at that moment
	Type    string
	Field   string  // as in Wait
	First   uint64  // the task of the longest waiter: the task stays First while nobody gets a permit; or a thread's id
	Awaits  int     // number of async methods that wait for the semaphore
	Frames  []Frame // of kind Async: the longest waiter, and the methods that await it; or the stack of a thread
	Threads int     // number of threads that wait, if no async method does
	// Leased: the permits are taken by the methods Takes, for other code to release by the methods Gives, as a pool
	// leases connections. Nobody is seen in code that leads from the former to the latter. Otherwise the waiters
	// release the permits that they take.
	Leased       bool
	Takes, Gives []string
	Permits      int // of a lease: the number of permits; 0: not known
	// Again is a method of a waiter that may have a permit already, because its code takes permits in several places;
	// "": none.
	Again string
	// Iterators are the async iterators that have a permit, and are at a yield return. If anything
	// keeps an iterator, somebody may go on with it. If nothing does, the permit is lost for certain. Then others may
	// have other permits.
	Iterators []uint64
	Iterator  string // the method of the first iterator
}

// LikelyDeadlock is a circle of threads and suspended async methods that wait for one another, most likely.
type LikelyDeadlock struct {
	// Members are the shortest circle: each member waits for the next, and the last member for the first.
	Members []WaitNode
	// Others are in the strongly connected component of the circle.
	Others []WaitNode
	// Victims are threads that wait for members or others, directly or not: indices in Snapshot.Threads.
	Victims []int
}

// LikelyEdgeOf returns the likely wait edge from a waiter to a holder; nil: an ordinary wait, or no wait.
func (s *Snapshot) LikelyEdgeOf(of, on WaitNode) *LikelyEdge {
	for i := range s.LikelyEdges {
		if n := &s.LikelyEdges[i]; n.Waiter == of && slices.Contains(n.Holders, on) {
			return n
		}
	}
	return nil
}

// likely finds the circles with likely wait edges. There, a waiter with several possible holders, for example of a
// semaphore, is stuck only if all these holders are stuck.
func (b *waitGraph) likely() {
	if len(b.s.LikelyEdges) == 0 {
		return
	}
	l := likelyGraph{b: b, threads: len(b.s.Threads)}
	l.wants = make([][]want, l.threads+len(b.s.Awaits))
	l.addThreads()
	l.addNeeds()
	l.settle()
	out := l.edges()
	components(out, func(members []int) {
		if isCircle(out, members) && l.isNew(members) {
			b.g.Likely = append(b.g.Likely, l.describe(out, slices.Sorted(slices.Values(members))))
		}
	})
	slices.SortFunc(b.g.Likely, func(x, y LikelyDeadlock) int {
		return cmp.Or(cmp.Compare(len(y.Victims), len(x.Victims)),
			cmp.Compare(l.node(x.Members[0]), l.node(y.Members[0])))
	})
}

// likelyGraph is the graph of threads and async methods: threads first, then async methods.
type likelyGraph struct {
	b       *waitGraph
	threads int
	wants   [][]want // by node: the node needs each want
	stuck   []bool   // by node
}

// want is a wait edge of a node: any one of some nodes must act.
type want struct {
	of     []int
	likely bool // the edge comes from a LikelyEdge
}

func (l *likelyGraph) node(p WaitNode) int {
	if p.Thread >= 0 {
		return p.Thread
	}
	return l.threads + p.Await
}

func (l *likelyGraph) at(n int) WaitNode {
	if n < l.threads {
		return ThreadNode(n)
	}
	return AwaitNode(n - l.threads)
}

// valid reports whether a node is in the snapshot.
func (l *likelyGraph) valid(p WaitNode) bool {
	if p.Thread >= 0 {
		return p.Thread < l.threads && p.Await < 0
	}
	return p.Await >= 0 && p.Await < len(l.wants)-l.threads
}

// addThreads adds the ordinary wait edges of threads, unless a wait ends by itself.
func (l *likelyGraph) addThreads() {
	for from, to := range l.b.out {
		if len(to) == 0 || l.b.s.Threads[from].Wait.Timeout > 0 {
			continue
		}
		for _, n := range to {
			l.wants[from] = append(l.wants[from], want{of: []int{n}})
		}
	}
}

func (l *likelyGraph) addNeeds() {
	for i := range l.b.s.LikelyEdges {
		n := &l.b.s.LikelyEdges[i]
		if !l.valid(n.Waiter) || slices.ContainsFunc(n.Holders, func(p WaitNode) bool { return !l.valid(p) }) {
			continue
		}
		l.addHolders(n)
		if t := n.Waiter.Thread; t >= 0 && (l.b.s.Threads[t].Wait == nil || l.b.s.Threads[t].Wait.Timeout > 0) {
			continue
		}
		w := want{likely: true}
		for _, p := range n.Holders {
			if n.Elsewhere == 0 {
				w.of = append(w.of, l.node(p))
			}
		}
		at := l.node(n.Waiter)
		l.wants[at] = append(l.wants[at], w)
	}
}

// addHolders adds the holders to the lock of a likely wait edge.
func (l *likelyGraph) addHolders(n *LikelyEdge) {
	if n.Waiter.Thread < 0 {
		return
	}
	w := l.b.s.Threads[n.Waiter.Thread].Wait
	if w == nil {
		return
	}
	for i := range l.b.g.Locks {
		s := &l.b.g.Locks[i]
		if s.Object != w.Object || s.Object == 0 || s.Kind != LockKindOf(w) {
			continue
		}
		s.Field = cmp.Or(s.Field, n.Field)
		for _, p := range n.Holders {
			if !slices.Contains(s.Holders, p) {
				s.Holders = append(s.Holders, p)
			}
		}
	}
}

// settle finds the stuck nodes. A node is stuck if one of its wants has only stuck holders.
func (l *likelyGraph) settle() {
	l.stuck = make([]bool, len(l.wants))
	in := make([][]int, len(l.wants)) // the nodes that may go on if a node does
	for n, list := range l.wants {
		l.stuck[n] = true
		for _, w := range list {
			for _, on := range w.of {
				in[on] = append(in[on], n)
			}
		}
	}
	queue := make([]int, len(l.wants))
	for n := range queue {
		queue[n] = n
	}
	for ; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		if !l.stuck[n] || slices.ContainsFunc(l.wants[n], l.never) {
			continue
		}
		l.stuck[n] = false
		queue = append(queue, in[n]...)
	}
}

// never reports whether all holders of a want are stuck.
func (l *likelyGraph) never(w want) bool {
	return len(w.of) > 0 && !slices.ContainsFunc(w.of, func(n int) bool { return !l.stuck[n] })
}

// edges are the edges between stuck nodes.
func (l *likelyGraph) edges() [][]int {
	out := make([][]int, len(l.wants))
	for n, list := range l.wants {
		for _, w := range list {
			if !l.stuck[n] || !l.never(w) {
				continue
			}
			for _, on := range w.of {
				if !slices.Contains(out[n], on) {
					out[n] = append(out[n], on)
				}
			}
		}
	}
	return out
}

// isNew reports whether the circles of a component need likely wait edges.
func (l *likelyGraph) isNew(members []int) bool {
	in := map[int]bool{}
	for _, n := range members {
		in[n] = true
	}
	for _, list := range [][]Deadlock{l.b.g.Deadlocks, l.b.g.Suspected} {
		for i := range list {
			if slices.ContainsFunc(list[i].Threads, func(t int) bool { return in[t] }) {
				return false // the ordinary deadlock says enough
			}
		}
	}
	for _, n := range members {
		for _, w := range l.wants[n] {
			if w.likely && slices.ContainsFunc(w.of, func(on int) bool { return in[on] }) {
				return true
			}
		}
	}
	return false
}

// describe describes a component with circles. members are sorted.
func (l *likelyGraph) describe(out [][]int, members []int) LikelyDeadlock {
	in := map[int]bool{}
	for _, n := range members {
		in[n] = true
	}
	circle := shortest(out, members, in)
	var d LikelyDeadlock
	for _, n := range circle {
		d.Members = append(d.Members, l.at(n))
	}
	for _, n := range members {
		if !slices.Contains(circle, n) {
			d.Others = append(d.Others, l.at(n))
		}
	}
	back := make([][]int, len(out))
	for n, list := range out {
		for _, on := range list {
			back[on] = append(back[on], n)
		}
	}
	for queue := slices.Clone(members); len(queue) > 0; queue = queue[1:] {
		for _, n := range back[queue[0]] {
			if in[n] {
				continue
			}
			in[n] = true
			queue = append(queue, n)
			if n < l.threads {
				d.Victims = append(d.Victims, n)
			}
		}
	}
	slices.Sort(d.Victims)
	return d
}

// maxStarts bounds the nodes from which shortest searches the shortest circle of a component.
const maxStarts = 64

// shortest returns the shortest circle among some nodes.
func shortest(out [][]int, members []int, in map[int]bool) (best []int) {
	for _, start := range members[:min(len(members), maxStarts)] {
		if c := circleFrom(out, start, in); len(c) > 0 && (best == nil || len(c) < len(best)) {
			best = c
		}
	}
	return best
}

// circleFrom returns the shortest circle through a node.
func circleFrom(out [][]int, start int, in map[int]bool) []int {
	from := map[int]int{}
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		for _, on := range out[n] {
			if on == start {
				circle := []int{n}
				for ; n != start; n = from[n] {
					circle = append(circle, from[n])
				}
				slices.Reverse(circle)
				return circle
			}
			if _, ok := from[on]; !ok && in[on] {
				from[on] = n
				queue = append(queue, on)
			}
		}
	}
	return nil
}
