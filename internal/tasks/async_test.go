package tasks_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestAsyncStacks: below an async method that blocks its thread stand the methods that await the async method, in every
// possible way, with the lines of their awaits. The program's own notes are the truth.
func TestAsyncStacks(t *testing.T) {
	testenv.EachRuntime(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{Runtime: runtime, Args: []string{"--running"}})
		p := livetest.Open(t, a, clrsnap.Options{Async: true, Lines: true, ExactGenerics: true, Inlined: true})
		snap, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		checkAsyncStacks(t, a, snap)
		if snap, err = p.SnapshotAtOnce(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		checkAsyncStacks(t, a, snap)
		livetest.EndsWell(t, a)
	})
}

// TestAsyncStacksOfDelegates: below the delegate of a task that blocks its thread stand the methods that await the
// task, or the thread that waits for the task. The program's own notes are the truth.
func TestAsyncStacksOfDelegates(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{Runtime: runtime, Args: []string{"--delegates"}})
		p := livetest.Open(t, a, clrsnap.Options{Async: true, Lines: true})
		snap, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		threads, truths := livetest.ByName(snap), a.Ask("truths")
		if len(truths) != 5 {
			t.Errorf("%d delegates", len(truths))
		}
		for _, truth := range truths {
			words := strings.Split(truth, "\t")
			th := threads[words[0]]
			if th == nil {
				t.Errorf("no thread %s", words[0])
				continue
			}
			want := slices.DeleteFunc(words[1:], func(s string) bool { return s == "" })
			if words[0] == "ran-awaited-later" {
				want = append(want, "Task.ContinueWith:0")
			}
			if err := sameAwaiting(th.Frames, want, true); err != nil {
				t.Errorf("%s: %v\nwant %q\n%s", words[0], err, want, asyncText(th.Frames))
			}
		}
		livetest.EndsWell(t, a)
	})
}

// TestAsyncStacksOptimized is TestAsyncStacks for code that was optimised at once.
func TestAsyncStacksOptimized(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{
			Runtime: runtime, Args: []string{"--running"}, Env: []string{"DOTNET_TieredCompilation=0"},
		})
		p := livetest.Open(t, a, clrsnap.Options{Async: true, Lines: true})
		snap, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		checkAsyncStacks(t, a, snap)
		livetest.EndsWell(t, a)
	})
}

// TestAsyncStacksCollecting: while the collector moves objects all the time, the shown frames are right.
func TestAsyncStacksCollecting(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{Runtime: runtime, Args: []string{"--running", "--collect"}})
		p := livetest.Open(t, a, clrsnap.Options{Async: true})
		truths := a.Ask("truths")
		looks, shown, without := 0, 0, 0
		never := map[string]bool{}
		for _, truth := range truths {
			thread, _, _ := strings.Cut(truth, "\t")
			never[thread] = true
		}
		few := func() bool { return looks < 4 || len(never) > 0 }
		for on := livetest.GoOn(0, few); on(); looks++ {
			snap, err := p.SnapshotAll(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			threads := livetest.ByName(snap)
			for _, truth := range truths {
				words := strings.Split(truth, "\t")
				th := threads[words[0]]
				if !slices.ContainsFunc(th.Frames, func(f snapshot.Frame) bool { return f.Kind == snapshot.Async }) {
					without++
					continue
				}
				shown++
				delete(never, words[0])
				if last := len(words) - 1; strings.HasPrefix(words[last], ">") { // the thread's wait may be uncertain
					words = words[:last]
				}
				if err := sameAwaiting(withoutWaiter(th.Frames), words[1:], false); err != nil {
					t.Errorf("%s: %v\n%s", words[0], err, asyncText(th.Frames))
				}
			}
		}
		t.Logf("%d looks: %d chains shown, %d not", looks, shown, without)
		for thread := range never {
			t.Errorf("the chain of %s was never shown", thread)
		}
		livetest.EndsWell(t, a)
	})
}

func withoutWaiter(frames []snapshot.Frame) []snapshot.Frame {
	return slices.DeleteFunc(slices.Clone(frames), func(f snapshot.Frame) bool { return f.Waiter != nil })
}

func checkAsyncStacks(t *testing.T, a *testenv.App, snap *snapshot.Snapshot) {
	t.Helper()
	threads := livetest.ByName(snap)
	truths := a.Ask("truths")
	if len(truths) < 40 {
		t.Fatalf("only %d chains", len(truths))
	}
	for _, truth := range truths {
		words := strings.Split(truth, "\t")
		th := threads[words[0]]
		if !strings.HasPrefix(truth, "chain-") {
			continue // the method is suspended
		}
		if th == nil {
			t.Errorf("no thread %s", words[0])
			continue
		}
		if err := sameAwaiting(th.Frames, words[1:], true); err != nil {
			t.Errorf("%s: %v\nwant %q\n%s", words[0], err, words[1:], asyncText(th.Frames))
		}
	}
}

// sameAwaiting compares the frames of kind snapshot.Async with the program's notes: names and lines. Line 0 is any
// line.
func sameAwaiting(frames []snapshot.Frame, want []string, lines bool) error {
	n := 0
	for i := range frames {
		f := &frames[i]
		if f.Kind != snapshot.Async {
			continue
		}
		if n == len(want) {
			return fmt.Errorf("%s as well", f.Short)
		}
		name, line, _ := strings.Cut(want[n], ":")
		if n++; asyncName(f) != name {
			return fmt.Errorf("%s instead of %s", asyncName(f), name)
		}
		if lines && line != "0" && line != "" &&
			(f.Line == nil || strconv.Itoa(f.Line.Line) != line || f.Line.Approximate) {
			return fmt.Errorf("%s: line %+v, want %s", name, f.Line, line)
		}
	}
	if n < len(want) {
		return fmt.Errorf("%s and what is below are missing", want[n])
	}
	return nil
}

// asyncName is the short name of an async method in the program's spelling.
func asyncName(f *snapshot.Frame) string {
	if f.Waiter != nil {
		return ">" + f.Waiter.Name
	}
	name, _, _ := strings.Cut(f.Short, "{async")
	if at := strings.Index(name, "{lambda "); at >= 0 {
		name = name[:at] + "{lambda}"
	}
	return name
}

func asyncText(frames []snapshot.Frame) string {
	var b strings.Builder
	for i := range frames {
		f := &frames[i]
		fmt.Fprintf(&b, "  %s %s %s", f.Kind, f.Module, f.Display)
		if f.Line != nil {
			fmt.Fprintf(&b, " %d", f.Line.Line)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestTasks: the chains of suspended methods, and the wait of each chain, are as the program notes: in the running
// program, and in a dump of the program.
func TestTasks(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{Runtime: runtime, Args: []string{"--suspended", "3", "--ended"}})
		truths := countTruths(t, a)
		p := livetest.Open(t, a, clrsnap.Options{Lines: true})
		tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{})
		if err != nil {
			t.Fatal(err)
		}
		checkTasks(t, tasks, truths)
		checkAwaited(t, tasks, runtime, true)
		livetest.EndsWell(t, a)
	})
}

// TestTasksCollected: while the collector moves everything all the time, a look has all chains, or says how many chains
// are missing. Sooner or later a look has all chains, however slow the machine is.
func TestTasksCollected(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{
			Runtime: runtime, Args: []string{"--collect", "--pause", "10", "--suspended", "10"},
		})
		truths := countTruths(t, a)
		all := 0
		for _, n := range truths {
			all += n
		}
		p := livetest.Open(t, a, clrsnap.Options{Lines: true})
		looks, whole := 0, 0
		for ; looks < 4 || whole == 0 && looks < 100; looks++ {
			tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{})
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for i := range tasks.Chains {
				found += tasks.Chains[i].Count
			}
			if tasks.Unproven == 0 && tasks.Unread == 0 && tasks.ConsistentShare == 1 {
				whole++
				checkTasks(t, tasks, truths)
			} else if tasks.ConsistentShare == 1 && found+tasks.Unproven+tasks.Unread < all {
				t.Errorf("%d of %d chains, %d unproven, %d unread", found, all, tasks.Unproven, tasks.Unread)
			}
		}
		t.Logf("%d of %d looks have all %d chains", whole, looks, all)
		if whole == 0 {
			t.Error("no look has all chains")
		}
		livetest.EndsWell(t, a)
	})
}

// TestTasksRuntimeAsync is TestTasks for methods that the runtime itself suspends, in each way of compilation.
func TestTasksRuntimeAsync(t *testing.T) {
	for _, tt := range suspendedWays {
		t.Run(tt.Name, func(t *testing.T) {
			testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
				a := testenv.Start(t, "tasks", testenv.Options{
					Runtime: runtime, Args: append([]string{"--suspended", "3"}, tt.Args...), Env: tt.Env,
					Compile: append(tt.Compile, livetest.RuntimeAsync...), ReadyToRun: tt.ReadyToRun,
					Composite: tt.Composite,
				})
				truths := countTruths(t, a)
				p := livetest.Open(t, a, clrsnap.Options{Lines: true})
				tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{})
				if err != nil {
					t.Fatal(err)
				}
				unknown, all := 0, 0
				for _, name := range []string{
					"Levels.Generic<string>", "Held<string>.Go", "Held<string>.Two", "OfClass<string>.Go",
				} {
					wantExact(t, tasks, name, true)
				}
				wantExact(t, tasks, "Held<string>.Result", false)
				checkChains(t, tasks, truths, func(frames []snapshot.Frame, want []string) error {
					n, err := sameResumed(frames, want)
					if err == nil {
						unknown, all = unknown+n, all+len(want)
					}
					return err
				})
				t.Logf("%v of shared code", instantiations(tasks))
				if t.Logf("%d of %d lines are not known", unknown, all); all == 0 || unknown*100 > all*tt.Unknown {
					t.Errorf("%d of %d lines are not known", unknown, all)
				}
				checkAwaited(t, tasks, runtime, true)
				livetest.EndsWell(t, a)
			})
		})
	}
}

// wantExact requires the type arguments of a method wherever the method is suspended and needs the type arguments
// later: always, or where any type arguments are known.
func wantExact(t *testing.T, tasks *snapshot.Tasks, name string, always bool) {
	t.Helper()
	found := 0
	for i := range tasks.Chains {
		for k := range tasks.Chains[i].Frames {
			f := &tasks.Chains[i].Frames[k]
			if livetest.SharedName(f.Short) != livetest.SharedName(name) || f.Generics == "" {
				continue
			}
			found++
			if f.Generics == snapshot.SharedGenerics && !always {
				continue
			}
			if f.Short != name || f.Generics != snapshot.ExactGenerics {
				t.Errorf("%s, %s", f.Short, f.Generics)
			}
		}
	}
	if found == 0 {
		t.Errorf("no %s", name)
	}
}

// instantiations counts the frames of the program's shared code, with known type arguments and without.
func instantiations(tasks *snapshot.Tasks) map[string]int {
	out := map[string]int{}
	for i := range tasks.Chains {
		for k := range tasks.Chains[i].Frames {
			if f := &tasks.Chains[i].Frames[k]; f.Module == "tasks" && f.Generics != "" {
				out[fmt.Sprintf("%s: %s", f.Generics, f.Short)]++
			}
		}
	}
	return out
}

// suspendedWays are livetest.ResumedWays and more.
var suspendedWays = append([]livetest.ResumedWay{
	{Name: "debug", Compile: []string{"-optimize-"}},
	{Name: "hot", Env: soonHot, Args: []string{"--warm", "30"}, Unknown: 5},
	{
		Name: "hot without a profile", Env: append([]string{"DOTNET_TieredPGO=0"}, soonHot...),
		Args: []string{"--warm", "30"}, Unknown: 5,
	},
	{Name: "composite", Composite: true, Unknown: 5},
}, livetest.ResumedWays...)

// soonHot makes the runtime optimise methods after a few calls.
var soonHot = []string{
	"DOTNET_TC_CallCountThreshold=3", "DOTNET_TC_CallCountingDelayMs=0", "DOTNET_TC_BackgroundWorkerTimeoutMs=0",
}

// TestAsyncStacksRuntimeAsync: below a method that the runtime has resumed stand the suspended methods that await the
// resumed method. The program's own notes are the truth, in a running program and in a dump.
func TestAsyncStacksRuntimeAsync(t *testing.T) {
	for _, tt := range livetest.ResumedWays {
		t.Run(tt.Name, func(t *testing.T) {
			testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
				a := testenv.Start(t, "tasks", testenv.Options{
					Runtime: runtime, Args: []string{"--running"}, Env: tt.Env,
					Compile: livetest.RuntimeAsync, ReadyToRun: tt.ReadyToRun,
				})
				o := clrsnap.Options{Async: true, Lines: true}
				p := livetest.Open(t, a, o)
				snap, err := p.SnapshotAll(context.Background(), nil)
				if err != nil {
					t.Fatal(err)
				}
				checkResumedStacks(t, a, snap, tt.Unknown)
				if snap, err = p.SnapshotAtOnce(context.Background(), nil); err != nil {
					t.Fatal(err)
				}
				checkResumedStacks(t, a, snap, tt.Unknown)
				checkResumedStacks(t, a, livetest.SnapshotCore(t, testenv.GCoreDump(t, a.PID),
					clrsnap.CoreOptions{Options: o}),
					tt.Unknown)
				livetest.EndsWell(t, a)
			})
		})
	}
}

// TestTasksRunningRuntimeAsync: methods that the runtime itself has resumed, and the methods that await them, are among
// the tasks, with their thread. The program's own notes are the truth, in a running program and in a dump.
func TestTasksRunningRuntimeAsync(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{
			Runtime: runtime, Args: []string{"--running", "--suspended", "1"},
			Compile: livetest.RuntimeAsync,
		})
		o := clrsnap.Options{Lines: true}
		check := func(p *clrsnap.Process) {
			t.Helper()
			tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{})
			if err != nil {
				t.Fatal(err)
			}
			livetest.Unmark(tasks)
			checkRunningTasks(t, tasks, a.Ask("truths"), "Running.Leaf")
		}
		check(livetest.Open(t, a, o))
		core, err := clrsnap.OpenCore(context.Background(), testenv.GCoreDump(t, a.PID),
			clrsnap.CoreOptions{Options: o})
		if err != nil {
			t.Fatal(err)
		}
		defer core.Close()
		check(core)
		livetest.EndsWell(t, a)
	})
}

// TestTasksTicking: no timer has a later due time than the program set, although the program sets the timer again
// during the walk of the heap.
func TestTasksTicking(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{Runtime: runtime, Args: []string{"--ticking"}})
		p := livetest.Open(t, a, clrsnap.Options{})
		const delay = 10 * time.Millisecond
		seen, long := 0, false
		on := livetest.GoOn(0, func() bool { return seen < 5 || !long })
		for on() {
			tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{})
			if err != nil {
				t.Fatal(err)
			}
			long = long || tasks.Duration > 2*delay
			for i := range tasks.Chains {
				c := &tasks.Chains[i]
				if w := c.WaitsFor; w != nil && w.Kind == snapshot.AwaitsTimer && w.HasDue {
					if seen += c.Count; w.Due > delay {
						t.Errorf("due in %v", w.Due)
					}
				}
			}
		}
		if seen < 5 || !long {
			t.Errorf("%d timers seen, in long walks: %v", seen, long)
		}
		livetest.EndsWell(t, a)
	})
}

// TestTasksQueue: methods queue for one semaphore, and change places all the time. clrsnap names that semaphore, and
// takes nothing else for a semaphore.
func TestTasksQueue(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{Runtime: runtime, Args: []string{"--queue"}})
		p := livetest.Open(t, a, clrsnap.Options{})
		seen := 0
		for on := livetest.GoOn(0, func() bool { return seen < 5 }); on(); {
			tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{})
			if err != nil {
				t.Fatal(err)
			}
			named := map[uint64]int{}
			for i := range tasks.Chains {
				c := &tasks.Chains[i]
				if w := c.WaitsFor; w != nil && w.Kind == snapshot.AwaitsSemaphore {
					named[w.Object] += c.Count
				}
			}
			delete(named, 0) // methods that left the queue during the walk
			if len(named) > 1 {
				t.Errorf("semaphores %v, want one", named)
			}
			seen += len(named)
		}
		if seen < 5 {
			t.Errorf("the semaphore was named in %d looks", seen)
		}
		livetest.EndsWell(t, a)
	})
}

// TestTasksRunning: clrsnap knows the threads of methods with a state machine that block their threads, also while the
// methods' objects are moved. The program's own notes are the truth.
func TestTasksRunning(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		for _, args := range [][]string{{"--running"}, {"--running", "--collect", "--pause", "20"}} {
			a := testenv.Start(t, "tasks", testenv.Options{Runtime: runtime, Args: args})
			p := livetest.Open(t, a, clrsnap.Options{Lines: true})
			want := map[string][]string{} // by thread
			for _, truth := range a.Ask("truths") {
				words := strings.Split(truth, "\t")
				if last := len(words) - 1; strings.HasPrefix(words[last], ">") {
					words = words[:last]
				}
				want[words[0]] = words[1:]
			}
			seen := map[string]bool{}
			few := func() bool { return len(seen) < len(want) }
			for on := livetest.GoOn(0, few); len(seen) == 0 || on(); {
				tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for i := range tasks.Chains {
					c := &tasks.Chains[i]
					for _, th := range c.Threads {
						_, err := sameResumed(c.Frames[1:], want[th.Name])
						if err != nil || asyncName(&c.Frames[0]) != "Running.Leaf" || len(c.Threads) > c.Count {
							t.Fatalf("%s: %v\n%s", th.Name, err, asyncText(c.Frames))
						}
						seen[th.Name] = true
					}
				}
			}
			if len(want) < 40 || len(seen) < len(want) {
				t.Errorf("%v: the threads of %d of %d methods", args, len(seen), len(want))
			}
			livetest.EndsWell(t, a)
		}
	})
}

// TestTasksComputingRuntimeAsync: for a thread that computes, clrsnap knows the methods that await the running method.
// The running method itself is unknown, because it is only on the stack.
func TestTasksComputingRuntimeAsync(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		const minute = "60000000" // in µs
		a := testenv.Start(t, "tasks", testenv.Options{
			Runtime: runtime, Args: []string{"--busy", minute, "--loops", "1"}, Compile: livetest.RuntimeAsync,
		})
		p := livetest.Open(t, a, clrsnap.Options{})
		for begin := time.Now(); ; { // the method awaits a timer first
			tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for i := range tasks.Chains {
				if c := &tasks.Chains[i]; c.State == snapshot.TaskRunning && len(c.Threads) == 1 {
					names = append(names, shortNames(c.Frames))
				}
			}
			const want = "[a method that runs] Busy.HandleOrder Busy.Serve"
			if slices.Equal(names, []string{want}) {
				break
			}
			if time.Since(begin) > testenv.Hang {
				t.Fatalf("%q run, want %q", names, want)
			}
		}
		livetest.EndsWell(t, a)
	})
}

// TestTasksBusyRuntimeAsync: methods that wait and compute by turns are found in both states.
func TestTasksBusyRuntimeAsync(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{
			Runtime: runtime, Args: []string{"--busy", "3000", "--loops", "1"}, Compile: livetest.RuntimeAsync,
		})
		p := livetest.Open(t, a, clrsnap.Options{})
		looks, found := 0, map[snapshot.TaskState]int{}
		for began := time.Now(); looks < 40 || found[snapshot.TaskRunning] == 0 && time.Since(began) < testenv.Hang; {
			looks++
			tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range tasks.Chains {
				c := &tasks.Chains[i]
				names := shortNames(c.Frames)
				switch {
				case names == "[a method that runs]", names == "[a method that runs] Busy.Serve":
					found[c.State] += c.Count // Serve, until the next await, or HandleOrder after its await
				case !strings.Contains(names, "Busy."):
				case !strings.HasSuffix(names, " Busy.HandleOrder Busy.Serve"):
					t.Errorf("%s: %s", c.State, names)
				default:
					found[c.State] += c.Count
				}
			}
		}
		t.Log(found)
		running, all := found[snapshot.TaskRunning], 0
		for _, n := range found {
			all += n
		}
		if running == 0 || all > looks || all < looks*3/4 {
			t.Errorf("in %d looks: %v", looks, found)
		}
		livetest.EndsWell(t, a)
	})
}

func shortNames(frames []snapshot.Frame) string {
	var names []string
	for i := range frames {
		names = append(names, frames[i].Short)
	}
	return strings.Join(names, " ")
}

// checkRunningTasks compares the running tasks with the program's notes: for each thread the methods that await the
// running method.
func checkRunningTasks(t *testing.T, tasks *snapshot.Tasks, truths []string, inner string) {
	t.Helper()
	chains, rest := map[string][]snapshot.Frame{}, 0
	for i := range tasks.Chains {
		c := &tasks.Chains[i]
		if c.State != snapshot.TaskRunning {
			continue
		}
		if len(c.Threads) != c.Count {
			t.Errorf("%d chains run on %v", c.Count, c.Threads)
		}
		for _, th := range c.Threads {
			if chains[th.Name] != nil {
				t.Errorf("%s runs several chains", th.Name)
			}
			chains[th.Name] = c.Frames
		}
	}
	for _, truth := range truths {
		words := strings.Split(truth, "\t")
		if !strings.HasPrefix(truth, "chain-") {
			rest++
			continue // the method is suspended
		}
		if last := len(words) - 1; strings.HasPrefix(words[last], ">") { // TestAsyncStacks checks the waiter
			words = words[:last]
		}
		frames := chains[words[0]]
		if len(frames) == 0 || asyncName(&frames[0]) != inner {
			t.Errorf("%s does not run %s:\n%s", words[0], inner, asyncText(frames))
			continue
		}
		if _, err := sameResumed(frames[1:], words[1:]); err != nil {
			t.Errorf("%s: %v\nwant %q\n%s", words[0], err, words[1:], asyncText(frames))
		}
		delete(chains, words[0])
	}
	for name, frames := range chains {
		t.Errorf("%s runs something else:\n%s", name, asyncText(frames))
	}
	if len(truths)-rest < 40 || rest < 40 {
		t.Errorf("only %d truths, %d of methods that do not run", len(truths), rest)
	}
}

// checkResumedStacks compares the methods that await the methods of threads with the program's notes. most bounds the
// unknown lines, in percent.
func checkResumedStacks(t *testing.T, a *testenv.App, snap *snapshot.Snapshot, most int) {
	t.Helper()
	threads := livetest.ByName(snap)
	unknown, all := 0, 0
	for _, truth := range a.Ask("truths") {
		words := strings.Split(truth, "\t")
		if !strings.HasPrefix(truth, "chain-") {
			continue // the method is suspended
		}
		th := threads[words[0]]
		if th == nil {
			t.Errorf("no thread %s", words[0])
			continue
		}
		if last := len(words) - 1; strings.HasPrefix(words[last], ">") { // TestAsyncStacks checks the waiter
			words = words[:last]
		}
		awaiting := slices.DeleteFunc(withoutWaiter(th.Frames),
			func(f snapshot.Frame) bool { return f.Kind != snapshot.Async })
		n, err := sameResumed(awaiting, words[1:])
		if err != nil {
			t.Errorf("%s: %v\nwant %q\n%s", words[0], err, words[1:], asyncText(th.Frames))
		}
		unknown, all = unknown+n, all+len(words)-1
	}
	if t.Logf("%d of %d lines are not known", unknown, all); all < 40 || unknown*100 > all*most {
		t.Errorf("%d of %d lines are not known", unknown, all)
	}
	named := 0 // a waiter for a task names the task's method
	for name, th := range threads {
		if w := th.Wait; strings.HasPrefix(name, "waits-chain-") && w != nil && w.Object != 0 {
			if named++; w.Method != "Tasks.Running.Root" {
				t.Errorf("%s waits for %+v", name, w)
			}
		}
	}
	if named < 5 {
		t.Errorf("only %d threads wait for a task that is known", named)
	}
}

// sameResumed is sameAwaiting for methods that the runtime itself suspends. unknown counts the unknown lines; a wrong
// line is an error. The tests' compiler writes no lines of lambdas and local functions for such methods. The type
// arguments of shared code are unknown if the method does not need them after its await.
func sameResumed(frames []snapshot.Frame, want []string) (unknown int, err error) {
	for i := range frames {
		f := &frames[i]
		name := asyncName(f)
		wanted, line := "", ""
		if len(want) > 0 {
			wanted, line, _ = strings.Cut(want[0], ":")
		}
		if f.Generics == snapshot.SharedGenerics {
			name, wanted = livetest.SharedName(name), livetest.SharedName(wanted)
		}
		switch {
		case name != wanted && slices.Contains(livetest.PassOn, name):
			continue
		case name != wanted:
			return 0, fmt.Errorf("%s instead of %q", name, wanted)
		case line == "0" || line == "":
		case f.Line == nil && strings.Contains(name, "{"):
		case f.Line == nil:
			unknown++
		case strconv.Itoa(f.Line.Line) != line || f.Line.Approximate:
			return 0, fmt.Errorf("%s: line %+v, want %s", name, f.Line, line)
		}
		want = want[1:]
	}
	if len(want) > 0 {
		return 0, fmt.Errorf("%s and what is below are missing", want[0])
	}
	return unknown, nil
}

// TestTasksOfCore: a dump has the same chains, and the same stacks.
func TestTasksOfCore(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{
			Runtime: runtime, Args: []string{"--suspended", "3", "--running"},
		})
		truths := countTruths(t, a)
		path := testenv.GCoreDump(t, a.PID)
		o := clrsnap.CoreOptions{Options: clrsnap.Options{Lines: true, Async: true}}
		p, err := clrsnap.OpenCore(context.Background(), path, o)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{})
		if err != nil {
			t.Fatal(err)
		}
		livetest.Unmark(tasks)
		running := 0
		tasks.Chains = slices.DeleteFunc(tasks.Chains, func(c snapshot.TaskChain) bool {
			if c.State == snapshot.TaskRunning {
				running += c.Count
			}
			return c.State == snapshot.TaskRunning
		})
		each := 0 // the program runs a chain of each kind, and has three suspended
		for _, n := range truths {
			each += n / 3
		}
		if running != each {
			t.Errorf("%d chains run, of %d", running, each)
		}
		checkTasks(t, tasks, truths)
		checkAwaited(t, tasks, runtime, false)
		snap, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		livetest.Unmark(snap)
		checkAsyncStacks(t, a, snap)
	})
}

// TestTasksOfSmallDumps: a dump without the heap says so. A dump with the heap has all methods that the runtime itself
// has suspended. createdump leaves out the data about them in code compiled ahead of time, but the code's file has the
// data.
func TestTasksOfSmallDumps(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{
			Runtime: runtime, Args: []string{"--suspended", "3"}, Compile: livetest.RuntimeAsync, ReadyToRun: true,
		})
		open := func(kind testenv.DumpKind) (*snapshot.Tasks, error) {
			p, err := clrsnap.OpenCore(t.Context(), testenv.Dump(t, a, kind), clrsnap.CoreOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			return p.Tasks(t.Context(), clrsnap.TasksOptions{})
		}
		if _, err := open(testenv.DumpNormal); err == nil ||
			!strings.Contains(err.Error(), "the dump has left the heap out") {
			t.Errorf("without the heap: %v", err)
		}
		tasks, err := open(testenv.DumpWithHeap)
		if err != nil {
			t.Fatal(err)
		}
		checkChains(t, tasks, countTruths(t, a), func(frames []snapshot.Frame, want []string) error {
			_, err := sameResumed(frames, want)
			return err
		})
		livetest.EndsWell(t, a)
	})
}

// countTruths counts the program's notes on its chains: the kind, and the methods with their lines.
func countTruths(t *testing.T, a *testenv.App) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, truth := range a.Ask("truths") {
		if strings.HasPrefix(truth, "chain-") {
			continue // the chain runs
		}
		kind, methods, _ := strings.Cut(truth, "\t")
		kind, _, _ = strings.Cut(kind, " ")
		out[kind+"\t"+methods]++
	}
	if len(out) < 40 {
		t.Fatalf("only %d chains", len(out))
	}
	return out
}

// checkTasks compares all chains with the program's notes.
func checkTasks(t *testing.T, tasks *snapshot.Tasks, truths map[string]int) {
	t.Helper()
	checkChains(t, tasks, truths, func(frames []snapshot.Frame, want []string) error {
		return sameAwaiting(frames, want, true)
	})
}

// checkChains is checkTasks with a way to compare a chain.
func checkChains(
	t *testing.T, tasks *snapshot.Tasks, truths map[string]int, same func([]snapshot.Frame, []string) error,
) {
	t.Helper()
	left := maps.Clone(truths)
	for i := range tasks.Chains {
		c := &tasks.Chains[i]
		if c.State != snapshot.TaskWaiting || c.WaitsFor == nil {
			t.Errorf("a chain that is %s:\n%s", c.State, asyncText(c.Frames))
			continue
		}
		if !take(left, c, same) {
			t.Errorf("%d chains that wait for %+v are not the program's:\n%s", c.Count, c.WaitsFor, asyncText(c.Frames))
		}
	}
	for truth, n := range left {
		t.Errorf("%d times too few (of %d): %q", n, truths[truth], truth)
	}
	if tasks.Unproven > 0 || tasks.Unread > 0 || tasks.Partial {
		t.Errorf("%d not proved, %d not read, partial: %v", tasks.Unproven, tasks.Unread, tasks.Partial)
	}
}

// notTimers reports whether work is anything but due timers. Due timers can be in the queue at any time.
func notTimers(w snapshot.QueuedWork) bool { return w.What != "System.Threading.TimerQueue" }

// checkAwaited checks the details that only some kinds of wait have.
func checkAwaited(t *testing.T, tasks *snapshot.Tasks, runtime string, live bool) {
	t.Helper()
	times := map[string][2]time.Duration{
		"OfDelay": {59 * time.Minute, time.Hour}, "OfPeriodic": {119 * time.Minute, 2 * time.Hour},
		"OfWait": {239 * time.Minute, 4 * time.Hour},
	}
	checked := 0
	for i := range tasks.Chains {
		c := &tasks.Chains[i]
		w := c.WaitsFor
		for name, want := range times {
			if !strings.Contains(c.Frames[0].Display, name) {
				continue
			}
			if checked++; w.HasDue != live || live && (w.Due < want[0] || w.Due > want[1]) {
				t.Errorf("%s is due in %v (%v)", name, w.Due, w.HasDue)
			}
		}
		switch w.Kind {
		case snapshot.AwaitsSemaphore:
			if w.Type != "System.Threading.SemaphoreSlim" || w.Object == 0 {
				t.Errorf("%+v", w)
			}
		case snapshot.AwaitsFile:
			if live && !strings.HasPrefix(w.Target, "read pipe:[") || !live && w.Target != "read" {
				t.Errorf("%+v", w)
			}
		case snapshot.AwaitsSocket:
			if live && !strings.HasPrefix(w.Target, "recv tcp 127.0.0.1:") {
				t.Errorf("%+v", w)
			}
		}
	}
	if checked < 3 {
		t.Errorf("only %d timers", checked)
	}
	p := tasks.Pool
	if p == nil || p.Minimum != 128 || p.Workers < p.Idle || !p.HasWork || slices.ContainsFunc(p.Work, notTimers) {
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

// TestTasksPermits: a method that waits for a permit waits for the semaphore, also with a token or for some time.
func TestTasksPermits(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		checkPermits(t, testenv.Options{Runtime: runtime})
	})
}

// TestTasksPermitsRuntimeAsync is TestTasksPermits for methods that the runtime itself suspends.
func TestTasksPermitsRuntimeAsync(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		checkPermits(t, testenv.Options{Runtime: runtime, Compile: livetest.RuntimeAsync})
		checkPermits(t, testenv.Options{Runtime: runtime, Compile: livetest.RuntimeAsync, ReadyToRun: true})
	})
}

func checkPermits(t *testing.T, o testenv.Options) {
	t.Helper()
	o.Args = []string{"--permits"}
	a := testenv.Start(t, "tasks", o)
	p := livetest.Open(t, a, clrsnap.Options{Async: true})
	tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{})
	if err != nil {
		t.Fatal(err)
	}
	objects, timed := map[uint64]bool{}, map[string]bool{}
	for i := range tasks.Chains {
		c := &tasks.Chains[i]
		own := slices.IndexFunc(c.Frames, func(f snapshot.Frame) bool {
			return strings.HasPrefix(f.Short, "Suspended.Permits")
		})
		if own < 0 {
			continue
		}
		name := c.Frames[own].Short
		if c.WaitsFor == nil || c.WaitsFor.Kind != snapshot.AwaitsSemaphore {
			t.Errorf("%s waits for %+v", name, c.WaitsFor)
			continue
		}
		objects[c.WaitsFor.Object] = true
		timed[name] = c.WaitsFor.HasDue
		if got := c.WaitsFor.Due; c.WaitsFor.HasDue && (got < 2*time.Hour || got > 3*time.Hour) {
			t.Errorf("%s gives up in %v", name, got)
		}
	}
	limits := 0
	for _, is := range timed {
		if is {
			limits++
		}
	}
	if len(timed) != 3 || len(objects) != 1 || limits != 1 {
		t.Errorf("%v; of %d semaphores", timed, len(objects))
	}
	livetest.EndsWell(t, a)
}

// TestTasksQueued: the work that waits for a thread of the pool is counted, in all queues of the pool. The methods in
// the queues are ready to go on.
func TestTasksQueued(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		// more than a part of a queue has
		checkQueued(t, testenv.Options{Runtime: runtime}, "Tasks.Queued.Yields{async}", 150)
	})
}

// TestTasksQueuedRuntimeAsync is TestTasksQueued for methods that the runtime itself suspends.
func TestTasksQueuedRuntimeAsync(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		checkQueued(t, testenv.Options{Runtime: runtime, Compile: livetest.RuntimeAsync}, "Tasks.Queued.Yields", 60)
	})
}

// TestTasksQueuedMany: work is counted even if there is too much work for names at one moment.
func TestTasksQueuedMany(t *testing.T) {
	testenv.EachOf(t, []string{testenv.DefaultRuntime, testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{Runtime: runtime, Args: []string{"--queued", "1100"}})
		p := livetest.Open(t, a, clrsnap.Options{})
		tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pool := tasks.Pool; pool == nil || !pool.HasWork || pool.Queued != 3*1100 {
			t.Errorf("%+v", pool)
		}
		livetest.EndsWell(t, a)
	})
}

func checkQueued(t *testing.T, o testenv.Options, method string, items int) {
	t.Helper()
	o.Args = []string{"--queued", strconv.Itoa(items)}
	a := testenv.Start(t, "tasks", o)
	p := livetest.Open(t, a, clrsnap.Options{})
	tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pool := tasks.Pool
	if pool == nil || pool.Workers != 5 || pool.Idle != 0 || pool.Minimum != 5 || pool.Maximum != 5 || !pool.HasWork {
		t.Fatalf("%+v", pool)
	}
	var methods, calls, runs int
	for _, w := range pool.Work {
		switch {
		case w.What == method:
			methods += w.Count
		case !strings.Contains(w.What, " of Tasks.Queued.Fill{lambda "):
		case strings.HasPrefix(w.What, "System.Threading.QueueUserWorkItemCallback"):
			calls += w.Count
		case strings.HasPrefix(w.What, "System.Threading.Tasks.Task"):
			runs += w.Count
		}
	}
	timers := map[string]int{}
	for _, x := range tasks.Timers {
		method, _, _ := strings.Cut(x.Callback, " ")
		timers[method] += x.Count
	}
	for method, n := range map[string]int{
		"Tasks.Queued.Fill{lambda": 2, "Tasks.Queued+Holder<string>.Tick": 1,
		"Tasks.Queued+Holder<string>.Lambda{lambda": 1,
	} {
		if timers[method] != n {
			t.Errorf("no %d timers that call %s: %+v", n, method, tasks.Timers)
		}
	}
	if pool.Queued != 3*items || methods != items || calls != items || runs != items {
		t.Errorf("%d queued: %d methods, %d calls, %d runs: %+v", pool.Queued, methods, calls, runs, pool.Work)
	}
	ready := 0
	for i := range tasks.Chains {
		c := &tasks.Chains[i]
		if c.Frames[0].Display != method {
			continue
		}
		if ready += c.Count; c.State != snapshot.TaskReady || c.WaitsFor.Kind != snapshot.AwaitsYield {
			t.Errorf("%d chains are %s: %+v", c.Count, c.State, c.WaitsFor)
		}
	}
	if ready != items {
		t.Errorf("%d methods are ready", ready)
	}
	livetest.EndsWell(t, a)
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
		livetest.AtRest(t, func() *snapshot.HeapStop {
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
