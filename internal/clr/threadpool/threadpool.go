// Package threadpool reads the state of the runtime's thread pool: the number of workers, how many workers there may
// be without delay, and how much work is queued.
//
// Counts and Queues read the objects of the pool, for callers that have found the objects by a walk of the heap. A
// Finder needs no walk: each busy worker, and the thread that adds workers, has references to the pool's objects on
// its stack. A Finder finds the objects there, and believes them by their classes; no static field has to be found.
//
// Sources (dotnet/runtime, src/libraries/System.Private.CoreLib/src/System), .NET 8 to 11:
// Threading/PortableThreadPool.cs (CacheLineSeparated), PortableThreadPool.ThreadCounts.cs,
// Threading/ThreadPoolWorkQueue.cs, Collections/Concurrent/ConcurrentQueue.cs, ConcurrentQueueSegment.cs,
// Internal/Padding.cs.
package threadpool

import (
	"encoding/binary"
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/object"
)

// ErrUnknown: no thread refers to the pool, or the pool lacks a known field.
var ErrUnknown = errors.New("no thread of the pool leads to it")

const (
	coreLib     = "System.Private.CoreLib"
	poolClass   = "System.Threading.PortableThreadPool"
	queueClass  = "System.Threading.ThreadPoolWorkQueue"
	localClass  = "System.Threading.ThreadPoolWorkQueue+WorkStealingQueue"
	ownClass    = "System.Threading.ThreadPoolWorkQueueThreadLocals" // a worker's own data
	cacheLine   = 64                                                 // Internal.PaddingHelpers.CACHE_LINE_SIZE on x64
	maxSegments = 1 << 12                                            // of one queue
	maxLooked   = 1 << 14                                            // queues and segments
	maxItems    = 1 << 30                                            // of one queue
	maxWords    = 1 << 13                                            // words of one stack
	maxLocals   = 1 << 12                                            // queues of workers

	maxAssignable = 1 << 10
)

// State is the state of the pool.
type State struct {
	Workers  int // threads of the pool, including starting threads
	Working  int // of Workers, the threads that run a work item or look for one
	Goal     int // how many workers the pool wants to have at work
	Minimum  int // a worker is added at once up to Minimum; beyond, the pool adds one or two a second
	Maximum  int
	Blocked  int // workers that wait for a task, by the pool's own count
	Queued   int // work items that wait for a worker
	HasQueue bool
}

// Finder finds the pool in stacks, and reads it. It is not safe for concurrent use.
type Finder struct {
	objects *object.Reader
	heap    *heap.Reader

	segments []heap.Segment
	pool     place
	queue    place
	locals   map[arch.Addr]*object.Class
}

// place is where an object was found.
type place struct {
	at    arch.Addr
	class *object.Class
}

// NewFinder returns a Finder that reads objects with o in h.
func NewFinder(o *object.Reader, h *heap.Reader) *Finder {
	return &Finder{objects: o, heap: h}
}

// Begin forgets the found objects: the garbage collector moves objects.
func (f *Finder) Begin() {
	f.segments, f.pool, f.queue, f.locals = nil, place{}, place{}, map[arch.Addr]*object.Class{}
}

// Look looks for the pool and its queues in the words of a stack.
func (f *Finder) Look(stack []byte) {
	if f.segments == nil {
		var err error
		if f.segments, err = f.heap.Segments(); err != nil {
			return
		}
	}
	for n := 0; len(stack) >= 8 && n < maxWords; stack, n = stack[8:], n+1 {
		v := arch.Addr(binary.LittleEndian.Uint64(stack))
		if v%8 != 0 || !heap.Contains(f.segments, v) || f.locals[v] != nil || v == f.pool.at || v == f.queue.at {
			continue
		}
		c, err := f.objects.Class(v)
		if err != nil || c.Assembly != coreLib {
			continue
		}
		switch c.Display {
		case poolClass:
			f.pool = place{v, c}
		case queueClass:
			f.queue = place{v, c}
		case localClass:
			f.local(v, c)
		case ownClass:
			f.own(v, c)
		}
	}
}

func (f *Finder) local(at arch.Addr, c *object.Class) {
	if len(f.locals) < maxLocals {
		f.locals[at] = c
	}
}

// own follows a worker's own data to the queues.
func (f *Finder) own(at arch.Addr, c *object.Class) {
	follow := func(field, class string) (place, bool) {
		to, err := f.objects.Pointer(at, c, field)
		if err != nil || !heap.Contains(f.segments, to) {
			return place{}, false
		}
		of, err := f.objects.Class(to)
		return place{to, of}, err == nil && of.Assembly == coreLib && of.Display == class
	}
	if p, ok := follow("workQueue", queueClass); ok {
		f.queue = p
	}
	if p, ok := follow("workStealingQueue", localClass); ok {
		f.local(p.at, p.class)
	}
}

// Read reads the found objects. While the program runs, the state is of no single moment.
func (f *Finder) Read() (s State, err error) {
	if f.pool.at == 0 {
		return s, ErrUnknown
	}
	if s, err = Counts(f.objects, f.pool.at, f.pool.class); err != nil {
		return s, err
	}
	s.Queued, s.HasQueue = f.queued()
	return s, nil
}

// queued counts the waiting work items: the items for all workers, and the items that workers have put aside for
// themselves.
func (f *Finder) queued() (n int, known bool) {
	if f.queue.at == 0 {
		return 0, false
	}
	looked := 0
	q := Queues{Objects: f.objects, Look: func() error {
		if looked++; looked > maxLooked {
			return ErrUnknown
		}
		return nil
	}}
	if q.Global(f.queue.at, func(p *Part) error { n += p.Count; return nil }) != nil {
		return 0, false
	}
	for at := range f.locals {
		if p, err := q.Local(at); err == nil {
			n += p.Count
		}
	}
	return n, true
}
