package tasks_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clrsnap/internal/livetest"
	"clrsnap/internal/moments"
	"clrsnap/internal/target/recorded"
	"clrsnap/snapshot"
)

// TestRecordedTasks: the chains of suspended methods, and what each chain waits for, are as the recorded program says.
func TestRecordedTasks(t *testing.T) {
	moments.Each(t, "tasks", func(t *testing.T, m *recorded.Moment) { checkRecorded(t, m, true) })
}

// TestRecordedTasksSuspended is TestRecordedTasks for methods that the runtime itself has suspended. Of some, the type
// arguments and the line of the await are not known.
func TestRecordedTasksSuspended(t *testing.T) {
	moments.Each(t, "tasks-suspended", func(t *testing.T, m *recorded.Moment) { checkRecorded(t, m, false) })
}

func checkRecorded(t *testing.T, m *recorded.Moment, exact bool) {
	t.Helper()
	tasks := moments.At[*snapshot.Tasks](t, m, moments.Tasks)
	left := map[string]int{}
	running := 0
	for _, line := range m.Truths {
		kind, methods, _ := strings.Cut(line, "\t")
		if strings.HasPrefix(kind, "chain-") {
			running++
			continue
		}
		kind, _, _ = strings.Cut(kind, " ")
		left[kind+"\t"+methods]++
	}
	if len(left) < 40 || running < 40 {
		t.Fatalf("%d chains are suspended, %d run", len(left), running)
	}
	ran := 0
	for i := range tasks.Chains {
		c := &tasks.Chains[i]
		if c.State == snapshot.TaskRunning {
			ran += c.Count
			continue
		}
		same := func(frames []snapshot.Frame, want []string) error { return sameChain(frames, want, exact) }
		if !take(left, c, same) {
			t.Errorf("%d chains of %+v are not the program's: %v", c.Count, c.WaitsFor, chainOf(c.Frames))
		}
	}
	for truth, n := range left {
		t.Errorf("%d times too few: %q", n, truth)
	}
	if exact && ran != running {
		t.Errorf("%d chains run, want %d", ran, running)
	}
	if tasks.Unproven > 0 || tasks.Unread > 0 || tasks.Partial {
		t.Errorf("%d not proved, %d not read, partial: %v", tasks.Unproven, tasks.Unread, tasks.Partial)
	}
	if p := tasks.Pool; p == nil || p.Minimum != 128 || p.Workers < p.Idle {
		t.Errorf("pool: %+v", p)
	}
	timers := map[string]int{}
	for _, x := range tasks.Timers {
		timers[x.Callback] += x.Count
	}
	if timers["Task.Delay"] < 3 || timers["PeriodicTimer"] < 3 || timers["Task.WaitAsync"] < 6 {
		t.Errorf("timers: %+v", tasks.Timers)
	}
}

// chainOf are the frames of async methods as the program writes them: name and line.
func chainOf(frames []snapshot.Frame) (out []string) {
	for i := range frames {
		f := &frames[i]
		if f.Kind != snapshot.Async {
			continue
		}
		name, _, _ := strings.Cut(f.Short, "{async")
		if at := strings.Index(name, "{lambda "); at >= 0 {
			name = name[:at] + "{lambda}"
		}
		if f.Waiter != nil {
			name = ">" + f.Waiter.Name
		}
		if f.Line != nil {
			name += ":" + strconv.Itoa(f.Line.Line)
		}
		out = append(out, name)
	}
	return out
}

// sameChain compares the async frames of a stack with the program's notes. Line 0 is any line. If exact is not set, a
// line may be unknown, framework methods may lie between, and only the names of methods count.
func sameChain(frames []snapshot.Frame, want []string, exact bool) error {
	got := chainOf(frames)
	if !exact {
		got = slices.DeleteFunc(got, func(s string) bool {
			return slices.Contains(livetest.PassOn, methodOf(s)) && !slices.ContainsFunc(want, func(w string) bool {
				return methodOf(w) == methodOf(s)
			})
		})
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d methods instead of %d", len(got), len(want))
	}
	for i := range got {
		name, line, _ := strings.Cut(got[i], ":")
		wantName, wantLine, _ := strings.Cut(want[i], ":")
		any := wantLine == "" || wantLine == "0" || !exact && line == ""
		if exact && name != wantName || methodOf(name) != methodOf(wantName) || !any && line != wantLine {
			return fmt.Errorf("%s instead of %s", got[i], want[i])
		}
	}
	return nil
}

// methodOf is the name of a method without line and type arguments.
func methodOf(s string) string {
	s, _, _ = strings.Cut(s, ":")
	return livetest.Unbound(s)
}

// TestRecordedAwaiters: the methods that await the methods of recorded threads are on the threads' stacks.
func TestRecordedAwaiters(t *testing.T) {
	for name, exact := range map[string]bool{"tasks": true, "tasks-suspended": false} {
		t.Run(name, func(t *testing.T) {
			moments.Each(t, name, func(t *testing.T, m *recorded.Moment) { checkAwaiters(t, m, exact) })
		})
	}
}

func checkAwaiters(t *testing.T, m *recorded.Moment, exact bool) {
	t.Helper()
	s := moments.At[*snapshot.Snapshot](t, m, moments.Stacks)
	chains := 0
	for _, line := range m.Truths {
		words := strings.Split(line, "\t")
		if !strings.HasPrefix(line, "chain-") {
			continue // the method is suspended
		}
		chains++
		i := slices.IndexFunc(s.Threads, func(th snapshot.Thread) bool { return th.Name == words[0] })
		if i < 0 {
			t.Errorf("no thread %s", words[0])
			continue
		}
		if err := sameChain(s.Threads[i].Frames, words[1:], exact); err != nil {
			t.Errorf("%s: %v\n%q\nwant %q", words[0], err, chainOf(s.Threads[i].Frames), words[1:])
		}
	}
	if chains < 40 {
		t.Errorf("only %d chains", chains)
	}
}

// take takes a chain away from the program's notes: what the chain waits for, and the methods. false: there is no such
// note.
func take(left map[string]int, c *snapshot.TaskChain, same func([]snapshot.Frame, []string) error) bool {
	for truth := range left {
		words := strings.Split(truth, "\t")
		if w := c.WaitsFor; w == nil || words[0] != string(w.Kind) || same(c.Frames, words[1:]) != nil {
			continue
		}
		if left[truth] -= c.Count; left[truth] == 0 {
			delete(left, truth)
		}
		return true
	}
	return false
}
