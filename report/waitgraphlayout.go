package report

import (
	"slices"

	"clrsnap/profile"
)

// A picture of a WaitGraph is a forest. Members of a circle, owners that do not wait, and locks without an owner
// are its roots, one below the other on the left. To the right of each are the threads that wait for it.

// picture is a WaitGraph as it is drawn.
type picture struct {
	s     *profile.Snapshot
	g     *profile.WaitGraph
	boxes []box
	more  []arrow // edges that do not lead from a box to its parent
	at    map[int]int
	rows  int
	cols  int
	left  int // threads that are not drawn, for lack of room
}

// box is a thread or a lock.
type box struct {
	thread   int // index in Snapshot.Threads; -1: none
	lock     int // index in WaitGraph.Locks; -1: none
	others   int // so many further threads; 0: it is no box for them
	row, col int
	parent   int // index of a box; -1: it is a root
	member   bool
}

// arrow leads from a box to another.
type arrow struct{ from, to int }

// Bounds of a picture.
const (
	mostBoxes    = 400
	mostChildren = 12 // of one box
)

func newPicture(s *profile.Snapshot, g *profile.WaitGraph) *picture {
	p := &picture{s: s, g: g, at: map[int]int{}}
	waiting := make([][]int, len(s.Threads)) // by thread: those that wait for it
	waits := make([]bool, len(s.Threads))
	for _, e := range g.Edges {
		waiting[e.For] = append(waiting[e.For], e.Thread)
		waits[e.Thread] = true
	}
	for _, list := range [][]profile.Deadlock{g.Deadlocks, g.Suspected} {
		for i := range list {
			if !list[i].Ended {
				p.circle(list[i].Threads, waiting)
			}
		}
	}
	for i := range g.Locks {
		if l := &g.Locks[i]; apart(l) {
			p.lock(i, waiting)
		}
	}
	for i := range s.Threads {
		if !waits[i] && len(waiting[i]) > 0 {
			p.tree(box{thread: i, lock: -1, parent: -1}, waiting)
		}
	}
	p.arrows()
	p.left = p.missing(p.all(waits, waiting))
	return p
}

// missing is how many of some threads have no box.
func (p *picture) missing(threads []int) (n int) {
	for _, t := range threads {
		if _, ok := p.at[t]; !ok {
			n++
		}
	}
	return n
}

// all returns the threads that a picture with room for them all has.
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

// circle adds the members of a deadlock, and those behind each.
func (p *picture) circle(members []int, waiting [][]int) {
	var roots []int
	for _, m := range members {
		if _, ok := p.at[m]; !ok && len(p.boxes) < mostBoxes {
			roots = append(roots, p.add(box{thread: m, lock: -1, parent: -1, member: true}))
		}
	}
	for _, r := range roots {
		p.boxes[r].row = p.rows
		p.behind(r, waiting)
		p.rows = max(p.rows, p.boxes[r].row+1)
	}
}

func (p *picture) lock(i int, waiting [][]int) {
	if len(p.boxes) >= mostBoxes {
		return
	}
	at := p.add(box{thread: -1, lock: i, parent: -1, row: p.rows})
	var threads []int
	for _, w := range p.g.Locks[i].Waiters {
		threads = append(threads, w.Thread)
	}
	p.children(at, threads, waiting)
	p.rows = max(p.rows, p.boxes[at].row+1)
}

func (p *picture) tree(b box, waiting [][]int) {
	if _, ok := p.at[b.thread]; ok || len(p.boxes) >= mostBoxes {
		return
	}
	b.row = p.rows
	at := p.add(b)
	p.behind(at, waiting)
	p.rows = max(p.rows, p.boxes[at].row+1)
}

func (p *picture) add(b box) int {
	if b.thread >= 0 {
		p.at[b.thread] = len(p.boxes)
	}
	p.cols = max(p.cols, b.col+1)
	p.boxes = append(p.boxes, b)
	return len(p.boxes) - 1
}

func (p *picture) behind(at int, waiting [][]int) {
	p.children(at, waiting[p.boxes[at].thread], waiting)
}

// maxColumns bounds how deep a chain of waits is drawn.
const maxColumns = 24

// children adds the threads that wait for what a box stands for, to the right of it.
func (p *picture) children(at int, threads []int, waiting [][]int) {
	threads = slices.DeleteFunc(slices.Clone(threads), func(t int) bool { _, ok := p.at[t]; return ok })
	slices.SortStableFunc(threads, func(a, b int) int { return len(waiting[b]) - len(waiting[a]) })
	for i, t := range threads {
		if _, ok := p.at[t]; ok {
			continue // it waits for one that is behind this box, too
		}
		b := box{thread: t, lock: -1, parent: at, row: p.rows, col: p.boxes[at].col + 1}
		if i == mostChildren && len(threads) > mostChildren+1 || len(p.boxes) >= mostBoxes || b.col >= maxColumns {
			b.thread, b.others = -1, p.missing(threads[i:])
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
		from, ok1 := p.at[e.Thread]
		to, ok2 := p.at[e.For]
		if ok1 && ok2 && p.boxes[from].parent != to {
			p.more = append(p.more, arrow{from, to})
		}
	}
}
