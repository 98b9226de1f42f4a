package ordeal

import (
	"context"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/record"
)

// ordealEnds are the ways in which the program ordeal ends; testenv.TestOrdealDies
// tries the ways without an agent.
var ordealEnds = []struct {
	mode   string
	exit   int    // as shells show the code
	stderr string // contains the text
	thrown string // the class of the fatal exception
}{
	{"overflow", 128 + int(syscall.SIGABRT), "Stack overflow", ""},
	{"abort", 128 + int(syscall.SIGABRT), "as it was told to", ""},
	{"unhandled", 128 + int(syscall.SIGABRT), "thrown for nobody", "System.InvalidOperationException"},
	{"exit7", 7, "", ""},
	{"sigterm", 128 + int(syscall.SIGTERM), "", ""},
}

// TestOrdealEnds: a program with an agent ends as it would without an agent,
// and the recording has the fatal exception.
func TestOrdealEnds(t *testing.T) {
	layer.Quiet(t)
	for _, e := range ordealEnds {
		for range layer.Size(1, 10) {
			t.Run(e.mode+" started", func(t *testing.T) {
				exit, stderr, r := endStarted(t, e.mode)
				checkEnd(t, e.exit, e.stderr, e.thrown, exit, stderr, r, true)
			})
			t.Run(e.mode+" attached", func(t *testing.T) {
				exit, stderr, r := endAttached(t, e.mode)
				checkEnd(t, e.exit, e.stderr, e.thrown, exit, stderr, r, false)
			})
		}
	}
}

// allEvents records only events. progress is called once, after so many samples.
func allEvents(samples int, progress func()) record.Options {
	var once sync.Once
	return record.Options{
		Events: events.Options{Monitor: events.MonitorAll, RingBytes: 8 << 20}, Live: true,
		Progress: func(p record.Progress) {
			if p.Samples >= samples {
				once.Do(progress)
			}
		},
	}
}

// endStarted records a program from its start. The program begins its end as soon as
// its first sample proves that it runs.
func endStarted(t *testing.T, mode string) (exit int, stderr string, r *profile.Recording) {
	t.Helper()
	c := newOrdealCommand(t, ordealRun{app: "ordeal", args: []string{"--mode", mode}})
	t.Cleanup(c.kill)
	ctx, cancel := context.WithTimeout(context.Background(), ordealLimit)
	defer cancel()
	end := func() { c.Process.Signal(syscall.SIGTERM) }
	if mode != "sigterm" {
		end = func() { c.stdin.Close() }
	}
	r, err := record.Command(ctx, c.Cmd, clrsnap.Options{}, allEvents(1, end)) // the start of a thread
	if err != nil {
		t.Fatal(err)
	}
	_, exit = c.wait(t)
	return exit, c.err.String(), r
}

// endAttached records a running program, and then has the program end.
func endAttached(t *testing.T, mode string) (exit int, stderr string, r *profile.Recording) {
	t.Helper()
	a := testenv.Start(t, "ordeal", testenv.Options{Args: []string{"--mode", mode}})
	p := livetest.Open(t, a, clrsnap.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), ordealLimit)
	defer cancel()
	var err error
	recording, recorded := make(chan bool), make(chan bool)
	go func() {
		defer close(recorded)
		r, err = record.Record(ctx, p, allEvents(0, func() { close(recording) }))
	}()
	select {
	case <-recording:
	case <-recorded:
		t.Fatalf("the recording ends before the program: %v", err)
	}
	if mode == "sigterm" {
		syscall.Kill(a.PID, syscall.SIGTERM)
		_, exit = a.Wait()
	} else {
		_, exit = a.Stop()
	}
	if <-recorded; err != nil {
		t.Fatal(err)
	}
	return exit, a.Stderr(), r
}

func checkEnd(t *testing.T, wantExit int, wantStderr, wantThrown string, exit int, stderr string,
	r *profile.Recording, started bool) {
	t.Helper()
	if exit != wantExit || !strings.Contains(stderr, wantStderr) {
		t.Errorf("exit code %d instead of %d\n%s", exit, wantExit, stderr)
	}
	var uncaught, overtaken []string
	for i := range r.Samples {
		x := &r.Samples[i]
		if x.Mode != profile.Exception {
			continue
		}
		for l := range r.Stack(x.Node) {
			f := &r.Functions[l.Function]
			switch f.Fate {
			case "not caught":
				uncaught = append(uncaught, f.Display)
			case "still in flight when the process ended":
				overtaken = append(overtaken, f.Display)
			}
		}
	}
	want := []string{}
	if wantThrown != "" {
		want = append(want, wantThrown)
	}
	// Not every kernel tells how a program has ended that is not our child.
	if !slices.Equal(uncaught, want) && (started || len(uncaught) > 0 || !slices.Equal(overtaken, want)) {
		t.Errorf("not caught are %q, expected %q; %q\n%s", uncaught, want, r.Notes, livetest.Top(t, r))
	}
}

// TestOrdealEndsHeld: a thread held in a notification, and never released, does
// not keep the program from ending.
func TestOrdealEndsHeld(t *testing.T) {
	layer.Quiet(t)
	for _, e := range ordealEnds {
		t.Run(e.mode, func(t *testing.T) {
			o := attachOrdeal(t, ordealRun{
				app: "ordeal", args: []string{"--mode", e.mode},
				events: events.Options{Monitor: events.MonitorAll, AllocationBytes: 1, Hold: 500 * time.Millisecond},
			})
			if e.mode == "exit7" { // the others do nothing before their end
				o.take(t, func(n *events.Notification) bool { return !n.Held })
			}
			if e.mode == "sigterm" {
				syscall.Kill(o.pid, syscall.SIGTERM)
			}
			if _, exit := o.stop(); exit != e.exit || !strings.Contains(o.stderr(), e.stderr) {
				t.Errorf("exit code %d instead of %d\n%s", exit, e.exit, o.stderr())
			}
			o.close(t)
		})
	}
}
