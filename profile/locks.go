package profile

import (
	"cmp"
	"slices"
	"time"

	"clrsnap/snapshot"
)

// LockTotal is the sum of the waits for one lock.
type LockTotal struct {
	Function int32 // index in Recording.Functions: the event that names the lock
	Waits    Amount
	Holders  []HolderTotal // the holders with the longest total waits first
}

// HolderTotal is the sum of the waits for a lock with one holder.
type HolderTotal struct {
	Function int32 // index in Recording.Functions: the event that names the holder
	Waits    Amount
	// Stacks has the stacks that the holder was seen with, each once, the most frequent first.
	// Stacks is empty if there was no look at the holder during a wait.
	Stacks []HolderStack
}

// HolderStack is a stack that the holder of a lock was seen with.
type HolderStack struct {
	Node  int32 // index in Recording.Nodes
	Looks int
	// Waited is the shortest wait for the lock at one of these looks.
	Waited time.Duration
}

// Mean returns how long a wait was on average.
func (t *LockTotal) Mean() time.Duration {
	return time.Duration(t.Waits.Weight / max(t.Waits.Events, 1))
}

// Locks sums up the waits for locks by lock, the longest total first. Waits for unknown locks are
// left out.
func (r *Recording) Locks() []LockTotal {
	sums := lockSums{r: r, same: sameNames(r), of: map[int32]int{}, holders: map[[2]int32]int{}}
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Mode == Contention {
			sums.add(s)
		}
	}
	for i := range r.Holds {
		sums.look(&r.Holds[i])
	}
	for i := range sums.locks {
		t := &sums.locks[i]
		slices.SortStableFunc(t.Holders, func(a, b HolderTotal) int {
			return cmp.Compare(b.Waits.Weight, a.Waits.Weight)
		})
		for j := range t.Holders {
			slices.SortStableFunc(t.Holders[j].Stacks, func(a, b HolderStack) int {
				return cmp.Compare(b.Looks, a.Looks)
			})
		}
	}
	slices.SortStableFunc(sums.locks, func(a, b LockTotal) int { return cmp.Compare(b.Waits.Weight, a.Waits.Weight) })
	return sums.locks
}

// lockSums are the sums of locks while they are made.
type lockSums struct {
	r       *Recording
	same    []int32 // for each function the first function with its name
	locks   []LockTotal
	of      map[int32]int    // indices in locks, by function
	holders map[[2]int32]int // indices in LockTotal.Holders, by the functions of lock and holder
}

// event returns the function of a node that is an event; -1: the node is no event.
func (s *lockSums) event(node int32) int32 {
	if f := s.r.Function(node); f == nil || f.Kind != snapshot.Event {
		return -1
	}
	return s.same[s.r.Locations[s.r.Nodes[node].Location].Function]
}

// add adds a wait, unless only the leaf is an event: then the lock is not known.
func (s *lockSums) add(x *Sample) {
	holder := s.event(x.Node)
	if holder < 0 {
		return
	}
	lock := s.event(s.r.Nodes[x.Node].Parent)
	if lock < 0 {
		return
	}
	i, ok := s.of[lock]
	if !ok {
		i = len(s.locks)
		s.of[lock], s.locks = i, append(s.locks, LockTotal{Function: lock})
	}
	t := &s.locks[i]
	key := [2]int32{lock, holder}
	h, ok := s.holders[key]
	if !ok {
		h = len(t.Holders)
		s.holders[key], t.Holders = h, append(t.Holders, HolderTotal{Function: holder})
	}
	a := Amount{x.Weight, x.Events, int(x.Count)}
	t.Waits.Add(a)
	t.Holders[h].Waits.Add(a)
}

// look adds a look at a holder to the totals of lock and holder.
func (s *lockSums) look(h *Hold) {
	i, ok := s.of[s.same[h.Lock]]
	if !ok {
		return
	}
	t := &s.locks[i]
	at, ok := s.holders[[2]int32{t.Function, s.same[h.Holder]}]
	if !ok {
		return // another method was seen more often during each wait
	}
	to := &t.Holders[at]
	for j := range to.Stacks {
		if x := &to.Stacks[j]; x.Node == h.Node {
			x.Looks++
			x.Waited = min(x.Waited, h.Waited)
			return
		}
	}
	if len(to.Stacks) < maxHolderStacks {
		to.Stacks = append(to.Stacks, HolderStack{Node: h.Node, Looks: 1, Waited: h.Waited})
	}
}

// maxHolderStacks bounds the stacks of one holder of one lock.
const maxHolderStacks = 100
