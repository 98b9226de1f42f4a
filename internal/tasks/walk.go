package tasks

import (
	"context"
	"sync"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/naming"
	"clrsnap/internal/session"
	"clrsnap/snapshot"
)

// RewalkWithin is how long the heap is walked again, as long as another walk may find missing objects.
const RewalkWithin = 3 * time.Second

// Within has the walk end early when another context ends.
func (t *Walk) Within(ctx context.Context) { t.ctx = ctx }

// NewWalk prepares a walk for async methods. The walk ends early when ctx ends.
func NewWalk(ctx context.Context, p *session.Process, o session.WalkOptions) *Walk {
	t := &Walk{
		p: p, ctx: ctx, o: o, Reader: p.AsyncReader(), Begin: time.Now(), classes: map[arch.Addr]Class{},
		Objects: map[Class][]arch.Addr{}, Seen: map[arch.Addr]bool{}, frames: map[naming.AwaitKey]snapshot.Frame{},
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
	IteratorClass // wanted with Walk.Iterators
	OtherClasses  // from here on the classes of Walk.Also
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

	Iterators bool // iterators outside .NET are wanted

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
	Waited  arch.Addr          // likewise, the object that its innermost method waits for, before Permit; 0: none
	Firsts  map[arch.Addr]bool // of all chains, the innermost methods
	frames  map[naming.AwaitKey]snapshot.Frame

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
		if t.Iterators && !snapshot.Framework(class.Assembly) && t.Reader.IsIterator(mt) {
			return IteratorClass
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

func ConsistentShare(c *heap.Census) float64 {
	if c.Size == 0 {
		return 0
	}
	return float64(c.Consistent) / float64(c.Size)
}
