package gather

import (
	"strings"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// QueuedFor names the thing that an async method queues for; "": no queue. An idle program has no such queue. Consumers
// of a channel and readers of a socket wait for work, and a promised task may be news.
func QueuedFor(w *snapshot.Awaited) string {
	switch {
	case w == nil:
		return ""
	case w.Kind == snapshot.AwaitsSemaphore:
		return "a permit of a SemaphoreSlim"
	case w.Kind == snapshot.AwaitsChannel && strings.Contains(w.Type, "BlockedWrite"):
		return FullChannel
	case w.Kind == snapshot.AwaitsPipe && strings.HasSuffix(w.Type, "PipeWriter"):
		return fullPipe
	}
	return ""
}

const fullPipe = "room in a full pipe"

// FullChannel is the thing that a writer of a full channel queues for.
const FullChannel = "room in a full channel"

// Telling reports whether a wait is informative: not a sleep, and not the host's wait for its end.
func Telling(w *snapshot.Wait) bool {
	switch w.Kind {
	case snapshot.ThreadSleep, snapshot.WaitIdle, snapshot.WaitRuntime:
		return false
	}
	return !strings.HasPrefix(w.Method, "Microsoft.Extensions.Hosting.")
}

// AwaitedThings are awaited objects that other code of the program has to complete.
var AwaitedThings = map[snapshot.AwaitedKind]string{
	snapshot.AwaitsSemaphore: "a SemaphoreSlim", snapshot.AwaitsChannel: "a channel", snapshot.AwaitsPipe: "a pipe",
	snapshot.AwaitsCompletion: "a TaskCompletionSource", snapshot.AwaitsSocket: "a socket",
	snapshot.AwaitsTimeout: "Task.WaitAsync",
}

// AwaitedThing names an awaited object that other code of the program has to complete; "": the object is not one. A
// SemaphoreSlim has the name of its field, if the waits of threads, or the search for permits, know the field.
func (e *Evidence) AwaitedThing(w *snapshot.Awaited) string {
	thing := AwaitedThings[w.Kind]
	if field := display.Field(e.fieldOf(w.Object)); w.Kind == snapshot.AwaitsSemaphore && field != "" {
		return "SemaphoreSlim (" + field + ")"
	}
	return thing
}

// fieldOf is the field of a semaphore; "": not known.
func (e *Evidence) fieldOf(object uint64) string {
	if object == 0 {
		return ""
	}
	for i := range e.Lost {
		if l := &e.Lost[i]; l.Object == object {
			return l.Field
		}
	}
	if len(e.Looks) > 0 {
		threads := e.Last().Snap.Threads
		for i := range threads {
			if w := threads[i].Wait; w != nil && w.Kind == snapshot.SemaphoreWait && w.Object == object {
				return w.Field
			}
		}
	}
	if e.Likely != nil {
		for i := range e.Likely.LikelyEdges {
			if n := &e.Likely.LikelyEdges[i]; n.Kind == snapshot.SemaphoreLock && n.Object == object {
				return n.Field
			}
		}
	}
	return ""
}
