package report

import (
	"slices"

	"clrsnap/snapshot"
)

// A picture of a WaitGraph is a forest. The roots are members of a circle, owners that do not wait, and locks without
// an owner, one below the other on the left. The waiters of a box are to the right of the box. Circles with likely
// wait edges come after the others.

// picture is the drawing of a WaitGraph.
type picture struct {
	s     *snapshot.Snapshot
	g     *snapshot.WaitGraph
	boxes []box
	more  []arrow                   // edges that do not lead from a box to its parent
	at    map[snapshot.WaitNode]int // boxes of threads and suspended methods
	rows  int
	cols  int
	left  int // threads left out, for lack of room
}

// box is a thread or a lock.
type box struct {
	who      snapshot.WaitNode // nobody: the box is for no thread or suspended method
	lock     int               // index in WaitGraph.Locks; -1: none
	others   int               // number of further threads in this box; 0: no box for further threads
	row, col int
	parent   int // index of a box; -1: a root
	member   bool
	knot     int // number, from 1, of a likely deadlock with this member; 0: none
}

// nobody is not a WaitNode.
var nobody = snapshot.WaitNode{Thread: -1, Await: -1}

// arrow leads from one box to another.
type arrow struct {
	from, to int
	likely   bool
}

// Bounds of a picture.
const (
	mostBoxes    = 400
	mostChildren = 12 // of one box
)

func newPicture(s *snapshot.Snapshot, g *snapshot.WaitGraph) *picture {
	p := &picture{s: s, g: g, at: map[snapshot.WaitNode]int{}}
	waiting := make([][]int, len(s.Threads)) // by thread: its waiters
	waits := make([]bool, len(s.Threads))
	for _, e := range g.Edges {
		waiting[e.For] = append(waiting[e.For], e.Thread)
		waits[e.Thread] = true
	}
	for _, list := range [][]snapshot.Deadlock{g.Deadlocks, g.Suspected} {
		for i := range list {
			if !list[i].Ended {
				p.circle(nodesOf(list[i].Threads), waiting, box{member: true})
			}
		}
	}
	knots := knotsOf(s, g)
	for i := range knots {
		p.circle(knots[i].nodes, waiting, box{knot: i + 1})
	}
	for i := range g.Locks {
		if l := &g.Locks[i]; apart(l) {
			p.lock(i, waiting)
		}
	}
	for i := range s.Threads {
		if !waits[i] && len(waiting[i]) > 0 {
			p.tree(box{who: snapshot.ThreadNode(i), lock: -1, parent: -1}, waiting)
		}
	}
	p.arrows()
	p.likelyArrows(knots)
	p.left = p.missing(p.all(waits, waiting))
	return p
}

// missing counts the threads without a box.
func (p *picture) missing(threads []int) (n int) {
	for _, t := range threads {
		if !p.has(t) {
			n++
		}
	}
	return n
}

// has reports whether a thread has a box.
func (p *picture) has(thread int) bool {
	_, ok := p.at[snapshot.ThreadNode(thread)]
	return ok
}

func nodesOf(threads []int) []snapshot.WaitNode {
	out := make([]snapshot.WaitNode, len(threads))
	for i, t := range threads {
		out[i] = snapshot.ThreadNode(t)
	}
	return out
}

// all returns the threads of a picture with room for all.
func (p *picture) all(waits []bool, waiting [][]int) (threads []int) {
	for i := range p.g.Locks {
		if l := &p.g.Locks[i]; apart(l) {
			for _, w := range l.Waiters {
				if !waits[w.Thread] && len(waiting[w.Thread]) == 0 {
					threads = append(threads, w.Thread)
				}
			}
		}
	}
	for i := range waits {
		if waits[i] || len(waiting[i]) > 0 {
			threads = append(threads, i)
		}
	}
	return threads
}

// circle adds the members of a deadlock, and the threads behind each member. The boxes are like b.
func (p *picture) circle(members []snapshot.WaitNode, waiting [][]int, b box) {
	var roots []int
	for _, m := range members {
		if _, ok := p.at[m]; !ok && len(p.boxes) < mostBoxes {
			b.who, b.lock, b.parent = m, -1, -1
			roots = append(roots, p.add(b))
		}
	}
	for _, r := range roots {
		p.boxes[r].row = p.rows
		p.behind(r, waiting)
		p.rows = max(p.rows, p.boxes[r].row+1)
	}
}

// lock adds a lock without an owner, unless all its waiters are already drawn: members of likely deadlocks have
// arrows to the likely holders of permits.
func (p *picture) lock(i int, waiting [][]int) {
	var threads []int
	for _, w := range p.g.Locks[i].Waiters {
		threads = append(threads, w.Thread)
	}
	if len(p.boxes) >= mostBoxes || p.missing(threads) == 0 {
		return
	}
	at := p.add(box{who: nobody, lock: i, parent: -1, row: p.rows})
	p.children(at, threads, waiting)
	p.rows = max(p.rows, p.boxes[at].row+1)
}

func (p *picture) tree(b box, waiting [][]int) {
	if _, ok := p.at[b.who]; ok || len(p.boxes) >= mostBoxes {
		return
	}
	b.row = p.rows
	at := p.add(b)
	p.behind(at, waiting)
	p.rows = max(p.rows, p.boxes[at].row+1)
}

func (p *picture) add(b box) int {
	if b.who != nobody {
		p.at[b.who] = len(p.boxes)
	}
	p.cols = max(p.cols, b.col+1)
	p.boxes = append(p.boxes, b)
	return len(p.boxes) - 1
}

func (p *picture) behind(at int, waiting [][]int) {
	if t := p.boxes[at].who.Thread; t >= 0 {
		p.children(at, waiting[t], waiting)
	}
}

// maxColumns bounds the drawn length of a chain of waits.
const maxColumns = 24

// children adds the waiters of a box, to the right of the box.
func (p *picture) children(at int, threads []int, waiting [][]int) {
	threads = slices.DeleteFunc(slices.Clone(threads), p.has)
	slices.SortStableFunc(threads, func(a, b int) int { return len(waiting[b]) - len(waiting[a]) })
	for i, t := range threads {
		if p.has(t) {
			continue // also waits for a thread behind this box
		}
		b := box{who: snapshot.ThreadNode(t), lock: -1, parent: at, row: p.rows, col: p.boxes[at].col + 1}
		if i == mostChildren && len(threads) > mostChildren+1 || len(p.boxes) >= mostBoxes || b.col >= maxColumns {
			b.who, b.others = nobody, p.missing(threads[i:])
			p.add(b)
			p.rows++
			return
		}
		child := p.add(b)
		p.behind(child, waiting)
		p.rows = max(p.rows, p.boxes[child].row+1)
	}
}

// arrows finds the edges that do not lead from a box to its parent.
func (p *picture) arrows() {
	for _, e := range p.g.Edges {
		from, ok1 := p.at[snapshot.ThreadNode(e.Thread)]
		to, ok2 := p.at[snapshot.ThreadNode(e.For)]
		if ok1 && ok2 && p.boxes[from].parent != to {
			p.more = append(p.more, arrow{from: from, to: to})
		}
	}
}

// likelyArrows adds the arrows of likely deadlocks, and the arrows from a lock to its likely holders.
func (p *picture) likelyArrows(knots []knot) {
	add := func(from int, to snapshot.WaitNode) {
		if at, ok := p.at[to]; ok {
			p.more = append(p.more, arrow{from: from, to: at, likely: true})
		}
	}
	for i := range knots {
		for _, a := range knots[i].needs {
			if from, ok := p.at[a.from]; ok {
				add(from, a.to)
			}
		}
	}
	for i := range p.boxes {
		if at := p.boxes[i].lock; at >= 0 {
			holders := p.g.Locks[at].Holders
			for _, h := range holders[:min(len(holders), mostNeeds)] {
				add(i, h)
			}
		}
	}
}
