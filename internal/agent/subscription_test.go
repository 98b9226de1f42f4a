package agent_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/diagnostics"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/testenv/role"
)

// TestSampling: the agent publishes the requested share of all events.
func TestSampling(t *testing.T) {
	layer.Each(t)
	lib := library(t)
	testenv.EachOf(t, runtimes, func(t *testing.T, runtime string) {
		const perAllocation, every, rounds = 1 << 20, 10, 100
		sub := subscribe(t, lib, runtime, true, agent.Subscription{
			Events: everything, AllocBytes: perAllocation, ExceptionEvery: every, Contention: time.Hour,
		})
		before := sub.c.Stats()
		bytes := sub.number(t, "allocate") + sub.number(t, "large")
		for range rounds {
			sub.Ask("throw")
		}
		sub.number(t, "contend-monitor")
		stats := sub.c.Stats()
		about := func(kind agent.EventType, seen, published float64) {
			got := agent.Counts{Seen: stats[kind].Seen - before[kind].Seen,
				Published: stats[kind].Published - before[kind].Published}
			if float64(got.Seen) < seen*0.8 || math.Abs(float64(got.Published)-published) > 6*math.Sqrt(published) {
				t.Errorf("%v: %+v, expected about %.0f of %.0f", kind, got, published, seen)
			}
		}
		about(agent.EventAlloc, float64(bytes/2/(100<<10)), float64(bytes)/perAllocation)
		about(agent.EventException, 4*rounds, 4*rounds/every)
		about(agent.EventContention, 1, 0)
		if caught, thrown := stats[agent.EventCaught].Published,
			stats[agent.EventException].Published; caught > thrown {
			t.Errorf("%d exceptions, of which %d were caught", thrown, caught)
		}
		sub.end(t)
	})
}

// TestHold: a thread with a held record waits until its release; others go on.
func TestHold(t *testing.T) {
	layer.Live(t)
	sub := subscribe(t, library(t), "net10", true,
		agent.Subscription{Events: agent.Exceptions | agent.Threads, Hold: time.Minute})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		sub.Ask("throw")
	}()
	held := func(r *agent.Record) bool { return r.Held }
	for range 4 {
		r := sub.await(t, held)
		if r.OSID != sub.tid || r.Type != agent.EventException {
			t.Fatalf("%+v is held", r)
		}
		select {
		case <-answered:
			t.Fatal("the thread did not wait")
		case <-time.After(100 * time.Millisecond):
		}
		sub.c.Release(r)
	}
	<-answered
	endHolding(t, sub)
}

// endHolding ends a program with a held thread. Detaching releases the thread.
func endHolding(t *testing.T, sub *subscriber) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		sub.Ask("throw")
	}()
	sub.await(t, func(r *agent.Record) bool { return r.Held })
	if err := sub.c.Detach(); err != nil {
		t.Error(err)
	}
	<-done
	endsWell(t, sub.App)
}

// TestWalking: a thread that is being walked does not end meanwhile.
func TestWalking(t *testing.T) {
	layer.Live(t)
	sub := subscribe(t, library(t), "net10", true,
		agent.Subscription{Events: agent.Threads, Hold: time.Minute, DestroyWait: time.Minute})
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		sub.Ask("thread")
	}()
	starting := sub.await(t, func(r *agent.Record) bool { return r.Held })
	sub.c.SetWalkedThread(starting.Values[0])
	sub.c.Release(starting)
	sub.await(t, func(r *agent.Record) bool {
		return r.Type == agent.EventThreadEnded && r.Values[0] == starting.Values[0]
	})
	select {
	case <-joined:
		t.Error("the thread did not wait")
	case <-time.After(100 * time.Millisecond):
	}
	sub.c.SetWalkedThread(0)
	<-joined
	sub.end(t)
}

// TestFull: records without room are dropped and counted, and the program goes on; once there is
// room again, records come again.
func TestFull(t *testing.T) {
	layer.Live(t)
	sub := subscribe(t, library(t), "net10", true,
		agent.Subscription{Events: agent.Exceptions, RingBytes: 1 << 15, MaxFrames: 100})
	sub.drain(t)
	for range 200 {
		sub.Ask("throw")
	}
	full := sub.c.Stats()[agent.EventException]
	if full.Seen != 4*200 || full.Dropped == 0 || full.Published+full.Dropped != full.Seen {
		t.Errorf("counts %+v", full)
	}
	if n := len(sub.mine(t, agent.EventException)); n != int(full.Published) {
		t.Errorf("%d records, of %d that were published", n, full.Published)
	}
	sub.testExceptions(t)
	sub.end(t)
}

// TestManyThreads: with many threads at once, and a reader that may not keep up, every record is
// sound, and missing records are counted.
func TestManyThreads(t *testing.T) {
	layer.Each(t)
	lib := library(t)
	eachWay(t, func(t *testing.T, runtime string, attached bool) {
		sub := subscribe(t, lib, runtime, attached, agent.Subscription{Events: everything})
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			sub.Ask("crowd 100")
		}()
		check := func() {
			for _, r := range sub.drain(t) {
				if r.Type == agent.EventException &&
					(r.Result != 0 || len(r.Frames) < 4 || !strings.HasPrefix(r.Name, "Notify.")) {
					t.Errorf("%+v", r)
				}
			}
		}
		for waiting := true; waiting; {
			select {
			case <-asked:
				waiting = false
			case <-time.After(time.Millisecond):
			}
			check()
		}
		if err := sub.c.Detach(); err != nil {
			t.Error(err)
		}
		check()
		for kind, c := range sub.c.Stats() {
			if c.Published != sub.taken[kind] {
				t.Errorf("%v: %d of %+v", agent.EventType(kind), sub.taken[kind], c)
			}
		}
		e := sub.c.Stats()[agent.EventException]
		t.Logf("exceptions: %+v", e)
		if e.Seen == 0 || e.Published+e.Dropped != e.Seen {
			t.Errorf("exceptions: %+v", e)
		}
		endsWell(t, sub.App)
	})
}

// TestCut: a stack that is too deep is cut, and says so.
func TestCut(t *testing.T) {
	layer.Live(t)
	sub := subscribe(t, library(t), "net10", true, agent.Subscription{Events: agent.Exceptions, MaxFrames: 2})
	sub.Ask("throw")
	records := sub.mine(t, agent.EventException)
	if len(records) != 4 {
		t.Errorf("%d records", len(records))
	}
	for _, r := range records {
		if !r.Truncated || len(r.Frames) != 2 || r.Result != 0 {
			t.Errorf("%+v", r)
		}
	}
	sub.end(t)
}

// TestEveryObject: every object can be reported if the agent is loaded at start-up. The
// agent cannot be detached then, but stops reporting.
func TestEveryObject(t *testing.T) {
	layer.Each(t)
	lib := library(t)
	testenv.EachOf(t, runtimes, func(t *testing.T, runtime string) {
		const perAllocation = 1 << 20
		s := agent.Subscription{Events: agent.Allocations | agent.Exceptions | agent.GC, EveryObject: true,
			AllocBytes: perAllocation}
		sub := subscribe(t, lib, runtime, false, s)
		if sub.begun.AllocMeans != agent.AllocObject {
			t.Errorf("begun %+v", sub.begun)
		}
		before := sub.c.Stats()[agent.EventAlloc]
		sub.drain(t)
		bytes := sub.number(t, "allocate")
		after := sub.c.Stats()[agent.EventAlloc]
		if n := after.Seen - before.Seen; n < uint64(bytes/boxSize) {
			t.Errorf("%d objects were seen of %d", n, bytes/boxSize)
		}
		boxes := 0
		for _, r := range sub.mine(t, agent.EventAlloc) {
			if r.Values[0] == sub.ids["Box"] && r.Values[1] == boxSize {
				sub.wantStack(t, r, "Allocations.MakeBox Allocations.Small")
				boxes++
			}
		}
		checkCount(t, "boxes", boxes, float64(bytes)/perAllocation, false)

		if err := sub.c.Detach(); err != nil {
			t.Error(err)
		}
		<-sub.c.Done()
		silent := sub.c.Stats()
		sub.Ask("throw")
		sub.number(t, "allocate")
		sub.Ask("collect")
		if now := sub.c.Stats(); now != silent {
			t.Errorf("the agent goes on: %+v, then %+v", silent, now)
		}
		var refused *diagnostics.ServerError
		if _, err := listen(t).Attach(sub.PID, lib); !errors.As(err, &refused) {
			t.Errorf("another agent beside it: %v", err)
		}
		endsWell(t, sub.App)
	})
}

// TestEveryObjectAttached: an attached agent refuses to report every object.
func TestEveryObjectAttached(t *testing.T) {
	layer.Live(t)
	lib := library(t)
	a := testenv.Start(t, "notify", testenv.Options{})
	var cannot *agent.BeginError
	every := agent.Subscription{Events: agent.Allocations, EveryObject: true}
	if _, _, err := attachAndBegin(listen(t), a, lib, every); !errors.As(err, &cannot) {
		t.Errorf("every object of a running program: %v", err)
	}
	check := subscriberOf(t, a, lib)
	check.end(t)
}

// subscriberOf attaches to a running program, as soon as the previous agent has left.
func subscriberOf(t *testing.T, a *testenv.App, lib string) *subscriber {
	t.Helper()
	sub := &subscriber{App: a, ids: map[string]uint64{}, names: map[uint64]string{}}
	l := listen(t)
	for end := time.Now().Add(testenv.Hang); sub.c == nil; time.Sleep(10 * time.Millisecond) {
		c, begun, err := attachAndBegin(l, a, lib, agent.Subscription{Events: everything})
		if err == nil {
			t.Cleanup(func() { c.Close() })
			sub.c, sub.begun = c, begun
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	sub.learn(t)
	return sub
}

// TestSubscribeAgain: subscriptions come and go.
func TestSubscribeAgain(t *testing.T) {
	layer.Each(t)
	lib := library(t)
	eachWay(t, func(t *testing.T, runtime string, attached bool) {
		sub := subscribe(t, lib, runtime, attached, agent.Subscription{Events: everything})
		for range 3 {
			sub.testExceptions(t)
			if err := sub.c.Detach(); err != nil {
				t.Fatal(err)
			}
			sub = subscriberOf(t, sub.App, lib)
		}
		sub.testContention(t)
		sub.end(t)
	})
}

// TestSubscriberKilled: a program continues undisturbed when its subscriber dies, with a full
// ring and held threads.
func TestSubscriberKilled(t *testing.T) {
	layer.Live(t)
	lib := library(t)
	a := testenv.Start(t, "notify", testenv.Options{})
	for range 3 {
		cmd := startReader(t, a, lib, willSubscribe)
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			a.Ask("crowd 20")
		}()
		waitForFutex(t, a)
		cmd.Process.Kill()
		cmd.Wait()
		<-asked
		sub := subscriberOf(t, a, lib)
		sub.testExceptions(t)
		if err := sub.c.Detach(); err != nil {
			t.Fatal(err)
		}
	}
	endsWell(t, a)
}

// waitForFutex waits until a thread of the program waits at a futex that other processes can
// wake, like a held thread.
func waitForFutex(t *testing.T, a *testenv.App) {
	t.Helper()
	const futex, wait = "202", "0x0" // on AMD64; without FUTEX_PRIVATE_FLAG
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		calls, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", a.PID))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range calls {
			text, _ := os.ReadFile(file) // fails for an ended thread
			if f := strings.Fields(string(text)); len(f) > 2 && f[0] == futex && f[2] == wait {
				return
			}
		}
	}
	t.Fatal("no thread is held")
}

// subscribeForGood attaches, subscribes with threads held, and waits to be killed.
func subscribeForGood(pid int, lib, dir string) error {
	l, err := agent.Listen(dir)
	if err != nil {
		return err
	}
	c, err := l.Attach(pid, lib)
	if err != nil {
		return err
	}
	if _, err := c.Begin(agent.Subscription{
		Events: everything, RingBytes: 1 << 17, Hold: 10 * time.Second,
	}); err != nil {
		return err
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
	return nil
}

// TestSilentReader: a silent reader keeps the program from running only for a short time, and the
// agent does not stay.
func TestSilentReader(t *testing.T) {
	layer.Live(t)
	lib, l := library(t), listen(t)
	a := testenv.Start(t, "notify", testenv.Options{Env: l.Environment(lib)})
	c, err := l.Accept(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if _, err := c.Begin(agent.Subscription{}); err == nil {
		t.Error("an agent begins after it has left")
	}
	sub := subscriberOf(t, a, lib)
	sub.testExceptions(t)
	sub.end(t)
}

// TestFromTheStart: events before Main are reported, and so are the last events.
func TestFromTheStart(t *testing.T) {
	layer.Each(t)
	lib := library(t)
	testenv.EachOf(t, runtimes, func(t *testing.T, runtime string) {
		l := listen(t)
		begun := make(chan error, 1)
		var c *agent.Conn
		go func() {
			var err error
			if c, err = l.Accept(time.Minute); err == nil {
				_, err = c.Begin(agent.Subscription{Events: everything})
			}
			begun <- err
		}()
		a := testenv.Start(t, "notify",
			testenv.Options{Runtime: runtime, Env: l.Environment(lib), Args: []string{"--throw-at-start"}})
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		endsWell(t, a)
		<-c.Done()
		var got [16]int
		if err := c.Drain(func(r *agent.Record) error {
			got[r.Type]++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		caught := 4
		if runtime == "net8" { // see testExceptions
			caught = 3
		}
		if got[agent.EventException] != 4 || got[agent.EventCaught] != caught || got[agent.EventThreadCreated] == 0 ||
			got[agent.EventThreadStarting] == 0 {
			t.Errorf("records by type: %v", got)
		}
	})
}

// startReader starts the test program as a reader that can be killed.
func startReader(t *testing.T, a *testenv.App, lib string, what *role.Role) *exec.Cmd {
	t.Helper()
	cmd := what.Command(a.PID, lib, t.TempDir())
	if said := testenv.StartSaying(t, cmd); said != "ready" {
		t.Fatalf("the reader says %q", said)
	}
	return cmd
}
