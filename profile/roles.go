package profile

import (
	"slices"

	"clrsnap/snapshot"
)

// runtimeWork is work of the runtime on its own behalf.
type runtimeWork uint8

// Work of the runtime. noWork is everything else.
const (
	noWork runtimeWork = iota
	workJIT
	workGC
	workFinalizer
	workTiering
	workEventPipe
	workDebugger
	workSignals
	workSynchronisation
)

// workNames are the names of functions that stand for native code without symbols.
var workNames = [...]string{
	workJIT: "[JIT]", workGC: "[GC]", workFinalizer: "[finalizer]", workTiering: "[tiered compilation]",
	workEventPipe: "[EventPipe]", workDebugger: "[debugger]", workSignals: "[signal handler]",
	workSynchronisation: "[synchronisation manager]",
}

// roleWork is the work of the runtime's threads, by RecordedThread.Role.
var roleWork = map[string]runtimeWork{
	"GC": workGC, "Background GC": workGC, "Finalizer": workFinalizer, "Tiered compilation": workTiering,
	"EventPipe": workEventPipe, "Debugger": workDebugger, "Debugger transport": workDebugger,
	"Signal handler": workSignals, "Synchronisation manager": workSynchronisation,
}

// jitModule is the JIT compiler.
const jitModule = "libclrjit.so"

// moduleWork is the work of the runtime's libraries, on any thread.
var moduleWork = map[string]runtimeWork{
	jitModule: workJIT, "libclrgc.so": workGC, "libclrgcexp.so": workGC,
}

// roles returns the work of the sampled threads. A thread can have two: its own work, and noWork for
// events.
func (s *Selection) roles(r *Recording) []runtimeWork {
	out := []runtimeWork{noWork}
	if s.Roles {
		for i := range r.Threads {
			if w := roleWork[r.Threads[i].Role]; w != noWork && !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	return out
}

// role returns the work of a sample's thread.
func (s *Selection) role(r *Recording, x *Sample) runtimeWork {
	if !s.Roles || x.Mode.OfEvents() {
		return noWork
	}
	return roleWork[r.Threads[x.Thread].Role]
}

// workTree names the work of the runtime in a tree of stacks.
type workTree struct {
	r    *Recording
	b    *Builder
	work []runtimeWork // by node of r: the work there
}

// newWork returns the workTree of threads with one role. The role is the first frame of the stacks, and
// nodes[0] becomes the frame's node. newWork returns nil unless Roles is set.
func (s *Selection) newWork(r *Recording, b *Builder, nodes []int32, role runtimeWork) *workTree {
	if !s.Roles || len(nodes) == 0 {
		return nil
	}
	t := &workTree{r, b, make([]runtimeWork, len(r.Nodes))}
	if t.work[0] = role; role != noWork {
		nodes[0] = t.named(0, role)
	}
	return t
}

// place returns the parent of a function's node. named: the parent stands for the function as well.
func (t *workTree) place(n int, parent int32, f *Function) (at int32, named bool) {
	before := t.work[t.r.Nodes[n].Parent]
	w := workIn(f, before)
	t.work[n] = w
	if nameless := f.Kind == snapshot.Native && f.Method == ""; w != noWork && (nameless || w != before) {
		return t.named(parent, w), nameless
	}
	return parent, false
}

// workIn returns the runtime's work on its own behalf in a function, given the work in the caller. A
// method has noWork: the finalizer calls methods of the program.
func workIn(f *Function, caller runtimeWork) runtimeWork {
	switch w := moduleWork[f.Module]; {
	case f.Kind == snapshot.Managed || f.Kind == snapshot.Async || f.Kind == snapshot.Event:
		return noWork
	case caller != noWork && caller != workJIT:
		return caller
	case f.Kind == snapshot.Native && w != noWork:
		return w
	case caller == workJIT && (f.Method != "" || f.Module == "libcoreclr.so"):
		return caller // the compiler asks the runtime about types
	}
	return noWork
}

// named returns the node of a function that stands for work below parent, or parent if parent stands for
// the work.
func (t *workTree) named(parent int32, w runtimeWork) int32 {
	name := workNames[w]
	f := t.b.Function(Function{Kind: snapshot.Native, Display: name, Short: name})
	if t.b.isAt(parent, f) {
		return parent
	}
	return t.b.Child(parent, t.b.Location(Location{Function: f}))
}
