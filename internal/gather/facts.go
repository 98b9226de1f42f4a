package gather

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/phrase"
	"clrsnap/internal/requests"
	"clrsnap/snapshot"
)

// Enough is the shortest duration of a wait that deserves blame.
const Enough = 500 * time.Millisecond

// ShownFaults bounds the reported kinds of failed tasks, and of exceptions.
const ShownFaults = 6

// BlockingCalls is how many threads are in synchronous calls of HttpClient, in the last look.
func (e *Evidence) BlockingCalls() (n int) {
	if len(e.Looks) == 0 {
		return 0
	}
	threads := e.Last().Snap.Threads
	for i := range threads {
		if requests.SendsBlocking(&threads[i]) {
			n++
		}
	}
	return n
}

// fullFiles is the share of the allowed descriptors from which on nearly all descriptors are used.
const fullFiles = 0.90

// Full reports whether nearly all descriptors are used.
func Full(files, limit int) bool { return limit > 0 && float64(files) >= fullFiles*float64(limit) }

// Thresholds of descriptors that become more.
const (
	manyFiles = 200
	moreFiles = 10
)

// MoreFiles is how many descriptors a process has opened and not closed between two moments; 0: few, or it has few.
func MoreFiles(before, now *Moment) int {
	if n := now.Files - before.Files; now.Files >= manyFiles && n >= moreFiles && now.At-before.At >= leastBetween {
		return n
	}
	return 0
}

// Busy is how many threads are not idle.
func (l *Look) Busy() (n int) {
	for i := range l.Snap.Threads {
		if t := &l.Snap.Threads[i]; t.ManagedThreadID != 0 && !Resting(t) {
			n++
		}
	}
	return n
}

// Holder returns the thread that held a lock at the reading of the thread's stack. Threads are read one after
// another: by then the owner named by a waiter may have left the lock, and queue for the lock again. nil: no holder
// is seen.
func (l *Look) Holder(object uint64) *snapshot.Thread {
	for i := range l.Snap.Threads {
		t := &l.Snap.Threads[i]
		if t.Wait != nil && t.Wait.Object == object || OwnFrame(t.Frames) == nil {
			continue
		}
		for k := range t.Holds {
			if h := &t.Holds[k]; h.Object == object && h.Certain {
				return t
			}
		}
	}
	return nil
}

// Boxed are value types of .NET, as the names of allocated classes. Only a boxed value is an object of such a class.
var Boxed = map[string]bool{
	"bool": true, "byte": true, "sbyte": true, "char": true, "short": true, "ushort": true, "int": true, "uint": true,
	"long": true, "ulong": true, "float": true, "double": true, "decimal": true, "nint": true, "nuint": true,
	"System.DateTime": true, "System.DateTimeOffset": true, "System.TimeSpan": true, "System.Guid": true,
}

// WorkerRole is the role of the thread pool's workers.
const WorkerRole = "ThreadPool worker"

// Blocked reports whether a thread waits for something, and is not idle.
func Blocked(t *snapshot.Thread) bool {
	return t.Waits() && t.Idle() == "" && !WaitsForRuntime(t)
}

// noAnswer is the time since a request was sent from which on a connection waits for an answer.
const noAnswer = 3 * time.Second

// Unanswered reports whether an outgoing connection waits for an answer, or has not been accepted.
func (s *Socket) Unanswered() bool {
	return s.Ours && (s.State == "syn-sent" || s.Sent >= noAnswer && s.Received > s.Sent)
}

// Text describes the connection, in one sentence.
func (s *Socket) Text() string {
	if s.State == "syn-sent" {
		return fmt.Sprintf("%s → %s: the connection is not made yet.", s.Local, s.Remote)
	}
	received := "nothing received"
	if s.heard {
		received = fmt.Sprintf("last received %s ago", phrase.Seconds(s.Received))
	}
	return fmt.Sprintf("%s → %s: last sent %s ago, %s.", s.Local, s.Remote, phrase.Seconds(s.Sent), received)
}

// Stays reports whether a thread was in a method of the framework in all looks, with unchanged calls.
func (w *Watched) Stays(prefix string) bool { return w.Unmoved && callsFramework(w.Last(), prefix) }

// callsFramework reports whether the stack has a method of the framework with a prefix.
func callsFramework(t *snapshot.Thread, prefix string) bool {
	return slices.ContainsFunc(t.Frames, func(f snapshot.Frame) bool {
		return f.Kind == snapshot.Managed && f.Module == "System.Private.CoreLib" && strings.HasPrefix(f.Method, prefix)
	})
}

// BlockedCooperative reports whether a thread has been blocked in one call, in cooperative mode, in all looks. A
// waiting runtime signals the thread thousands of times a second, and the signals need some CPU time.
func (w *Watched) BlockedCooperative(e *Evidence) bool {
	first := OwnFrame(w.Looks[0].Frames)
	return w.known && float64(w.Ran+w.Ready) < signalled*float64(e.Whole()) &&
		slices.ContainsFunc(w.Looks, (*snapshot.Thread).Waits) &&
		w.All(func(t *snapshot.Thread) bool {
			own := OwnFrame(t.Frames)
			return HoldsOut(t, &e.Process) && SameCall(own, first)
		})
}

// signalled is the largest share of a CPU for signals.
const signalled = 0.25

// WaitsForRuntime reports whether a thread waits for the runtime itself, such as for the end of a collection.
func WaitsForRuntime(t *snapshot.Thread) bool {
	return t.Wait != nil && t.Wait.Kind == snapshot.WaitRuntime && t.Wait.Owner == nil && t.Mode == "preemptive"
}

// HoldsOut reports whether a thread is in cooperative mode, in code outside the runtime. The runtime's own code stops
// threads, and collects.
func HoldsOut(t *snapshot.Thread, p *snapshot.Process) bool {
	if t.Mode != "cooperative" || len(t.Frames) == 0 || OwnFrame(t.Frames) == nil {
		return false
	}
	runtime := phrase.FileName(p.Runtime.Path)
	for i := range t.Frames {
		switch f := &t.Frames[i]; {
		case f.Kind == snapshot.Managed:
			return true
		case runtime != "" && f.Module == runtime || strings.HasPrefix(f.Module, "libclrgc"):
			return false
		}
	}
	return false
}

// SameCall reports whether two frames belong to one call.
func SameCall(a, b *snapshot.Frame) bool { return a.Method == b.Method && a.SP == b.SP }

// Again stands for the process in a command line.
func (e *Evidence) Again() string {
	if c := e.Process.Core; c != nil {
		return "--core " + phrase.Quoted(c.Path)
	}
	return fmt.Sprint(e.Process.PID)
}

// Retries reports whether a thread of the pool has slept in the same call of own code in all looks: one long sleep,
// or many sleeps of a polling loop.
func (w *Watched) Retries() bool {
	first := OwnFrame(w.Looks[0].Frames)
	return first != nil && w.All(func(t *snapshot.Thread) bool {
		own := OwnFrame(t.Frames)
		return t.Role == WorkerRole && t.Wait != nil && t.Wait.Kind == snapshot.ThreadSleep && own != nil &&
			SameCall(own, first)
	})
}
