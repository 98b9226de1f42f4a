package events

import (
	"math"
	"strings"
	"time"

	"clrsnap"
	"clrsnap/internal/agent"
	"clrsnap/internal/arch"
	"clrsnap/internal/session"
)

// newNotification makes a notification from an agent's record.
func newNotification(p *session.Process, o *Options, means agent.AllocMeans, r *agent.Record) *Notification {
	v := r.Values
	n := &Notification{
		Event: Event(r.Type), At: time.Duration(r.Time), Thread: clrsnap.ThreadID(r.Thread), NSThreadID: int(r.OSID),
		Held: r.Held, p: p, record: *r,
	}
	switch n.Event {
	case ObjectAllocated:
		n.Class, n.Size, n.Object = clrsnap.ClassID(v[0]), v[1], v[3]
		n.Bytes, n.Objects = allocated(means, v[1], v[2], o.AllocationBytes)
	case ExceptionThrown, ExceptionRethrown:
		n.ClassName, n.Count, n.Object = r.Name, o.ExceptionEvery, v[1]
		if n.Message, n.MessageCut = r.Message, r.MessageCut; n.Message == noMessage {
			n.Message = ""
		}
		if class := clrsnap.ClassID(v[0]); isClass(p, class, r.Name) {
			n.Class = class
		}
	case ExceptionCatcherEnter:
		n.Function, n.Object, n.Rethrown = clrsnap.FunctionID(v[0]), v[1], v[2] != 0
	case LockContended:
		n.Lock, n.Owner, n.Waited = v[0], int(v[1]), time.Duration(v[2])
		n.Class = lockedClass(p, r, n.Lock, v[3], n.Waited)
	case ThreadWaited:
		n.Waited = time.Duration(v[0])
		n.Class, n.WaitedFor = waitedFor(p, r, n.Waited)
	case ThreadStarting, ThreadCreated, ThreadDestroyed:
		n.Other = clrsnap.ThreadID(v[0])
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

// noMessage is EventPipe's text for a missing string (src/scripts/genEventPipe.py).
const noMessage = "NULL"

// waitedFor returns the type of the awaited object, and the kind of the object.
func waitedFor(p *session.Process, r *agent.Record, lasted time.Duration) (clrsnap.ClassID, WaitedFor) {
	said, lock := r.Values[2], r.Values[3]
	switch agent.WaitSource(r.Values[1]) {
	case agent.WaitMonitor:
		class, monitor := agent.LockedClass(said)
		// A waiter for a pulse has a place in the sync table, so without a place the object is a different
		// object.
		if _, err := p.Class(arch.Addr(class)); monitor && err == nil {
			return clrsnap.ClassID(class), WaitedForPulse
		}
		return 0, WaitedForPulse
	case agent.WaitLock:
		return lockedClass(p, r, lock, said, lasted), WaitedForLock
	}
	// From .NET 11 on the runtime names the handle of a wait for one handle. The object may have moved.
	if class := arch.Addr(said); class != 0 && p.IsWaitHandle(class) {
		return clrsnap.ClassID(class), WaitedForHandle
	}
	return 0, WaitedForOther
}

// lockedClass returns the type of the locked object; 0: not known.
func lockedClass(p *session.Process, r *agent.Record, lock, said uint64, lasted time.Duration) clrsnap.ClassID {
	class, monitor := agent.LockedClass(said)
	at := time.Duration(r.Time)
	is, ok := p.LockedClass(&session.LockEvent{
		ID: lock, Class: arch.Addr(class), Monitor: monitor, Begin: at - lasted, End: at,
		Methods: func(yield func(arch.Addr) bool) {
			for i := range r.Frames {
				if f := r.Frames[i].Function; f != 0 && !yield(arch.Addr(f)) {
					return
				}
			}
		},
	})
	if !ok {
		return 0
	}
	return clrsnap.ClassID(is)
}

// allocated returns how many bytes and objects a reported object stands for: its size, or 1, divided
// by the probability of the report.
//
// If the runtime samples, it chooses bytes, each byte with the same probability, and reports the
// object around the byte. Of the reported objects the agent keeps one in every/agent.SamplingMean, or,
// of larger objects, one in every/size. A tick stands for the bytes since the last tick; of ticks, the
// agent keeps one in every/tick. If the runtime reports every object, the agent keeps one in
// every/size.
func allocated(means agent.AllocMeans, size, tick uint64, every int64) (bytes, objects float64) {
	s, e := max(float64(size), 1), float64(every)
	switch means {
	case agent.AllocSampled:
		chance := -math.Expm1(-s/agent.SamplingMean) * min(1, max(s, agent.SamplingMean)/e)
		bytes = s / chance
	case agent.AllocTick:
		bytes = max(float64(tick), e)
	default:
		bytes = max(s, e)
	}
	return bytes, max(bytes/s, 1)
}

// isClass reports whether the type with an id has the name from the runtime. The runtime's name lacks
// the enclosing types, and has the number of type arguments after a `.
func isClass(p *session.Process, id clrsnap.ClassID, runtimeName string) bool {
	if id == 0 {
		return false
	}
	n, err := p.Class(arch.Addr(id))
	return err == nil && ownName(n.Display) == ownName(runtimeName)
}

// ownName is the last part of a type's name, without type arguments.
func ownName(s string) string {
	if i := strings.IndexAny(s, "`<["); i >= 0 {
		s = s[:i]
	}
	return s[strings.LastIndexAny(s, ".+")+1:]
}
