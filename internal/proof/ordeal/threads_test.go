package ordeal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv/layer"
)

// TestOrdealThreads: threads of every kind begin and end all the time; meanwhile
// the test walks threads from outside, also dying threads. Each begun thread ends,
// in the right order, and nobody waits for anybody for good.
func TestOrdealThreads(t *testing.T) {
	layer.Quiet(t)
	lasts := time.Duration(layer.Size(3, 30)) * time.Second
	for _, way := range ordealWays {
		t.Run(way.name, func(t *testing.T) {
			o := way.begin(t, ordealRun{
				app: "ordeal", args: []string{"--mode", "churn"}, opts: clrsnap.Options{MaxPause: time.Second},
				events: events.Options{Monitor: events.MonitorThreads, RingBytes: 8 << 20},
			})
			c := newChurn(o)
			for end := time.Now().Add(lasts); time.Now().Before(end); {
				c.take(t, 2*time.Millisecond)
				c.walkAll(t)
			}
			c.awaitEnds(t)
			o.endsNotifying(t, c.notified)
			everyCount(t, o.sub, c.taken)
			c.report(t)
			o.close(t)
		})
	}
}

// churn follows threads from their creation to their end.
type churn struct {
	o      *ordeal
	p      *clrsnap.Process
	known  map[clrsnap.ThreadID]bool // created once; whether it is alive
	taken  map[events.Event]int
	walks  map[string]int // from outside, by outcome
	frames int
	wrong  []string
}

func newChurn(o *ordeal) *churn {
	return &churn{
		o: o, p: o.sub.Process(), known: map[clrsnap.ThreadID]bool{}, taken: map[events.Event]int{},
		walks: map[string]int{},
	}
}

func (c *churn) bad(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

func (c *churn) notified(n *events.Notification) {
	c.taken[n.Event]++
	id := n.Other
	alive, known := c.known[id]
	switch n.Event {
	case events.ThreadCreated:
		if alive {
			c.bad("thread %v is created, but the last one of that id has not ended", id)
		}
		c.known[id] = true
	case events.ThreadDestroyed:
		if earlier := !known && c.o.attach; !alive && !earlier {
			c.bad("thread %v ends, but was not created", id)
		}
		c.known[id] = false
	}
}

// take takes the notifications of some time.
func (c *churn) take(t *testing.T, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for {
		n, err := c.o.sub.Next(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err != nil {
			t.Fatalf("no more notifications: %v\n%s", err, c.o.stderr())
		}
		c.notified(n)
	}
}

// walkAll walks all threads of the runtime, each from a seed.
func (c *churn) walkAll(t *testing.T) {
	t.Helper()
	threads, err := c.p.Threads()
	if err != nil {
		c.walks["no list of threads"]++
		return
	}
	for i := range threads {
		if threads[i].ID == 0 {
			continue
		}
		err := c.walk(threads[i].ID)
		c.walks[fmt.Sprint(hresult(err))]++
		switch hresult(err) {
		case clrsnap.S_OK, clrsnap.CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD, clrsnap.CORPROF_E_STACKSNAPSHOT_UNSAFE:
		default:
			c.bad("walking %q: %v", threads[i].Name, err)
		}
	}
}

func (c *churn) walk(id clrsnap.ThreadID) error {
	s, err := c.p.Suspend(id)
	if err != nil {
		return err
	}
	defer s.Release()
	seed, err := s.Seed()
	if err != nil || seed == nil {
		return err
	}
	return s.DoStackSnapshot(func(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error {
		c.frames++
		return nil
	}, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil, seed)
}

// lasting reports whether a thread goes on while others come and go.
func lasting(th *clrsnap.Thread) bool {
	return th.Role != "" || th.Name == "stdin" || th.Name == "watchdog" || strings.HasPrefix(th.Name, "churn-")
}

// awaitEnds takes notifications until all threads alive now have ended.
func (c *churn) awaitEnds(t *testing.T) {
	t.Helper()
	threads, err := c.p.Threads()
	if err != nil {
		t.Fatal(err)
	}
	waiting := map[clrsnap.ThreadID]bool{}
	for id, alive := range c.known {
		waiting[id] = alive
	}
	for i := range threads {
		if lasting(&threads[i]) {
			delete(waiting, threads[i].ID)
		}
	}
	maps.DeleteFunc(waiting, func(_ clrsnap.ThreadID, alive bool) bool { return !alive })
	c.o.take(t, func(n *events.Notification) bool {
		c.notified(n)
		if n.Event == events.ThreadDestroyed {
			delete(waiting, n.Other)
		}
		return len(waiting) > 0
	})
}

func (c *churn) report(t *testing.T) {
	t.Helper()
	t.Logf("%v; walks from outside %v, %d frames\n%s", c.taken, c.walks, c.frames, stats(c.o.sub))
	for _, w := range c.wrong[:min(len(c.wrong), 20)] {
		t.Error(w)
	}
	if c.frames == 0 {
		t.Error("no thread was walked")
	}
	for _, e := range []events.Event{events.ThreadStarting, events.ThreadCreated, events.ThreadDestroyed} {
		if s := c.o.sub.Stats(e); s.Dropped > 0 || s.Seen == 0 {
			t.Errorf("%v: %+v", e, s)
		}
	}
}

// TestOrdealDying: a thread does not go away during a walk, unless the walk lasts
// longer than Options.MaxPause.
func TestOrdealDying(t *testing.T) {
	layer.Quiet(t)
	for _, tt := range []struct {
		name     string
		maxPause time.Duration
		resume   bool
		times    int
	}{
		{"until the walk is over", 10 * time.Second, true, layer.Size(10, 200)},
		{"until MaxPause is over", 200 * time.Millisecond, false, layer.Size(3, 50)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := attachOrdeal(t, ordealRun{
				app: "ordeal", args: []string{"--mode", "churn"}, opts: clrsnap.Options{MaxPause: tt.maxPause},
				events: events.Options{Monitor: events.MonitorThreads, RingBytes: 8 << 20},
			})
			c := newChurn(o)
			for range tt.times {
				s := c.suspendDying(t)
				task := fmt.Sprintf("/proc/%d/task/%d", o.pid, s.Thread().OSThreadID)
				if _, err := os.Stat(task); err != nil && tt.resume {
					t.Error("the thread has gone while it was being walked")
				}
				if tt.resume {
					s.Release()
				}
				livetest.Await(t, "the thread is gone", func() bool {
					_, err := os.Stat(task)
					return err != nil
				})
				s.Release()
			}
			o.endsNotifying(t, c.notified)
			o.close(t)
		})
	}
}

// ended reports whether a thread has reported its end. The thread still exists for a
// moment after the report.
func (c *churn) ended(id clrsnap.ThreadID) bool {
	alive, known := c.known[id]
	return known && !alive
}

// suspendDying suspends threads until a thread comes to its end meanwhile.
func (c *churn) suspendDying(t *testing.T) *clrsnap.Suspension {
	t.Helper()
	for end := time.Now().Add(ordealLimit); time.Now().Before(end); {
		threads, err := c.p.Threads()
		if err != nil {
			continue // threads come and go
		}
		i := slices.IndexFunc(threads, func(th clrsnap.Thread) bool {
			return th.ID != 0 && !lasting(&th) && !c.ended(th.ID)
		})
		if i < 0 {
			c.take(t, time.Millisecond)
			continue
		}
		id := threads[i].ID
		s, err := c.p.Suspend(id)
		if err != nil {
			continue // too late
		}
		suspended := live.Monotonic()
		var died *events.Notification
		c.o.take(t, func(n *events.Notification) bool {
			c.notified(n)
			if n.Event == events.ThreadDestroyed && n.Other == id {
				died = n
			}
			return died == nil
		})
		if died.At > suspended {
			return s
		}
		s.Release() // the thread was already dying
	}
	t.Fatal("no thread could be suspended before its end")
	return nil
}
