package details

import (
	"context"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

// How many looks at a program whose threads stand still have to be exact.
const exactLooks = 5

// atRest looks with all threads stopped until some looks were exact: on a busy machine a thread may get no CPU in which
// to stop.
func atRest(t *testing.T, look func() *profile.HeapStop) {
	t.Helper()
	looks, exact := 0, 0
	testenv.UntilSeen(t, func() string {
		looks++
		stop := look()
		switch {
		case stop == nil:
			t.Fatal("the result does not say how long the threads stood still")
		case !stop.Exact:
			if stop.Reason == "" {
				t.Fatal("no reason why the look is not exact")
			}
			return "an exact look: " + stop.Reason
		case stop.Stops == 0 || stop.Threads < 2 || stop.Pause <= 0:
			t.Errorf("%+v", stop)
		}
		if exact++; exact < exactLooks {
			return "more exact looks"
		}
		return ""
	})
	t.Logf("%d of %d looks are exact", exact, looks)
}

// TestTasksAtRest: while the collector moves the objects all the time, each look with all threads stopped has exactly
// the chains of the program.
func TestTasksAtRest(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{
			Runtime: runtime, Args: []string{"--collect", "--pause", "1", "--suspended", "10"},
		})
		truths := countTruths(t, a)
		p := livetest.Open(t, a, clrsnap.Options{Lines: true})
		atRest(t, func() *profile.HeapStop {
			tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{Stop: true})
			if err != nil {
				t.Fatal(err)
			}
			if tasks.Stop != nil && tasks.Stop.Exact {
				if tasks.Unproven+tasks.Unread > 0 || tasks.ConsistentShare != 1 || tasks.Partial {
					t.Errorf("%d unproven, %d unread, %g consistent, partial %v", tasks.Unproven, tasks.Unread,
						tasks.ConsistentShare, tasks.Partial)
				}
				checkTasks(t, tasks, truths)
			}
			return tasks.Stop
		})
		livetest.EndsWell(t, a)
	})
}

// TestDeadlocksAtRest: while the collector moves the objects all the time, each look with all threads stopped has
// exactly the deadlocks of the program, all of them certain.
func TestDeadlocksAtRest(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "deadlocks", testenv.Options{Runtime: runtime, Args: []string{"--collect"}})
		want := askDeadlocks(t, a)
		p := livetest.Open(t, a, clrsnap.Options{})
		atRest(t, func() *profile.HeapStop {
			s, err := p.SnapshotWaitsAtRest(context.Background(), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if s.Stop != nil && s.Stop.Exact {
				compareDeadlocks(t, "at rest", s, want)
				for i := range s.Threads {
					if w := s.Threads[i].Wait; w != nil && !w.Certain && profile.LockKindOf(w) != "" {
						t.Errorf("thread %d: a wait that is not certain: %+v", s.Threads[i].OSThreadID, *w)
					}
				}
			}
			return s.Stop
		})
		livetest.EndsWell(t, a)
	})
}
