package heapwalk

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/moment"
	"clrsnap/internal/session"
	"clrsnap/profile"
)

// Options select the work of Heap. The zero value counts all objects by type. The comments of clrsnap.HeapOptions, the
// same struct, explain the fields. For Roots and Graph each thread is stopped while the thread's stack is copied. While
// all threads are stopped, MaxCPU is 1 at least.
type Options struct {
	Type                             *regexp.Regexp
	MaxInstances, MaxStrings         int
	Roots                            *regexp.Regexp
	Retained, Graph, Owners, Keepers bool
	MaxCPU                           float64
	Stop                             bool
	MaxPause                         time.Duration
	Progress                         func(done, all uint64)
	Doing                            func(what string, done float64)
}

// Heap walks all objects of the managed heap. The program is not stopped unless Stop, Roots or
// Graph ask for a stop. If ctx ends, the result is Partial, with the objects walked until then.
func Heap(ctx context.Context, p *session.Process, o Options) (*profile.Heap, error) {
	if p.Managed == nil || p.Managed.Objects == nil {
		return nil, p.NoRuntimeError("objects")
	}
	if p.Walking {
		return nil, session.NestedError(0)
	}
	o.Retained = o.Retained || o.Keepers
	h := newWalk(ctx, p, o)
	p.Engine.Begin()
	census, err := h.walk(ctx)
	if err != nil {
		return nil, p.WalkError(err)
	}
	if h.graph() {
		if census.Graph == nil {
			return nil, p.OrExit(fmt.Errorf("process %d: %w", p.PID(), heap.ErrTooLarge))
		}
	}
	out := h.result(census)
	if m, err := Memory(p); err == nil {
		out.Memory = &m
	}
	return out, p.Alive()
}

// walk walks over all objects, of one moment if that is wanted and possible.
func (h *heapWalk) walk(ctx context.Context) (*heap.Census, error) {
	if h.o.Stop && h.p.Moments().Changes() {
		if census, err := h.atOnce(ctx); census != nil || err != nil {
			return census, err
		}
		h.instances, h.matching, h.strings = nil, profile.HeapAmount{}, stringCounts{}
		h.began = time.Time{}
	}
	h.noteEpoch() // the GC epoch of now, not of before a stop: objects may have been moved since
	return h.p.WalkHeap(h.options())
}

func newWalk(ctx context.Context, p *session.Process, o Options) *heapWalk {
	return &heapWalk{
		HeapWalk: p.NewHeapWalk(ctx, session.WalkOptions{MaxCPU: o.MaxCPU, Progress: o.Progress, Doing: o.Doing}),
		p:        p, o: o, ctx: ctx, chosen: map[arch.Addr]bool{},
	}
}

// noteEpoch notes the GC epoch of the objects' addresses, and reads the fields that may change
// during the walk. Only a graph needs both.
func (h *heapWalk) noteEpoch() {
	if h.graph() {
		h.epoch = h.p.Moments().Epoch()
		h.readSlots()
	}
}

// heapWalk is one call of Heap.
type heapWalk struct {
	*session.HeapWalk
	p     *session.Process
	o     Options
	ctx   context.Context
	began time.Time // when all threads had been stopped; zero: no stop
	stop  *profile.HeapStop

	mu         sync.Mutex         // of chosen: several goroutines walk
	chosen     map[arch.Addr]bool // MethodTables that Options.Type selects
	text       arch.Addr          // MethodTable of strings
	instances  []profile.HeapInstance
	matching   profile.HeapAmount
	strings    stringCounts
	static     *statics // nil: not asked for
	roots      *rootsOf // likewise
	early      []slot   // static fields before the walk
	contexts   loadContexts
	allocators map[arch.Addr]uint32 // LoaderAllocator objects, by the runtime's LoaderAllocator; nil: not asked for
	epoch      moment.Epoch         // of the objects' addresses; 0: unknown
}

func (h *heapWalk) options() heap.Options {
	o := h.Options()
	if h.o.MaxStrings > 0 {
		h.text = stringType(h.p)
		o.Data = true
	}
	o.Graph = h.graph()
	if h.o.Type != nil || h.o.MaxStrings > 0 {
		o.Want, o.Visit = h.want, h.visit
	}
	return o
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

func (h *heapWalk) want(mt arch.Addr) bool {
	chosen := h.o.Type != nil && h.matches(h.o.Type, mt)
	h.mu.Lock()
	h.chosen[mt] = chosen
	h.mu.Unlock()
	return chosen || h.o.MaxStrings > 0 && mt == h.text
}

// result describes the findings of the walk.
func (h *heapWalk) result(c *heap.Census) *profile.Heap {
	out := &profile.Heap{
		Process: h.p.Info(), CapturedAt: h.Begin, Duration: time.Since(h.Begin),
		HasInstances: h.o.Type != nil, HasPaths: h.o.Roots != nil, HasRetained: h.o.Retained,
		GraphCut: c.Graph != nil && c.Graph.Full, Collecting: c.Collecting, Partial: c.Stopped, Matching: h.matching,
	}
	out.Stop = h.stop
	if !h.began.IsZero() {
		out.CapturedAt = h.began
	}
	out.CapturedAt = h.p.CapturedAt(out.CapturedAt)
	if c.Size > 0 {
		out.ConsistentShare = float64(c.Consistent) / float64(c.Size)
	}
	for i := range c.Parts {
		p := &c.Parts[i]
		out.Parts = append(out.Parts, profile.HeapPart{
			Heap: p.Heap, Generation: profile.Generation(p.Generation), Regions: p.Regions, Size: p.Size,
			Reserved: p.Reserved, Objects: profile.HeapAmount(p.Objects), Free: profile.HeapAmount(p.Free),
			Unused: p.Unused, ConsistentBytes: p.Consistent,
		})
	}
	if c.Graph != nil {
		h.linkTypes(c.Graph)
	}
	var retained *heap.Retained
	if h.o.Retained {
		roots := h.findRoots(c.Graph, false, out)
		if retained = c.Graph.Retained(roots.sure, heap.RetainedOptions{
			Last:     h.o.Roots == nil && !h.o.Graph && !h.o.Keepers,
			Progress: h.doing("what keeps what"), Stopped: h.Stopped,
		}); retained == nil {
			out.HasRetained, out.Partial = false, true
		}
	}
	out.Types = h.types(c, retained)
	if h.o.Roots != nil {
		h.paths(c.Graph, out)
	}
	if h.o.Keepers && retained != nil {
		h.keepers(c, retained, out)
	}
	if h.o.Graph {
		h.objects(c.Graph, out)
	}
	switch {
	case h.o.Type != nil && h.matching.Count == 0:
		out.Nearest = nearest(h.o.Type, out.Types)
	case h.o.Roots != nil && out.Kept.Count == 0:
		out.Nearest = nearest(h.o.Roots, out.Types)
	}
	h.trim()
	h.describe()
	out.Instances = h.instances
	out.Strings = h.strings.list(h.o.MaxStrings)
	return out
}

// typeKey identifies a type of the report. Assemblies loaded several times have types of the same
// name.
type typeKey struct{ name, assembly, context string }

func (h *heapWalk) typeKey(mt arch.Addr) typeKey {
	c := h.Name(mt)
	return typeKey{c.Display, c.Assembly, h.loadContext(mt)}
}

// doing returns the callback that passes on the progress of an analysis.
func (h *heapWalk) doing(what string) func(done float64) {
	if h.o.Doing == nil {
		return nil
	}
	return func(done float64) { h.o.Doing(what, done) }
}

// types sums up by name and load context. of has the retained bytes; nil: unknown.
func (h *heapWalk) types(c *heap.Census, of *heap.Retained) []profile.HeapType {
	byName := map[typeKey]int{}
	var retained []uint64
	if of != nil {
		retained = of.ByTable(h.isStatics)
	}
	var out []profile.HeapType
	for _, t := range c.Tables {
		if t.Free || t.Index >= len(c.Counts) || c.Counts[t.Index] == ([heap.NumGenerations]heap.Tally{}) {
			continue
		}
		class := h.Name(t.Addr)
		key := h.typeKey(t.Addr)
		i, ok := byName[key]
		if !ok {
			i = len(out)
			byName[key] = i
			out = append(out, profile.HeapType{Name: key.name, Assembly: key.assembly, Context: key.context})
			if h.o.Owners {
				out[i].Owner = h.p.Owner(class.Assembly, class.Image)
			}
		}
		if retained != nil {
			out[i].Retained += retained[t.Index]
		}
		for g, n := range c.Counts[t.Index] {
			out[i].Generations[g].Add(profile.HeapAmount(n))
			out[i].Add(profile.HeapAmount(n))
		}
	}
	slices.SortFunc(out, func(a, b profile.HeapType) int {
		return cmp.Or(cmp.Compare(b.Retained, a.Retained), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Assembly, b.Assembly), cmp.Compare(a.Context, b.Context))
	})
	return out
}
