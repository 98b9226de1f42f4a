package heapwalk

import (
	"context"
	"regexp"
	"sync"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/moment"
	"clrsnap/internal/session"
	"clrsnap/snapshot"
)

// Options select the work of Heap. The zero value counts all objects by type. The comments of clrsnap.HeapOptions, the
// same struct, explain the fields. For Roots and Graph each thread is stopped while the thread's stack is copied. While
// all threads are stopped, MaxCPU is 1 at least.
type Options struct {
	Type                                *regexp.Regexp
	MaxInstances, MaxStrings            int
	Roots                               *regexp.Regexp
	Retained, Graph, Owners, Dominators bool
	MaxCPU                              float64
	Stop                                bool
	MaxPause                            time.Duration
	Progress                            func(done, all uint64)
	Doing                               func(what string, done float64)
}

// heapWalk is one call of Heap.
type heapWalk struct {
	*session.HeapWalk
	p     *session.Process
	o     Options
	ctx   context.Context
	began time.Time // when all threads had been stopped; zero: no stop
	stop  *snapshot.HeapStop

	mu         sync.Mutex         // of chosen: several goroutines walk
	chosen     map[arch.Addr]bool // MethodTables that Options.Type selects
	text       arch.Addr          // MethodTable of strings
	instances  []snapshot.HeapInstance
	matching   snapshot.HeapAmount
	strings    stringCounts
	static     *statics // nil: not asked for
	roots      *rootsOf // likewise
	early      []slot   // static fields before the walk
	contexts   loadContexts
	allocators map[arch.Addr]uint32 // LoaderAllocator objects, by the runtime's LoaderAllocator; nil: not asked for
	epoch      moment.Epoch         // of the objects' addresses; 0: unknown
}

// typeKey identifies a type of the report. Assemblies loaded several times have types of the same
// name.
type typeKey struct{ name, assembly, context string }

// loadContexts are the load contexts of types.
type loadContexts struct {
	names map[arch.Addr]string // by the runtime's address for the context
	count map[string]int       // of contexts with a name
}

func newWalk(ctx context.Context, p *session.Process, o Options) *heapWalk {
	return &heapWalk{
		HeapWalk: p.NewHeapWalk(ctx, session.WalkOptions{MaxCPU: o.MaxCPU, Progress: o.Progress, Doing: o.Doing}),
		p:        p, o: o, ctx: ctx, chosen: map[arch.Addr]bool{},
	}
}

// graph reports whether the references between objects are wanted.
func (h *heapWalk) graph() bool { return h.o.Roots != nil || h.o.Retained || h.o.Graph }

// stringType returns the MethodTable of strings; 0: not known.
func stringType(p *session.Process) arch.Addr {
	if mt := p.Managed.Threads.StringType(); mt != 0 || p.Runtime != nil {
		return mt
	}
	mt, err := p.Managed.Objects.Types().Named(0, "System.String")
	if err != nil {
		return 0
	}
	return mt
}

// doing returns the callback that passes on the progress of an analysis.
func (h *heapWalk) doing(what string) func(done float64) {
	if h.o.Doing == nil {
		return nil
	}
	return func(done float64) { h.o.Doing(what, done) }
}
