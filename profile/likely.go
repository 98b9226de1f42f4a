package profile

import (
	"cmp"
	"slices"
)

// Party is who takes part in waiting: a thread, or an async method that is suspended.
type Party struct {
	Thread int // index in Snapshot.Threads; -1: it is an async method
	Await  int // index in Snapshot.Awaits; -1: it is a thread
}

// ThreadParty is a thread as a Party, by its index in Snapshot.Threads.
func ThreadParty(i int) Party { return Party{i, -1} }

// AwaitParty is an async method as a Party, by its index in Snapshot.Awaits.
func AwaitParty(i int) Party { return Party{-1, i} }

// Await is an async method that is suspended.
type Await struct {
	Object   uint64   // its task, or what stands for that, at that moment
	Frames   []Frame  // of kind Async: the method, with the line of its await, and those that await it
	WaitsFor *Awaited // what it awaits; nil: that is not known
}

// Need is that a party cannot go on, most likely, before one of others has done something: released a semaphore,
// completed a TaskCompletionSource, come to the end of an async method. That is told from the code that these are in.
type Need struct {
	Of     Party
	Kind   LockKind // SemaphoreLock, CompletionLock, TaskLock, ContextLock
	Object uint64   // the semaphore, or the task
	Type   string
	Field  string // as in Wait
	// On are those of which one has to do it; none: it is not known who does. There may be more than these.
	On []Party
	// Elsewhere is how many permits of a semaphore others have than those in On.
	Elsewhere int
	// Ends: the wait may end by itself, when a token is cancelled.
	Ends bool
}

// Lost is a SemaphoreSlim whose permits are all taken, though no thread and no suspended async method is between taking
// and releasing one, by its code. Async methods wait for it that release it themselves, as do all that take a permit of
// it. Most likely a permit was not released: after an exception, for example.
type Lost struct {
	Object uint64 // the semaphore, at that moment
	Type   string
	Field  string  // as in Wait
	First  uint64  // the task of the one that has waited the longest: it stays the same while nobody gets a permit
	Awaits int     // async methods that wait for it
	Frames []Frame // of kind Async: the method that has waited the longest, and those that await it
}

// LikelyDeadlock is a circle of threads and suspended async methods that wait for one another, most likely.
type LikelyDeadlock struct {
	// Members are those of the shortest circle: each waits for the next one, and the last one for the first.
	Members []Party
	// Others are in the same knot of circles.
	Others []Party
	// Victims are threads that wait for members or others, directly or not: indices in Snapshot.Threads.
	Victims []int
}

// NeedOf returns why one party needs another; nil: that is an ordinary wait, or it does not.
func (s *Snapshot) NeedOf(of, on Party) *Need {
	for i := range s.Needs {
		if n := &s.Needs[i]; n.Of == of && slices.Contains(n.On, on) {
			return n
		}
	}
	return nil
}

// likely finds the circles that take in what is only likely. In it who waits for something that several can do, as
// release a semaphore, is stuck only if all of them are.
func (b *waitGraph) likely() {
	if len(b.s.Needs) == 0 {
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
	wants   [][]want // by node: it needs each of them
	stuck   []bool   // by node
}

// want is what a node needs: any one of some nodes has to do something.
type want struct {
	of     []int
	likely bool // it comes from a Need
}

func (l *likelyGraph) node(p Party) int {
	if p.Thread >= 0 {
		return p.Thread
	}
	return l.threads + p.Await
}

func (l *likelyGraph) party(n int) Party {
	if n < l.threads {
		return ThreadParty(n)
	}
	return AwaitParty(n - l.threads)
}

// valid reports whether a party is one of the snapshot.
func (l *likelyGraph) valid(p Party) bool {
	if p.Thread >= 0 {
		return p.Thread < l.threads && p.Await < 0
	}
	return p.Await >= 0 && p.Await < len(l.wants)-l.threads
}

// addThreads adds the waits of threads for others that are no mere guesses, as long as they do not end by themselves.
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
	for i := range l.b.s.Needs {
		n := &l.b.s.Needs[i]
		if !l.valid(n.Of) || slices.ContainsFunc(n.On, func(p Party) bool { return !l.valid(p) }) {
			continue
		}
		l.addHolders(n)
		if t := n.Of.Thread; t >= 0 && (l.b.s.Threads[t].Wait == nil || l.b.s.Threads[t].Wait.Timeout > 0) {
			continue
		}
		w := want{likely: true}
		for _, p := range n.On {
			if n.Elsewhere == 0 {
				w.of = append(w.of, l.node(p))
			}
		}
		at := l.node(n.Of)
		l.wants[at] = append(l.wants[at], w)
	}
}

// addHolders says of what is waited for who has it.
func (l *likelyGraph) addHolders(n *Need) {
	if n.Of.Thread < 0 {
		return
	}
	w := l.b.s.Threads[n.Of.Thread].Wait
	if w == nil {
		return
	}
	for i := range l.b.g.Locks {
		s := &l.b.g.Locks[i]
		if s.Object != w.Object || s.Object == 0 || s.Kind != LockKindOf(w) {
			continue
		}
		s.Field = cmp.Or(s.Field, n.Field)
		for _, p := range n.On {
			if !slices.Contains(s.Holders, p) {
				s.Holders = append(s.Holders, p)
			}
		}
	}
}

// settle finds the nodes that are stuck: those of which something is needed that nobody can do who is not stuck.
func (l *likelyGraph) settle() {
	l.stuck = make([]bool, len(l.wants))
	in := make([][]int, len(l.wants)) // who may go on if a node does
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

// never reports whether nobody does what is needed.
func (l *likelyGraph) never(w want) bool {
	return len(w.of) > 0 && !slices.ContainsFunc(w.of, func(n int) bool { return !l.stuck[n] })
}

// edges are those between nodes that are stuck.
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

// isNew reports whether a knot has a circle that is none without what is likely.
func (l *likelyGraph) isNew(members []int) bool {
	in := map[int]bool{}
	for _, n := range members {
		in[n] = true
	}
	for _, list := range [][]Deadlock{l.b.g.Deadlocks, l.b.g.Suspected} {
		for i := range list {
			if slices.ContainsFunc(list[i].Threads, func(t int) bool { return in[t] }) {
				return false // which says enough
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

// describe describes a knot of circles. members are sorted.
func (l *likelyGraph) describe(out [][]int, members []int) LikelyDeadlock {
	in := map[int]bool{}
	for _, n := range members {
		in[n] = true
	}
	circle := shortest(out, members, in)
	var d LikelyDeadlock
	for _, n := range circle {
		d.Members = append(d.Members, l.party(n))
	}
	for _, n := range members {
		if !slices.Contains(circle, n) {
			d.Others = append(d.Others, l.party(n))
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

// maxStarts bounds the nodes from which the shortest circle of a knot is looked for.
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
