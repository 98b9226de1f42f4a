package report

import (
	"io"
	"time"

	"clrsnap/internal/jsonwriter"
	"clrsnap/snapshot"
)

// A WaitGraph, as docs/json.md describes it.
type (
	jsonGraphHead struct {
		Process    jsonProcess `json:"process"`
		CapturedAt string      `json:"capturedAt"`
		Stops      *int        `json:"stops,omitempty"`
		Pauses     *jsonPauses `json:"pauses,omitempty"`

		Registers *jsonRegisters `json:"registers,omitempty"`

		Threads int  `json:"threadCount"`
		Partial bool `json:"holdsPartial,omitempty"`
	}
	jsonLockState struct {
		Kind       snapshot.LockKind `json:"kind"`
		Object     string            `json:"object,omitempty"`
		Type       string            `json:"type,omitempty"`
		Of         string            `json:"of,omitempty"`
		Field      string            `json:"field,omitempty"`
		Method     string            `json:"method,omitempty"`
		Detail     string            `json:"detail,omitempty"`
		Owner      *jsonMember       `json:"owner,omitempty"`
		OwnerEnded bool              `json:"ownerEnded,omitempty"`
		Readers    []jsonMember      `json:"readers,omitempty"`
		Holders    []jsonWaitNode    `json:"likelyHolders,omitempty"`
		Recursion  int               `json:"recursion,omitempty"`
		Waiters    []jsonMember      `json:"waiters"`
		Counted    int               `json:"countedWaiters,omitempty"`
		Blocked    int               `json:"blocked"`
		Certain    bool              `json:"certain"`
	}
	// jsonMember is a thread: a member of a deadlock, an owner or a waiter. Kind, Timeout and Certain are the
	// wait's.
	jsonMember struct {
		OSThreadID      int               `json:"osThreadId,omitempty"`
		ManagedThreadID int               `json:"managedThreadId,omitempty"`
		Name            string            `json:"name,omitempty"`
		Kind            snapshot.WaitKind `json:"kind,omitempty"`
		Timeout         *int64            `json:"timeoutMilliseconds,omitempty"`
		Certain         *bool             `json:"certain,omitempty"`
		Wait            *jsonWait         `json:"wait,omitempty"`
		Frames          []*jsonFrame      `json:"frames,omitempty"`
	}
	jsonDeadlock struct {
		Threads    []jsonMember `json:"threads"`
		Victims    []jsonMember `json:"victims,omitempty"`
		Text       string       `json:"text"`
		OwnerEnded bool         `json:"ownerEnded,omitempty"`
		Certain    bool         `json:"certain"`
		Timeout    *int64       `json:"timeoutMilliseconds,omitempty"`
	}
)

// WaitGraphJSON writes a WaitGraph of a snapshot as one JSON document and a newline. docs/json.md describes it.
func WaitGraphJSON(w io.Writer, s *snapshot.Snapshot, g *snapshot.WaitGraph) error {
	j := graphJSON{s: s, index: make(map[int]int, len(s.Threads))}
	for i := range s.Threads {
		j.index[s.Threads[i].OSThreadID] = i
	}
	c := jsonwriter.New(w)
	c.Open(jsonGraphHead{
		Process: jsonProcess{
			PID: s.Process.PID, Command: s.Process.Command,
			Runtime: jsonRuntimeOf(&s.Process.Runtime), Core: jsonCoreOf(s.Process.Core),
		},
		CapturedAt: s.CapturedAt.UTC().Format(time.RFC3339Nano),
		Stops:      jsonStopsOf(s),
		Pauses:     jsonPausesOf(s),
		Registers:  jsonRegistersOf(s),
		Threads:    len(s.Threads),
		Partial:    s.HoldsPartial,
	})
	j.locks(c, "locks", g, func(l *snapshot.LockState) bool { return len(l.Waiters) > 0 && l.IsLock() })
	j.locks(c, "others", g, func(l *snapshot.LockState) bool { return len(l.Waiters) > 0 && !l.IsLock() })
	j.locks(c, "held", g, func(l *snapshot.LockState) bool { return len(l.Waiters) == 0 })
	j.deadlocks(c, "deadlocks", g.Deadlocks)
	j.deadlocks(c, "suspected", g.Suspected)
	j.likely(c, g.Likely)
	j.permitQueues(c)
	if s.Stop != nil {
		c.Field("stop", jsonHeapStopOf(s.Stop))
	}
	if s.Unsearched != "" {
		c.Field("unsearched", s.Unsearched)
	}
	c.Text("}\n")
	return c.Flush()
}

type graphJSON struct {
	s     *snapshot.Snapshot
	index map[int]int // threads by their ids
}

func (j *graphJSON) locks(c *jsonwriter.Writer, name string, g *snapshot.WaitGraph, of func(*snapshot.LockState) bool) {
	var list []*snapshot.LockState
	for i := range g.Locks {
		if of(&g.Locks[i]) {
			list = append(list, &g.Locks[i])
		}
	}
	c.Text(",")
	c.Key(name)
	c.List(len(list), func(i int) { c.Value(j.lock(list[i])) })
}

func (j *graphJSON) lock(l *snapshot.LockState) jsonLockState {
	out := jsonLockState{
		Kind: l.Kind, Object: address(l.Object), Type: l.Type, Of: l.Of, Field: l.Field, Method: l.Method,
		Detail:     l.Detail,
		OwnerEnded: l.Ended(), Recursion: l.Recursion, Waiters: []jsonMember{}, Counted: l.Counted, Blocked: l.Blocked,
		Certain: l.Certain,
	}
	if l.Owner != nil {
		m := j.ref(l.Owner)
		out.Owner = &m
	}
	for i := range l.Readers {
		out.Readers = append(out.Readers, j.ref(&l.Readers[i]))
	}
	for _, p := range l.Holders[:min(len(l.Holders), maxListedHolders)] {
		out.Holders = append(out.Holders, j.node(p))
	}
	for i := range l.Waiters {
		m := j.member(l.Waiters[i].Thread)
		w := l.Waiters[i].Wait
		m.Kind, m.Timeout, m.Certain = w.Kind, timeoutMilliseconds(w.Timeout), &w.Certain
		out.Waiters = append(out.Waiters, m)
	}
	return out
}

// maxListedHolders bounds the likely holders of one semaphore that are listed.
const maxListedHolders = 256

// ref describes a thread that a lock names.
func (j *graphJSON) ref(r *snapshot.ThreadRef) jsonMember {
	if at, ok := j.index[r.OSThreadID]; ok && r.OSThreadID != 0 {
		return j.member(at)
	}
	return jsonMember{OSThreadID: r.OSThreadID, ManagedThreadID: r.ManagedThreadID, Name: r.Name}
}

// member describes a thread of the snapshot, with the frames of the program's own code.
func (j *graphJSON) member(i int) jsonMember {
	t := &j.s.Threads[i]
	m := jsonMember{OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, Name: t.Name}
	for _, f := range ownFrames(t, shownFrames) {
		m.Frames = append(m.Frames, jsonFrameOf(f))
	}
	return m
}

func (j *graphJSON) deadlocks(c *jsonwriter.Writer, name string, list []snapshot.Deadlock) {
	c.Text(",")
	c.Key(name)
	c.List(len(list), func(i int) {
		d := &list[i]
		out := jsonDeadlock{
			Threads: []jsonMember{}, Text: DeadlockText(j.s, d), OwnerEnded: d.Ended, Certain: d.Certain,
			Timeout: timeoutMilliseconds(d.Timeout),
		}
		for _, t := range d.Threads {
			m := j.member(t)
			m.Wait = jsonWaitOf(j.s.Threads[t].Wait)
			out.Threads = append(out.Threads, m)
		}
		for _, t := range d.Victims {
			out.Victims = append(out.Victims, j.member(t))
		}
		c.Value(out)
	})
}
