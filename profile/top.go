package profile

import (
	"cmp"
	"slices"

	"clrsnap/snapshot"
)

// Amount is the sum of some samples of one mode.
type Amount struct {
	Weight  int64 // in Mode.Unit
	Events  int64 // events behind the samples; 0 unless in an event mode
	Samples int
}

// Add adds another amount of the same mode.
func (a *Amount) Add(b Amount) {
	a.Weight += b.Weight
	a.Events += b.Events
	a.Samples += b.Samples
}

// Part is an amount split by the state of the threads. The index is a State.
type Part [2]Amount

func (p *Part) add(q *Part) {
	p[Running].Add(q[Running])
	p[Waiting].Add(q[Waiting])
}

// All returns the sum of both states.
func (p *Part) All() Amount {
	a := p[Running]
	a.Add(p[Waiting])
	return a
}

// Totals are the sums of one mode of a recording.
type Totals struct {
	Mode       Mode
	All        Part
	Incomplete Amount                    // of All: in stacks with missing frames
	Empty      Part                      // of All: in stacks without any frame, and so in no function
	Functions  []FunctionTotal           // functions on the stacks of samples, in the order of Recording.Functions
	Threads    []ThreadTotal             // threads with samples, the heaviest first
	Origins    map[snapshot.Origin]*Part // as FunctionTotal.Direct, by Function.Origin
	// Effective is Kish's effective sample size, (Σw)²/Σw²: how many samples of equal weight would say as
	// much as these. The parts of a sample with a Count above 1 are taken as equal.
	Effective float64
	Variance  Variance // of All; 0: All is exact, or a time

	estimation estimation
}

// FunctionTotal is the sums of one function.
//
// Functions that a reader could not tell apart, because kind, module, name and parameters are equal, have
// one FunctionTotal together.
type FunctionTotal struct {
	Function int32 // index in Recording.Functions, the first of equal ones
	Self     Part  // of samples with the function as leaf
	// Direct is Self, and the events that happened in the function itself. A function of kind Event has
	// only events that happened in no code, because the event is the whole stack.
	Direct Part
	Total  Part // of samples with the function anywhere on their stacks; recursion counts once

	SelfVariance, DirectVariance, TotalVariance Variance
}

// ThreadTotal is the sum of one thread.
type ThreadTotal struct {
	Thread   int32 // index in Recording.Threads
	Total    Part
	Variance Variance
}

// Share returns a weight as a share of the mode's whole weight, from 0 to 1; 0 if the whole weight is 0.
func (t *Totals) Share(weight int64) float64 {
	all := t.All.All().Weight
	if all <= 0 {
		return 0
	}
	return float64(weight) / float64(all)
}

// Totals sums up the samples of a mode.
func (r *Recording) Totals(m Mode) *Totals {
	t := &Totals{Mode: m, Origins: map[snapshot.Origin]*Part{}, estimation: r.estimation(m)}
	self, variances := t.samples(r)
	t.functions(r, self, variances)
	for i := range t.Functions {
		t.origin(r.Functions[t.Functions[i].Function].Origin())
	}
	return t
}

// codes returns for each node the node of the code that runs there: the node itself, or, for an event, the
// nearest caller that is code, or else the root. codes relies on parents coming before their children.
func (r *Recording) codes() []int32 {
	codes := make([]int32, len(r.Nodes))
	for i := 1; i < len(codes); i++ {
		n := int32(i)
		if codes[n] = n; r.Function(n).Kind == snapshot.Event {
			codes[n] = codes[r.Nodes[n].Parent]
		}
	}
	return codes
}

// samples sums up all samples, and the samples of each thread. The results are the sums by node, and their
// variances if there are any.
func (t *Totals) samples(r *Recording) (self []Part, variances []Variance) {
	self = make([]Part, len(r.Nodes))
	threads := make([]Part, len(r.Threads))
	byThread := make([]Variance, len(r.Threads))
	if t.estimation == ofChosenEvent {
		variances = make([]Variance, len(r.Nodes))
	}
	sum, squares := 0.0, 0.0
	for i := range r.Samples {
		s := &r.Samples[i]
		if s.Mode != t.Mode {
			continue
		}
		a := Amount{s.Weight, s.Events, int(s.Count)}
		t.All[s.State].Add(a)
		self[s.Node][s.State].Add(a)
		if int(s.Thread) < len(threads) {
			threads[s.Thread][s.State].Add(a)
		}
		if variances != nil {
			v := s.Variance()
			t.Variance.Add(v)
			variances[s.Node].Add(v)
			if int(s.Thread) < len(threads) {
				byThread[s.Thread].Add(v)
			}
		}
		if s.Incomplete {
			t.Incomplete.Add(a)
		}
		w := float64(s.Weight)
		sum, squares = sum+w, squares+w*w/float64(max(s.Count, 1))
	}
	if squares > 0 {
		t.Effective = sum * sum / squares
	}
	for i := range threads {
		if threads[i].All().Samples > 0 {
			t.Threads = append(t.Threads, ThreadTotal{int32(i), threads[i], byThread[i]})
		}
	}
	slices.SortStableFunc(t.Threads, func(a, b ThreadTotal) int {
		return cmp.Compare(b.Total.All().Weight, a.Total.All().Weight)
	})
	if len(self) > 0 {
		t.Empty = self[0]
	}
	return self, variances
}

// functions sums up by function.
func (t *Totals) functions(r *Recording, self []Part, variances []Variance) {
	same := sameNames(r)
	sums := sumUp(r, self, variances, len(r.Functions), func(n int32) int32 {
		return same[r.Locations[r.Nodes[n].Location].Function]
	})
	for n, code := range r.codes() {
		if n == 0 || self[n].All().Samples == 0 {
			continue
		}
		if code == 0 { // the stack is an event alone
			code = int32(n)
		}
		t.origin(r.Function(code).Origin()).add(&self[n])
	}
	t.Functions = sums[:0] // in place: there can be many
	for f := range sums {
		if sums[f].Total.All().Samples > 0 {
			sums[f].Function = int32(f)
			t.Functions = append(t.Functions, sums[f])
		}
	}
}

// sumUp sums up by groups of nodes: group returns a node's group, less than groups, or -1. A node's subtree
// counts for its group, unless a caller of the node is in the group: the caller's subtree includes the node
// already.
func sumUp(
	r *Recording, self []Part, variances []Variance, groups int, group func(node int32) int32,
) []FunctionTotal {
	subtree, below := slices.Clone(self), slices.Clone(variances)
	for n := len(subtree) - 1; n > 0; n-- { // a parent comes before its children
		subtree[r.Nodes[n].Parent].add(&subtree[n])
		if below != nil {
			below[r.Nodes[n].Parent].Add(below[n])
		}
	}
	sums := make([]FunctionTotal, groups)
	active := make([]int32, groups) // how often each group is in the present stack
	codes := r.codes()
	r.visit(func(n int32) {
		if g := group(n); g >= 0 {
			if active[g]++; active[g] == 1 {
				sums[g].Total.add(&subtree[n])
				if below != nil {
					sums[g].TotalVariance.Add(below[n])
				}
			}
			sums[g].Self.add(&self[n])
			if variances != nil {
				sums[g].SelfVariance.Add(variances[n])
			}
		}
		code := codes[n]
		if code == 0 { // the stack is an event alone
			code = n
		}
		if g := group(code); g >= 0 {
			sums[g].Direct.add(&self[n])
			if variances != nil {
				sums[g].DirectVariance.Add(variances[n])
			}
		}
	}, func(n int32) {
		if g := group(n); g >= 0 {
			active[g]--
		}
	})
	return sums
}

// origin returns the sum of an origin. Functions of one FunctionTotal can have several origins: an assembly
// may belong to the program in one process, and to a package in a child.
func (t *Totals) origin(o snapshot.Origin) *Part {
	if t.Origins[o] == nil {
		t.Origins[o] = &Part{}
	}
	return t.Origins[o]
}

// visit walks the tree of stacks depth first, without the root.
func (r *Recording) visit(enter, leave func(node int32)) {
	if len(r.Nodes) == 0 {
		return
	}
	// The children of each node, as lists without allocations of their own.
	first, next := make([]int32, len(r.Nodes)), make([]int32, len(r.Nodes))
	for n := len(r.Nodes) - 1; n > 0; n-- {
		p := r.Nodes[n].Parent
		next[n], first[p] = first[p], int32(n)
	}
	for n := first[0]; n > 0; {
		enter(n)
		if first[n] > 0 {
			n = first[n]
			continue
		}
		leave(n)
		for next[n] == 0 && r.Nodes[n].Parent > 0 {
			n = r.Nodes[n].Parent
			leave(n)
		}
		n = next[n]
	}
}

// functionName identifies a function for a reader. Unlike an index, a functionName is valid in another
// recording.
type functionName struct {
	kind            snapshot.Kind
	module          string
	name, signature string
	fate            string
}

func nameOf(f *Function) functionName {
	return functionName{f.Kind, f.Module, cmp.Or(f.Display, f.Method), f.Signature, f.Fate}
}

// sameNames returns for each function the index of the first function with its name.
func sameNames(r *Recording) []int32 {
	byName := make(map[functionName]int32, len(r.Functions))
	same := make([]int32, len(r.Functions))
	for i := range r.Functions {
		name := nameOf(&r.Functions[i])
		f, ok := byName[name]
		if !ok {
			f = int32(i)
			byName[name] = f
		}
		same[i] = f
	}
	return same
}
