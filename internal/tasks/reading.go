package tasks

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/naming"
	"clrsnap/snapshot"
)

// ChainMethod is an async method of a chain, and the index of its frame.
type ChainMethod struct {
	*async.Step
	Frame int // of TaskChain.Frames
}

// node is a box of a method that has not ended.
type node struct {
	obj    arch.Addr
	next   int // index of the next node of the chain; -1: none
	inners int // how many other nodes lead here
}

// maxChainBytes bounds the kept chains, in bytes: 100,000 different chains, with some frames each.
const maxChainBytes = 256 << 20

// starts returns the innermost nodes, and a node of each circle.
func starts(nodes []node) (out []int) {
	seen := make([]bool, len(nodes))
	follow := func(i int) {
		for out = append(out, i); i >= 0 && !seen[i]; i = nodes[i].next {
			seen[i] = true
		}
	}
	for i := range nodes {
		if nodes[i].inners == 0 {
			follow(i)
		}
	}
	for i := range nodes {
		if !seen[i] {
			follow(i)
		}
	}
	return out
}

func FramesCost(frames []snapshot.Frame) (cost int) {
	for i := range frames {
		cost += awaits.FrameCost(&frames[i])
	}
	return cost
}

// EachChain reads each chain from its innermost method on. use returns how many bytes of the chain are kept; during
// the call, Methods are the chain's methods if About is set. false: the time has ended, or too much is kept.
func (t *Walk) EachChain(use func(*snapshot.TaskChain) (cost int)) bool {
	nodes := t.nodes()
	t.FindSemaphores()
	return t.eachChain(nodes, use)
}

// eachChain is EachChain for some methods.
func (t *Walk) eachChain(nodes []node, use func(*snapshot.TaskChain) (cost int)) bool {
	room := maxChainBytes
	clear(t.Firsts)
	b := batchOf(t.p, t.Prove, t.readChainOf)
	queue := starts(nodes)
	for done := 0; done < len(queue); {
		if t.Stopped() || room <= 0 {
			return false
		}
		t.doing(done, len(queue))
		list, stands := t.readChains(b, nodes, queue[done:])
		for i, r := range list {
			n := &nodes[queue[done]]
			done++
			c, ended := t.accept(r, stands[i])
			if ended && n.next >= 0 { // the next method is the innermost now, if no other leads there
				next := &nodes[n.next]
				if next.inners--; next.inners == 0 {
					queue = append(queue, n.next)
				}
			}
			if c != nil {
				room -= use(c)
			}
		}
	}
	return true
}

// nodes returns the methods that have not ended. The next methods are not proved yet.
func (t *Walk) nodes() []node {
	found := t.Objects[BoxClass]
	nodes := make([]node, 0, len(found))
	index := map[arch.Addr]int{}
	var next []arch.Addr
	for i, obj := range slices.Concat(found, t.Earlier, slices.Sorted(maps.Keys(t.running))) {
		if i%1024 == 0 && t.Stopped() {
			break
		}
		obj, err := t.current(obj)
		if err != nil && i < len(found) {
			t.Unread++
		}
		if _, known := index[obj]; known || err != nil || obj == 0 {
			continue
		}
		to, _ := t.Reader.Next(obj)
		index[obj] = len(nodes)
		nodes, next = append(nodes, node{obj: obj, next: -1}), append(next, to)
	}
	for i := range nodes {
		if to, ok := index[next[i]]; ok && to != i {
			nodes[i].next = to
			nodes[to].inners++
		}
	}
	return nodes
}

// current returns the current address of a box. 0: its method has ended.
func (t *Walk) current(obj arch.Addr) (arch.Addr, error) {
	for range MaxMoves {
		at, err := t.Reader.Place(obj)
		if err == nil && at == 0 {
			return t.runs(obj)
		}
		if err != nil || at == obj {
			return at, err
		}
		obj = at
	}
	return 0, async.ErrMoved
}

// MaxMoves bounds how often a moved box is followed.
const MaxMoves = 4

// readChain reads a chain. alive: its innermost method has not ended, as far as is known.
func (t *Walk) readChain(obj arch.Addr) (out *snapshot.TaskChain, alive bool, err error) {
	steps, alive, err := t.steps(obj)
	if err != nil || !alive {
		return nil, alive || err != nil, err
	}
	steps, obj, circular, err := t.inner(steps, obj)
	if err != nil {
		return nil, true, err
	}
	out = &snapshot.TaskChain{Count: 1, State: snapshot.TaskRunning, Circular: circular}
	first := steps[0]
	run := t.running[obj]
	if first.Task() != 0 {
		run = nil // the method is suspended again
	}
	steps = t.p.ProgramSteps(steps)
	t.First, t.Waited, t.Methods = obj, 0, t.Methods[:0]
	for i := range steps {
		if i == 0 && run != nil {
			out.Frames = append(out.Frames, run.frame())
			out.Threads = []snapshot.ThreadRef{run.thread}
			continue
		}
		out.Frames = append(out.Frames, t.Frame(steps, i))
		if out.Frames[i].Origin() != snapshot.OfFramework {
			if !out.ReadsChannel && t.p.StepReads(&steps[i]) {
				out.ReadsChannel, out.Reader = true, i
			}
			if !out.Completes && t.p.StepCompletes(&steps[i]) {
				out.Completes, out.Completer = true, i
			}
		}
		if steps[i].Task() != 0 {
			t.Methods = append(t.Methods, ChainMethod{&steps[i], i})
		}
	}
	if len(steps) == 0 {
		return nil, false, nil
	}
	if isSuspended(&first) {
		out.WaitsFor, out.State, err = t.Awaited(&first)
	}
	if err == nil && t.About != nil {
		err = t.About()
	}
	return out, true, err
}

// isSuspended reports whether the method of a step waits, or has not begun to run again.
func isSuspended(s *async.Step) bool {
	return s.Resumption != nil || s.Box != nil && (!s.Box.HasState || s.Box.State >= 0)
}

// steps returns the methods of an object, and the awaiters.
func (t *Walk) steps(obj arch.Addr) (steps []async.Step, alive bool, err error) {
	steps, alive, err = t.Reader.Methods(obj)
	if err != nil {
		return nil, alive, err
	}
	if !alive {
		return t.runningSteps(obj)
	}
	chain, err := t.Reader.Awaiting(obj)
	return append(steps, chain.Steps...), true, err
}

// inner follows a chain inwards, to the methods that the first method waits for. As a rule there are none. But the
// walk may have missed methods that were moved meanwhile or had not been suspended yet, and a chain is never shown
// without the inner methods. A method with several waiters has a chain of its own. circular: the innermost method waits
// for a method of the chain.
func (t *Walk) inner(
	steps []async.Step, obj arch.Addr,
) (list []async.Step, innermost arch.Addr, circular bool, err error) {
	for range maxInner {
		if !isSuspended(&steps[0]) {
			break
		}
		at, err := t.awaitedMethod(&steps[0])
		if err != nil || at == 0 {
			return steps, obj, false, err
		}
		if leadsTo(steps, at) {
			return steps, obj, true, nil
		}
		longer, alive, err := t.steps(at)
		if err != nil {
			return nil, 0, false, err
		}
		if !alive || len(longer) <= len(steps) || !leadsTo(longer, obj) {
			break
		}
		steps, obj = longer, at
	}
	return steps, obj, false, nil
}

// maxInner bounds the number of methods of inner.
const maxInner = 256

func leadsTo(steps []async.Step, obj arch.Addr) bool {
	return slices.ContainsFunc(steps, func(s async.Step) bool { return s.Task() == obj })
}

// awaitedMethod returns the box, or the RuntimeAsyncTask, of the method that a suspended method waits for; 0: the
// method waits for something else, or the awaited method has ended.
func (t *Walk) awaitedMethod(s *async.Step) (arch.Addr, error) {
	a, err := t.AwaitedBy(s)
	if err != nil {
		return 0, err
	}
	if a, err = t.Unwrap(a); err != nil || a.Object == 0 {
		return 0, err
	}
	at := cmp.Or(t.Reader.OfMachine(a.Object, a.Class), a.Object)
	if at, err = t.Reader.Place(at); errors.Is(err, async.ErrNoBox) {
		return 0, nil
	}
	return at, err
}

// AwaitedBy returns the object that a suspended method waits for. Of methods suspended together, the innermost
// counts.
func (t *Walk) AwaitedBy(s *async.Step) (async.Awaited, error) {
	if s.Resumption == nil {
		return t.Reader.Awaited(s.Box)
	}
	a, err := t.Reader.AwaitedIn(s.Resumption.Task)
	if err == nil && a.Object == 0 {
		return t.resumer(s.Resumption.Task)
	}
	return a, err
}

// Frame describes a step. Equal steps with a state machine are described once.
func (t *Walk) Frame(steps []async.Step, i int) snapshot.Frame {
	s, inner := &steps[i], (*async.Step)(nil)
	if i > 0 {
		inner = &steps[i-1]
	}
	if s.Box == nil || s.Box.Machine.Passing {
		return t.p.AsyncStep(s, inner)
	}
	key := naming.AwaitKey{Module: s.Box.Machine.Table, State: s.Box.State}
	f, ok := t.frames[key]
	if !ok {
		f = t.p.AsyncStep(s, inner)
		t.frames[key] = f
	}
	return f
}
