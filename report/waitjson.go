package report

import (
	"time"

	"clrsnap/snapshot"
)

// jsonWait is a wait, or a hold, of a thread.
type jsonWait struct {
	Kind      snapshot.WaitKind `json:"kind"`
	Object    string            `json:"object,omitempty"`
	Type      string            `json:"type,omitempty"`
	Of        string            `json:"of,omitempty"`
	Field     string            `json:"field,omitempty"`
	Owner     *jsonOwner        `json:"owner,omitempty"`
	Readers   []jsonOwner       `json:"readers,omitempty"`
	Behind    []jsonOwner       `json:"behind,omitempty"`
	Tasks     []*jsonWait       `json:"tasks,omitempty"`
	Recursion int               `json:"recursion,omitempty"`
	Waiters   int               `json:"waiters,omitempty"`
	Timeout   *int64            `json:"timeoutMilliseconds,omitempty"`
	Since     int64             `json:"sinceMilliseconds,omitempty"`
	Rest      int64             `json:"restMilliseconds,omitempty"`
	Certain   bool              `json:"certain"`
	Method    string            `json:"method,omitempty"`
	Target    string            `json:"target,omitempty"`
	Detail    string            `json:"detail,omitempty"`
}

type jsonOwner struct {
	OSThreadID      int    `json:"osThreadId,omitempty"`
	ManagedThreadID int    `json:"managedThreadId,omitempty"`
	Name            string `json:"name,omitempty"`
}

// again are the kinds of wait that wait for a monitor in several steps, each step for the rest of the timeout.
var again = map[snapshot.WaitKind]bool{
	snapshot.SemaphoreWait: true, snapshot.EventWait: true, snapshot.CountdownWait: true, snapshot.TaskWait: true,
	snapshot.CollectionTake: true, snapshot.CollectionAdd: true, snapshot.TaskWaitAll: true, snapshot.TaskWaitAny: true,
}

func jsonWaitOf(w *snapshot.Wait) *jsonWait {
	if w == nil {
		return nil
	}
	out := &jsonWait{
		Kind: w.Kind, Object: address(w.Object), Type: w.Type, Of: w.Of, Field: w.Field, Recursion: w.Recursion,
		Waiters: w.Waiters, Certain: w.Certain, Timeout: timeoutMilliseconds(w.Timeout),
		Method: w.Method, Target: w.Target, Detail: w.Detail,
	}
	if w.Rest > 0 {
		out.Rest = int64(w.Rest / time.Millisecond)
		if w.Timeout > w.Rest && !again[w.Kind] {
			out.Since = int64((w.Timeout - w.Rest) / time.Millisecond)
		}
	}
	if o := w.Owner; o != nil {
		out.Owner = jsonOwnerOf(o)
	}
	out.Readers, out.Behind = jsonOwnersOf(w.Readers), jsonOwnersOf(w.Behind)
	out.Tasks = jsonHoldsOf(w.Tasks)
	return out
}

func jsonOwnerOf(r *snapshot.ThreadRef) *jsonOwner {
	return &jsonOwner{OSThreadID: r.OSThreadID, ManagedThreadID: r.ManagedThreadID, Name: r.Name}
}

func jsonOwnersOf(list []snapshot.ThreadRef) (out []jsonOwner) {
	for i := range list {
		out = append(out, *jsonOwnerOf(&list[i]))
	}
	return out
}

// timeoutMilliseconds is a timeout for JSON: -1 stands for none; nil: not known.
func timeoutMilliseconds(d time.Duration) *int64 {
	switch {
	case d < 0:
		forever := int64(-1)
		return &forever
	case d > 0:
		ms := d.Milliseconds()
		return &ms
	}
	return nil
}

func jsonHoldsOf(list []snapshot.Wait) []*jsonWait {
	var out []*jsonWait
	for i := range list {
		out = append(out, jsonWaitOf(&list[i]))
	}
	return out
}
