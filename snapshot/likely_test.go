package snapshot

import (
	"fmt"
	"slices"
	"testing"
)

// likelySnapshot has threads and async methods. Each thread waits for the owner at its index in owners, -1: for
// nobody.
func likelySnapshot(awaits int, owners ...int) *Snapshot {
	s := &Snapshot{Awaits: make([]Await, awaits)}
	defer func() { s.Threads = append(s.Threads, Thread{OSThreadID: 100}) }() // this thread runs
	for i, owner := range owners {
		t := Thread{OSThreadID: i + 1, Wait: &Wait{Kind: SemaphoreWait, Object: 0x9000, Timeout: Forever}}
		if owner >= 0 {
			t.Wait = &Wait{
				Kind: MonitorEnter, Object: uint64(0x1000 + owner), Timeout: Forever,
				Owner: &ThreadRef{OSThreadID: owner + 1},
			}
		}
		s.Threads = append(s.Threads, t)
	}
	return s
}

// who writes nodes: t0 is a thread, a0 an async method.
func who(list []WaitNode) (out []string) {
	for _, p := range list {
		if p.Thread >= 0 {
			out = append(out, fmt.Sprintf("t%d", p.Thread))
		} else {
			out = append(out, fmt.Sprintf("a%d", p.Await))
		}
	}
	return out
}

func TestLikely(t *testing.T) {
	a, th := AwaitNode, ThreadNode
	on := func(of WaitNode, on ...WaitNode) LikelyEdge {
		return LikelyEdge{Waiter: of, Kind: SemaphoreLock, Object: 0x9000, Holders: on}
	}
	for _, tt := range []struct {
		name  string
		s     *Snapshot
		needs []LikelyEdge
		want  string
	}{
		{"nothing", likelySnapshot(1, -1), nil, ""},
		{"a lock and a permit that an await holds", likelySnapshot(1, -1, 0),
			[]LikelyEdge{on(th(0), a(0)), on(a(0), th(1))},
			"[t0 a0 t1] [] []"},
		{"no threads", likelySnapshot(2), []LikelyEdge{on(a(0), a(1)), on(a(1), a(0))}, "[a0 a1] [] []"},
		{"itself", likelySnapshot(1), []LikelyEdge{on(a(0), a(0))}, "[a0] [] []"},
		{"a victim", likelySnapshot(1, -1, 0, 1), []LikelyEdge{on(th(0), a(0)), on(a(0), th(1))}, "[t0 a0 t1] [] [2]"},
		{"one of two holders may go on", likelySnapshot(2, -1, 0),
			[]LikelyEdge{on(th(0), a(0), a(1)), on(a(0), th(1))}, ""},
		{"both holders are stuck", likelySnapshot(2, -1, 0),
			[]LikelyEdge{on(th(0), a(0), a(1)), on(a(0), th(1)), on(a(1), th(1))}, "[t0 a0 t1] [a1] []"},
		{"a holder that waits for a circle, but is in none", likelySnapshot(3, -1),
			[]LikelyEdge{on(a(0), a(1), a(2)), on(a(1), a(0)), on(a(2), a(0))}, "[a0 a1] [a2] []"},
		{"a permit is elsewhere", likelySnapshot(1, -1, 0),
			[]LikelyEdge{{Waiter: th(0), Kind: SemaphoreLock, Holders: []WaitNode{a(0)}, Elsewhere: 1},
				on(a(0), th(1))}, ""},
		{"nobody is known", likelySnapshot(1, -1, 0), []LikelyEdge{on(th(0)), on(a(0), th(1))}, ""},
		{"one need of two is enough", likelySnapshot(2, -1),
			[]LikelyEdge{on(a(0), a(1)), on(a(0), th(0)), on(a(1), a(0))},
			"[a0 a1] [] []"},
		{"no such node", likelySnapshot(1, -1),
			[]LikelyEdge{on(a(0), a(7)), on(a(7), a(0)), on(th(9), a(0)), on(th(0), th(-1))}, ""},
		{"a thread that runs has the permit", likelySnapshot(1, -1),
			[]LikelyEdge{on(th(0), th(1)), on(a(0), th(0))}, ""},
		{"only locks", likelySnapshot(1, 1, 0), []LikelyEdge{on(a(0), th(1))}, ""},
	} {
		tt.s.LikelyEdges = tt.needs
		got := ""
		for _, d := range tt.s.WaitGraph().Likely {
			victims := append([]int{}, d.Victims...)
			got += fmt.Sprintf("%v %v %v", who(d.Members), who(d.Others), victims)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestLikelyTimeout: a thread whose wait ends by itself is in no circle.
func TestLikelyTimeout(t *testing.T) {
	s := likelySnapshot(1, -1, 0)
	s.LikelyEdges = []LikelyEdge{
		{Waiter: ThreadNode(0), Kind: SemaphoreLock, Holders: []WaitNode{AwaitNode(0)}},
		{Waiter: AwaitNode(0), Kind: TaskLock, Holders: []WaitNode{ThreadNode(1)}},
	}
	for i := range s.Threads[:2] {
		s.Threads[i].Wait.Timeout = 1
		if list := s.WaitGraph().Likely; len(list) > 0 {
			t.Errorf("thread %d gives up: %+v", i, list)
		}
		s.Threads[i].Wait.Timeout = Forever
	}
	g := s.WaitGraph()
	if len(g.Likely) != 1 {
		t.Fatalf("%+v", g.Likely)
	}
	at := slices.IndexFunc(g.Locks, func(l LockState) bool { return l.Kind == SemaphoreLock })
	if at < 0 || !slices.Equal(g.Locks[at].Holders, []WaitNode{AwaitNode(0)}) {
		t.Errorf("holders: %+v", g.Locks)
	}
}
