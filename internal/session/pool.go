package session

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/profile"
)

// The thread pool. Sources (dotnet/runtime, src/libraries/System.Private.CoreLib/src/System): PortableThreadPool.cs and
// PortableThreadPool.ThreadCounts.cs, ThreadPoolWorkQueue.cs in Threading, ConcurrentQueueSegment.cs in
// Collections/Concurrent. SOS depends on the names of PortableThreadPool's fields, too.
const (
	cacheLine = 64 // bytes between what is kept apart (Internal.PaddingHelpers)

	maxSegments  = 1 << 12 // of one queue
	maxLooked    = 1 << 22 // queues, segments and items that are looked at, in all tries
	maxWorkItems = 1 << 16 // that are named
	maxThreads   = 1 << 15 // of the pool: its numbers have 16 bits
)

// stopped reports whether the time has ended.
func (t *taskWalk) stopped() bool {
	t.ended = t.ended || t.ctx.Err() != nil
	return t.ended
}

// pool describes the thread pool; nil: it has not been used yet, or its state is not known.
func (t *taskWalk) pool() (out *profile.Pool) {
	for _, obj := range t.objects[poolClass] {
		if t.stopped() {
			return nil
		}
		ok := t.p.steadily(func() (err error) { out, err = t.readPool(obj); return err }, nil)
		if ok {
			t.addWork(out)
			return out
		}
	}
	return nil
}

func (t *taskWalk) readPool(obj arch.Addr) (*profile.Pool, error) {
	objects := t.p.Runtime.Objects
	class, err := objects.Class(obj)
	if err != nil {
		return nil, err
	}
	off, err := objects.Offset(class, "_separated")
	if err != nil {
		return nil, err
	}
	counts, err := objects.Word(obj + arch.Addr(off) + cacheLine)
	if err != nil {
		return nil, err
	}
	least, err := objects.Uint32(obj, class, "_minThreads")
	if err != nil {
		return nil, err
	}
	most, err := objects.Uint32(obj, class, "_maxThreads")
	if err != nil {
		return nil, err
	}
	busy := int(uint16(counts))
	out := &profile.Pool{
		Workers: int(uint16(counts >> 16)), Target: int(uint16(counts >> 32)), Minimum: int(uint16(least)),
		Maximum: int(uint16(most)),
	}
	out.Idle = out.Workers - busy
	if out.Idle < 0 || out.Workers > maxThreads || out.Minimum > out.Maximum || counts>>48 != 0 {
		return nil, errStrange
	}
	return out, nil
}

// addWork counts the work items that no thread has begun, if all of them are there at one moment.
func (t *taskWalk) addWork(out *profile.Pool) {
	if len(t.objects[queueClass]) == 0 {
		return
	}
	q := queued{t: t, stopped: t.stopped, what: map[string]int{}, segments: map[arch.Addr]bool{}}
	proved := t.p.steadily(func() error {
		q.count, q.named = 0, 0
		clear(q.what)
		clear(q.segments)
		for _, obj := range t.objects[queueClass] {
			if err := q.global(obj); err != nil {
				return err
			}
		}
		for _, obj := range t.objects[localQueueClass] {
			if err := q.local(obj); err != nil {
				return err
			}
		}
		return nil
	}, nil)
	if !proved {
		return
	}
	out.Queued, out.HasWork = q.count, true
	for what, n := range q.what {
		out.Work = append(out.Work, profile.QueuedWork{Count: n, What: what})
	}
	slices.SortFunc(out.Work, func(a, b profile.QueuedWork) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.What, b.What))
	})
}

// queued counts work items.
type queued struct {
	t        *taskWalk
	stopped  func() bool
	looked   int
	count    int
	named    int
	what     map[string]int
	segments map[arch.Addr]bool // that were counted
}

// another is called for each thing that is looked at. With an error it is one too many, or the time has ended.
func (q *queued) another() error {
	if q.looked++; q.looked%1024 == 0 && q.stopped() {
		q.looked = maxLooked + 1
	}
	if q.looked > maxLooked {
		return errTooMuch
	}
	return nil
}

// look returns the class of an object that is looked at.
func (q *queued) look(obj arch.Addr) (*object.Class, error) {
	if err := q.another(); err != nil {
		return nil, err
	}
	return q.t.p.Runtime.Objects.Class(obj)
}

var errTooMuch = errors.New("the thread pool has more work items than can be counted")

// The queues of a ThreadPoolWorkQueue; not every version has all.
var workQueues = []string{"workItems", "highPriorityWorkItems", "lowPriorityWorkItems"}

// global counts the items of all threads.
func (q *queued) global(obj arch.Addr) error {
	objects := q.t.p.Runtime.Objects
	class, err := q.look(obj)
	if err != nil {
		return err
	}
	for _, name := range workQueues {
		if at, err := objects.Pointer(obj, class, name); err == nil && at != 0 {
			if err := q.concurrent(at); err != nil {
				return err
			}
		}
	}
	at, err := objects.Pointer(obj, class, "_assignableWorkItemQueues")
	if err != nil || at == 0 {
		return nil
	}
	list, err := objects.References(at, maxSegments)
	if err != nil {
		return err
	}
	for _, at := range list {
		if at == 0 {
			continue
		}
		if err := q.concurrent(at); err != nil {
			return err
		}
	}
	return nil
}

// concurrent counts the items of a ConcurrentQueue.
func (q *queued) concurrent(obj arch.Addr) error {
	objects := q.t.p.Runtime.Objects
	class, err := q.look(obj)
	if err != nil {
		return err
	}
	at, err := objects.Pointer(obj, class, "_head")
	if err != nil {
		return err
	}
	for n := 0; at != 0; n++ {
		if err := q.another(); err != nil {
			return err
		}
		if q.segments[at] || n == maxSegments {
			return errStrange
		}
		q.segments[at] = true
		c, err := objects.Class(at)
		if err != nil {
			return err
		}
		if err := q.segment(at, c); err != nil {
			return err
		}
		if at, err = objects.Pointer(at, c, "_nextSegment"); err != nil {
			return err
		}
	}
	return nil
}

// segment counts the items of a part of a ConcurrentQueue. One that takes no more items has its tail moved up by twice
// its length.
func (q *queued) segment(obj arch.Addr, class *object.Class) error {
	objects := q.t.p.Runtime.Objects
	slots, err := objects.Pointer(obj, class, "_slots")
	if err != nil {
		return err
	}
	first, length, size, err := objects.Elements(slots)
	if err != nil {
		return err
	}
	off, err := objects.Offset(class, "_headAndTail")
	if err != nil {
		return err
	}
	head, err := objects.Int32(obj + arch.Addr(off) + cacheLine)
	if err != nil {
		return err
	}
	tail, err := objects.Int32(obj + arch.Addr(off) + 2*cacheLine)
	if err != nil {
		return err
	}
	n := int(tail - head)
	if n > length {
		n -= 2 * length
	}
	if n < 0 || n > length || length == 0 || length&(length-1) != 0 {
		return errStrange
	}
	return q.items(first, length, size, int(head), n)
}

// local counts the items of one thread.
func (q *queued) local(obj arch.Addr) error {
	objects := q.t.p.Runtime.Objects
	class, err := q.look(obj)
	if err != nil {
		return err
	}
	head, err := objects.Uint32(obj, class, "m_headIndex")
	if err != nil {
		return err
	}
	tail, err := objects.Uint32(obj, class, "m_tailIndex")
	if err != nil {
		return err
	}
	at, err := objects.Pointer(obj, class, "m_array")
	if err != nil || at == 0 {
		return err
	}
	first, length, _, err := objects.Elements(at)
	if err != nil {
		return err
	}
	n := int(int32(tail - head))
	if n > length || length == 0 || length&(length-1) != 0 {
		return errStrange
	}
	return q.items(first, length, 8, int(head), max(n, 0)) // it may be less than none while one is taken
}

// items counts n items of an array that is used as a ring. Its length is a power of two.
func (q *queued) items(first arch.Addr, length int, size uint32, head, n int) error {
	for i := range n {
		slot := (head + i) & (length - 1)
		if err := q.item(first + arch.Addr(slot)*arch.Addr(size)); err != nil {
			return err
		}
	}
	return nil
}

// item counts an item. One that is just being taken, or put there, is none.
func (q *queued) item(slot arch.Addr) error {
	if err := q.another(); err != nil {
		return err
	}
	obj, err := q.t.p.Runtime.Objects.Word(slot)
	if err != nil || obj == 0 {
		return err
	}
	if q.count++; q.named >= maxWorkItems {
		return nil
	}
	q.named++
	q.what[q.t.workName(obj)]++
	return nil
}

// workName says what a work item does.
func (t *taskWalk) workName(obj arch.Addr) string {
	if b, err := t.r.Box(obj); err == nil {
		return b.Machine.Display
	}
	class, err := t.p.Runtime.Objects.Class(obj)
	if err != nil {
		return "[not known]"
	}
	if target, ok := t.follow(obj, class, "_callback._target", "m_action._target", "_waitCallback._target"); ok {
		if c, err := t.p.Runtime.Objects.Class(target); err == nil {
			return class.Display + " of " + c.Display
		}
	}
	return class.Display
}

// timers lists the timers that are armed.
func (t *taskWalk) timers() []profile.Timer {
	type key struct {
		callback string
		period   time.Duration
	}
	index := map[key]int{}
	var out []profile.Timer
	for _, obj := range t.objects[timerClass] {
		if t.stopped() {
			break
		}
		var one profile.Timer
		armed := false
		if !t.p.steadily(func() (err error) { one, armed, err = t.timer(obj); return err }, nil) || !armed {
			continue
		}
		k := key{one.Callback, one.Period}
		i, ok := index[k]
		if !ok {
			index[k] = len(out)
			out = append(out, one)
			continue
		}
		out[i].Count++
		out[i].Due = min(out[i].Due, one.Due)
	}
	slices.SortStableFunc(out, func(a, b profile.Timer) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Callback, b.Callback))
	})
	return out
}

// timerStates are what arms timers of .NET's, by what a timer is given.
var timerStates = map[string]string{
	"System.Threading.Tasks.Task+DelayPromise":                 "Task.Delay",
	"System.Threading.Tasks.Task+DelayPromiseWithCancellation": "Task.Delay",
	"System.Threading.CancellationTokenSource":                 "CancellationTokenSource.CancelAfter",
	"System.Threading.PeriodicTimer+State":                     "PeriodicTimer",
}

// waitAsync begins the name of what Task.WaitAsync makes.
const waitAsync = "System.Threading.Tasks.Task+CancellationPromise<"

func (t *taskWalk) timer(obj arch.Addr) (out profile.Timer, armed bool, err error) {
	due, period, armed, err := t.due(obj)
	if err != nil || !armed {
		return out, armed, err
	}
	out = profile.Timer{Count: 1, Due: due, HasDue: t.now != 0, Period: period, Callback: "[not known]"}
	class, err := t.p.Runtime.Objects.Class(obj)
	if err != nil {
		return out, true, err
	}
	if state, ok := t.follow(obj, class, "_state"); ok {
		c, err := t.p.Runtime.Objects.Class(state)
		if err != nil {
			return out, true, err
		}
		known := timerStates[c.Display]
		if strings.HasPrefix(c.Display, waitAsync) && c.Assembly == coreLib {
			known = "Task.WaitAsync"
		}
		if known != "" {
			out.Callback = known
			return out, true, nil
		}
	}
	if target, ok := t.follow(obj, class, "_timerCallback._target"); ok {
		if c, err := t.p.Runtime.Objects.Class(target); err == nil {
			out.Callback = c.Display
		}
	}
	return out, true, nil
}
