package session

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/naming"
	"clrsnap/profile"
)

// Tasks finds the async methods on the managed heap that have not ended, and their waits, without stopping the
// program. With WalkOptions.Stop the last look is taken while all threads stand still. If ctx ends, the result has
// everything found until then, and is Partial.
func (p *Process) Tasks(ctx context.Context, o WalkOptions) (*profile.Tasks, error) {
	if p.Managed == nil || p.Managed.Objects == nil {
		return nil, p.NoRuntimeError("async methods")
	}
	if p.Walking {
		return nil, NestedError(0)
	}
	p.Engine.Begin()
	pace := p.NewHeapWalk(ctx, o) // of all looks
	var best *profile.Tasks
	for vain := 0; vain < vainLooks; {
		out, err := p.lookAtTasks(ctx, o)
		switch {
		case err != nil && best != nil:
			return best, p.Alive()
		case err != nil:
			return nil, p.WalkError(err)
		}
		if o.Stop && p.moments.Changes() {
			best = p.tasksAtRest(ctx, o, out)
			break
		}
		if vain++; best == nil || lacking(out) < lacking(best) && !out.Partial {
			best, vain = out, 0
		}
		rest := max(pace.Ahead(), 0)
		if lacking(best) == 0 || best.Partial || !p.moments.Changes() || time.Since(pace.Begin)+rest > rewalkWithin ||
			!Sleep(ctx, rest) {
			break
		}
		p.Engine.Cache.Invalidate()
	}
	best.Duration = time.Since(pace.Begin)
	return best, p.Alive()
}

// lookAtTasks is one look of Tasks.
func (p *Process) lookAtTasks(ctx context.Context, o WalkOptions) (*profile.Tasks, error) {
	t := p.newTaskWalk(ctx, o)
	census, err := t.walk()
	if err != nil {
		return nil, err
	}
	return t.result(census), nil
}

// tasksAtRest looks once more, while all threads stand still. before is a look while the threads ran: by that look
// all names are known. If the threads cannot be held, before counts.
func (p *Process) tasksAtRest(ctx context.Context, o WalkOptions, before *profile.Tasks) *profile.Tasks {
	held := before
	o.Progress, o.Doing, o.MaxCPU = nil, nil, 0
	stop := p.atRest(ctx, o.MaxPause, func(ctx context.Context) error {
		out, err := p.lookAtTasks(ctx, o)
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

func (p *Process) newTaskWalk(ctx context.Context, o WalkOptions) *taskWalk {
	t := &taskWalk{
		p: p, ctx: ctx, o: o, r: p.asyncReader(), begin: time.Now(), classes: map[arch.Addr]taskClass{},
		objects: map[taskClass][]arch.Addr{}, seen: map[arch.Addr]bool{}, frames: map[naming.AwaitKey]profile.Frame{},
		firsts: map[arch.Addr]bool{}, names: map[[2]arch.Addr][2]string{},
		delegates: DelegateNames{}, kinds: map[arch.Addr]classKind{},
	}
	t.prove = p.steadyRead
	return t
}

// taskClass is the reason for wanting objects of a class.
type taskClass uint8

const (
	notWanted taskClass = iota
	boxClass
	semaphoreClass
	timerClass
	poolClass
	queueClass
	localQueueClass
	awaiterClass
	faultClass
	serviceClass
	serverClass // and the following classes: see requests.go
	clientPoolClass
	connectionClass
)

var taskClasses = map[string]taskClass{
	"System.Threading.SemaphoreSlim":                         semaphoreClass,
	"System.Threading.TimerQueueTimer":                       timerClass,
	"System.Threading.PortableThreadPool":                    poolClass,
	"System.Threading.ThreadPoolWorkQueue":                   queueClass,
	"System.Threading.ThreadPoolWorkQueue+WorkStealingQueue": localQueueClass,
	faultHolder: faultClass,
}

// maxTaskObjects bounds the objects that are read.
const maxTaskObjects = 4 << 20

// taskWalk is one call of Tasks.
type taskWalk struct {
	p     *Process
	ctx   context.Context
	o     WalkOptions
	r     *async.Reader
	begin time.Time
	also  func(*object.Class) taskClass // of classes outside System.Private.CoreLib; nil: none is wanted
	about func() error                  // reads more about t.methods, in the same consistent read; nil: nothing
	prove func(read func() error) bool  // moment.Reader.Read, or a function that tries longer

	earlier []arch.Addr // methods of an earlier walk: this walk may have missed moved methods

	mu      sync.Mutex // of classes: several goroutines walk
	classes map[arch.Addr]taskClass
	objects map[taskClass][]arch.Addr
	seen    map[arch.Addr]bool
	full    bool
	ended   bool // the time has ended before the end of the search

	running        map[arch.Addr]*runningTask // by the RuntimeAsyncTask; nil: not looked for
	threads        []Thread                   // the searched threads
	stacks         *gathering                 // of threads; nil: no stack has been needed
	looks          int                        // how often the threads were searched
	machines       map[arch.Addr]*Thread      // by box: the threads that run methods of boxes; nil: not looked for yet
	semaphores     map[arch.Addr]arch.Addr    // by the first waiter's task
	semaphoreLooks int                        // how often semaphores was filled again
	resumers       map[arch.Addr]arch.Addr    // custom awaiters by their delegates; nil: not looked for yet
	names          map[[2]arch.Addr][2]string // of methods that are suspended together: the first and the last name
	delegates      DelegateNames
	slots          map[arch.Addr]arch.Addr // of the thread pool's queues, by their items; nil: not looked for yet
	frames         map[naming.AwaitKey]profile.Frame
	methods        []chainMethod // of the latest chain
	first          arch.Addr     // likewise, its innermost method
	firsts         map[arch.Addr]bool
	unproven       int
	unread         int
	kinds          map[arch.Addr]classKind // of classes that stay, by MethodTable

	notes   bool           // noted is wanted
	noted   *methodObjects // of the latest result; nil: not wanted, or too many
	sources []SourceWait   // of the chains of the latest result
}

// walk finds the objects.
func (t *taskWalk) walk() (*heap.Census, error) {
	h := t.p.NewHeapWalk(t.ctx, t.o)
	o := h.Options()
	o.Want = func(mt arch.Addr) bool {
		c := t.classOf(mt)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.classes[mt] = c
		return c != notWanted
	}
	o.Visit = t.visit
	return t.p.WalkHeap(o)
}

func (t *taskWalk) classOf(mt arch.Addr) taskClass {
	class, err := t.p.Managed.Objects.Table(mt)
	if err != nil {
		return notWanted
	}
	if class.Assembly != coreLib {
		if isService(class) {
			return serviceClass
		}
		if t.also != nil {
			return t.also(class)
		}
		if t.mayResume(class) {
			return awaiterClass
		}
		return notWanted
	}
	if t.r.IsBox(mt) {
		return boxClass
	}
	return taskClasses[class.Plain()]
}

// class is the reason for wanting objects of a MethodTable that classOf has seen.
func (t *taskWalk) class(mt arch.Addr) taskClass {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.classes[mt]
}

func (t *taskWalk) visit(_ *heap.Region, objects []heap.Object) {
	for i := range objects {
		o := &objects[i]
		if t.seen[o.Addr] {
			continue
		}
		if len(t.seen) >= maxTaskObjects {
			t.full = true
			return
		}
		t.seen[o.Addr] = true
		c := t.class(o.Table.Addr)
		t.objects[c] = append(t.objects[c], o.Addr)
	}
}

// result describes the tasks.
func (t *taskWalk) result(c *heap.Census) *profile.Tasks {
	t.seen, t.unproven, t.unread, t.sources = nil, 0, 0, nil // Requests has read the same objects
	out := &profile.Tasks{
		Process: t.p.info, CapturedAt: t.p.from.capturedAt(t.begin), Partial: c.Stopped || t.full,
		ConsistentShare: consistentShare(c),
	}
	t.p.Engine.Cache.Invalidate()
	t.findSemaphores()
	t.findRunning()
	out.Chains = t.chains(out)
	out.Unproven, out.Unread = t.unproven, t.unread
	out.Faults = t.faults()
	t.p.from.noteTasks(out)
	out.Pool = t.pool()
	out.Timers = t.timers()
	out.Partial = out.Partial || t.ended
	out.Duration = time.Since(t.begin)
	return out
}

func consistentShare(c *heap.Census) float64 {
	if c.Size == 0 {
		return 0
	}
	return float64(c.Consistent) / float64(c.Size)
}

// chainMethod is an async method of a chain, and the index of its frame.
type chainMethod struct {
	*async.Step
	frame int
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
func (t *taskWalk) chains(out *profile.Tasks) []profile.TaskChain {
	before := t.p.moments.Epoch()
	nodes := t.nodes()
	if out.Methods = len(nodes); t.notes {
		t.noted = t.noteObjects(nodes, before)
	}
	byKey := map[string]*profile.TaskChain{}
	var list []*profile.TaskChain
	out.Partial = !t.eachChain(nodes, func(c *profile.TaskChain) (cost int) {
		key := chainKey(c, true)
		if same := byKey[key]; same != nil {
			merge(same, c)
			return 0
		}
		byKey[key] = c
		list = append(list, c)
		return len(key) + framesCost(c.Frames)
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

func framesCost(frames []profile.Frame) (cost int) {
	for i := range frames {
		cost += asyncCost(&frames[i])
	}
	return cost
}

// eachChain reads each chain from its innermost method on. use returns how many bytes of the chain are kept; during
// the call, t.methods are the chain's methods if t.about is set. false: the time has ended, or too much is kept.
func (t *taskWalk) eachChain(nodes []node, use func(*profile.TaskChain) (cost int)) bool {
	room := maxChainBytes
	clear(t.firsts)
	b := batchOf(t.p, t.prove, t.readChainOf)
	queue := starts(nodes)
	for done := 0; done < len(queue); {
		if t.stopped() || room <= 0 {
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
func (t *taskWalk) nodes() []node {
	found := t.objects[boxClass]
	nodes := make([]node, 0, len(found))
	index := map[arch.Addr]int{}
	var next []arch.Addr
	for i, obj := range slices.Concat(found, t.earlier, slices.Sorted(maps.Keys(t.running))) {
		if i%1024 == 0 && t.stopped() {
			break
		}
		obj, err := t.current(obj)
		if err != nil && i < len(found) {
			t.unread++
		}
		if _, known := index[obj]; known || err != nil || obj == 0 {
			continue
		}
		to, _ := t.r.Next(obj)
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
func (t *taskWalk) current(obj arch.Addr) (arch.Addr, error) {
	for range maxMoves {
		at, err := t.r.Place(obj)
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

// maxMoves bounds how often a moved box is followed.
const maxMoves = 4

// readChain reads a chain. alive: its innermost method has not ended, as far as is known.
func (t *taskWalk) readChain(obj arch.Addr) (out *profile.TaskChain, alive bool, err error) {
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
	t.first, t.methods = obj, t.methods[:0]
	for i := range steps {
		if i == 0 && run != nil {
			out.Frames = append(out.Frames, run.frame())
			out.Threads = []profile.ThreadRef{run.thread}
			continue
		}
		out.Frames = append(out.Frames, t.frame(steps, i))
		if out.Frames[i].Origin() != profile.OfFramework {
			if !out.ReadsChannel && t.p.stepReads(&steps[i]) {
				out.ReadsChannel, out.Reader = true, i
			}
			if !out.Completes && t.p.stepCompletes(&steps[i]) {
				out.Completes, out.Completer = true, i
			}
		}
		if steps[i].Task() != 0 {
			t.methods = append(t.methods, chainMethod{&steps[i], i})
		}
	}
	if len(steps) == 0 {
		return nil, false, nil
	}
	if isSuspended(&first) {
		out.WaitsFor, out.State, err = t.awaited(&first)
	}
	if err == nil && t.about != nil {
		err = t.about()
	}
	return out, true, err
}

// isSuspended reports whether the method of a step waits, or has not begun to run again.
func isSuspended(s *async.Step) bool {
	return s.Resumption != nil || s.Box != nil && (!s.Box.HasState || s.Box.State >= 0)
}

// steps returns the methods of an object, and the awaiters.
func (t *taskWalk) steps(obj arch.Addr) (steps []async.Step, alive bool, err error) {
	steps, alive, err = t.r.Methods(obj)
	if err != nil {
		return nil, alive, err
	}
	if !alive {
		return t.runningSteps(obj)
	}
	chain, err := t.r.Awaiting(obj)
	return append(steps, chain.Steps...), true, err
}

// inner follows a chain inwards, to the methods that the first method waits for. As a rule there are none. But the
// walk may have missed methods that were moved meanwhile or had not been suspended yet, and a chain is never shown
// without the inner methods. A method with several waiters has a chain of its own.
func (t *taskWalk) inner(steps []async.Step, obj arch.Addr) ([]async.Step, arch.Addr, error) {
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
func (t *taskWalk) awaitedMethod(s *async.Step) (arch.Addr, error) {
	a, err := t.awaitedBy(s)
	if err != nil {
		return 0, err
	}
	if a, err = t.unwrap(a); err != nil || a.Object == 0 {
		return 0, err
	}
	at := cmp.Or(t.r.OfMachine(a.Object, a.Class), a.Object)
	if at, err = t.r.Place(at); errors.Is(err, async.ErrNoBox) {
		return 0, nil
	}
	return at, err
}

// awaitedBy returns the object that a suspended method waits for. Of methods suspended together, the innermost
// counts.
func (t *taskWalk) awaitedBy(s *async.Step) (async.Awaited, error) {
	if s.Resumption == nil {
		return t.r.Awaited(s.Box)
	}
	a, err := t.r.AwaitedIn(s.Resumption.Task)
	if err == nil && a.Object == 0 {
		return t.resumer(s.Resumption.Task)
	}
	return a, err
}

// frame describes a step. Equal steps with a state machine are described once.
func (t *taskWalk) frame(steps []async.Step, i int) profile.Frame {
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

// maxTargets is the number of sockets whose chains are shown apart: the chains of a server's many clients are one
// group.
const maxTargets = 8

// joinTargets joins chains that differ only in sockets, if there are many.
func joinTargets(list []*profile.TaskChain) []*profile.TaskChain {
	groups := map[string][]*profile.TaskChain{}
	for _, c := range list {
		if c.WaitsFor != nil && c.WaitsFor.Kind == profile.AwaitsSocket {
			key := chainKey(c, false)
			groups[key] = append(groups[key], c)
		}
	}
	joined := map[*profile.TaskChain]bool{}
	for _, g := range groups {
		if len(g) <= maxTargets {
			continue
		}
		for _, c := range g[1:] {
			merge(g[0], c)
			joined[c] = true
		}
	}
	return slices.DeleteFunc(list, func(c *profile.TaskChain) bool { return joined[c] })
}

// remoteTarget leaves the local address of a socket out: a client has another local address for each connection.
func remoteTarget(target string) string {
	if f := strings.Fields(target); len(f) > 4 && f[3] == arrow {
		return strings.Join(append(f[:2:2], f[3:]...), " ")
	}
	return target
}

const arrow = "→" // in connectionText

// commonTarget is the common part of two sockets: the remote address, the local address, or the operation.
func commonTarget(a, b string) string {
	if a == b {
		return a
	}
	if ra, rb := remoteTarget(a), remoteTarget(b); ra == rb {
		return ra
	}
	f, g := strings.Fields(a), strings.Fields(b)
	n := 0
	for n < min(len(f), len(g)) && f[n] == g[n] && f[n] != arrow {
		n++
	}
	return strings.Join(f[:n], " ")
}

// chainKey is equal for equal chains; targets: with equal remote addresses.
func chainKey(c *profile.TaskChain, targets bool) string {
	var key []byte
	for i := range c.Frames {
		f := &c.Frames[i]
		key = append(append(append(key, f.Module...), 0), f.Display...)
		key = append(append(key, 0), f.Signature...)
		if f.Line != nil {
			key = strconv.AppendInt(append(append(key, 0), f.Line.File...), int64(f.Line.Line), 10)
		}
		key = append(key, 1)
	}
	key = append(key, c.State...)
	if w := c.WaitsFor; w != nil {
		key = append(append(append(key, 1), w.Kind...), 0)
		key = append(append(key, w.Type...), 0)
		if targets {
			key = append(key, remoteTarget(w.Target)...)
		}
		if w.Kind == profile.AwaitsSemaphore {
			key = strconv.AppendUint(append(key, 0), w.Object, 16)
		}
	}
	return string(key)
}

// merge adds an equal chain.
func merge(to, c *profile.TaskChain) {
	to.Count += c.Count
	to.Threads = append(to.Threads, c.Threads...)
	a, b := to.WaitsFor, c.WaitsFor
	if a == nil || b == nil {
		return
	}
	if a.Object != b.Object {
		a.Object = 0
	}
	a.Target = commonTarget(a.Target, b.Target)
	if b.HasDue && (!a.HasDue || b.Due < a.Due) {
		a.Due, a.HasDue = b.Due, true
	}
}
