package shares

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

// spent is CPU time and wall clock time.
type spent [2]time.Duration // by profile.Mode

// A place is a method of a thread, or with no method the thread.
type place struct{ thread, method string }

// poolThread stands for any thread of the thread pool.
const poolThread = "pool"

// truth is the program's own measurement: of each of its threads, and of each
// method of a thread, callees included.
type truth struct {
	now   time.Duration // CLOCK_MONOTONIC
	tids  map[int]string
	spent map[place]spent
}

// startShares starts the program and its native library.
func startShares(tb testing.TB, runtime string) *testenv.App {
	tb.Helper()
	cc := testenv.CC(tb)
	lib := filepath.Join(tb.TempDir(), "libshares.so")
	const source = "../../../testdata/apps/shares/shares.c"
	compile := exec.Command(cc, "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", lib, source)
	if out, err := compile.CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	return testenv.Start(tb, "shares", testenv.Options{Runtime: runtime, Args: []string{"--native", lib}})
}

// askTruth asks the program for its times since its start.
func askTruth(t *testing.T, a *testenv.App) *truth {
	t.Helper()
	tr := &truth{tids: map[int]string{}, spent: map[place]spent{}}
	for _, line := range a.Ask("totals") {
		if err := tr.add(strings.Fields(line)); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	if len(tr.tids) == 0 {
		t.Fatalf("%s has no threads", a)
	}
	return tr
}

func (tr *truth) add(words []string) error {
	var last [2]int64
	for i, w := range words[max(1, len(words)-2):] {
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return err
		}
		last[i] = n
	}
	both := spent{time.Duration(last[0]), time.Duration(last[1])}
	switch {
	case words[0] == "NOW" && len(words) == 2:
		tr.now = time.Duration(last[0])
	case words[0] == "THREAD" && len(words) == 5:
		tid, err := strconv.Atoi(words[2])
		if err != nil {
			return err
		}
		tr.tids[tid] = words[1]
		tr.spent[place{words[1], ""}] = both
	case words[0] == "SHARE" && len(words) == 5:
		tr.spent[place{words[1], words[2]}] = both
		if words[1] == poolThread {
			all := tr.spent[place{poolThread, ""}]
			tr.spent[place{poolThread, ""}] = spent{all[0] + both[0], all[1] + both[1]}
		}
	default:
		return fmt.Errorf("not a line of a report")
	}
	return nil
}

// since is the time spent between two reports, scaled to a time d.
func (tr *truth) since(before *truth, d time.Duration) *truth {
	scale := float64(d) / float64(tr.now-before.now)
	out := &truth{now: d, tids: tr.tids, spent: map[place]spent{}}
	for p, s := range tr.spent {
		for m := range s {
			s[m] = time.Duration(scale * float64(s[m]-before.spent[p][m]))
		}
		out.spent[p] = s
	}
	return out
}

// total is the time of all threads.
func (tr *truth) total(m profile.Mode) time.Duration {
	var sum time.Duration
	for p, s := range tr.spent {
		if p.method == "" {
			sum += s[m]
		}
	}
	return sum
}

// Weights are the sums of samples.
type weights struct {
	weight, waiting, incomplete time.Duration
	samples                     int // a sample of several turns counts as so many
	squares                     float64
}

// effective is how many samples of equal weight would scatter as much.
func (s *weights) effective() float64 {
	return float64(s.weight) * float64(s.weight) / max(1, s.squares)
}

func (s *weights) add(x *profile.Sample) {
	s.weight += time.Duration(x.Weight)
	s.samples += int(x.Count)
	squares := float64(x.Weight) * float64(x.Weight)
	if x.Mode != profile.Wall { // in other modes one look, or one CPU sample, stands for several turns
		squares /= float64(x.Count)
	}
	s.squares += squares
	if x.State == profile.Waiting {
		s.waiting += time.Duration(x.Weight)
	}
	if x.Incomplete {
		s.incomplete += time.Duration(x.Weight)
	}
}

// counted is a recording's figures for the measured places.
type counted struct {
	all    weights
	places map[place]*weights
	inside map[[2]string]time.Duration // by two methods: time of the first method with the second method above
}

// count sums up the samples of one mode. A method gets the samples whose stacks
// contain the method.
func count(r *profile.Recording, m profile.Mode, tr *truth) *counted {
	c := &counted{places: map[place]*weights{}, inside: map[[2]string]time.Duration{}}
	for p := range tr.spent {
		c.places[p] = &weights{}
	}
	for i := range r.Samples {
		if x := &r.Samples[i]; x.Mode == m {
			c.sample(r, x, tr)
		}
	}
	return c
}

func (c *counted) sample(r *profile.Recording, x *profile.Sample, tr *truth) {
	thread, ok := tr.tids[r.Threads[x.Thread].OSThreadID]
	if !ok {
		thread = poolThread
	}
	above := map[string]bool{} // the frame, on its stack
	measured := thread != poolThread
	for l := range r.Stack(x.Node) {
		method, _, _ := strings.Cut(r.Functions[l.Function].Method, "[") // type arguments
		if method == "" || above[method] {
			continue // a module without symbols, or a recursion
		}
		if s := c.places[place{thread, method}]; s != nil {
			measured = true
			s.add(x)
			for callee := range above {
				c.inside[[2]string{method, callee}] += time.Duration(x.Weight)
			}
		}
		above[method] = true
	}
	if measured {
		c.all.add(x)
		c.places[place{thread, ""}].add(x)
	}
}
