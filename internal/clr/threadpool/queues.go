package threadpool

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
)

// ErrChanging: the structures of the pool contradict themselves, because they were changing.
var ErrChanging = errors.New("the structures of the thread pool contradict themselves")

// Counts reads the numbers of a pool, an object of PortableThreadPool. While the program runs, the numbers may be of
// different moments.
func Counts(objects *object.Reader, pool arch.Addr, class *object.Class) (s State, err error) {
	short := func(name string) int {
		n, e := objects.Uint32(pool, class, name)
		if e != nil {
			err = e
		}
		return int(int16(n))
	}
	s.Minimum, s.Maximum, s.Blocked = short("_minThreads"), short("_maxThreads"), short("_numBlockedThreads")
	off, e := objects.Offset(class, "_separated")
	if e != nil || err != nil {
		return s, errors.Join(e, err)
	}
	counts, err := objects.Word(pool + arch.Addr(off) + cacheLine)
	if err != nil {
		return s, err
	}
	counts &^= requested
	s.Working, s.Workers, s.Goal = int(int16(counts)), int(int16(counts>>16)), int(int16(counts>>32))
	if s.Working < 0 || s.Working > s.Workers || s.Goal <= 0 || s.Minimum <= 0 || s.Maximum < s.Minimum ||
		s.Blocked < 0 || counts>>48 != 0 {
		return s, ErrChanging // or the object was moved away meanwhile
	}
	return s, nil
}

// requested is set in the counts of .NET 11 while a requested thread has not looked for work yet.
const requested = 1 << 63

// Part is a row of work items in an array that is used as a ring.
type Part struct {
	Count int // slots: a slot that is just being filled, or emptied, has no item

	objects        *object.Reader
	head, capacity int
	array          arch.Addr
}

// Queues reads work items. Its zero value lacks Objects and Look.
type Queues struct {
	Objects *object.Reader
	// Look is called for each object that is read. Its error ends the reading.
	Look func() error
}

// The queues of a ThreadPoolWorkQueue. Not every version has otherQueues.
var (
	workQueues  = []string{"workItems", "highPriorityWorkItems"}
	otherQueues = []string{"lowPriorityWorkItems"}
)

// Global visits the work items outside the threads' own queues, by the ThreadPoolWorkQueue: the items for all
// threads, and the items of some threads if there are more than 32 CPUs.
func (q *Queues) Global(obj arch.Addr, visit func(*Part) error) error {
	class, err := q.look(obj)
	if err != nil {
		return err
	}
	var list []arch.Addr
	for _, name := range workQueues {
		at, err := q.Objects.Pointer(obj, class, name)
		if err != nil {
			return err
		}
		list = append(list, at)
	}
	for _, name := range otherQueues {
		if at, err := q.Objects.Pointer(obj, class, name); err == nil {
			list = append(list, at)
		}
	}
	if at, err := q.Objects.Pointer(obj, class, "_assignableWorkItemQueues"); err == nil && at != 0 {
		more, err := q.Objects.References(at, maxAssignable)
		if err != nil {
			return err
		}
		list = append(list, more...)
	}
	seen := map[arch.Addr]bool{}
	for _, at := range list {
		if at == 0 {
			continue
		}
		if err := q.concurrent(at, seen, visit); err != nil {
			return err
		}
	}
	return nil
}

// look returns the class of an object, and counts the object.
func (q *Queues) look(obj arch.Addr) (*object.Class, error) {
	if err := q.Look(); err != nil {
		return nil, err
	}
	return q.Objects.Class(obj)
}

// concurrent visits the items of a ConcurrentQueue: segments that are linked from the head on. seen has the visited
// segments.
func (q *Queues) concurrent(obj arch.Addr, seen map[arch.Addr]bool, visit func(*Part) error) error {
	class, err := q.look(obj)
	if err != nil {
		return err
	}
	at, err := q.Objects.Pointer(obj, class, "_head")
	if err != nil {
		return err
	}
	for n := 0; at != 0; n++ {
		if seen[at] || n == maxSegments {
			return ErrChanging
		}
		seen[at] = true
		c, err := q.look(at)
		if err != nil {
			return err
		}
		p, err := q.segment(at, c)
		if err != nil {
			return err
		}
		if err := visit(&p); err != nil {
			return err
		}
		if at, err = q.Objects.Pointer(at, c, "_nextSegment"); err != nil {
			return err
		}
	}
	return nil
}

// segment reads a segment of a ConcurrentQueue. If a segment takes no more items, its tail is moved up by twice its
// capacity. Head and tail have a cache line each (PaddedHeadAndTail).
func (q *Queues) segment(obj arch.Addr, class *object.Class) (p Part, err error) {
	off, err := q.Objects.Offset(class, "_headAndTail")
	if err != nil {
		return p, err
	}
	head, err := q.Objects.Int32(obj + arch.Addr(off) + cacheLine)
	if err != nil {
		return p, err
	}
	tail, err := q.Objects.Int32(obj + arch.Addr(off) + 2*cacheLine)
	if err != nil {
		return p, err
	}
	mask, err := q.Objects.Uint32(obj, class, "_slotsMask")
	if err != nil {
		return p, err
	}
	p = Part{Count: int(tail - head), objects: q.Objects, head: int(head), capacity: int(mask) + 1}
	if p.Count > p.capacity {
		p.Count -= 2 * p.capacity
	}
	if p.Count < 0 || p.Count > p.capacity || p.capacity > maxItems || p.capacity&int(mask) != 0 {
		return p, ErrChanging
	}
	if at, err := q.Objects.Pointer(obj, class, "_slots"); err == nil {
		p.array = at
	}
	return p, nil
}

// Local returns the work items that one thread has put aside for itself, by its WorkStealingQueue.
func (q *Queues) Local(obj arch.Addr) (p Part, err error) {
	class, err := q.look(obj)
	if err != nil {
		return p, err
	}
	head, err := q.Objects.Uint32(obj, class, "m_headIndex")
	if err != nil {
		return p, err
	}
	tail, err := q.Objects.Uint32(obj, class, "m_tailIndex")
	if err != nil {
		return p, err
	}
	// less than none while an item is taken
	p = Part{Count: max(int(int32(tail-head)), 0), objects: q.Objects, head: int(head)}
	if p.Count > maxItems {
		return p, ErrChanging
	}
	if at, err := q.Objects.Pointer(obj, class, "m_array"); err == nil {
		p.array = at
	}
	return p, nil
}

// Each visits the slots of items. The array's length is a power of two.
func (p *Part) Each(visit func(slot arch.Addr) error) error {
	if p.Count == 0 {
		return nil
	}
	first, length, size, err := p.objects.Elements(p.array)
	if err != nil {
		return err
	}
	if p.Count > length || length&(length-1) != 0 || p.capacity != 0 && p.capacity != length {
		return ErrChanging
	}
	for i := range p.Count {
		slot := (p.head + i) & (length - 1)
		if err := visit(first + arch.Addr(slot)*arch.Addr(size)); err != nil {
			return err
		}
	}
	return nil
}
