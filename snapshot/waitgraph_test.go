package snapshot

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv"
)

// graphOf makes a snapshot of threads 1, 2, … that stand still. Each thread has a wait: "Monitor.Enter a 2" is for
// object a, held by thread 2; "0" is a thread that has ended, "-" nobody. "~" before a wait makes the wait uncertain;
// "@5s" after a wait is a timeout, "+3" another holder, "<3" a thread in front.
func graphOf(t *testing.T, of ...string) *Snapshot {
	t.Helper()
	s := &Snapshot{}
	for i, text := range of {
		th := Thread{OSThreadID: i + 1, Name: fmt.Sprintf("t%d", i+1), Still: true}
		if f := strings.Fields(text); len(f) > 0 {
			w := Wait{Certain: true, Timeout: Forever}
			if kind, ok := strings.CutPrefix(f[0], "~"); ok {
				f[0], w.Certain = kind, false
			}
			w.Kind, w.Object, w.Type = WaitKind(f[0]), uint64(f[1][0]), f[1]
			for _, who := range f[2:] {
				var id int
				switch {
				case who == "-":
				case who[0] == '@':
					d, err := time.ParseDuration(who[1:])
					if err != nil {
						t.Fatal(err)
					}
					w.Timeout = d
				case who[0] == '+':
					fmt.Sscan(who[1:], &id)
					w.Readers = append(w.Readers, ThreadRef{OSThreadID: id})
				case who[0] == '<':
					fmt.Sscan(who[1:], &id)
					w.Behind = append(w.Behind, ThreadRef{OSThreadID: id})
				case who == "*":
					w.Tasks = append(w.Tasks, Wait{}) // a task that nobody runs
				case who[0] == '*':
					fmt.Sscan(who[1:], &id)
					w.Tasks = append(w.Tasks, Wait{Owner: &ThreadRef{OSThreadID: id}})
				default:
					fmt.Sscan(who, &id)
					w.Owner = &ThreadRef{OSThreadID: id}
				}
			}
			th.Wait = &w
		}
		s.Threads = append(s.Threads, th)
	}
	return s
}

func ids(threads []int) string {
	var out []string
	for _, i := range threads {
		out = append(out, fmt.Sprint(i+1))
	}
	return strings.Join(out, " ")
}

func deadlocks(list []Deadlock) string {
	var out []string
	for i := range list {
		d := &list[i]
		text := ids(d.Threads)
		if len(d.Victims) > 0 {
			text += " < " + ids(d.Victims)
		}
		if d.Ended {
			text += " ended"
		}
		if !d.Simple && !d.Ended {
			text += " tangled"
		}
		if !d.Certain {
			text += " uncertain"
		}
		if d.Timeout != Forever {
			text += " " + d.Timeout.String()
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func TestDeadlocks(t *testing.T) {
	for _, tt := range []struct {
		name            string
		waits           []string
		want, suspected string
	}{
		{"none", []string{"", "Monitor.Enter a 1", "Monitor.Enter b 2"}, "", ""},
		{"two", []string{"Monitor.Enter b 2", "Monitor.Enter a 1"}, "1 2", ""},
		{"of two kinds", []string{"Lock.Enter b 2", "ReaderWriterLockSlim.Write a 1"}, "1 2", ""},
		{"order is that of the waits", []string{"Monitor.Enter c 3", "Monitor.Enter a 1", "Monitor.Enter b 2"},
			"1 3 2", ""},
		{
			"a victim, and one behind it",
			[]string{"Monitor.Enter b 2", "Monitor.Enter a 1", "Monitor.Enter a 1", "Thread.Join t 3"},
			"1 2 < 3 4", "",
		},
		{"itself", []string{"Thread.Join t 1"}, "1", ""},
		{"task", []string{"Task.Wait t 2", "Monitor.Enter a 1"}, "1 2", ""},
		{"constructor", []string{"Thread.Join t 2", "runtime C 1"}, "1 2", ""},
		{"who waits for a pulse waits for no owner", []string{"Monitor.Wait b 2", "Monitor.Enter a 1"}, "", ""},
		{"semaphores have no owner", []string{"SemaphoreSlim.Wait b -", "Monitor.Enter a 1"}, "", ""},
		{"two", []string{
			"Monitor.Enter b 2", "Monitor.Enter a 1", "Lock.Enter d 4", "Lock.Enter c 3", "Lock.Enter c 3",
		}, "3 4 < 5; 1 2", ""},
		{"uncertain", []string{"~Monitor.Enter b 2", "Monitor.Enter a 1"}, "", "1 2 uncertain"},
		{"timeout", []string{"Monitor.Enter b 2 @5s", "Monitor.Enter a 1 @7s"}, "", "1 2 5s"},
		{"unknown timeout", []string{"Monitor.Enter b 2 @0s", "Monitor.Enter a 1"}, "", "1 2 0s"},
		{"known before unknown", []string{"Monitor.Enter b 2 @0s", "Monitor.Enter a 1 @1s"}, "", "1 2 1s"},
		{"ended", []string{"Monitor.Enter a 0", "Lock.Enter b 0", "Monitor.Enter a 0", ""}, "1 3 ended; 2 ended", ""},
		{"ended, uncertain", []string{"~Monitor.Enter a 0"}, "", "1 ended uncertain"},
		{
			"ended: one that waits with a timeout, and one that is not certain, change nothing for the other",
			[]string{"Monitor.Enter a 0", "Monitor.Enter a 0 @5s", "~Monitor.Enter a 0"},
			"1 ended", "2 3 ended uncertain 5s",
		},
		{"ended, timeout", []string{"Monitor.Enter a 0 @5s"}, "", "1 ended 5s"},
		{
			"a circle for ever in a tangle with a timeout",
			[]string{"Monitor.Enter b 2", "ReaderWriterLockSlim.Write a +1 +3", "Monitor.Enter b 1 @5s"},
			"1 2 < 3", "",
		},
		{
			"a tangle without such a circle",
			[]string{"Monitor.Enter b 2 @5s", "ReaderWriterLockSlim.Write a +1 +3", "Monitor.Enter b 1"},
			"", "1 2 3 tangled 5s",
		},
		{"read by a thread that has ended", []string{"ReaderWriterLockSlim.Write a +0 +2", ""}, "1 ended", ""},
		{"joining an ended thread ends", []string{"Thread.Join t 0"}, "", ""},
		{
			"readers", []string{"ReaderWriterLockSlim.Write a +2 +3", "Monitor.Enter b 1", "Thread.Join t 1"},
			"1 2 3 tangled", "",
		},
		{
			"one reader goes on", []string{"ReaderWriterLockSlim.Write a +2 +3", "Monitor.Enter b 1", ""},
			"1 2", "",
		},
		{
			"a reader waits for the writer in front of it",
			[]string{"Thread.Join t 2", "ReaderWriterLockSlim.Read a <3", "ReaderWriterLockSlim.Write a +1"},
			"1 2 3", "",
		},
		{
			"the writer in front of it gives up",
			[]string{"Thread.Join t 2", "ReaderWriterLockSlim.Read a <3", "ReaderWriterLockSlim.Write a +1 @5s"},
			"", "1 2 3 5s",
		},
		{"all tasks", []string{"Task.WaitAll t * *2", "Monitor.Enter a 1"}, "1 2", ""},
		{"any task", []string{"Task.WaitAny t *2 *3", "Monitor.Enter a 1", "Monitor.Enter b 2"}, "1 2 3 tangled", ""},
		{"any task, and one that nobody runs", []string{"Task.WaitAny t *2 *", "Monitor.Enter a 1"}, "", ""},
		{"any task, and one that goes on", []string{"Task.WaitAny t *2 *3", "Monitor.Enter a 1", ""}, "", ""},
		{"any task, and one behind what goes on",
			[]string{"Task.WaitAny t *2 *3", "Monitor.Enter a 1", "Monitor.Enter b 4", ""}, "", ""},
		{"any task, and one that gives up", []string{"Task.WaitAny t *2 *3", "Monitor.Enter a 1", "Lock.Enter a 1 @5s"},
			"", ""},
		{"any task, and one that is not certain to be stuck",
			[]string{"Task.WaitAny t *2 *3", "Monitor.Enter a 1", "~Monitor.Enter a 1"}, "", "1 2 3 tangled uncertain"},
		{"any task, and one in another deadlock",
			[]string{"Task.WaitAny t *2 *3", "Monitor.Enter a 1", "Monitor.Enter c 4", "Monitor.Enter d 3"},
			"3 4 < 1 2", "1 2 uncertain"},
		{"any task of two that wait for any task of each other",
			[]string{"Task.WaitAny t *2", "Task.WaitAny u *1"}, "1 2", ""},
		{"not in the snapshot", []string{"Monitor.Enter a 77"}, "", ""},
	} {
		g := graphOf(t, tt.waits...).WaitGraph()
		if got := deadlocks(g.Deadlocks); got != tt.want {
			t.Errorf("%s: deadlocks %q, want %q", tt.name, got, tt.want)
		}
		if got := deadlocks(g.Suspected); got != tt.suspected {
			t.Errorf("%s: suspected %q, want %q", tt.name, got, tt.suspected)
		}
	}
}

// Waits read at different times are a fact only if the members have not run between. A core dump is one moment.
func TestDeadlockStill(t *testing.T) {
	s := graphOf(t, "Monitor.Enter b 2", "Monitor.Enter a 1", "Monitor.Enter a 1")
	s.Threads[2].Still = false
	if g := s.WaitGraph(); deadlocks(g.Deadlocks) != "1 2 < 3" {
		t.Errorf("a victim that runs: %+v", g)
	}
	s.Threads[1].Still = false
	if g := s.WaitGraph(); len(g.Deadlocks) != 0 || deadlocks(g.Suspected) != "1 2 < 3 uncertain" {
		t.Errorf("a member that runs: %+v", g)
	}
	s.Process.Core = &Core{}
	if g := s.WaitGraph(); deadlocks(g.Deadlocks) != "1 2 < 3" {
		t.Errorf("core: %+v", g)
	}
}

func TestLockStates(t *testing.T) {
	s := graphOf(t, "Monitor.Enter b 2", "Monitor.Enter a 1", "Monitor.Enter a 1", "Monitor.Wait b",
		"SemaphoreSlim.Wait c", "Thread.Sleep x", "io y", "idle z", "runtime w", "Lock.Enter d 9 @1s")
	s.Threads[5].Holds = []Wait{
		{Kind: WriteLock, Object: 'e', Type: "ReaderWriterLockSlim", Certain: true, Recursion: 2},
		{Kind: MonitorEnter, Object: 'a', Type: "a", Certain: true}, // the others contradict this wait
	}
	var got []string
	for _, l := range s.WaitGraph().Locks {
		text := fmt.Sprintf("%s %s %d", l.Kind, l.Type, l.Blocked)
		if l.Owner != nil {
			text += fmt.Sprintf(" of %d", l.Owner.OSThreadID)
		}
		for _, w := range l.Waiters {
			text += fmt.Sprintf(" %d:%s", w.Thread+1, w.Wait.Kind)
		}
		got = append(got, text)
	}
	want := []string{
		"Monitor b 4 of 2 1:Monitor.Enter 4:Monitor.Wait",
		"Monitor a 3 of 1 2:Monitor.Enter 3:Monitor.Enter",
		"Lock d 1 of 9 10:Lock.Enter",
		"SemaphoreSlim c 1 5:SemaphoreSlim.Wait",
		"ReaderWriterLockSlim ReaderWriterLockSlim 0 of 6",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestEntered: a thread first seen waiting for a lock, and then holding the lock, no longer waits.
func TestEntered(t *testing.T) {
	s := graphOf(t, "Monitor.Enter a -", "Monitor.Enter a 1")
	s.Threads[0].Holds = []Wait{{Kind: MonitorEnter, Object: 'a', Type: "a", Certain: true}}
	g := s.WaitGraph()
	if len(g.Locks) != 1 {
		t.Fatalf("%+v", g.Locks)
	}
	l := &g.Locks[0]
	if l.Owner == nil || l.Owner.OSThreadID != 1 || len(l.Waiters) != 1 || l.Waiters[0].Thread != 1 || l.Blocked != 1 {
		t.Errorf("owner %v, waiters %v, blocked %d", l.Owner, l.Waiters, l.Blocked)
	}
	if len(g.Deadlocks)+len(g.Suspected) > 0 {
		t.Errorf("%v, %v", g.Deadlocks, g.Suspected)
	}
}

// TestMovedLocks: objects of different classes are different locks, though the collector moved one to the old address
// of the other.
func TestMovedLocks(t *testing.T) {
	s := graphOf(t, "Monitor.Enter a 3", "Monitor.Enter a 4", "", "")
	s.Threads[1].Wait.Type = "other"
	if g := s.WaitGraph(); len(g.Locks) != 2 || len(g.Locks[0].Waiters) != 1 {
		t.Errorf("%+v", g.Locks)
	}
}

// TestRankChain: a long chain of locks is ranked in bounded time.
func TestRankChain(t *testing.T) {
	s := &Snapshot{}
	const n = 30_000
	for i := range n {
		s.Threads = append(s.Threads, Thread{OSThreadID: i + 1, Wait: &Wait{
			Kind: MonitorEnter, Object: uint64(i + 1), Owner: &ThreadRef{OSThreadID: i + 2}, Certain: true,
			Timeout: Forever,
		}})
	}
	took := testenv.Worked(func() {
		if g := s.WaitGraph(); len(g.Locks) != n || g.Locks[0].Blocked < 2 {
			t.Errorf("%d locks, %+v", len(g.Locks), g.Locks[0])
		}
	})
	if took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestRandomGraphs compares with the definition: a thread that can reach itself is in a circle.
func TestRandomGraphs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := 1 + r.IntN(9)
		out, reach := make([][]int, n), make([][]bool, n)
		for i := range n {
			reach[i] = make([]bool, n)
			for range r.IntN(3) {
				if to := r.IntN(n); !slices.Contains(out[i], to) {
					out[i], reach[i][to] = append(out[i], to), true
				}
			}
		}
		for k := range n {
			for i := range n {
				for j := range n {
					reach[i][j] = reach[i][j] || reach[i][k] && reach[k][j]
				}
			}
		}
		together := make([][]int, n)
		components(out, func(members []int) {
			for _, m := range members {
				together[m] = slices.Sorted(slices.Values(members))
			}
		})
		for i := range n {
			want := []int{}
			for j := range n {
				if i == j || reach[i][j] && reach[j][i] {
					want = append(want, j)
				}
			}
			if !slices.Equal(together[i], want) {
				t.Fatalf("%v: %d is with %v, want %v", out, i, together[i], want)
			}
		}
	}
}

// TestLongChain: no depth of waits overflows a stack, or takes quadratic time.
func TestLongChain(t *testing.T) {
	const n = 200_000
	out := make([][]int, n)
	for i := range n - 1 {
		out[i] = []int{i + 1}
	}
	count := 0
	components(out, func([]int) { count++ })
	if count != n {
		t.Errorf("%d components", count)
	}
}

// TestLocksThatMove: Wait.Lock identifies locks that the collector moves.
func TestLocksThatMove(t *testing.T) {
	type lock struct {
		object, lock uint64
		kind         WaitKind
	}
	for name, c := range map[string]struct {
		waits, holds []lock
		want         int
	}{
		"moved":                {[]lock{{1, 7, MonitorEnter}, {2, 7, MonitorEnter}}, nil, 1},
		"held before it moved": {[]lock{{2, 7, MonitorEnter}}, []lock{{1, 7, MonitorEnter}}, 1},
		"another moved there":  {[]lock{{1, 7, MonitorEnter}, {1, 8, MonitorEnter}}, nil, 2},
		"wanted meanwhile":     {[]lock{{1, 7, MonitorEnter}}, []lock{{1, 0, MonitorEnter}}, 1},
		"two without objects":  {nil, []lock{{0, 7, HandleOne}, {0, 8, HandleOne}}, 2},
		"an object by another": {[]lock{{1, 7, HandleOne}}, []lock{{0, 7, HandleOne}}, 1},
		"of two kinds":         {[]lock{{1, 7, MonitorEnter}, {2, 7, LockEnter}}, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Snapshot{}
			for i, l := range c.waits {
				s.Threads = append(s.Threads, Thread{OSThreadID: i + 1, Wait: &Wait{
					Kind: l.kind, Object: l.object, Lock: l.lock, Type: "a", Certain: true, Timeout: Forever,
				}})
			}
			holder := Thread{OSThreadID: 99}
			for _, l := range c.holds {
				holder.Holds = append(holder.Holds, Wait{
					Kind: l.kind, Object: l.object, Lock: l.lock, Type: "a", Certain: true,
				})
			}
			s.Threads = append(s.Threads, holder)
			g := s.WaitGraph()
			if len(g.Locks) != c.want {
				t.Errorf("%d locks, want %d: %+v", len(g.Locks), c.want, g.Locks)
			}
			if name == "an object by another" && g.Locks[0].Object != 1 {
				t.Errorf("no object: %+v", g.Locks[0])
			}
		})
	}
}
