package instant

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestAtOnceIsOneInstant holds stacks of the same instant against the states possible at
// an instant: see testdata/apps/crowd/Ring.cs.
func TestAtOnceIsOneInstant(t *testing.T) {
	layer.Quiet(t)
	testenv.EachRuntime(t, testAtOnceIsOneInstant)
}

func testAtOnceIsOneInstant(t *testing.T, runtime string) {
	const rings = 4
	rounds := layer.Size(80, 200)
	a := testenv.Start(t, "crowd", testenv.Options{Runtime: runtime, Args: []string{
		"--threads", "20", "--timed", "5", "--spin", "1", "--rings", strconv.Itoa(rings),
	}})
	p := livetest.Open(t, a, clrsnap.Options{})
	livetest.StartBusy(t, 2) // some threads have to wait for a processor to stop on
	starvedOnce, torn := 0, 0
	states := map[string]int{}
	for range rounds {
		s, err := p.SnapshotAtOnce(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.Missing() > 0 && slices.ContainsFunc(s.Threads, livetest.Starved) {
			starvedOnce++ // a busy machine, and the snapshot says so
			continue
		}
		for i := range s.Threads {
			if th := &s.Threads[i]; strings.HasPrefix(th.Name, "ring-") && !th.Complete {
				t.Fatalf("%s: %s\n%s", th.Name, th.Error, livetest.Text(th.Frames))
			}
		}
		for ring := range rings {
			state, ok := ringState(s, ring)
			if states[state]++; !ok {
				t.Fatalf("ring %d was never like this: %s", ring, state)
			}
		}
		// In sequence: SnapshotAll does not promise a single instant.
		if s, err = p.SnapshotAll(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		for ring := range rings {
			if _, ok := ringState(s, ring); !ok {
				torn++
			}
		}
	}
	t.Logf("%v; one after the other, %d of %d were impossible", states, torn, rounds*rings)
	if starvedOnce > rounds/10 || torn == 0 {
		t.Errorf("of %d instants %d were not complete; one after the other %d were impossible", rounds,
			starvedOnce, torn)
	}
	livetest.EndsWell(t, a)
}

// ringState names the members of a ring that have the token, and reports whether the state
// is possible at an instant: a single member or two neighbours are in Carry, and at most a
// single carrying member is in Own.
func ringState(s *snapshot.Snapshot, ring int) (state string, ok bool) {
	const members = 4
	var carry [members]bool
	carrying, owning := 0, 0
	for i := range s.Threads {
		var member int
		if n, _ := fmt.Sscanf(s.Threads[i].Name, fmt.Sprintf("ring-%d-%%d", ring), &member); n == 0 {
			continue
		}
		in := func(method string) bool {
			is := func(f snapshot.Frame) bool { return f.Method == "Crowd.Ring."+method }
			return slices.ContainsFunc(s.Threads[i].Frames, is)
		}
		if in("Carry") {
			carry[member] = true
			carrying++
		}
		if in("Own") {
			owning++
		}
	}
	neighbours := false
	for i := range carry {
		neighbours = neighbours || carry[i] && carry[(i+1)%members]
	}
	state = fmt.Sprintf("%d carry, %d own", carrying, owning)
	return state, owning <= 1 && (carrying == 1 || carrying == 2 && neighbours)
}

// TestStopAll has the command show a thousand threads of an instant, beside two processes that
// only use CPUs.
func TestStopAll(t *testing.T) {
	layer.Quiet(t)
	const threads = 1000
	times := layer.Size(5, 100)
	command := livetest.Command(t)
	a := testenv.Start(t, "crowd", testenv.Options{Args: []string{
		"--threads", strconv.Itoa(threads), "--timed", "20", "--spin", "2", "--rings", "2", "--max-seconds", "3600",
	}})
	livetest.StartBusy(t, 2)
	var held []time.Duration
	var stopped []int
	for range times {
		r := livetest.RunMeasured(t, exec.Command(command, "stack", strconv.Itoa(a.PID), "--stop-all", "--json"))
		var doc struct {
			Pauses   struct{ MaxMicroseconds float64 }
			Unlisted int
			Threads  []struct {
				Name, Error string
				Complete    bool
				Pause       float64 `json:"pauseMicroseconds"`
				Frames      []struct{ Method string }
			}
		}
		if err := json.Unmarshal(r.Stdout, &doc); err != nil {
			t.Fatalf("%v: status %d: %s", err, r.Status, r.Stderr)
		}
		blocked, n := 0, 0
		for _, th := range doc.Threads {
			if !th.Complete || len(th.Frames) == 0 || th.Error != "" {
				t.Errorf("%s: %d frames: %s", th.Name, len(th.Frames), th.Error)
			}
			if th.Pause > 0 {
				n++
			}
			for _, f := range th.Frames {
				if f.Method == "Crowd.Program.Block" {
					blocked++
				}
			}
		}
		if r.Status != 0 || r.Stderr != "" || blocked != threads || doc.Unlisted != 0 {
			t.Errorf("status %d, %q: %d of %d blocked threads, %d unlisted", r.Status, r.Stderr, blocked, threads,
				doc.Unlisted)
		}
		held = append(held, time.Duration(doc.Pauses.MaxMicroseconds*float64(time.Microsecond)))
		stopped = append(stopped, n)
	}
	slices.Sort(stopped)
	slices.Sort(held)
	t.Logf("%d times; of about %d threads %d had to be stopped (median), %d at most; held for p50 %.1f ms, max %.1f ms",
		times, threads, stopped[len(stopped)/2], stopped[len(stopped)-1],
		1e3*held[times/2].Seconds(), 1e3*held[times-1].Seconds())
	livetest.EndsWell(t, a)
}
