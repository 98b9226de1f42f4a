package clrsnap

import (
	"math"
	"strings"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/name"
)

// notifier makes notifications of an agent's records.
type notifier struct {
	p     *Process
	o     SubscribeOptions
	means agent.AllocMeans
}

func (f *notifier) notification(r *agent.Record) Notification {
	v := r.Values
	n := Notification{
		Event: Event(r.Type), At: time.Duration(r.Time), Thread: ThreadID(r.Thread), NSThreadID: int(r.OSID),
		Held: r.Held, p: f.p, record: *r,
	}
	switch n.Event {
	case ObjectAllocated:
		n.Class, n.Size, n.Object = ClassID(v[0]), v[1], v[3]
		n.Bytes, n.Objects = allocated(f.means, v[1], v[2], f.o.AllocationBytes)
	case ExceptionThrown:
		n.ClassName, n.Count = r.Name, f.o.ExceptionEvery
		if class := ClassID(v[0]); f.p.isClass(class, r.Name) {
			n.Class = class
		}
	case ExceptionCatcherEnter:
		n.Function = FunctionID(v[0])
	case LockContended:
		n.Lock, n.Owner, n.Waited = v[0], int(v[1]), time.Duration(v[2])
	case ThreadStarting, ThreadCreated, ThreadDestroyed:
		n.Other = ThreadID(v[0])
	case GarbageCollectionTriggered:
		n.Collection.Reason = CollectionReason(v[0])
	case GarbageCollectionStarted:
		n.Collection = Collection{int(v[0]), int(v[1]), CollectionReason(v[2]), CollectionType(v[3])}
	case GarbageCollectionFinished:
		n.Collection = Collection{Number: int(v[0]), Generation: int(v[1])}
	case RuntimeSuspendStarted:
		n.Suspension, n.Collection.Number = SuspendReason(v[0]), int(v[1])
	}
	return n
}

// samplingMean is how far apart, in bytes, the bytes are on average that the
// runtime's own sampling chooses (gcheaputilities.h, SamplingDistributionMean).
const samplingMean = 100 << 10

// allocated says how many bytes and objects a reported object stands for: the
// reciprocal of the chance that it had.
//
// Where the runtime samples, it chooses bytes, each with the same chance, and
// reports the object that the byte is in; of those objects the agent keeps one
// in every/samplingMean, or in every/size if they are larger. Of a tick, which
// stands for the bytes since the last one, it keeps one in every/tick. With
// every object reported, it keeps one in every/size.
func allocated(means agent.AllocMeans, size, tick uint64, every int64) (bytes, objects float64) {
	s, e := max(float64(size), 1), float64(every)
	switch means {
	case agent.AllocSampled:
		chance := -math.Expm1(-s/samplingMean) * min(1, max(s, samplingMean)/e)
		bytes = s / chance
	case agent.AllocTick:
		bytes = max(float64(tick), e)
	default:
		bytes = max(s, e)
	}
	return bytes, max(bytes/s, 1)
}

// ClassName is what a type is called.
type ClassName struct {
	// Display is the name as C# would write it, with namespaces.
	Display string
	// Short is Display without namespaces.
	Short string
	// Assembly is the simple name; of an array that of its elements' type.
	Assembly string
}

// ClassName names a type.
func (p *Process) ClassName(id ClassID) (ClassName, error) {
	n, err := p.class(id)
	return ClassName{n.Display, n.Short, n.Assembly}, err
}

// class names a type.
func (p *Process) class(id ClassID) (name.Class, error) {
	if p.rt == nil || id == 0 {
		return name.Class{}, errNotClass(id, nil)
	}
	n, err := p.rt.Names.Class(arch.Addr(id))
	if err != nil {
		return name.Class{}, errNotClass(id, err)
	}
	return n, nil
}

// isClass reports whether the type with an id has a name of the runtime's, which lacks
// the types that it is nested in, and counts type arguments behind a `.
func (p *Process) isClass(id ClassID, runtimeName string) bool {
	if id == 0 {
		return false
	}
	n, err := p.class(id)
	return err == nil && ownName(n.Display) == ownName(runtimeName)
}

// ownName is the last part of a type's name, without type arguments.
func ownName(s string) string {
	if i := strings.IndexAny(s, "`<["); i >= 0 {
		s = s[:i]
	}
	return s[strings.LastIndexAny(s, ".+")+1:]
}

func errNotClass(id ClassID, err error) error {
	return &Error{HRESULT: E_INVALIDARG, Text: id.String() + " is not a type", Err: err}
}
