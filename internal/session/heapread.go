package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/moment"
	"clrsnap/internal/origin"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/snapshot"
)

// WalkOptions say how the managed heap is walked.
type WalkOptions struct {
	// MaxCPU is the number of CPUs that may be used, 0.5 for example; 0 stands for 1. With more than 1, several
	// goroutines walk.
	MaxCPU float64
	// Progress is called from time to time with the bytes walked and the bytes in all; nil: no calls.
	Progress func(done, all uint64)
	// Doing is called from time to time while the walked objects are analysed, with the name of the analysis and the
	// progress from 0 to 1; nil: no calls.
	Doing func(what string, done float64)
	// Stop stops all threads of a running process, so that what is found belongs to one moment.
	Stop bool
	// MaxPause bounds the stop; 0 stands for DefaultPause.
	MaxPause time.Duration
}

// ErrNoHeap: the heap of the runtime cannot be read.
var ErrNoHeap = errors.New("the garbage collector has an unknown layout")

// errLeftOut: most dumps have no heap.
var errLeftOut = errors.New("the dump has left the heap out: createdump writes the heap with type 2 (with heap) or 4 " +
	"(full)")

// HeapWalk is a walk of the managed heap, within a share of a CPU.
type HeapWalk struct {
	Begin time.Time

	p    *Process
	o    WalkOptions
	ctx  context.Context
	used time.Duration // CPU time before Begin

	mu    sync.Mutex               // several goroutines walk
	names map[arch.Addr]name.Class // of MethodTables met so far, if the name had to be read early
}

// NewHeapWalk begins a walk. The walk ends early when ctx ends.
func (p *Process) NewHeapWalk(ctx context.Context, o WalkOptions) *HeapWalk {
	return &HeapWalk{
		Begin: time.Now(), p: p, o: o, ctx: ctx, used: live.OwnCPU(), names: map[arch.Addr]name.Class{},
	}
}

// Options are the options for heap.Reader.Walk.
func (h *HeapWalk) Options() heap.Options {
	o := heap.Options{
		Memory: h.p.from, Still: !h.p.moments.Changes(), Threads: h.Threads, Check: h.check,
		Progress: h.o.Progress, Stopped: h.Stopped,
	}
	if _, held := h.p.from.(*origin.Standing); held {
		o.Held, o.Workers = true, min(runtime.NumCPU(), MostReaders)
	}
	if !o.Still {
		o.Workers = max(int(h.share()+0.999), 1)
		o.Rest = h.rest
	}
	return o
}

// WalkHeap walks over the objects of the heap.
func (p *Process) WalkHeap(o heap.Options) (*heap.Census, error) {
	census, err := p.Managed.Heap.Walk(o)
	if err == nil && !p.moments.Changes() && census.Walked == 0 {
		return nil, errLeftOut
	}
	return census, err
}

// WalkError says why the heap could not be walked.
func (p *Process) WalkError(err error) error {
	if errors.Is(err, heap.ErrUnknown) {
		return fmt.Errorf("process %d: %w: %w", p.PID(), ErrNoHeap, err)
	}
	return p.OrExit(fmt.Errorf("process %d: the heap cannot be read: %w", p.PID(), err))
}

// Stopped reports whether the walk is to end.
func (h *HeapWalk) Stopped() bool { return h.ctx.Err() != nil }

func (h *HeapWalk) share() float64 { return cmp.Or(h.o.MaxCPU, 1) }

// rest waits until the CPU time used is within MaxCPU.
func (h *HeapWalk) rest() {
	const most = 100 * time.Millisecond
	if ahead := h.Ahead(); ahead > time.Millisecond {
		Sleep(h.ctx, min(ahead, most))
	}
}

// Ahead returns how long to wait until the CPU time used is within MaxCPU.
func (h *HeapWalk) Ahead() time.Duration {
	used := float64(live.OwnCPU() - h.used)
	return time.Duration(used/h.share()) - time.Since(h.Begin)
}

// Threads lists the current threads of the runtime.
func (h *HeapWalk) Threads() ([]arch.Addr, error) {
	h.p.Engine.Cache.Invalidate()
	list, err := h.p.Managed.Threads.List()
	if err != nil && len(list) == 0 {
		return nil, err
	}
	out := make([]arch.Addr, len(list))
	for i := range list {
		out[i] = list[i].Address
	}
	return out, nil
}

// check reports whether an address has a MethodTable. A collectible MethodTable is named at once.
func (h *HeapWalk) check(mt arch.Addr) error {
	types := h.p.Managed.Objects.Types()
	err := types.Check(mt)
	if err != nil && h.p.moments.Changes() { // the MethodTable may be newer than the cached page
		h.p.Engine.Cache.Invalidate()
		err = types.Check(mt)
	}
	if err != nil {
		return err
	}
	if t, err := types.Read(mt); err == nil && t.Collectible {
		h.Name(mt)
	}
	return nil
}

// Name names the class of a MethodTable. A MethodTable without a readable name gets the address as name.
func (h *HeapWalk) Name(mt arch.Addr) name.Class {
	if c := h.Known(mt); c.Display != "" {
		return c
	}
	c, err := h.p.Managed.Objects.Types().Class(mt)
	if err != nil {
		c = name.Class{Display: "[type at " + mt.String() + "]"}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names[mt] = c
	return c
}

// Known returns the name of a class if the name was read before, or an empty name.
func (h *HeapWalk) Known(mt arch.Addr) name.Class {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.names[mt]
}

// Moments reads the process at moments.
func (p *Process) Moments() *moment.Reader { return p.moments }

// Target is the memory of the process, as the memory is now.
func (p *Process) Target() target.Memory { return p.from }

// CapturedAt is the time of facts that were read at a time.
func (p *Process) CapturedAt(read time.Time) time.Time { return p.from.CapturedAt(read) }

// ThreadRef names a thread of the runtime; nil: not known.
func (p *Process) ThreadRef(t *thread.Thread) *snapshot.ThreadRef { return people{p}.Ref(t) }
