package profile

import (
	"cmp"
	"slices"

	"clrsnap/snapshot"
)

// collectors are the threads of the garbage collector, by RecordedThread.Role. Over some time, other than at one
// moment, a waiting collector thread nearly always waits for the next collection. During a collection the threads
// spin before they wait.
var collectors = map[string]snapshot.Idle{"GC": "garbage collector", "Background GC": "garbage collector"}

// Idle is Thread.Idle of the sampled thread, at that moment. A blocked thread of the garbage collector is idle, too.
func (r *Recording) Idle(x *Sample) snapshot.Idle {
	idle, managed := snapshot.IdleIn(func(yield func(snapshot.Code) bool) {
		for l := range r.Stack(r.waits(x)) {
			f := &r.Functions[l.Function]
			if !l.Inlined && !f.noCode() && !yield(f.code()) {
				return
			}
		}
	}, x.State == Waiting)
	switch {
	case !managed:
		return r.idleRole(x)
	case x.Incomplete:
		return ""
	}
	return idle
}

// waits returns the node of the code in which a thread waits. In mode Waits the leaf is an event that names the wait.
func (r *Recording) waits(x *Sample) int32 {
	if f := r.Function(x.Node); x.Mode == Waits && f != nil && f.Kind == snapshot.Event {
		return r.Nodes[x.Node].Parent
	}
	return x.Node
}

// idleRole is Idle of a sample without managed frames.
func (r *Recording) idleRole(x *Sample) snapshot.Idle {
	role := r.Threads[x.Thread].Role
	switch {
	case x.State != Waiting:
		return ""
	case x.Incomplete || x.Node == 0: // the finalizer could be in a method of the program
		return collectors[role]
	}
	return cmp.Or(snapshot.IdleRole(role), collectors[role])
}

// idler finds the samples of idle threads. For a stack, idler and snapshot.IdleIn agree, but idler looks at each node
// once: stacks can be deep, and have most of their frames in common.
type idler struct {
	r *Recording
	// By node: the node itself or the nearest node toward the base that is a method or an event; 0: none.
	code []int32
	jit  []bool                    // by node: the compiler runs, called by that method
	idle [2][]*snapshot.IdleThread // by thread state and node of a method: the idle thread if the method is the leaf
}

// idleFunction has the known facts of a function.
type idleFunction struct {
	kind   snapshot.Kind
	noCode bool
	jit    bool
	thread *snapshot.IdleThread // the kind of thread that starts with the function
	waits  bool                 // the function is a part of waits
	method string
	idle   [2]map[*snapshot.IdleThread]bool // results of idleIn, by thread state
}

// idleIn reports whether a thread with a state is idle if the thread has called the function.
func (f *idleFunction) idleIn(t *snapshot.IdleThread, s State) bool {
	idle, ok := f.idle[s][t]
	if !ok {
		if f.idle[s] == nil {
			f.idle[s] = map[*snapshot.IdleThread]bool{}
		}
		idle = t.WaitsIn(f.method, s == Waiting)
		f.idle[s][t] = idle
	}
	return idle
}

func (r *Recording) idler() *idler {
	d := &idler{r: r, code: make([]int32, len(r.Nodes)), jit: make([]bool, len(r.Nodes))}
	functions := make([]idleFunction, len(r.Functions))
	for i := range functions {
		functions[i] = idleFunctionOf(&r.Functions[i])
	}
	for s := range d.idle {
		d.idle[s] = make([]*snapshot.IdleThread, len(r.Nodes))
	}
	for n := 1; n < len(r.Nodes); n++ { // a parent comes before its children
		f := &functions[r.Locations[r.Nodes[n].Location].Function]
		parent := r.Nodes[n].Parent
		if r.inlined(int32(n)) {
			d.code[n], d.jit[n] = d.code[parent], d.jit[parent]
			continue
		}
		if f.kind == snapshot.Native || f.kind == snapshot.Kernel || f.noCode {
			d.code[n], d.jit[n] = d.code[parent], d.jit[parent] || f.jit
			continue
		}
		d.code[n] = int32(n)
		caller := d.code[parent]
		var called *snapshot.IdleThread
		if caller > 0 {
			called = functions[r.Locations[r.Nodes[caller].Location].Function].thread
		}
		for s := range d.idle {
			switch {
			case f.thread != nil && f.thread.WaitsIn("", State(s) == Waiting):
				d.idle[s][n] = f.thread
			case f.thread != nil || !f.waits || caller == 0:
			case called == nil:
				d.idle[s][n] = d.idle[s][caller]
			case f.idleIn(called, State(s)):
				d.idle[s][n] = called
			}
		}
	}
	return d
}

func idleFunctionOf(f *Function) idleFunction {
	c := f.code()
	out := idleFunction{kind: f.Kind, method: f.Method, noCode: f.noCode()}
	out.jit = f.Module == jitModule && f.Kind == snapshot.Native
	if f.Kind != snapshot.Managed {
		return out
	}
	if out.thread = c.IdleThread(); out.thread != nil {
		return out
	}
	out.waits = c.IdleWait()
	return out
}

func (d *idler) of(x *Sample) snapshot.Idle {
	leaf := d.r.waits(x)
	code := d.code[leaf]
	if code > 0 {
		if t := d.idle[x.State&1][code]; t != nil && !x.Incomplete && !d.jit[leaf] {
			return t.Idle
		}
		return ""
	}
	return d.r.idleRole(x)
}

// IdleTotal is the samples of one kind of idle thread in one mode.
type IdleTotal struct {
	Idle  snapshot.Idle
	Total Part
}

// IdleTotals sums up a mode's samples of idle threads by kind, the largest first.
func (r *Recording) IdleTotals(m Mode) []IdleTotal {
	d, sums := r.idler(), map[snapshot.Idle]*Part{}
	for i := range r.Samples {
		x := &r.Samples[i]
		if x.Mode != m {
			continue
		}
		if idle := d.of(x); idle != "" {
			if sums[idle] == nil {
				sums[idle] = &Part{}
			}
			sums[idle][x.State].Add(Amount{x.Weight, x.Events, int(x.Count)})
		}
	}
	var out []IdleTotal
	for idle, sum := range sums {
		out = append(out, IdleTotal{idle, *sum})
	}
	slices.SortFunc(out, func(a, b IdleTotal) int {
		return cmp.Or(cmp.Compare(b.Total.All().Weight, a.Total.All().Weight), cmp.Compare(a.Idle, b.Idle))
	})
	return out
}

// IdleSamples returns the indices of the samples of idle threads, by kind.
func (r *Recording) IdleSamples() map[snapshot.Idle][]int32 {
	d, out := r.idler(), map[snapshot.Idle][]int32{}
	for i := range r.Samples {
		if idle := d.of(&r.Samples[i]); idle != "" {
			out[idle] = append(out[idle], int32(i))
		}
	}
	return out
}
