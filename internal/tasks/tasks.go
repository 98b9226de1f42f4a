package tasks

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/naming"
	"clrsnap/internal/session"
	"clrsnap/profile"
)

// Find finds the async methods on the managed heap that have not ended, and their waits, without stopping the
// program. With WalkOptions.Stop the last look is taken while all threads stand still. If ctx ends, the result has
// everything found until then, and is Partial.
func Find(ctx context.Context, p *session.Process, o session.WalkOptions) (*profile.Tasks, error) {
	if p.Managed == nil || p.Managed.Objects == nil {
		return nil, p.NoRuntimeError("async methods")
	}
	if p.Walking {
		return nil, session.NestedError(0)
	}
	p.Engine.Begin()
	pace := p.NewHeapWalk(ctx, o) // of all looks
	var best *profile.Tasks
	for vain := 0; vain < vainLooks; {
		out, err := look(ctx, p, o)
		switch {
		case err != nil && best != nil:
			return best, p.Alive()
		case err != nil:
			return nil, p.WalkError(err)
		}
		if o.Stop && p.Moments().Changes() {
			best = atRest(ctx, p, o, out)
			break
		}
		if vain++; best == nil || lacking(out) < lacking(best) && !out.Partial {
			best, vain = out, 0
		}
		rest := max(pace.Ahead(), 0)
		if lacking(best) == 0 || best.Partial || !p.Moments().Changes() || time.Since(pace.Begin)+rest > RewalkWithin ||
			!session.Sleep(ctx, rest) {
			break
		}
		p.Engine.Cache.Invalidate()
	}
	best.Duration = time.Since(pace.Begin)
	return best, p.Alive()
}

// look is one look of Tasks.
func look(ctx context.Context, p *session.Process, o session.WalkOptions) (*profile.Tasks, error) {
	t := NewWalk(ctx, p, o)
	census, err := t.WalkHeap()
	if err != nil {
		return nil, err
	}
	return t.Result(census), nil
}

// atRest looks once more, while all threads stand still. before is a look while the threads ran: by that look
// all names are known. If the threads cannot be held, before counts.
func atRest(ctx context.Context, p *session.Process, o session.WalkOptions, before *profile.Tasks) *profile.Tasks {
	held := before
	o.Progress, o.Doing, o.MaxCPU = nil, nil, 0
	stop := p.AtRest(ctx, o.MaxPause, func(ctx context.Context) error {
		out, err := look(ctx, p, o)
		if err == nil {
			held = out
		}
		return err
	})
	if !stop.Exact {
		held = before
	}
	held.Stop = stop
	return held
}

// RewalkWithin is how long the heap is walked again, as long as another walk may find missing objects.
const RewalkWithin = 3 * time.Second

// vainLooks bounds the number of successive looks that find no more than an earlier look: then the missing methods
// change all the time.
const vainLooks = 8

// lacking counts the methods that could not be read: collections had moved the methods' objects, or the methods
// changed all the time. In a heap that is not consistent, further methods may be missing without a trace.
func lacking(t *profile.Tasks) int {
	n := t.Unproven + t.Unread
	if t.ConsistentShare < 1 {
		n++
	}
	return n
}

// Within has the walk end early when another context ends.
func (t *Walk) Within(ctx context.Context) { t.ctx = ctx }

// NewWalk prepares a walk for async methods. The walk ends early when ctx ends.
func NewWalk(ctx context.Context, p *session.Process, o session.WalkOptions) *Walk {
	t := &Walk{
		p: p, ctx: ctx, o: o, Reader: p.AsyncReader(), Begin: time.Now(), classes: map[arch.Addr]Class{},
		Objects: map[Class][]arch.Addr{}, Seen: map[arch.Addr]bool{}, frames: map[naming.AwaitKey]profile.Frame{},
		Firsts: map[arch.Addr]bool{}, names: map[[2]arch.Addr][2]string{},
		delegates: DelegateNames{}, kinds: map[arch.Addr]classKind{},
	}
	t.Prove = t.steady
	return t
}

// Class is the reason for wanting objects of a class.
type Class uint8

const (
	NotWanted Class = iota
	BoxClass
	SemaphoreClass
	timerClass
	poolClass
	queueClass
	localQueueClass
	awaiterClass
	faultClass
	serviceClass
	OtherClasses // from here on the classes of Walk.Also
)

var taskClasses = map[string]Class{
	"System.Threading.SemaphoreSlim":                         SemaphoreClass,
	"System.Threading.TimerQueueTimer":                       timerClass,
	"System.Threading.PortableThreadPool":                    poolClass,
	"System.Threading.ThreadPoolWorkQueue":                   queueClass,
	"System.Threading.ThreadPoolWorkQueue+WorkStealingQueue": localQueueClass,
	faultHolder: faultClass,
}

// MaxObjects bounds the objects that are read.
const MaxObjects = 4 << 20

// Walk is a walk of the heap for async methods, and for the objects that explain their waits. Find takes some walks,
// package requests takes walks that find the objects of requests, too, and package deadlock looks for holders.
type Walk struct {
	p   *session.Process
	ctx context.Context
	o   session.WalkOptions

	// Set by NewWalk. The caller may change the fields before WalkHeap.
	Reader  *async.Reader
	Begin   time.Time
	Also    func(*object.Class) Class    // of classes outside System.Private.CoreLib; nil: none is wanted
	About   func() error                 // reads more about Methods, in the same consistent read; nil: nothing
	Prove   func(read func() error) bool // moment.Reader.Read, or a function that tries longer
	Earlier []arch.Addr                  // methods of an earlier walk: this walk may have missed moved methods
	Notes   bool                         // Noted is wanted

	// Counted by the walk and by the caller.
	Full     bool // there was no room for all objects
	Ended    bool // the time has ended before the end of the search
	Unproven int  // chains that changed all the time
	Unread   int  // objects that could not be read

	// Written by WalkHeap: the wanted objects. The caller may forget Seen after the walk.
	Objects map[Class][]arch.Addr
	Seen    map[arch.Addr]bool
	mu      sync.Mutex // of classes: several goroutines walk
	classes map[arch.Addr]Class

	// Written by EachChain.
	Methods []ChainMethod      // of the latest chain
	First   arch.Addr          // likewise, its innermost method
	Firsts  map[arch.Addr]bool // of all chains, the innermost methods
	frames  map[naming.AwaitKey]profile.Frame

	// Written by FindSemaphores.
	Semaphores     map[arch.Addr]arch.Addr // the semaphores, by the tasks in the queues
	semaphoreLooks int                     // how often Semaphores was filled again

	// Written by Result.
	Noted   *MethodObjects // of the latest result; nil: not wanted, or too many
	Sources []SourceWait   // of the chains of the latest result

	running   map[arch.Addr]*runningTask    // by the RuntimeAsyncTask; nil: not looked for
	threads   []session.Thread              // the searched threads
	stacks    *session.BlockedStacks        // nil: no stack has been needed
	looks     int                           // how often the threads were searched
	machines  map[arch.Addr]*session.Thread // that run methods, by box; nil: not looked for yet
	resumers  map[arch.Addr]arch.Addr       // custom awaiters by their delegates; nil: not looked for yet
	names     map[[2]arch.Addr][2]string    // of methods that are suspended together: the first and the last name
	delegates DelegateNames
	slots     map[arch.Addr]arch.Addr // of the thread pool's queues, by their items; nil: not looked for yet
	kinds     map[arch.Addr]classKind // of classes that stay, by MethodTable
}

// WalkHeap finds the objects.
func (t *Walk) WalkHeap() (*heap.Census, error) {
	h := t.p.NewHeapWalk(t.ctx, t.o)
	o := h.Options()
	o.Want = func(mt arch.Addr) bool {
		c := t.classOf(mt)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.classes[mt] = c
		return c != NotWanted
	}
	o.Visit = t.visit
	return t.p.WalkHeap(o)
}

func (t *Walk) classOf(mt arch.Addr) Class {
	class, err := t.p.Managed.Objects.Table(mt)
	if err != nil {
		return NotWanted
	}
	if class.Assembly != coreLib {
		if isService(class) {
			return serviceClass
		}
		if t.Also != nil {
			return t.Also(class)
		}
		if t.mayResume(class) {
			return awaiterClass
		}
		return NotWanted
	}
	if t.Reader.IsBox(mt) {
		return BoxClass
	}
	return taskClasses[class.Plain()]
}

// class is the reason for wanting objects of a MethodTable that classOf has seen.
func (t *Walk) class(mt arch.Addr) Class {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.classes[mt]
}

func (t *Walk) visit(_ *heap.Region, objects []heap.Object) {
	for i := range objects {
		o := &objects[i]
		if t.Seen[o.Addr] {
			continue
		}
		if len(t.Seen) >= MaxObjects {
			t.Full = true
			return
		}
		t.Seen[o.Addr] = true
		c := t.class(o.Table.Addr)
		t.Objects[c] = append(t.Objects[c], o.Addr)
	}
}

// Result describes the tasks.
func (t *Walk) Result(c *heap.Census) *profile.Tasks {
	t.Seen, t.Unproven, t.Unread, t.Sources = nil, 0, 0, nil // Find has read the same objects
	out := &profile.Tasks{
		Process: t.p.Info(), CapturedAt: t.p.CapturedAt(t.Begin), Partial: c.Stopped || t.Full,
		ConsistentShare: ConsistentShare(c),
	}
	t.p.Engine.Cache.Invalidate()
	t.FindSemaphores()
	t.findRunning()
	out.Chains = t.chains(out)
	out.Unproven, out.Unread = t.Unproven, t.Unread
	out.Faults = t.faults()
	t.p.NoteGaps(out)
	out.Pool = t.Pool()
	out.Timers = t.timers()
	out.Partial = out.Partial || t.Ended
	out.Duration = time.Since(t.Begin)
	return out
}

func ConsistentShare(c *heap.Census) float64 {
	if c.Size == 0 {
		return 0
	}
	return float64(c.Consistent) / float64(c.Size)
}

// ChainMethod is an async method of a chain, and the index of its frame.
type ChainMethod struct {
	*async.Step
	Frame int // of TaskChain.Frames
}

// node is a box of a method that has not ended.
type node struct {
	obj    arch.Addr
	next   int // index of the next node of the chain; -1: none
	inners int // how many other nodes lead here
}

// maxChainBytes bounds the kept chains, in bytes: 100,000 different chains, with some frames each.
const maxChainBytes = 256 << 20

// starts returns the innermost nodes, and a node of each circle.
func starts(nodes []node) (out []int) {
	seen := make([]bool, len(nodes))
	follow := func(i int) {
		for out = append(out, i); i >= 0 && !seen[i]; i = nodes[i].next {
			seen[i] = true
		}
	}
	for i := range nodes {
		if nodes[i].inners == 0 {
			follow(i)
		}
	}
	for i := range nodes {
		if !seen[i] {
			follow(i)
		}
	}
	return out
}

// chains follows the chains from their innermost methods, and counts equal chains.
func (t *Walk) chains(out *profile.Tasks) []profile.TaskChain {
	before := t.p.Moments().Epoch()
	nodes := t.nodes()
	if out.Methods = len(nodes); t.Notes {
		t.Noted = t.noteObjects(nodes, before)
	}
	byKey := map[string]*profile.TaskChain{}
	var list []*profile.TaskChain
	out.Partial = !t.eachChain(nodes, func(c *profile.TaskChain) (cost int) {
		key := KeyOf(c, true)
		if same := byKey[key]; same != nil {
			Merge(same, c)
			return 0
		}
		byKey[key] = c
		list = append(list, c)
		return len(key) + FramesCost(c.Frames)
	}) || out.Partial
	list = joinTargets(list)
	slices.SortStableFunc(list, func(a, b *profile.TaskChain) int {
		return cmp.Or(cmp.Compare(farFromProgram(a), farFromProgram(b)), cmp.Compare(b.Count, a.Count))
	})
	chains := make([]profile.TaskChain, len(list))
	for i, c := range list {
		chains[i] = *c
	}
	return chains
}

// farFromProgram is 0 for a chain with a method of the program itself, 1 for another chain with a method of a package
// that the program uses, and 2 for a chain of .NET alone.
func farFromProgram(c *profile.TaskChain) int {
	far := 2
	for i := range c.Frames {
		switch c.Frames[i].Origin() {
		case profile.OfUser:
			return 0
		case profile.OfPackage:
			far = 1
		}
	}
	return far
}

func FramesCost(frames []profile.Frame) (cost int) {
	for i := range frames {
		cost += session.AsyncCost(&frames[i])
	}
	return cost
}

// EachChain reads each chain from its innermost method on. use returns how many bytes of the chain are kept; during
// the call, Methods are the chain's methods if About is set. false: the time has ended, or too much is kept.
func (t *Walk) EachChain(use func(*profile.TaskChain) (cost int)) bool {
	nodes := t.nodes()
	t.FindSemaphores()
	return t.eachChain(nodes, use)
}

// eachChain is EachChain for some methods.
func (t *Walk) eachChain(nodes []node, use func(*profile.TaskChain) (cost int)) bool {
	room := maxChainBytes
	clear(t.Firsts)
	b := batchOf(t.p, t.Prove, t.readChainOf)
	queue := starts(nodes)
	for done := 0; done < len(queue); {
		if t.Stopped() || room <= 0 {
			return false
		}
		t.doing(done, len(queue))
		list, stands := t.readChains(b, nodes, queue[done:])
		for i, r := range list {
			n := &nodes[queue[done]]
			done++
			c, ended := t.accept(r, stands[i])
			if ended && n.next >= 0 { // the next method is the innermost now, if no other leads there
				next := &nodes[n.next]
				if next.inners--; next.inners == 0 {
					queue = append(queue, n.next)
				}
			}
			if c != nil {
				room -= use(c)
			}
		}
	}
	return true
}

// nodes returns the methods that have not ended. The next methods are not proved yet.
func (t *Walk) nodes() []node {
	found := t.Objects[BoxClass]
	nodes := make([]node, 0, len(found))
	index := map[arch.Addr]int{}
	var next []arch.Addr
	for i, obj := range slices.Concat(found, t.Earlier, slices.Sorted(maps.Keys(t.running))) {
		if i%1024 == 0 && t.Stopped() {
			break
		}
		obj, err := t.current(obj)
		if err != nil && i < len(found) {
			t.Unread++
		}
		if _, known := index[obj]; known || err != nil || obj == 0 {
			continue
		}
		to, _ := t.Reader.Next(obj)
		index[obj] = len(nodes)
		nodes, next = append(nodes, node{obj: obj, next: -1}), append(next, to)
	}
	for i := range nodes {
		if to, ok := index[next[i]]; ok && to != i {
			nodes[i].next = to
			nodes[to].inners++
		}
	}
	return nodes
}

// current returns the current address of a box. 0: its method has ended.
func (t *Walk) current(obj arch.Addr) (arch.Addr, error) {
	for range MaxMoves {
		at, err := t.Reader.Place(obj)
		if err == nil && at == 0 {
			return t.runs(obj)
		}
		if err != nil || at == obj {
			return at, err
		}
		obj = at
	}
	return 0, async.ErrMoved
}

// MaxMoves bounds how often a moved box is followed.
const MaxMoves = 4

// readChain reads a chain. alive: its innermost method has not ended, as far as is known.
func (t *Walk) readChain(obj arch.Addr) (out *profile.TaskChain, alive bool, err error) {
	steps, alive, err := t.steps(obj)
	if err != nil || !alive {
		return nil, alive || err != nil, err
	}
	if steps, obj, err = t.inner(steps, obj); err != nil {
		return nil, true, err
	}
	out = &profile.TaskChain{Count: 1, State: profile.TaskRunning}
	first := steps[0]
	run := t.running[obj]
	if first.Task() != 0 {
		run = nil // the method is suspended again
	}
	steps = t.p.ProgramSteps(steps)
	t.First, t.Methods = obj, t.Methods[:0]
	for i := range steps {
		if i == 0 && run != nil {
			out.Frames = append(out.Frames, run.frame())
			out.Threads = []profile.ThreadRef{run.thread}
			continue
		}
		out.Frames = append(out.Frames, t.Frame(steps, i))
		if out.Frames[i].Origin() != profile.OfFramework {
			if !out.ReadsChannel && t.p.StepReads(&steps[i]) {
				out.ReadsChannel, out.Reader = true, i
			}
			if !out.Completes && t.p.StepCompletes(&steps[i]) {
				out.Completes, out.Completer = true, i
			}
		}
		if steps[i].Task() != 0 {
			t.Methods = append(t.Methods, ChainMethod{&steps[i], i})
		}
	}
	if len(steps) == 0 {
		return nil, false, nil
	}
	if isSuspended(&first) {
		out.WaitsFor, out.State, err = t.Awaited(&first)
	}
	if err == nil && t.About != nil {
		err = t.About()
	}
	return out, true, err
}

// isSuspended reports whether the method of a step waits, or has not begun to run again.
func isSuspended(s *async.Step) bool {
	return s.Resumption != nil || s.Box != nil && (!s.Box.HasState || s.Box.State >= 0)
}

// steps returns the methods of an object, and the awaiters.
func (t *Walk) steps(obj arch.Addr) (steps []async.Step, alive bool, err error) {
	steps, alive, err = t.Reader.Methods(obj)
	if err != nil {
		return nil, alive, err
	}
	if !alive {
		return t.runningSteps(obj)
	}
	chain, err := t.Reader.Awaiting(obj)
	return append(steps, chain.Steps...), true, err
}

// inner follows a chain inwards, to the methods that the first method waits for. As a rule there are none. But the
// walk may have missed methods that were moved meanwhile or had not been suspended yet, and a chain is never shown
// without the inner methods. A method with several waiters has a chain of its own.
func (t *Walk) inner(steps []async.Step, obj arch.Addr) ([]async.Step, arch.Addr, error) {
	for range maxInner {
		if !isSuspended(&steps[0]) {
			break
		}
		at, err := t.awaitedMethod(&steps[0])
		if err != nil || at == 0 {
			return steps, obj, err
		}
		longer, alive, err := t.steps(at)
		if err != nil {
			return nil, 0, err
		}
		if !alive || len(longer) <= len(steps) || !leadsTo(longer, obj) {
			break
		}
		steps, obj = longer, at
	}
	return steps, obj, nil
}

// maxInner bounds the number of methods of inner.
const maxInner = 256

func leadsTo(steps []async.Step, obj arch.Addr) bool {
	return slices.ContainsFunc(steps, func(s async.Step) bool { return s.Task() == obj })
}

// awaitedMethod returns the box, or the RuntimeAsyncTask, of the method that a suspended method waits for; 0: the
// method waits for something else, or the awaited method has ended.
func (t *Walk) awaitedMethod(s *async.Step) (arch.Addr, error) {
	a, err := t.AwaitedBy(s)
	if err != nil {
		return 0, err
	}
	if a, err = t.Unwrap(a); err != nil || a.Object == 0 {
		return 0, err
	}
	at := cmp.Or(t.Reader.OfMachine(a.Object, a.Class), a.Object)
	if at, err = t.Reader.Place(at); errors.Is(err, async.ErrNoBox) {
		return 0, nil
	}
	return at, err
}

// AwaitedBy returns the object that a suspended method waits for. Of methods suspended together, the innermost
// counts.
func (t *Walk) AwaitedBy(s *async.Step) (async.Awaited, error) {
	if s.Resumption == nil {
		return t.Reader.Awaited(s.Box)
	}
	a, err := t.Reader.AwaitedIn(s.Resumption.Task)
	if err == nil && a.Object == 0 {
		return t.resumer(s.Resumption.Task)
	}
	return a, err
}

// Frame describes a step. Equal steps with a state machine are described once.
func (t *Walk) Frame(steps []async.Step, i int) profile.Frame {
	s, inner := &steps[i], (*async.Step)(nil)
	if i > 0 {
		inner = &steps[i-1]
	}
	if s.Box == nil || s.Box.Machine.Passing {
		return t.p.AsyncStep(s, inner)
	}
	key := naming.AwaitKey{Module: s.Box.Machine.Table, State: s.Box.State}
	f, ok := t.frames[key]
	if !ok {
		f = t.p.AsyncStep(s, inner)
		t.frames[key] = f
	}
	return f
}
