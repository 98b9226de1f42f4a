// Package threadpool reads the state of the runtime's thread pool: how many workers there are, how many there may be
// without delay, and how much work is queued.
//
// The pool and its queues are objects of which each busy worker, and the thread that adds workers, has references on
// its stack. So they are found there, and believed by their classes; no static field has to be found.
//
// Sources (dotnet/runtime, src/libraries/System.Private.CoreLib/src/System), .NET 8 to 10: Threading/
// PortableThreadPool.cs (CacheLineSeparated), PortableThreadPool.ThreadCounts.cs, Threading/ThreadPoolWorkQueue.cs,
// Collections/Concurrent/ConcurrentQueue.cs, ConcurrentQueueSegment.cs, Internal/Padding.cs.
package threadpool

import (
	"encoding/binary"
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/target"
)

// ErrUnknown: no thread refers to the pool, or it does not have the fields that are known.
var ErrUnknown = errors.New("no thread of the pool leads to it")

const (
	coreLib     = "System.Private.CoreLib"
	poolClass   = "System.Threading.PortableThreadPool"
	queueClass  = "System.Threading.ThreadPoolWorkQueue"
	localClass  = "System.Threading.ThreadPoolWorkQueue+WorkStealingQueue"
	ownClass    = "System.Threading.ThreadPoolWorkQueueThreadLocals" // what a worker has of its own
	cacheLine   = 64                                                 // Internal.PaddingHelpers.CACHE_LINE_SIZE on x64
	maxSegments = 1 << 12                                            // of all queues
	maxItems    = 1 << 30                                            // of one queue
	maxWords    = 1 << 13                                            // of one stack that are looked at
	maxLocals   = 1 << 12                                            // queues of workers

	maxAssignable = 1 << 10
)

// State is the state of the pool.
type State struct {
	Workers  int // threads of the pool, those that are starting included
	Working  int // of these, those that run a work item or look for one
	Goal     int // how many the pool wants to have at work
	Minimum  int // up to which a worker is added at once; beyond it, one or two a second are
	Maximum  int
	Blocked  int // that wait for a task, as the pool itself counts them
	Queued   int // work items that wait for a worker
	HasQueue bool
}

// Finder finds the pool in stacks, and reads it. It is not safe for concurrent use.
type Finder struct {
	mem     *target.Reader
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
func NewFinder(mem target.Memory, o *object.Reader, h *heap.Reader) *Finder {
	return &Finder{mem: target.NewReader(mem), objects: o, heap: h}
}

// Begin forgets what was found: the garbage collector moves objects.
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

// own follows what a worker has of its own to the queues.
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

// Read reads what was found. While the program runs, it is the state of no single moment.
func (f *Finder) Read() (s State, err error) {
	if f.pool.at == 0 {
		return s, ErrUnknown
	}
	short := func(name string) int {
		off, e := f.objects.Offset(f.pool.class, name)
		if e != nil {
			err = e
			return 0
		}
		n, e := f.mem.Uint16(f.pool.at + arch.Addr(off))
		if e != nil {
			err = e
		}
		return int(int16(n))
	}
	s.Minimum, s.Maximum, s.Blocked = short("_minThreads"), short("_maxThreads"), short("_numBlockedThreads")
	off, e := f.objects.Offset(f.pool.class, "_separated")
	if e != nil {
		return s, e
	}
	counts, e := f.mem.Uint64(f.pool.at + arch.Addr(off) + cacheLine)
	if e != nil {
		return s, e
	}
	s.Working, s.Workers, s.Goal = int(int16(counts)), int(int16(counts>>16)), int(int16(counts>>32))
	if err != nil {
		return s, err
	}
	if s.Working < 0 || s.Working > s.Workers || s.Goal <= 0 || s.Minimum <= 0 || s.Maximum < s.Minimum || s.Blocked < 0 {
		return s, ErrUnknown // the object was moved away meanwhile
	}
	s.Queued, s.HasQueue = f.queued()
	return s, nil
}

// queued counts the work items that were found to wait: those for all workers, and those that workers have put aside
// for themselves.
func (f *Finder) queued() (n int, known bool) {
	if f.queue.at == 0 {
		return 0, false
	}
	queues, err := f.queues()
	if err != nil {
		return 0, false
	}
	left := maxSegments
	for _, q := range queues {
		count, err := f.length(q, &left)
		if err != nil {
			return 0, false
		}
		n += count
	}
	for at, c := range f.locals {
		head, err1 := f.objects.Uint32(at, c, "m_headIndex")
		tail, err2 := f.objects.Uint32(at, c, "m_tailIndex")
		if d := int(int32(tail)) - int(int32(head)); err1 == nil && err2 == nil && d > 0 && d < maxItems {
			n += d
		}
	}
	return n, true
}

// queues are those for all workers, or for some of them: there are such if there are more than 32 CPUs.
func (f *Finder) queues() ([]arch.Addr, error) {
	var out []arch.Addr
	for _, name := range []string{"highPriorityWorkItems", "workItems"} {
		q, err := f.objects.Pointer(f.queue.at, f.queue.class, name)
		if err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	list, err := f.objects.Pointer(f.queue.at, f.queue.class, "_assignableWorkItemQueues")
	if err != nil {
		return out, nil // not in this version
	}
	more, err := f.objects.References(list, maxAssignable)
	return append(out, more...), err
}

// length counts the items of a ConcurrentQueue: segments that are linked from the head on, each with the positions of
// its head and its tail. Of a segment that has another one after it, the tail is too large by twice its capacity.
// left is how many segments may be read.
func (f *Finder) length(queue arch.Addr, left *int) (n int, err error) {
	c, err := f.objects.Class(queue)
	if err != nil {
		return 0, err
	}
	at, err := f.objects.Pointer(queue, c, "_head")
	if err != nil {
		return 0, err
	}
	for ; at != 0; *left-- {
		if *left <= 0 {
			return 0, ErrUnknown
		}
		segment, err := f.objects.Class(at)
		if err != nil {
			return 0, err
		}
		off, err := f.objects.Offset(segment, "_headAndTail")
		if err != nil {
			return 0, err
		}
		// PaddedHeadAndTail (ConcurrentQueueSegment.cs) has each in a cache line of its own.
		head, err := f.mem.Uint32(at + arch.Addr(off) + cacheLine)
		if err != nil {
			return 0, err
		}
		tail, err := f.mem.Uint32(at + arch.Addr(off) + 2*cacheLine)
		if err != nil {
			return 0, err
		}
		mask, err := f.objects.Uint32(at, segment, "_slotsMask")
		if err != nil {
			return 0, err
		}
		next, err := f.objects.Pointer(at, segment, "_nextSegment")
		if err != nil {
			return 0, err
		}
		count := int(int32(tail - head))
		if capacity := int(mask) + 1; count > capacity {
			count -= 2 * capacity // frozen
		}
		if count < 0 || count > maxItems {
			return 0, ErrUnknown
		}
		n, at = n+count, next
	}
	return n, nil
}
