package tasks

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/threadpool"
	"clrsnap/internal/session"
	"clrsnap/snapshot"
)

// Bounds of the work items of the thread pool.
const (
	maxLooked    = 1 << 22 // queues, segments and items that are read, in all tries
	maxWorkItems = 1 << 16 // items that are named
)

// Stopped reports whether the time has ended.
func (t *Walk) Stopped() bool {
	t.Ended = t.Ended || t.ctx.Err() != nil
	return t.Ended
}

// Pool describes the thread pool; nil: the pool has not been used yet, or its state is not known.
func (t *Walk) Pool() (out *snapshot.Pool) {
	for _, obj := range t.Objects[poolClass] {
		if t.Stopped() {
			return nil
		}
		ok := t.p.Moments().Read(func() (err error) { out, err = t.readPool(obj); return err }, nil)
		if ok {
			t.addWork(out)
			return out
		}
	}
	return nil
}

func (t *Walk) readPool(obj arch.Addr) (*snapshot.Pool, error) {
	class, err := t.p.Managed.Objects.Class(obj)
	if err != nil {
		return nil, err
	}
	s, err := threadpool.Counts(t.p.Managed.Objects, obj, class)
	return &snapshot.Pool{
		Workers: s.Workers, Idle: s.Workers - s.Working, Target: s.Goal, Minimum: s.Minimum, Maximum: s.Maximum,
	}, err
}

// addWork counts the work items that no thread has begun, by a consistent read of all items.
func (t *Walk) addWork(out *snapshot.Pool) {
	if len(t.Objects[queueClass]) == 0 {
		return
	}
	q := queued{t: t, stopped: t.Stopped, what: map[string]int{}}
	if !t.p.Moments().Read(q.read, nil) {
		q.nameless = true // the names need more reads than a consistent read can prove
		if !t.p.Moments().Read(q.read, nil) {
			return
		}
	}
	out.Queued, out.HasWork = q.count, true
	for what, n := range q.what {
		out.Work = append(out.Work, snapshot.QueuedWork{Count: n, What: what})
	}
	slices.SortFunc(out.Work, func(a, b snapshot.QueuedWork) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.What, b.What))
	})
}

// queued counts work items.
type queued struct {
	t       *Walk
	stopped func() bool
	looked  int
	count   int
	named   int
	what    map[string]int

	nameless bool // items are only counted
}

// read counts the items of all queues.
func (q *queued) read() error {
	q.count, q.named = 0, 0
	clear(q.what)
	r := threadpool.Queues{Objects: q.t.p.Managed.Objects, Look: q.another}
	for _, obj := range q.t.Objects[queueClass] {
		if err := r.Global(obj, func(p *threadpool.Part) error { return p.Each(q.item) }); err != nil {
			return err
		}
	}
	for _, obj := range q.t.Objects[localQueueClass] {
		p, err := r.Local(obj)
		if err != nil {
			return err
		}
		if err := p.Each(q.item); err != nil {
			return err
		}
	}
	return nil
}

// another is called for each object to read. An error means one object too many, or the end of the time.
func (q *queued) another() error {
	if q.looked++; q.looked%1024 == 0 && q.stopped() {
		q.looked = maxLooked + 1
	}
	if q.looked > maxLooked {
		return errTooMuch
	}
	return nil
}

var errTooMuch = errors.New("the thread pool has more work items than can be counted")

// item counts an item. An item that is just being taken or put does not count.
func (q *queued) item(slot arch.Addr) error {
	if err := q.another(); err != nil {
		return err
	}
	obj, err := q.t.p.Managed.Objects.Word(slot)
	if err != nil || obj == 0 {
		return err
	}
	if q.count++; q.nameless || q.named >= maxWorkItems {
		return nil
	}
	q.named++
	q.what[q.t.workName(obj)]++
	return nil
}

// workName says what a work item does.
func (t *Walk) workName(obj arch.Addr) string {
	class, err := t.p.Managed.Objects.Class(obj)
	if err != nil {
		return "[not known]"
	}
	if t.Reader.IsBox(class.Table) {
		if name, _ := t.methodNames(obj); name != "" {
			return name
		}
	}
	delegate, ok := t.p.Reach(obj, class, "_callback", "m_action", "_waitCallback")
	if !ok {
		return class.Display
	}
	if method := t.delegates.of(t.p, delegate); method != "" {
		return class.Display + " of " + method
	}
	if target, ok := t.p.Reach(obj, class, "_callback._target", "m_action._target", "_waitCallback._target"); ok {
		if c, err := t.p.Managed.Objects.Class(target); err == nil {
			return class.Display + " of " + c.Display
		}
	}
	return class.Display
}

// timers lists the armed timers.
func (t *Walk) timers() []snapshot.Timer {
	type key struct {
		callback string
		period   time.Duration
	}
	index := map[key]int{}
	var out []snapshot.Timer
	add := func(one snapshot.Timer) {
		k := key{one.Callback, one.Period}
		i, ok := index[k]
		if !ok {
			index[k] = len(out)
			out = append(out, one)
			return
		}
		out[i].Count++
		out[i].Due = min(out[i].Due, one.Due)
	}
	b := batchOf(t.p, t.steady, t.timer)
	for left := t.Objects[timerClass]; len(left) > 0 && !t.Stopped(); {
		list, stands := b.some(left)
		for i := range list {
			if stands[i] && list[i].Count > 0 {
				add(list[i])
			}
		}
		left = left[len(list):]
	}
	slices.SortStableFunc(out, func(a, b snapshot.Timer) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Callback, b.Callback))
	})
	return out
}

// timerStates are the methods of .NET that arm timers, by the class of the timer's state.
var timerStates = map[string]string{
	"System.Threading.Tasks.Task+DelayPromise":                 "Task.Delay",
	"System.Threading.Tasks.Task+DelayPromiseWithCancellation": "Task.Delay",
	"System.Threading.CancellationTokenSource":                 "CancellationTokenSource.CancelAfter",
	"System.Threading.PeriodicTimer+State":                     "PeriodicTimer",
}

// waitAsync begins the class name of Task.WaitAsync's promise.
const waitAsync = "System.Threading.Tasks.Task+CancellationPromise<"

// timer describes an armed timer; of a timer that is not armed, the Count is 0.
func (t *Walk) timer(obj arch.Addr) (out snapshot.Timer, err error) {
	due, period, armed, err := t.due(obj)
	if err != nil || !armed {
		return out, err
	}
	out = snapshot.Timer{
		Count: 1, Due: due, HasDue: t.p.RunningProcess() != nil, Period: period, Callback: "[not known]",
	}
	class, err := t.p.Managed.Objects.Class(obj)
	if err != nil {
		return out, err
	}
	calls, err := TimerCalls(t.p, obj, class, t.delegates)
	out.Callback = cmp.Or(calls, out.Callback)
	return out, err
}

// TimerCalls names the .NET method that armed a timer, or the method that the timer calls, or else the class of the
// object that the timer calls: the delegate of a static method calls itself. "": not known.
func TimerCalls(p *session.Process, timer arch.Addr, class *object.Class, names DelegateNames) (string, error) {
	if state, ok := p.Reach(timer, class, "_state"); ok {
		c, err := p.Managed.Objects.Class(state)
		if err != nil {
			return "", err
		}
		if known := timerStates[c.Display]; known != "" {
			return known, nil
		}
		if strings.HasPrefix(c.Display, waitAsync) && c.Assembly == coreLib {
			return "Task.WaitAsync", nil
		}
	}
	if delegate, ok := p.Reach(timer, class, "_timerCallback"); ok {
		if method := names.of(p, delegate); method != "" {
			return method, nil
		}
	}
	if target, ok := p.Reach(timer, class, "_timerCallback._target"); ok {
		if c, err := p.Managed.Objects.Class(target); err == nil {
			return c.Display, nil
		}
	}
	return "", nil
}
