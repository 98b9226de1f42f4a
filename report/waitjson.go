package report

import (
	"time"

	"clrsnap/profile"
)

// jsonWait is what a thread waits for, or holds.
type jsonWait struct {
	Kind      profile.WaitKind `json:"kind"`
	Object    string           `json:"object,omitempty"`
	Type      string           `json:"type,omitempty"`
	Owner     *jsonOwner       `json:"owner,omitempty"`
	Recursion int              `json:"recursion,omitempty"`
	Waiters   int              `json:"waiters,omitempty"`
	Timeout   *int64           `json:"timeoutMilliseconds,omitempty"`
	Certain   bool             `json:"certain"`
	Method    string           `json:"method,omitempty"`
	Target    string           `json:"target,omitempty"`
	Detail    string           `json:"detail,omitempty"`
}

type jsonOwner struct {
	OSThreadID      int    `json:"osThreadId,omitempty"`
	ManagedThreadID int    `json:"managedThreadId,omitempty"`
	Name            string `json:"name,omitempty"`
}

func jsonWaitOf(w *profile.Wait) *jsonWait {
	if w == nil {
		return nil
	}
	out := &jsonWait{
		Kind: w.Kind, Object: address(w.Object), Type: w.Type, Recursion: w.Recursion, Waiters: w.Waiters,
		Certain: w.Certain,
		Method:  w.Method, Target: w.Target, Detail: w.Detail,
	}
	switch {
	case w.Timeout < 0:
		forever := int64(-1)
		out.Timeout = &forever
	case w.Timeout > 0:
		ms := int64(w.Timeout / time.Millisecond)
		out.Timeout = &ms
	}
	if o := w.Owner; o != nil {
		out.Owner = &jsonOwner{OSThreadID: o.OSThreadID, ManagedThreadID: o.ManagedThreadID, Name: o.Name}
	}
	return out
}

func jsonHoldsOf(list []profile.Wait) []*jsonWait {
	var out []*jsonWait
	for i := range list {
		out = append(out, jsonWaitOf(&list[i]))
	}
	return out
}
