package gather

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/cgroup"
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

// Texts describe connections, in one sentence those that differ only in the local address.
func Texts(list []*Socket) (out []string) {
	of := map[string][]*Socket{}
	var order []string
	for _, s := range list {
		_, about, _ := strings.Cut(s.Text(), " → ")
		if of[about] == nil {
			order = append(order, about)
		}
		of[about] = append(of[about], s)
	}
	for _, about := range order {
		if same := of[about]; len(same) > 1 {
			out = append(out, fmt.Sprintf("%d connections → %s", len(same), about))
		} else {
			out = append(out, same[0].Text())
		}
	}
	return out
}

// ReadsBody reports whether a stack reads the body of a request, synchronously: a server's stream waits for the client
// (Microsoft.AspNetCore.Server.Kestrel.Core, HttpRequestStream.cs).
func ReadsBody(frames []snapshot.Frame) bool {
	return slices.ContainsFunc(frames, func(f snapshot.Frame) bool {
		return strings.HasPrefix(f.Method, "Microsoft.AspNetCore.Server.") &&
			strings.Contains(f.Method, "HttpRequestStream.Read")
	})
}

// Stays reports whether a thread was in a method of the framework in all looks, with unchanged calls.
func (w *Watched) Stays(prefix string) bool { return w.Unmoved && CallsFramework(w.Last(), prefix) }

// CallsFramework reports whether the stack has a method of the framework with a prefix.
func CallsFramework(t *snapshot.Thread, prefix string) bool {
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

// StaysIn is the own method of a thread in all looks that have the thread's stack, with the stack in one of the looks
// and the number of these looks; "": several methods.
func (w *Watched) StaysIn() (in string, stack *snapshot.Thread, looks int) {
	for _, t := range w.Looks {
		own := OwnFrame(t.Frames)
		if own == nil && !t.Complete {
			continue // without a CPU during the look
		}
		if own == nil || in != "" && own.Display != in {
			return "", nil, 0
		}
		in, stack, looks = own.Display, t, looks+1
	}
	return in, stack, looks
}

// IDs are the ids of threads.
func IDs(threads []Watched) map[int]bool {
	ids := map[int]bool{}
	for i := range threads {
		ids[threads[i].Last().OSThreadID] = true
	}
	return ids
}

// Span is the time between the beginnings of the first and the last look.
func (e *Evidence) Span() time.Duration {
	if len(e.Looks) == 0 {
		return 0
	}
	return e.Last().At - e.First().At
}

// Served is the share of the threads' ready time in which the threads ran, because they had a CPU: from 0 to 1. If
// the share is low, everything takes longer, and the program is not to blame.
func (e *Evidence) Served() float64 {
	ran, ready := e.RanAndReady()
	if ran+ready <= 0 {
		return 1
	}
	return float64(ran) / float64(ran+ready)
}

// RanAndReady is how long the threads ran, and how long they were ready to run without a CPU, in all.
func (e *Evidence) RanAndReady() (ran, ready time.Duration) {
	threads := e.Threads()
	for i := range threads {
		ran, ready = ran+threads[i].Ran, ready+threads[i].Ready
	}
	return ran, ready
}

// OwnMethod is the own method nearest to the leaf of a thread, for display; "": none.
func OwnMethod(t *snapshot.Thread) string {
	if f := OwnFrame(t.Frames); f != nil {
		return f.Display
	}
	return ""
}

// Delta returns the first and the last moment; false: there are not two.
func (e *Evidence) Delta() (first, last *Moment, ok bool) {
	if len(e.Moments) < 2 {
		return nil, nil, false
	}
	return &e.Moments[0], &e.Moments[len(e.Moments)-1], true
}

// Thresholds of a used-up quota of CPU time.
const (
	fewPeriods       = 5    // periods that tell nothing
	throttledPeriods = 0.25 // of the periods: periods with the quota used up
	throttledTime    = 0.10 // of the time: processes had to wait then
)

// Throttled is the work of the control group whose quota of CPU time is used up again and again; nil: no such group.
func (e *Evidence) Throttled() *cgroup.CPU {
	first, last, ok := e.Delta()
	if !ok || last.At-first.At < Enough {
		return nil
	}
	d := last.Groups.Since(&first.Groups)
	for i := range d.CPU {
		c := &d.CPU[i]
		if c.Periods >= fewPeriods && float64(c.Throttled) >= throttledPeriods*float64(c.Periods) &&
			AtOnce(int64(c.Stood), last.At-first.At) >= throttledTime {
			return c
		}
	}
	return nil
}

// wholeCPU is the share of the time for which a thread ran, or was ready to run, that counts as the whole time.
const wholeCPU = 0.85

// AlwaysReady reports whether a thread ran, or was ready to run, nearly all the time.
func (w *Watched) AlwaysReady(e *Evidence) bool {
	return float64(w.Ran+w.Ready) >= wholeCPU*float64(e.Whole())
}

// PlaceOf is equal for threads that wait in the same place; "": the thread does not wait in own code, belongs to
// the pool, or waits for input or for the time.
func PlaceOf(t *snapshot.Thread) string {
	own := OwnFrame(t.Frames)
	if own == nil || t.Wait == nil || !t.Waits() || Resting(t) || !Telling(t.Wait) ||
		t.Wait.Kind == snapshot.WaitIO ||
		t.Wait.Timeout > 0 || strings.HasPrefix(t.Role, "ThreadPool") {
		return ""
	}
	// A method may be inlined or not: the outermost method of the program tells equal threads.
	return string(t.Wait.Kind) + " " + OutermostOwn(t.Frames)
}

// OutermostOwn is the method of the program nearest to the thread's beginning.
func OutermostOwn(frames []snapshot.Frame) string {
	for i := len(frames) - 1; i >= 0; i-- {
		if f := &frames[i]; f.Origin() == snapshot.OfUser && !phrase.IsGenerated(f.Method) {
			return f.Module + "!" + f.Method
		}
	}
	return ""
}

// OwnerOf is the holder of what a thread waits for, in the last look; nil: not known.
func (e *Evidence) OwnerOf(t *snapshot.Thread) *snapshot.Thread {
	if t.Wait == nil || t.Wait.Owner == nil || !t.Wait.Certain {
		return nil
	}
	return e.Last().ByID()[t.Wait.Owner.OSThreadID]
}
