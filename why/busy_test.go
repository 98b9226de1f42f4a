package why

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/activity"
	"clrsnap/internal/arch"
	"clrsnap/internal/cgroup"
	"clrsnap/internal/clr/threadpool"
	"clrsnap/internal/cpu"
	"clrsnap/internal/gather"
	"clrsnap/internal/heapwalk"
	"clrsnap/internal/limits"
	"clrsnap/internal/phrase"
	"clrsnap/internal/requests"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

var loops = of(cpu.Loops)

// queueFor makes a number of threads that wait for a lock, and the lock's holder, which sleeps.
func queueFor(waiters int) []snapshot.Thread {
	out := []snapshot.Thread{holding(waiting(1, snapshot.Wait{Kind: snapshot.ThreadSleep},
		"System.Threading.Thread.Sleep",
		"Shop.Journal.Flush"), 0x10)}
	for i := range waiters {
		out = append(out, waiting(10+i, wants(0x10, 1), enter, "Shop.Journal.Append"))
	}
	return out
}

func TestLocks(t *testing.T) {
	named := queueFor(6)
	for i := range named[1:] {
		named[1+i].Wait.Field = "Shop.Journal.gate"
	}
	verdict(t, judgeLocks(same(4, named...)), profile.CauseLockContention, profile.Likely, "Journal.gate")
	verdict(t, judgeLocks(same(4, queueFor(6)...)), profile.CauseLockContention, profile.Likely,
		"Shop.Journal.Append", "The holder sleeps, in Shop.Journal.Flush (4 of 4 looks)", "6 of 7 threads")
	gate := snapshot.Wait{Kind: snapshot.MonitorEnter, Object: 0x20, Type: "object", Timeout: snapshot.Forever}
	for _, c := range []struct {
		field     string
		uncertain bool
		at        []uint64 // the address of the object, by look
		says      string
	}{
		{"", false, []uint64{0x20, 0x20, 0x20, 0x20}, "waits to enter Monitor of object 0x20"},
		{"", false, []uint64{0x20, 0x20, 0x30, 0x30}, "waits to enter Monitor of object"},
		{"", true, []uint64{0x20, 0x20, 0x20, 0x20}, "waits to enter Monitor of object 0x20 (uncertain)"},
		{"Shop.Ledger._gate", false, []uint64{0x20, 0x20, 0x20, 0x20}, "waits to enter Monitor of Ledger._gate 0x20"},
		{"Shop.Ledger._gate", false, []uint64{0x20, 0x30, 0x40, 0x50}, "waits to enter Monitor of Ledger._gate"},
	} {
		var looks [][]snapshot.Thread
		for _, at := range c.at {
			queue := queueFor(6)
			gate.Object, gate.Field = at, c.field
			queue[0] = holding(waiting(1, gate, enter, "Shop.Journal.Flush"), 0x10)
			queue[0].Wait.Certain = !c.uncertain
			looks = append(looks, queue)
		}
		verdict(t, judgeLocks(looksAt(looks...)), profile.CauseLockContention, profile.Likely,
			"The holder "+c.says+", in Shop.Journal.Flush (4 of 4 looks)")
	}
	r := same(4, queueFor(6)...).recorded(3, profile.Wall)
	for i := range 6 {
		r.add(10+i, profile.Sample{Mode: profile.Wall, State: profile.Waiting, Weight: int64(3 * time.Second)}, "",
			enter, "Shop.Journal.Append")
	}
	verdict(t, judgeLocks(r.done()), profile.CauseLockContention, profile.Certain,
		"6.0 threads waited for locks on average")

	// A thread that has run meanwhile has got the lock.
	moving := func(e *evidence) *evidence {
		for id := 10; id < 20; id++ {
			e = e.runs(id, 0.05, 0)
		}
		return e
	}
	none(t, judgeLocks(moving(same(4, queueFor(2)...))))
	none(t, judgeLocks(same(2, queueFor(6)...))) // too few looks
	// Many threads have other things to do.
	busy := queueFor(4)
	for i := range 10 {
		busy = append(busy, running(100+i, "Shop.Orders.Add"))
	}
	none(t, judgeLocks(moving(same(4, busy...))))
	// Threads that never get the lock are told, even if few.
	verdict(t, judgeLocks(same(4, busy...)), profile.CauseLockContention, profile.Likely,
		"4 threads have waited for Shop.Order 0x10 for the whole look of 4.0 s, in Shop.Journal.Append, and no thread "+
			"has got it")
	none(t, judgeLocks(same(4, queueFor(1)...)))

	// The holder has got the lock where the others wait, and goes on: they may be its standbys.
	const lead = "Shop.Leader.Run"
	sleep := snapshot.Wait{Kind: snapshot.ThreadSleep}
	leader := holding(waiting(1, sleep, "System.Threading.Thread.Sleep", lead), 0x10)
	group := []snapshot.Thread{leader}
	for id := 10; id < 13; id++ {
		group = append(group, waiting(id, wants(0x10, 1), enter, lead))
	}
	const says = "Standbys that wait for their leader's end look the same."
	verdict(t, judgeLocks(same(4, group...).runs(1, 0.05, 0)), profile.CauseLockContention, profile.Possible, says)
	group[2] = worker(group[2])
	verdict(t, judgeLocks(same(4, group...).runs(1, 0.05, 0)), profile.CauseLockContention, profile.Likely)

	starved := holding(running(1, "Shop.Journal.Flush"), 0x10) // has not run, and waits for nothing
	none(t, judgeLocks(same(4, starved, waiting(10, wants(0x10, 1), enter, "Shop.Journal.Append"))))
	// The looks found by chance a state that is rare in the samples.
	none(t, judgeLocks(moving(same(4, queueFor(6)...)).recorded(3, profile.Wall).done()))
	// In a look the lock is free.
	none(t, judgeLocks(looksAt(queueFor(6), queueFor(6), queueFor(0), queueFor(6))))
	// That may be a chance, if the samples agree.
	freed := func(waiting time.Duration, looks ...[]snapshot.Thread) []profile.Verdict {
		r := looksAt(looks...).recorded(3, profile.Wall)
		for i := range 6 {
			x := profile.Sample{Mode: profile.Wall, State: profile.Waiting, Weight: int64(waiting)}
			r.add(10+i, x, "", enter, "Shop.Journal.Append")
		}
		return judgeLocks(r.done())
	}
	for at := range 4 {
		looks := [][]snapshot.Thread{queueFor(6), queueFor(6), queueFor(6), queueFor(6)}
		looks[at] = queueFor(0)
		verdict(t, freed(3*time.Second, looks...), profile.CauseLockContention, profile.Certain, "Shop.Journal.Append")
		none(t, freed(time.Second, looks...)) // two threads on average
		looks[(at+1)%4] = queueFor(1)
		none(t, freed(3*time.Second, looks...))
	}
}

// TestLockWaits: the agent's waits for other locks are no evidence.
func TestLockWaits(t *testing.T) {
	waited := func(names ...string) []profile.Verdict {
		r := same(4, queueFor(6)...).recorded(3, profile.Contention)
		for i, name := range names {
			x := profile.Sample{Mode: profile.Contention, Weight: int64(len(names)-i) * int64(time.Second), Events: 5}
			r.add(10+i, x, name+"|held by Shop.Journal.Flush", enter, "Shop.Journal.Append")
		}
		return judgeLocks(r.done())
	}
	verdict(t, waited("lock Shop.Other", "lock Shop.Order", "lock Shop.OrderBook"), profile.CauseLockContention,
		profile.Likely, "5 waits for lock Shop.Order ended")
	for _, names := range [][]string{{"lock Shop.Other"}, {"lock Shop.Order", "lock Shop.Order #2"}} {
		list := waited(names...)
		verdict(t, list, profile.CauseLockContention, profile.Likely)
		for _, e := range list[0].Evidence {
			if strings.Contains(e.Text, "ended in") {
				t.Errorf("%q: %s", names, e.Text)
			}
		}
	}
}

// TestInside: work in the method that takes the lock need not happen under the lock.
func TestInside(t *testing.T) {
	e := same(4, queueFor(6)[1:]...) // the holder is not seen
	r := e.recorded(3, profile.Wall)
	for i := range 6 {
		x := profile.Sample{Mode: profile.Wall, State: profile.Waiting, Weight: int64(3 * time.Second)}
		r.add(10+i, x, "", enter, "Shop.Journal.Append")
		x.Weight = int64(time.Second)
		r.add(10+i, x, "", "System.Threading.Thread.Sleep", "Shop.Journal.Append")
	}
	verdict(t, judgeLocks(r.done()), profile.CauseLockContention, profile.Likely,
		"Besides waiting for the lock, threads in that method spend 100 % of the time in System.Threading.Thread.Sleep")
}

// blockedWorkers makes workers that wait for a task.
func blockedWorkers(n int) (out []snapshot.Thread) {
	task := snapshot.Wait{Kind: snapshot.TaskWait, Object: 0x40, Type: "System.Threading.Tasks.Task",
		Timeout: snapshot.Forever}
	for i := range n {
		out = append(out, worker(waiting(10+i, task, "System.Threading.Tasks.Task.Wait", "Shop.Tenants.Invoke")))
	}
	return out
}

// pooled adds the state of the pool to all looks.
func (e *evidence) pooled(minimum int, queued ...int) *evidence {
	for i := range e.Looks {
		n := len(e.Looks[i].Snap.Threads)
		e.Looks[i].Pool = &threadpool.State{
			Workers: n, Working: n, Goal: n, Minimum: minimum, Maximum: 100, Queued: queued[i], HasQueue: true,
		}
	}
	return e
}

func TestPool(t *testing.T) {
	verdict(t, judgePool(looksAt(blockedWorkers(4), blockedWorkers(8)).pooled(2, 50, 90)), profile.CausePoolStarvation,
		profile.Certain, "8 of its 8 workers are blocked", "sync over async", "Shop.Tenants.Invoke",
		"90 work items are queued (50 at first)", "the minimum of workers is 2", "added 4 workers in 1.0 s")
	verdict(t, judgePool(same(2, blockedWorkers(8)...).pooled(2, 90, 50)), profile.CausePoolStarvation, profile.Likely)
	verdict(t, judgePool(looksAt(blockedWorkers(4), blockedWorkers(5))), profile.CausePoolStarvation, profile.Likely)

	// Most workers wait for tasks, but not in the most frequent method.
	mixed := blockedWorkers(9)
	for i := range mixed {
		if i < 4 {
			mixed[i].Wait = &snapshot.Wait{Kind: snapshot.ThreadSleep, Certain: true}
		} else {
			mixed[i].Frames = stack("System.Threading.Tasks.Task.Wait", fmt.Sprintf("Shop.Tenants.Part%d", i))
		}
	}
	list := judgePool(same(2, mixed...).pooled(2, 90, 90))
	verdict(t, list, profile.CausePoolStarvation, profile.Certain, "4 of them in Shop.Tenants.Invoke", "sleeps")
	if strings.Contains(list[0].Text, "sync over async") {
		t.Error(list[0].Text)
	}
	// No worker is in the program's own code.
	for i := range mixed {
		mixed[i].Frames = stack("System.Threading.Tasks.Task.Wait")
	}
	list = judgePool(same(2, mixed...).pooled(2, 90, 90))
	if verdict(t, list, profile.CausePoolStarvation, profile.Certain, "9 of its 9"); strings.Contains(list[0].Text,
		"not known") {
		t.Error(list[0].Text)
	}

	// Most workers read what a client has not sent.
	reading := blockedWorkers(9)
	for i := range reading[:6] {
		reading[i].Frames = stack("System.Threading.Tasks.Task.Wait",
			"Microsoft.AspNetCore.Server.Kestrel.Core.Internal.Http.HttpRequestStream.Read", "Shop.Tenants.Invoke")
		reading[i].Frames[1].Module = "Microsoft.AspNetCore.Server.Kestrel.Core"
	}
	list = judgePool(same(2, reading...).pooled(2, 90, 90))
	verdict(t, list, profile.CausePoolStarvation, profile.Certain, "9 of its 9 workers are blocked, all of them in "+
		"Shop.Tenants.Invoke, which waits for the rest of requests' bodies with a synchronous read: sync over async. "+
		"A client that sends slowly takes a worker all the time. 90 work items are queued")

	// The queue is empty again, but new work has to wait for workers.
	for _, at := range []int{0, 90} {
		verdict(t, judgePool(same(2, blockedWorkers(8)...).pooled(2, at, 0)), profile.CausePoolStarvation,
			profile.Likely, "8 of the 8 workers", "sync over async", "all of them are in Shop.Tenants.Invoke",
			"0 work items are queued now", "minimum of workers is 2")
	}
	none(t, judgePool(same(2, blockedWorkers(7)...).pooled(2, 0, 0))) // a few services of the program
	none(t, judgePool(same(2, blockedWorkers(8)...).pooled(8, 0, 0))) // another worker would start at once
	handlers := blockedWorkers(8)
	for i := range handlers { // consumers that wait for work of their own
		handlers[i].Wait = &snapshot.Wait{Kind: snapshot.CollectionTake, Certain: true}
	}
	none(t, judgePool(same(2, handlers...).pooled(2, 0, 0)))
	none(t, judgePool(same(2, blockedWorkers(8)...).pooled(20, 90, 90)))
	none(t, judgePool(same(2, blockedWorkers(8)...))) // the queue is unknown, and the pool does not grow
	none(t, judgePool(same(2, blockedWorkers(1)...).pooled(1, 90, 90)))
	// A batch: the workers are at work.
	var batch []snapshot.Thread
	for i := range 4 {
		batch = append(batch, worker(running(i+1, "Shop.Orders.Add")))
	}
	none(t, judgePool(same(2, append(batch, blockedWorkers(2)...)...).pooled(2, 900, 900)))
	idle := worker(waiting(99, snapshot.Wait{Kind: snapshot.WaitIdle}, "System.Threading.LowLevelLifoSemaphore.Wait",
		"System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart"))
	e := same(2, append(blockedWorkers(8), idle)...).pooled(2, 90, 90)
	for i := range e.Looks {
		e.Looks[i].Pool.Working, e.Looks[i].Pool.Goal = 8, 9
	}
	verdict(t, judgePool(e), profile.CausePoolStarvation, profile.Likely, "8 of the 9 workers") // one is about to work
	for i := range e.Looks {
		e.Looks[i].Pool.Goal = 8
	}
	verdict(t, judgePool(e), profile.CausePoolStarvation, profile.Certain, "8 of its 9 workers are blocked",
		"1 is idle")
}

// spins records a thread that runs all the time, alternately in some methods.
func spins(e *evidence, stacks ...[]string) *evidence {
	r := e.recorded(3, profile.CPU)
	for i := range 60 {
		at := profile.Sample{Mode: profile.CPU, At: time.Duration(i) * 50 * time.Millisecond,
			Weight: int64(50 * time.Millisecond)}
		r.add(1, at, "", stacks[i%len(stacks)]...)
	}
	return r.done()
}

func TestCPU(t *testing.T) {
	loop := []string{"Shop.Cache.Find", "Shop.Cache.Warm"}
	busy := func(ran, ready float64) *evidence { return same(4, running(1, loop...)).runs(1, ran, ready) }
	verdict(t, loops(spins(busy(0.99, 0), loop)), profile.CauseCPU, profile.Likely, "Shop.Cache.Find", "100 %",
		"99 % of a CPU")
	verdict(t, loops(spins(busy(0.4, 0.55), loop)), profile.CauseCPU, profile.Likely, "had no CPU for 55 %")
	verdict(t, loops(spins(busy(0.99, 0), []string{"System.Threading.SpinWait.SpinOnce", "Shop.Cache.Find"}, loop)),
		profile.CauseCPU, profile.Likely, "Shop.Cache.Find")
	copying := []string{"libc.so.6!memcpy", "IL_STUB_PInvoke", "Shop.Cache.Find"}
	verdict(t, loops(spins(busy(0.99, 0), copying)), profile.CauseCPU, profile.Likely, "in Shop.Cache.Find",
		"in native code below that method, first of all in memcpy of libc.so.6")
	verdict(t, loops(spins(busy(0.99, 0), copying, copying[1:], copying[1:])), profile.CauseCPU, profile.Likely,
		"in memcpy of libc.so.6")

	const spin = "System.Threading.SpinWait.SpinOnceCore"
	verdict(t, loops(spins(busy(0.99, 0), []string{"libc.so.6!sched_yield", "System.Threading.Thread.Yield", spin,
		"Shop.Cache.Find"}, []string{"System.Threading.Thread.Sleep", spin, "Shop.Cache.Find"},
		[]string{"System.Threading.Thread.SpinWaitInternal", spin, "Shop.Cache.Find"})),
		profile.CauseCPU, profile.Likely, "Shop.Cache.Find")

	// The thread may be there to compute.
	only := running(1, "Shop.Cache.Find")
	verdict(t, loops(spins(same(4, only).runs(1, 0.99, 0), loop)), profile.CauseCPU, profile.Possible,
		"This may be a long computation")
	verdict(t, loops(spins(same(4, worker(only)).runs(1, 0.99, 0), loop)), profile.CauseCPU, profile.Likely)

	none(t, loops(spins(busy(0.7, 0.05), loop)))
	none(t, loops(spins(busy(0.99, 0), loop, []string{"Shop.Cache.Add", "Shop.Cache.Warm"})))
	// Parsing of text: two functions take most of the time.
	none(t, loops(spins(busy(0.99, 0), []string{"System.String.Split", "Shop.Cache.Find"},
		[]string{"System.Linq.Enumerable.Count", "Shop.Cache.Find"}, loop)))
	// One method with many callees makes progress.
	var many [][]string
	for i := range 12 {
		many = append(many, []string{fmt.Sprintf("System.Text.Json.Part%d", i), "Shop.Cache.Find"})
	}
	none(t, loops(spins(busy(0.99, 0), many...)))

	// A regular expression is in many methods, too.
	var regex [][]string
	for i := range 12 {
		regex = append(regex, []string{fmt.Sprintf("System.Text.RegularExpressions.Part%d", i), "Shop.Spam.Check"})
	}
	e := spins(busy(0.99, 0), regex...)
	for i := range e.Samples.Functions {
		if f := &e.Samples.Functions[i]; f.Module == "System.Private.CoreLib" {
			f.Module = "System.Text.RegularExpressions"
		}
	}
	verdict(t, loops(e), profile.CauseCPU, profile.Likely, "Shop.Spam.Check", "regular expression", "backtracks")

	// The program's own method is inlined into a method made at run time.
	for i := range e.Samples.Functions {
		if f := &e.Samples.Functions[i]; f.Module == "Shop" {
			f.Module, f.Method, f.Display = "", "lambda_method1", "lambda_method1"
		}
	}
	verdict(t, loops(e), profile.CauseCPU, profile.Likely, "lambda_method1, which was made at run time",
		"backtracks")
}

// TestParallelWork: threads of one Parallel.For make progress, though all run one method.
func TestParallelWork(t *testing.T) {
	part := []string{"Shop.Prices.Step", "System.Threading.Tasks.Parallel.ForWorker"}
	at := func(id int) snapshot.Thread {
		x := running(id, part...)
		x.Frames[1].Module = "System.Threading.Tasks.Parallel"
		return x
	}
	none(t, loops(spins(same(4, at(1), at(2)).runs(1, 0.99, 0), part)))
	verdict(t, loops(spins(same(4, worker(at(1))).runs(1, 0.99, 0), part)), profile.CauseCPU, profile.Likely,
		"Shop.Prices.Step")
}

// TestStarved: a thread that has hardly had a CPU is reported as starved only.
func TestStarved(t *testing.T) {
	for _, tt := range []struct {
		ran, ready float64
		noted      bool
	}{{0.15, 0.8, true}, {0.01, 0.98, false}, {0.15, 0.2, false}} {
		e := same(4, running(1, "Shop.Cache.Find")).runs(1, tt.ran, tt.ready)
		r := e.recorded(3, profile.CPU)
		for range gather.LeastRun - 1 {
			r.add(1, profile.Sample{Mode: profile.CPU, Weight: int64(10 * time.Millisecond)}, "", "Shop.Cache.Find")
		}
		got := r.done().report()
		if len(got.Verdicts) > 0 {
			t.Errorf("%v: %v", tt, got.Verdicts)
		}
		if noted := strings.Contains(strings.Join(got.Missing, " "), "Look longer, with --for"); noted != tt.noted {
			t.Errorf("%v: %q", tt, got.Missing)
		}
	}
}

// TestCrowd: threads that share the CPUs in one loop are told together, though each has only a few samples.
func TestCrowd(t *testing.T) {
	crowd := func(at func(id, sample int) string) *evidence {
		var threads []snapshot.Thread
		for id := 1; id <= 100; id++ {
			threads = append(threads, running(id, at(id, 0)))
		}
		e := same(4, threads...)
		for id := 1; id <= 100; id++ {
			e = e.runs(id, 0.02, 0.97)
		}
		r := e.recorded(3, profile.CPU)
		for id := 1; id <= 100; id++ {
			for sample := range 3 {
				x := profile.Sample{Mode: profile.CPU, Weight: int64(10 * time.Millisecond)}
				r.add(id, x, "", at(id, sample), "System.Threading.Thread.StartCallback")
			}
		}
		return r.done()
	}
	e := crowd(func(int, int) string { return "Shop.Cache.Find" })
	verdict(t, loops(e), profile.CauseCPU, profile.Likely, "100 threads are ready to run all the time",
		"100 % of the samples", "Shop.Cache.Find", "Together: 8.0 s of CPU time in 4.0 s: 200 % of a CPU.")
	if len(e.Missing) > 0 {
		t.Errorf("%q", e.Missing)
	}
	two := loops(crowd(func(id, _ int) string { return []string{"Shop.Cache.Find", "Shop.Cache.Add"}[id%2] }))
	if len(two) != 2 || !strings.HasPrefix(two[0].Text, "50 threads") || !strings.HasPrefix(two[1].Text, "50 threads") {
		t.Errorf("%v", two)
	}
	none(t, loops(crowd(func(_, sample int) string { return fmt.Sprintf("Shop.Cache.Part%d", sample) })))
}

// TestStarvedTogether: threads that have hardly had a CPU each are reported with their common method.
func TestStarvedTogether(t *testing.T) {
	looks := make([][]snapshot.Thread, 4)
	for id := 1; id <= 100; id++ {
		for i := range looks {
			looks[i] = append(looks[i], running(id, []string{"Shop.Cache.Find", "Shop.Cache.Add"}[(id+i)/2%2]))
		}
	}
	e := looksAt(looks...)
	for id := 1; id <= 100; id++ {
		e = e.runs(id, 0.02, 0.97)
	}
	r := e.recorded(3, profile.CPU)
	for id := range 100 {
		at := "Shop.Cache.Find"
		if id%4 == 0 {
			at = "Shop.Cache.Add"
		}
		r.add(id+1, profile.Sample{Mode: profile.CPU, Weight: int64(10 * time.Millisecond)}, "", at)
	}
	got := r.done().report()
	const want = "Together the threads used 200 % of a CPU, and 75 % of the samples are in Shop.Cache.Find."
	if text := strings.Join(got.Missing, " "); len(got.Verdicts) > 0 || !strings.Contains(text, "like 99 others") ||
		!strings.Contains(text, want) {
		t.Errorf("%v, %q", got.Verdicts, text)
	}
}

// collected records pauses, and allocations of objects of a size.
func collected(pauses int, each time.Duration, what string, bytes, size int64) *evidence {
	r := same(4, running(1, "Shop.Images.Load")).recorded(2, profile.GC, profile.Alloc)
	for i := range pauses {
		r.add(1, profile.Sample{Mode: profile.GC, At: time.Duration(i) * time.Millisecond, Weight: int64(each),
			Events: 1}, what)
	}
	r.add(1, profile.Sample{Mode: profile.Alloc, Weight: bytes, Events: bytes / size}, "byte[]", "Shop.Images.Load")
	return r.done()
}

func TestGC(t *testing.T) {
	const gen0, large = "gen 0, blocking, allocation", "gen 2, background, large-object allocation"
	verdict(t, of(limits.GC)(collected(40, 10*time.Millisecond, gen0, 1<<30, 100)), profile.CauseGC, profile.Likely,
		"400 ms of 2.0 s (20 %)", "512 MiB a second", "byte[]", "Shop.Images.Load")
	verdict(t, of(limits.GC)(collected(70, 10*time.Millisecond, gen0, 1<<30, 100)), profile.CauseGC, profile.Certain)
	verdict(t, of(limits.GC)(collected(10, 5*time.Millisecond, large, 1<<30, 200_000)), profile.CauseGC, profile.Likely,
		"85,000 bytes and more", "195 KiB each")

	// The program asks for collections; a busy machine is no excuse.
	const induced = "gen 2, blocking, induced"
	verdict(t, of(limits.GC)(collected(20, 10*time.Millisecond, induced, 1<<20, 100)), profile.CauseGC, profile.Likely,
		"asks for 10.0 full garbage collections a second", "all of them full ones")
	none(t, of(limits.GC)(collected(20, 2*time.Millisecond, induced, 1<<20, 100)))

	// The heap may not grow, whatever the limit is.
	const noSpace = "gen 2, blocking, out of space"
	verdict(t, of(limits.GC)(collected(20, 5*time.Millisecond, noSpace, 1<<20, 100)), profile.CauseMemoryPressure,
		profile.Likely, "20 of 20 collections in 2.0 s", "no space was left")

	none(t, of(limits.GC)(collected(40, 5*time.Millisecond, gen0, 4<<30, 100)))
	none(t, of(limits.GC)(collected(2, 200*time.Millisecond, gen0, 1<<30, 100)))
	none(t, of(limits.GC)(collected(10, 5*time.Millisecond, large, 50<<20, 200_000)))
	none(t, of(limits.GC)(collected(1, 5*time.Millisecond, large, 1<<30, 200_000)))
	none(t, of(limits.GC)(same(4)))
}

// thrownIn records a number of exceptions in each half of two seconds.
func thrownIn(first, second int) *evidence {
	r := same(4).recorded(2, profile.Exception)
	for i, n := range []int{first, second} {
		at := time.Duration(i)*time.Second + 500*time.Millisecond
		r.add(1, profile.Sample{Mode: profile.Exception, At: at, Weight: int64(n), Events: int64(n)},
			"System.FormatException", "Shop.Prices.Parse", "Shop.Prices.Import")
	}
	return r.done()
}

func TestExceptions(t *testing.T) {
	verdict(t, judgeExceptions(thrownIn(2000, 3000)), profile.CauseExceptions, profile.Certain,
		"2,500 exceptions a second", "System.FormatException", "Shop.Prices.Parse")
	verdict(t, judgeExceptions(thrownIn(400, 400)), profile.CauseExceptions, profile.Likely)
	none(t, judgeExceptions(thrownIn(200, 200)))
	none(t, judgeExceptions(thrownIn(5000, 0))) // at the start
	none(t, judgeExceptions(same(4)))
}

// rethrown records an exception with an end, and a number of rethrows, in two seconds.
func rethrown(fate string, times int64, callers ...string) *evidence {
	r := same(4).recorded(2, profile.Exception)
	r.add(1, profile.Sample{Mode: profile.Exception, At: time.Second, Weight: 1, Events: 1},
		"System.FormatException", callers...)
	e := r.done()
	e.Samples.Modes[0].Rethrown = times
	for i := range e.Samples.Functions {
		if f := &e.Samples.Functions[i]; f.Display == "System.FormatException" {
			f.Fate = fate
		}
	}
	return e
}

func TestRethrown(t *testing.T) {
	const now = profile.CaughtBy + "Shop.Prices.Import"
	const before = profile.UnseenThrow + now
	lazy := []string{"System.Lazy<int>.CreateValue", "Shop.Prices.Parse", "Shop.Prices.Import"}
	verdict(t, judgeRethrown(rethrown(before, 160, lazy...)), profile.CauseExceptions, profile.Likely,
		"80 times a second", "System.FormatException", "below Shop.Prices.Parse", "caught in Shop.Prices.Import",
		"A Lazy keeps the exception")
	none(t, judgeRethrown(rethrown(now, 160, lazy...)))   // a new exception, through many awaits
	none(t, judgeRethrown(rethrown(before, 10, lazy...))) // an exception of before, through some awaits
	none(t, judgeRethrown(same(4)))
}

func TestThrottled(t *testing.T) {
	e := same(4)
	group := func(periods, throttled uint64, stood time.Duration) cgroup.State {
		return cgroup.State{
			CPU: []cgroup.CPU{{Group: "/shop", Quota: 0.5, Periods: periods, Throttled: throttled, Stood: stood}}}
	}
	e.Moments = []gather.Moment{{Groups: group(100, 50, time.Second)},
		{At: 4 * time.Second, Groups: group(140, 80, 3*time.Second)}}
	verdict(t, of(limits.Throttled)(e), profile.CauseThrottled, profile.Certain, "0.5 CPUs", "75 %",
		"2.0 s in 4.0 s", "/shop")
	e.Moments[1].Groups = group(140, 55, 1100*time.Millisecond)
	none(t, of(limits.Throttled)(e))
	e.Moments[1].Groups = group(140, 80, 1100*time.Millisecond)
	none(t, of(limits.Throttled)(e)) // often, but briefly
}

func TestMemory(t *testing.T) {
	e := same(4)
	group := func(used, pages int64, hits, kills uint64) cgroup.State {
		return cgroup.State{
			Memory: []cgroup.Memory{{Group: "/shop", Max: 1000 << 20, Used: used << 20, Reclaim: pages << 20,
				Hits: hits, Kills: kills}}}
	}
	e.Moments = []gather.Moment{{Groups: group(900, 0, 5, 1)}, {At: 4 * time.Second, Groups: group(980, 10, 25, 1)}}
	verdict(t, of(limits.Memory)(e), profile.CauseMemoryPressure, profile.Certain, "970 MiB of 1000 MiB", "20 times")
	e.Moments[1].Groups = group(999, 400, 25, 1)
	none(t, of(limits.Memory)(e)) // files that were read
	e.Moments[1].Groups = group(980, 10, 5, 1)
	verdict(t, of(limits.Memory)(e), profile.CauseMemoryPressure, profile.Possible, "970 MiB of 1000 MiB",
		"not reached")
	e.Moments[1].Groups = group(940, 10, 5, 1)
	none(t, of(limits.Memory)(e)) // much, but enough
	e.Moments[1].Groups = group(300, 10, 5, 2)
	none(t, of(limits.Memory)(e)) // a group below had too little
	e.Moments[1].Groups = group(980, 10, 25, 2)
	verdict(t, of(limits.Memory)(e), profile.CauseMemoryPressure, profile.Certain, "killed 1 process")
	e.Ended = true
	verdict(t, of(limits.Memory)(e), profile.CauseMemoryPressure, profile.Likely, "970 MiB of the 1000 MiB",
		"the kernel has killed the process")
	e.Moments[1].Groups = group(300, 10, 25, 2)
	none(t, of(limits.Memory)(e)) // the process has ended for another reason
}

func TestDescriptors(t *testing.T) {
	e := same(4)
	files := func(n int) []gather.Moment {
		return []gather.Moment{{Files: n - 10},
			{Files: n, FilesLimit: 1000, Kinds: map[string]int{"files in /tmp": n - 50, "pipes": 3}}}
	}
	e.Moments = files(995)
	verdict(t, of(limits.Descriptors)(e), profile.CauseDescriptors, profile.Certain, "995 of the 1,000",
		"945 of them are files in /tmp")
	e.Moments = files(930)
	verdict(t, of(limits.Descriptors)(e), profile.CauseDescriptors, profile.Likely)
	e.Moments = files(850)
	none(t, of(limits.Descriptors)(e))
	e.Moments[1].FilesLimit = -1
	none(t, of(limits.Descriptors)(e))
}

// TestMoreDescriptors: descriptors that have become more since the start are told long before the limit.
func TestMoreDescriptors(t *testing.T) {
	for _, tt := range []struct {
		before, now int
		age         time.Duration
		said        bool
	}{
		{920, 1000, 50 * time.Second, true}, {920, 1000, 65 * time.Second, true},
		{920, 1000, 20 * time.Second, false}, {920, 1000, time.Hour, false}, {995, 1000, time.Hour, false},
		{100, 150, 12 * time.Second, false}, {1000, 1000, time.Minute, false}, {920, 1000, 0, false},
	} {
		e := same(4)
		e.Age = tt.age
		e.Moments = []gather.Moment{{Files: tt.before}, {At: 4 * time.Second, Files: tt.now, FilesLimit: 21_000,
			Kinds: map[string]int{"TCP connections to 10.0.0.9:5432": 980}}}
		if !tt.said {
			none(t, of(limits.Descriptors)(e))
			continue
		}
		verdict(t, of(limits.Descriptors)(e), profile.CauseDescriptors, profile.Possible, "1,000 are open",
			"80 more than 4.0 s before (20.0 a second)", "the limit of 21,000 is reached in 17 min",
			"TCP connections to 10.0.0.9:5432: 980")
	}
}

// TestMoreHandlers: descriptors that become more with handlers of HttpClients are told with the handlers, and with what
// keeps these.
func TestMoreHandlers(t *testing.T) {
	e := same(4)
	e.Age = 50 * time.Second
	e.Moments = []gather.Moment{{Files: 920}, {At: 4 * time.Second, Files: 1000, FilesLimit: 21_000,
		Kinds: map[string]int{"tcp sockets to or from 127.0.0.1": 980}}}
	for i, n := range []uint64{400, 440} {
		h := gather.HeapLook{At: time.Duration(3*i) * time.Second, Heap: &snapshot.Heap{}}
		h.Types = append(h.Types, snapshot.HeapType{Name: "System.Net.Http.SocketsHttpHandler",
			HeapAmount: snapshot.HeapAmount{Count: n, Bytes: 80 * n}})
		e.Heaps = append(e.Heaps, h)
	}
	e.Handlers = &snapshot.HeapPath{Root: snapshot.RootStatic, Static: "Shop.Prices.clients",
		Steps: []snapshot.HeapStep{
			{Type: "System.Net.Http.HttpClient", Field: "_handler"}, {Type: "System.Net.Http.SocketsHttpHandler"},
		}}
	for range 490 {
		e.Sockets = append(e.Sockets, gather.Socket{Ours: true, Own: true})
	}
	verdict(t, of(limits.Descriptors)(e), profile.CauseDescriptors, profile.Possible,
		" 490 connections have both ends in this process, and so two descriptors each. There are 40 more "+
			"SocketsHttpHandler objects than 3.0 s before: each HttpClient with a handler of its own opens "+
			"connections of its own. They are kept by static field Shop.Prices.clients.",
		"The way to them: static field Shop.Prices.clients → ")
	r := e.recorded(3, profile.Alloc)
	r.add(1, profile.Sample{Mode: profile.Alloc, Weight: 1 << 17}, "System.Object",
		"System.Net.Http.SocketsHttpHandler..ctor", "Shop.Prices.Ask")
	verdict(t, of(limits.Descriptors)(r.done()), profile.CauseDescriptors, profile.Possible,
		"They are made in Shop.Prices.Ask.")
	e.Heaps[1].Types[0].HeapAmount.Count, e.Sockets = 404, e.Sockets[:30]
	if text := of(limits.Descriptors)(e)[0].Text; strings.Contains(text, "Handler") || strings.Contains(text, "both") {
		t.Error(text)
	}
}

// TestCalledMost: if a busy process spends most of the time below one method, what the method calls is told, with the
// native library. Nothing is told of own code, of an idle process, or of time below many methods.
func TestCalledMost(t *testing.T) {
	deflate := []string{"libz.so.1!deflate_slow", "libz.so.1!deflate", "System.IO.Compression.Deflater.Deflate",
		"System.IO.Compression.GZipStream.Write", "Shop.Report.Write"}
	for _, tt := range []struct {
		name string
		used float64 // CPUs, of two
		rest []string
		says string // "": nothing
	}{
		{"busy", 1.8, []string{"Shop.Orders.Add"},
			"60 % of the CPU time is in System.IO.Compression.Deflater.Deflate (native code of libz), called by " +
				"Shop.Report.Write."},
		{"several ways", 1.8, append([]string{"System.IO.Stream.Copy"}, deflate[3:]...),
			"100 % of the CPU time is in System.IO.Compression.GZipStream.Write, called by Shop.Report.Write."},
		{"idle", 0.4, []string{"Shop.Orders.Add"}, ""},
		{"own code", 1.8, []string{"Shop.Report.Write"}, ""},
	} {
		e := same(4, running(1, "Shop.Report.Write"))
		e.CPUs = 2
		e.Moments = []gather.Moment{{}, {At: 4 * time.Second, CPU: time.Duration(tt.used * float64(4*time.Second))}}
		r := e.recorded(3, profile.CPU)
		for i := range 2 * gather.LeastRun {
			way := deflate
			if i%5 < 2 {
				way = tt.rest
			}
			r.add(1, profile.Sample{Mode: profile.CPU, Weight: int64(10 * time.Millisecond)}, "", way...)
		}
		c := activity.Of(&r.done().Evidence).CPU
		if c.NativeLibrary != "libz.so.1" {
			t.Errorf("%s: most native code is in %q", tt.name, c.NativeLibrary)
		}
		switch {
		case tt.says == "" && len(c.OfNote) > 0:
			t.Errorf("%s: %s", tt.name, c.OfNote[0].Text)
		case tt.says != "" && (len(c.OfNote) != 1 || !strings.HasPrefix(c.OfNote[0].Text, tt.says)):
			t.Errorf("%s: %+v", tt.name, c.OfNote)
		}
	}
}

// TestLongTexts: the method that makes long texts is told. A text may grow in a loop only if a few texts are joined.
func TestLongTexts(t *testing.T) {
	for signature, loop := range map[string]bool{
		"(string, string)": true, "(System.Collections.Generic.IEnumerable<string>)": false,
	} {
		e := same(4, running(1, "Shop.Report.Write"))
		e.Moments[1].CPU = time.Second
		r := e.recorded(3, profile.CPU, profile.Alloc)
		r.signature = signature
		for range gather.LeastRun {
			r.add(1, profile.Sample{Mode: profile.CPU, Weight: int64(10 * time.Millisecond)}, "", "Shop.Report.Write")
			r.add(1, profile.Sample{Mode: profile.Alloc, Weight: 10 << 20, Events: 640}, "string",
				"System.String.Concat", "Shop.Report.Write")
		}
		list := activity.Of(&r.done().Evidence).CPU.OfNote
		if len(list) != 1 || !strings.Contains(list[0].Text, "are strings of 16.0 KiB on average, most of them made "+
			"by System.String.Concat in Shop.Report.Write.") ||
			strings.Contains(list[0].Text, " Perhaps a text grows in a loop") != loop {
			t.Errorf("%s: %+v", signature, list)
		}
	}
}

func TestGrowth(t *testing.T) {
	handlers := heapwalk.Pile{Kind: heapwalk.Event, Type: "System.EventHandler<long>", Element: "Shop.PriceAlert"}
	e := same(4)
	e.piled(handlers, 5000, 8000)
	verdict(t, judgeGrowth(e), profile.CauseHeapGrowth, profile.Likely, "8,000 handlers", "3,000 more",
		"1,000 a second", "Shop.PriceAlert")
	e.Kept = []gather.KeptPile{{Pile: handlers, Path: &snapshot.HeapPath{
		Root: snapshot.RootStatic, Static: "Shop.Alerts.Changed", Steps: []snapshot.HeapStep{{Type: handlers.Type}},
	}}}
	verdict(t, judgeGrowth(e), profile.CauseHeapGrowth, profile.Certain, "kept by static field Shop.Alerts.Changed",
		"static field Shop.Alerts.Changed → System.EventHandler<long>")
	e.Kept = nil
	e.piled(handlers, 5000, 5060)
	verdict(t, judgeGrowth(e), profile.CauseHeapGrowth, profile.Possible, "60 more")
	for _, counts := range [][2]int{{5000, 5020}, {200, 800}, {5000, 4000}} {
		e.piled(handlers, counts[0], counts[1])
		none(t, judgeGrowth(e))
	}
	e.Heaps = e.Heaps[:1]
	none(t, judgeGrowth(e))
}

// piled makes a heap grow within three seconds.
func (e *evidence) piled(p heapwalk.Pile, before, after int) {
	e.Heaps = nil
	for i, n := range []int{before, after} {
		h := gather.HeapLook{At: time.Duration(3*i) * time.Second, Heap: &snapshot.Heap{}}
		p.Count = n
		h.Piles = []heapwalk.Pile{p}
		h.Types = []snapshot.HeapType{{Name: "Shop.PriceAlert"}}
		h.Types[0].Generations[snapshot.Gen2] = snapshot.HeapAmount{Count: uint64(n), Bytes: uint64(n) * 1024}
		e.Heaps = append(e.Heaps, h)
	}
}

// TestGrowthOfCollections: a collection that has grown all the time is told, if something keeps the collection. Not
// told are a collection that fills up and stays, a collection of a program that has just started, and temporary work.
func TestGrowthOfCollections(t *testing.T) {
	orders := heapwalk.Pile{Kind: heapwalk.Collection, Type: "System.Collections.Generic.Dictionary<int, Shop.Order>",
		Element: "Shop.Order"}
	timers := heapwalk.Pile{Kind: heapwalk.Timers, Type: "System.Threading.TimerQueue"}
	path := &snapshot.HeapPath{Root: snapshot.RootStatic, Static: "Shop.Orders.all",
		Steps: []snapshot.HeapStep{{Type: orders.Type}}}
	for _, tt := range []struct {
		name          string
		of            heapwalk.Pile
		age           time.Duration
		before, after int
		kept          bool
		want          profile.Certainty // "": nothing is said
	}{
		{"a leak", orders, time.Hour, 359_700, 360_000, true, profile.Likely}, // a hundred a second
		{"a leak of a young program", orders, 2 * time.Minute, 12_000, 12_300, true, profile.Possible},
		{"timers", timers, time.Hour, 359_700, 360_000, true, profile.Likely},
		{"nothing keeps it", orders, time.Hour, 359_700, 360_000, false, ""},
		{"a cache that is being filled", orders, 20 * time.Second, 2_000, 2_300, true, ""},
		{"a young cache that fills more slowly", orders, 30 * time.Second, 2_700, 2_850, true, ""},
		{"a list of a young program", orders, 31 * time.Second, 1_350, 1_500, true, profile.Possible},
		{"a cache that is nearly full", orders, time.Hour, 300_000, 303_100, true, ""},
		{"a cache that is full", orders, time.Hour, 300_000, 300_000, true, ""},
		{"the work of a minute", orders, time.Hour, 5_700, 6_000, true, ""},
		{"few", orders, time.Hour, 500, 700, true, ""},
		{"of unknown age", orders, 0, 359_700, 360_000, true, ""},
	} {
		e := same(4)
		e.Age = tt.age
		e.piled(tt.of, tt.before, tt.after)
		if tt.kept {
			e.Kept = []gather.KeptPile{{Pile: tt.of, Path: path}}
		}
		got := judgeGrowth(e)
		switch {
		case tt.want == "" && len(got) > 0:
			t.Errorf("%s: %s", tt.name, got[0].Text)
		case tt.want != "" && (len(got) != 1 || got[0].Certainty != tt.want):
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	e := same(4)
	e.Age, e.Kept = time.Hour, []gather.KeptPile{{Pile: orders, Path: path}}
	e.piled(orders, 359_700, 360_000)
	verdict(t, judgeGrowth(e), profile.CauseHeapGrowth, profile.Likely, "360,000 elements, 300 more", "60 min ago",
		"kept by static field Shop.Orders.all")
	// The program's own collection says more than a collection of .NET that grows along.
	ids := orders
	ids.Type, ids.Element, ids.At = "System.Collections.Generic.Dictionary<int, bool>", "bool", 0x40
	for i, n := range []int{359_600, 360_000} {
		ids.Count = n
		e.Heaps[i].Piles = append(e.Heaps[i].Piles, ids)
	}
	e.Kept = append([]gather.KeptPile{{Pile: ids, Path: &snapshot.HeapPath{Root: snapshot.RootStatic,
		Static: "System.Threading.ThreadLocal`1.s_ids", Steps: []snapshot.HeapStep{{Type: ids.Type}}}}}, e.Kept...)
	verdict(t, judgeGrowth(e), profile.CauseHeapGrowth, profile.Likely, "kept by static field Shop.Orders.all",
		"Grows as well: ")
	e.Kept = e.Kept[1:]
	faults := []snapshot.TaskFault{
		{Count: 1, Method: "Shop.Clock.Tick{async}", Exception: &snapshot.ExceptionInfo{Type: "System.Exception"}},
		{Count: 1, Method: "Shop.Orders.Send{async}",
			Exception: &snapshot.ExceptionInfo{Type: "System.IO.IOException"}},
	}
	e.Flights = []gather.FlightLook{{InFlight: &requests.InFlight{Tasks: &snapshot.Tasks{Methods: 1, Faults: faults}}}}
	verdict(t, judgeGrowth(e), profile.CauseHeapGrowth, profile.Likely,
		"Shop.Orders.Send{async}, a method of the class that keeps it, has ended with System.IO.IOException.",
		"1 call of Shop.Orders.Send{async}")
	e.Flights = nil
	// Work that waits for a worker of the pool is not piled up by the program.
	e.Kept[0].Path = &snapshot.HeapPath{Root: snapshot.RootStatic, Static: "System.Threading.ThreadPool.s_workQueue"}
	none(t, judgeGrowth(e))
	// On a long path, the program's own code knows the end.
	long := &snapshot.HeapPath{Root: snapshot.RootStatic, Static: "System.Signals.all"}
	for range 30 {
		long.Steps = append(long.Steps, snapshot.HeapStep{Type: "System.Action", Field: "_target"})
	}
	long.Steps = append(long.Steps, snapshot.HeapStep{Type: "Shop.Book", Field: "orders"},
		snapshot.HeapStep{Type: orders.Type})
	e.Kept[0].Path = long
	verdict(t, judgeGrowth(e), profile.CauseHeapGrowth, profile.Likely,
		"The objects are in field Shop.Book.orders.", "→ … → System.Action._target",
		"→ Shop.Book.orders → "+orders.Type)
	if c := judgeGrowth(e)[0].Commands; len(c) != 2 || !strings.HasSuffix(c[1], `--roots '^Shop\.Order$'`) {
		t.Errorf("%q", c)
	}
}

// TestLittleCPU: a process whose threads are ready to run and get little CPU time is told the figures, and who used the
// rest if that was others. Threads that share all CPUs that the process may use are not starved.
func TestLittleCPU(t *testing.T) {
	for _, tt := range []struct {
		name       string
		threads    int
		ran, ready float64 // of the time, each
		idle       float64 // CPUs of the machine
		says       string  // "": nothing
	}{
		{"beside others", 10, 0.02, 0.9, 0,
			"on average 9.0 threads were ready to run and had no CPU (98 % of their time), while 0.20 CPUs were " +
				"used. Other programs used 1.80 of the machine's 2 CPUs."},
		{"alone", 10, 0.2, 0.8, 0, ""},
		{"one of two CPUs may be used", 10, 0.1, 0.9, 1,
			"on average 9.0 threads were ready to run and had no CPU (90 % of their time), while 1.00 CPUs were used."},
		{"idle", 10, 0, 0, 1.9, ""},
		{"one thread on a busy machine", 1, 0.5, 0.3, 0, ""},
	} {
		var threads []snapshot.Thread
		for i := range tt.threads {
			threads = append(threads, running(10+i, "Shop.Orders.Add"))
		}
		e := same(4, threads...)
		for i := range tt.threads {
			e.runs(10+i, tt.ran, tt.ready)
		}
		e.CPUs = 2
		cpus := func(n float64) time.Duration { return time.Duration(n * float64(4*time.Second)) }
		e.Moments = []gather.Moment{{}, {At: 4 * time.Second, CPU: cpus(tt.ran * float64(tt.threads)),
			Idle: cpus(tt.idle)}}
		list := activity.Of(&e.Evidence).CPU.OfNote
		switch {
		case tt.says == "" && len(list) > 0:
			t.Errorf("%s: %s", tt.name, list[0].Text)
		case tt.says != "" && (len(list) != 2 || !strings.HasSuffix(list[0].Text, tt.says)):
			t.Errorf("%s: %+v", tt.name, list)
		case tt.says != "" && (len(list[1].Threads) != 10 || len(list[1].Frames) == 0 ||
			!strings.HasPrefix(list[1].Text,
				"10 threads were ready to run nearly all the time, in Shop.Orders.Add in 4 of 4 looks.")):
			t.Errorf("%s: %+v", tt.name, list[1])
		}
	}
}

// TestStandReady: the looks tell where starved threads stand. Not told are threads that move, wait or are told by
// samples, and looks without a stack do not count.
func TestStandReady(t *testing.T) {
	looks := make([][]snapshot.Thread, 4)
	for i := range looks {
		bare := running(5)
		bare.Complete = i > 1
		if i > 1 {
			bare = running(5, "Shop.Orders.Add")
		}
		looks[i] = []snapshot.Thread{
			running(1, "Shop.Orders.Add"), running(2, "Shop.Cache.Find"), running(3, []string{"Shop.A", "Shop.B"}[i%2]),
			running(4, "Shop.Cache.Find"), bare,
		}
	}
	e := looksAt(looks...).runs(1, 0.01, 0.98).runs(2, 0.2, 0.79).runs(3, 0.01, 0.98).runs(4, 0.01, 0.2).
		runs(5, 0.01, 0.98)
	e.CPUs = 4
	e.Moments = []gather.Moment{{}, {At: 4 * time.Second, CPU: time.Second}}
	r := e.recorded(3, profile.CPU)
	for range gather.LeastRun {
		r.add(2, profile.Sample{Mode: profile.CPU, Weight: int64(10 * time.Millisecond)}, "", "Shop.Cache.Find")
	}
	list := activity.Of(&r.done().Evidence).CPU.OfNote
	if len(list) != 2 || !strings.Contains(list[1].Text, "2 threads were ready to run nearly all the time, in "+
		"Shop.Orders.Add in 2 of 4 looks.") {
		t.Errorf("%+v", list)
	}
}

// TestGrowthOfLists: a linked list that is no collection of .NET is told if the list has grown all the time, and what
// is in the list is not. Own objects that are kept otherwise are less certain. Objects are not told if most of them are
// garbage.
func TestGrowthOfLists(t *testing.T) {
	path := &snapshot.HeapPath{Root: snapshot.RootStatic, Static: "Shop.Drawing.last",
		Steps: []snapshot.HeapStep{{Type: "Shop.Step", Field: "before"}, {Type: "Shop.Step"}}}
	dropped := &snapshot.HeapPath{Root: snapshot.RootUnknown, Steps: path.Steps}
	for _, tt := range []struct {
		name        string
		kept, steps int
		path        *snapshot.HeapPath
		age         time.Duration
		said        profile.Certainty // "": nothing
	}{
		{"a list", 6000, 6001, path, 30 * time.Second, profile.Likely},
		{"a list with two ends", 6000, 3001, path, 30 * time.Second, profile.Likely},
		{"an index", 6000, 14, path, 30 * time.Second, profile.Possible},
		{"an index that fills up", 6000, 14, path, 55 * time.Second, ""},
		{"garbage", 5100, 5101, path, 30 * time.Second, ""},
		{"nothing keeps it", 6000, 6001, dropped, 30 * time.Second, ""},
		{"a list of a start", 6000, 6001, path, 10 * time.Second, ""},
		{"a list that is nearly full", 6000, 6001, path, 10 * time.Minute, ""},
	} {
		e := same(4)
		e.Age = tt.age
		for i, n := range []uint64{5400, 6000} {
			h := gather.HeapLook{At: time.Duration(3*i) * time.Second, Heap: &snapshot.Heap{}}
			for _, of := range []struct{ name, assembly string }{
				{"Shop.Picture", "Shop"}, {"Shop.Step", "Shop"}, {"byte[]", "System.Private.CoreLib"},
			} {
				h.Types = append(h.Types, snapshot.HeapType{Name: of.name, Assembly: of.assembly,
					HeapAmount: snapshot.HeapAmount{Count: n, Bytes: 100 * n}})
			}
			e.Heaps = append(e.Heaps, h)
		}
		for i, name := range []string{"byte[]", "Shop.Step", "Shop.Picture"} {
			e.Rows = append(e.Rows, heapwalk.Row{Type: name, Count: tt.kept, Steps: tt.steps + i - 1, Path: tt.path,
				Bytes: 18 << 20})
		}
		if tt.said == "" {
			if got := judgeGrowth(e); len(got) > 0 {
				t.Errorf("%s: %s", tt.name, got[0].Text)
			}
			continue
		}
		says := []string{"600 more than 3.0 s before (200 a second)", "keep 18.0 MiB", "field Shop.Step.before"}
		if tt.said == profile.Likely {
			says = append(says, "6,000 objects of Shop.Step", phrase.Number(int64(tt.steps))+" references")
		} else {
			says = append(says, "6,000 objects of Shop.Picture are kept")
		}
		verdict(t, judgeGrowth(e), profile.CauseHeapGrowth, tt.said, says...)
	}
}

// TestGrowthOfCalls: a list of async methods that await one another is told as such, with the method that awaits
// itself.
func TestGrowthOfCalls(t *testing.T) {
	e := same(4)
	e.Age = 30 * time.Second
	for i, n := range []uint64{5400, 6000} {
		e.Heaps = append(e.Heaps, gather.HeapLook{At: time.Duration(3*i) * time.Second,
			Heap: &snapshot.Heap{Types: []snapshot.HeapType{
				{Name: "Shop.Try", Assembly: "Shop", HeapAmount: snapshot.HeapAmount{Count: n, Bytes: 100 * n}},
			}}})
	}
	e.Rows = []heapwalk.Row{{Type: "Shop.Try", Count: 6000, Steps: 6001, Bytes: 18 << 20, Path: &snapshot.HeapPath{
		Root: snapshot.RootStatic, Static: "System.Threading.TimerQueue.<Instances>k__BackingField",
		Steps: []snapshot.HeapStep{
			{Type: "System.Runtime.CompilerServices.Continuation"}, {Type: "Shop.Try"},
		},
	}}}
	calls := func(n int) {
		c := snapshot.TaskChain{Count: 1}
		for range n {
			c.Frames = append(c.Frames, snapshot.Frame{Kind: snapshot.Async, Method: "Shop.Link.Connect",
				Display: "Shop.Link.Connect", Module: "Shop"})
		}
		e.Flights = []gather.FlightLook{{InFlight: &requests.InFlight{
			Tasks: &snapshot.Tasks{Chains: []snapshot.TaskChain{c}},
		}}}
	}
	calls(60)
	verdict(t, judgeGrowth(e), profile.CauseHeapGrowth, profile.Likely,
		"6,000 objects of Shop.Try are kept by async methods that await one another",
		"Shop.Link.Connect awaits itself, 60 calls deep or deeper")
	calls(20)
	verdict(t, judgeGrowth(e), profile.CauseHeapGrowth, profile.Likely, "are kept in a linked list")
}

// TestGrowthOfAssemblies: assemblies that have become more all the time are told, with the place that loads assemblies.
// Not told are assemblies of a start, and assemblies that nothing keeps and that the next collection unloads.
func TestGrowthOfAssemblies(t *testing.T) {
	for _, tt := range []struct {
		name   string
		counts [2]uint64
		root   snapshot.HeapRoot
		age    time.Duration
		told   bool
	}{
		{"ten a second", [2]uint64{270, 300}, snapshot.RootHandle, 30 * time.Second, true},
		{"two", [2]uint64{298, 300}, snapshot.RootHandle, 30 * time.Second, false},
		{"a first request", [2]uint64{94, 100}, snapshot.RootHandle, 55 * time.Second, false},
		{"few", [2]uint64{10, 40}, snapshot.RootHandle, 30 * time.Second, false},
		{"a start", [2]uint64{270, 300}, snapshot.RootHandle, 10 * time.Second, false},
		{"unloaded", [2]uint64{270, 300}, snapshot.RootUnknown, 30 * time.Second, false},
	} {
		e := same(4)
		e.Age = tt.age
		for i, n := range tt.counts {
			e.Heaps = append(e.Heaps, gather.HeapLook{At: time.Duration(3*i) * time.Second, Heap: &snapshot.Heap{
				Types: []snapshot.HeapType{{Name: gather.AssemblyClass, Assembly: "System.Private.CoreLib",
					HeapAmount: snapshot.HeapAmount{Count: n, Bytes: 100 * n}}},
			}})
		}
		e.Rows = []heapwalk.Row{{Type: gather.AssemblyClass, Count: int(tt.counts[1]), Steps: 2,
			Path: &snapshot.HeapPath{Root: tt.root}}}
		r := e.recorded(3, profile.CPU)
		r.add(2, profile.Sample{Mode: profile.CPU, Weight: 1}, "", "System.Xml.Serialization.XmlSerializer..ctor",
			"Shop.Invoices.Write")
		e = r.done()
		if !tt.told {
			none(t, judgeAssemblies(e))
			continue
		}
		verdict(t, judgeAssemblies(e), profile.CauseHeapGrowth, profile.Possible, "300 are loaded and stay, 30 more "+
			"than 3.0 s before (10 a second)", "generated, in Shop.Invoices.Write")
	}
}

// TestGrowthUnkept: a collection that nobody is known to keep is told if own objects were added to the same collection.
func TestGrowthUnkept(t *testing.T) {
	grow := func(element string, at ...arch.Addr) *evidence {
		e := same(4)
		e.Age = 30 * time.Second
		for i, n := range []int{1350, 1500} {
			e.Heaps = append(e.Heaps, gather.HeapLook{At: time.Duration(3*i) * time.Second, Heap: &snapshot.Heap{},
				Piles: []heapwalk.Pile{{At: at[i], Kind: heapwalk.Collection, Count: n, Element: element,
					Type: "System.Collections.Generic.LinkedList<" + element + ">"}}})
		}
		return e
	}
	verdict(t, judgeGrowth(grow("Shop.Letter", 8, 8)), profile.CauseHeapGrowth, profile.Possible, "has 1,500 elements")
	none(t, judgeGrowth(grow("Shop.Letter", 8, 16)))
	none(t, judgeGrowth(grow("System.Uri", 8, 8)))
}

// TestGrowthOfHandles: handles are told by the class of most objects.
func TestGrowthOfHandles(t *testing.T) {
	e := same(4)
	e.Age = 30 * time.Second
	for i, n := range []int{5400, 6000} {
		e.Heaps = append(e.Heaps, gather.HeapLook{At: time.Duration(3*i) * time.Second, Heap: &snapshot.Heap{},
			Piles: []heapwalk.Pile{{Kind: heapwalk.Handles, Count: n, Element: "byte[]"}}})
	}
	verdict(t, judgeGrowth(e), profile.CauseHeapGrowth, profile.Possible, "6,000 handles, such as GCHandles, keep an "+
		"object each, 600 more than 3.0 s before (200 a second), most often of the type byte[]")
}

func TestHeapLimit(t *testing.T) {
	heap := func(used uint64) gather.HeapLook {
		h := &snapshot.Heap{Parts: []snapshot.HeapPart{{Size: used << 20}},
			Types: []snapshot.HeapType{{Name: "byte[]"}}}
		h.Types[0].Generations[snapshot.Gen0] = snapshot.HeapAmount{Count: 1, Bytes: 5 << 20}
		h.Types[0].Generations[snapshot.Gen2] = snapshot.HeapAmount{Count: 1, Bytes: (used - 5) << 20}
		return gather.HeapLook{Heap: h}
	}
	full := func(e *evidence, used uint64) *evidence {
		e.Heaps, e.HeapLimit = []gather.HeapLook{heap(used), heap(used + 2)},
			gather.HeapLimit{Bytes: 100 << 20, Source: "DOTNET_GCHeapHardLimit"}
		return e
	}
	const gen0, gen2 = "gen 0, blocking, allocation", "gen 2, blocking, allocation"
	verdict(t, of(limits.HeapLimit)(full(collected(20, 5*time.Millisecond, gen2, 1<<20, 100), 90)),
		profile.CauseMemoryPressure, profile.Certain, "90.0 MiB of 100 MiB", "10.0 full collections a second")
	assumed := full(collected(20, 5*time.Millisecond, gen2, 1<<20, 100), 90)
	assumed.HeapLimit = gather.LimitOf(134<<20, slices.Values([]string{"HOME=/"}))
	verdict(t, of(limits.HeapLimit)(assumed), profile.CauseMemoryPressure, profile.Likely, "about 100",
		"unless runtimeconfig.json")
	none(t, of(limits.HeapLimit)(full(collected(20, 5*time.Millisecond, gen0, 1<<20, 100), 90)))
	none(t, of(limits.HeapLimit)(full(collected(20, 5*time.Millisecond, gen2, 1<<20, 100), 60)))
	verdict(t, of(limits.HeapLimit)(full(same(4), 97)), profile.CauseMemoryPressure, profile.Likely)
	none(t, of(limits.HeapLimit)(full(same(4), 87))) // a part is new

	filled := full(same(4), 97)
	filled.Filling = &snapshot.HeapPath{Root: snapshot.RootStatic, Static: "Shop.SessionStore.sessions",
		Steps:   []snapshot.HeapStep{{Type: "byte[]"}},
		Objects: snapshot.HeapAmount{Count: 20_000, Bytes: 78 << 20}}
	verdict(t, of(limits.HeapLimit)(filled), profile.CauseMemoryPressure, profile.Likely,
		"20,000 objects of byte[] with 78.0 MiB were kept by static field Shop.SessionStore.sessions.")
}

func TestLimitOf(t *testing.T) {
	const group = 200 << 20
	for _, tt := range []struct {
		environ []string
		group   int64
		want    gather.HeapLimit
	}{
		{nil, 0, gather.HeapLimit{}},
		{nil, group, gather.HeapLimit{Bytes: 150 << 20, Source: "75 % of its control group's limit", Assumed: true}},
		{[]string{"COMPlus_GCHeapHardLimit=0x6400000"}, group, gather.HeapLimit{Bytes: 100 << 20,
			Source: "COMPlus_GCHeapHardLimit", Assumed: false}},
		{[]string{"COMPlus_GCHeapHardLimit=1", "DOTNET_GCHeapHardLimit=6400000"}, 0,
			gather.HeapLimit{Bytes: 100 << 20, Source: "DOTNET_GCHeapHardLimit", Assumed: false}},
		{[]string{"DOTNET_GCHeapHardLimitPercent=32"}, group,
			gather.HeapLimit{Bytes: 100 << 20, Source: "DOTNET_GCHeapHardLimitPercent", Assumed: true}},
		{[]string{"DOTNET_GCHeapHardLimitPercent=32"}, 0, gather.HeapLimit{}},
		{[]string{"DOTNET_GCHeapHardLimit=x", "GCHeapHardLimit=6400000"}, 0, gather.HeapLimit{}},
	} {
		if got := gather.LimitOf(tt.group, slices.Values(tt.environ)); got != tt.want {
			t.Errorf("%q: %+v", tt.environ, got)
		}
	}
}

// TestPairs: equal addresses identify a collection; a moved collection is the largest of the rest. An event gets a
// new delegate with each subscription.
func TestPairs(t *testing.T) {
	pileAt := func(at arch.Addr, kind heapwalk.PileKind, n int) heapwalk.Pile {
		return heapwalk.Pile{At: at, Kind: kind, Type: "T", Count: n}
	}
	before := []heapwalk.Pile{
		pileAt(1, heapwalk.Collection, 3000), pileAt(2, heapwalk.Collection, 2000),
		pileAt(3, heapwalk.Collection, 1000), pileAt(1, heapwalk.Event, 500),
	}
	now := []heapwalk.Pile{
		pileAt(2, heapwalk.Collection, 5000), pileAt(7, heapwalk.Collection, 3000), pileAt(9, heapwalk.Event, 600),
		pileAt(8, heapwalk.Collection, 1200), pileAt(6, heapwalk.Collection, 900),
	}
	got := map[arch.Addr]int{}
	for _, p := range gather.Pairs(before, now) {
		got[p.At] = p.Before
	}
	if want := map[arch.Addr]int{2: 2000, 7: 3000, 9: 500, 8: 1000}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestAgentsMemory: the memory that the look itself brings into the process is no growth of the process.
func TestAgentsMemory(t *testing.T) {
	e := same(1).recorded(2, profile.GC).done()
	e.Moments = []gather.Moment{{}, {At: 4 * time.Second}}
	e.Heaps = []gather.HeapLook{
		{Heap: &snapshot.Heap{Memory: &snapshot.Memory{Native: 100 << 20}}},
		{At: 4 * time.Second, Heap: &snapshot.Heap{
			Memory: &snapshot.Memory{Native: 120 << 20, Files: 3 << 20, Managed: 2 << 20},
		}},
	}
	want := snapshot.Memory{Native: 20 << 20, Managed: 2 << 20}
	if got := *activity.Of(&e.Evidence).MemoryGrown; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
