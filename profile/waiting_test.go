package profile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"clrsnap/snapshot"
)

// waitFrames are the frames for stacks of waiting threads, by a short name.
var waitFrames = map[string]Function{
	"main":  {Kind: snapshot.Managed, Module: "Shop", Method: "Shop.Program.Main"},
	"work":  {Kind: snapshot.Managed, Module: "Shop", Method: "Shop.Orders.Work"},
	"semi":  {Kind: snapshot.Managed, Module: coreLib, Method: "System.Threading.SemaphoreSlim.Wait"},
	"event": {Kind: snapshot.Managed, Module: coreLib, Method: "System.Threading.ManualResetEventSlim.Wait"},
	"task":  {Kind: snapshot.Managed, Module: coreLib, Method: "System.Threading.Tasks.Task.InternalWait"},
	"wait":  {Kind: snapshot.Managed, Module: coreLib, Method: "System.Threading.Monitor.Wait"},
	"enter": {Kind: snapshot.Managed, Module: coreLib, Method: "System.Threading.Monitor.Enter_Slowpath"},
	"sleep": {Kind: snapshot.Managed, Module: coreLib, Method: "System.Threading.Thread.Sleep"},
	"spin":  {Kind: snapshot.Managed, Module: coreLib, Method: "System.Threading.SpinWait.SpinOnceCore"},
	"stub":  {Kind: snapshot.Managed, Module: coreLib, Method: "IL_STUB_PInvoke"},
	"read":  {Kind: snapshot.Managed, Module: coreLib, Method: "System.IO.RandomAccess.ReadAtOffset"},
	"worker": {Kind: snapshot.Managed, Module: coreLib,
		Method: "System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart"},
	"lifo": {Kind: snapshot.Managed, Module: coreLib,
		Method: "System.Threading.LowLevelLifoSemaphore.WaitForSignal"},
	"monitor": {Kind: snapshot.Managed, Module: coreLib, Method: "Interop+Sys.LowLevelMonitor_Wait"},
	"lock":    {Kind: snapshot.Managed, Module: coreLib, Method: "System.Threading.Lock.TryEnterSlow"},
	"clr":     {Kind: snapshot.Native, Module: "libcoreclr.so"},
	"join":    {Kind: snapshot.Native, Module: "libcoreclr.so", Method: "ThreadNative_Join"},
	"order":   {Kind: snapshot.Native, Module: "libcoreclr.so", Display: "[Monitor.Enter Shop.Order]"},
	"pulse":   {Kind: snapshot.Native, Module: "libcoreclr.so", Display: "[Monitor.Wait Shop.Order]"},
	"permit":  {Kind: snapshot.Native, Module: "libcoreclr.so", Display: "[SemaphoreSlim.Wait]"},
	"gate":    {Kind: snapshot.Native, Module: "libcoreclr.so", Display: "[ManualResetEventSlim.Wait]"},
	"one":     {Kind: snapshot.Managed, Module: coreLib, Method: "System.Threading.WaitHandle.WaitOneNoCheck"},
	"cond":    {Kind: snapshot.Native, Module: "libc.so.6", Method: "pthread_cond_wait"},
	"pread":   {Kind: snapshot.Native, Module: "libc.so.6", Method: "__libc_pread64"},
	"own":     {Kind: snapshot.Native, Module: "libshop.so", Method: "pread64"},
	"futex":   {Kind: snapshot.Kernel, Module: "kernel", Method: "do_futex"},
}

// waitingStack adds the stack of a waiting thread, base first, and returns its leaf.
func waitingStack(b *Builder, text string) int32 {
	at := int32(0)
	for name := range strings.SplitSeq(text, ">") {
		f, ok := waitFrames[name]
		if !ok {
			f = Function{Kind: snapshot.Event, Display: name, Module: "Shop"}
		}
		f.Display += f.Method
		at = b.Child(at, b.Location(Location{Function: b.Function(f)}))
	}
	return at
}

func TestWaitingFor(t *testing.T) {
	for _, tt := range []struct {
		mode  Mode
		stack string
		want  WaitingFor
	}{
		{Wall, "main>work>semi>wait>clr>cond>futex", WaitingFor{Kind: snapshot.SemaphoreWait}},
		{Wall, "main>work>task>event>wait>clr", WaitingFor{Kind: snapshot.TaskWait}},
		{Wall, "main>work>clr>event>wait>clr", WaitingFor{Kind: snapshot.EventWait}},
		{Wall, "main>semi>clr>wait>clr", WaitingFor{Kind: snapshot.MonitorWait}}, // native code has called back
		{Wall, "main>work>sleep>spin", WaitingFor{Kind: snapshot.ThreadSleep}},
		{Wall, "main>event>spin>sleep>clr", WaitingFor{Kind: snapshot.EventWait}},
		{Wall, "main>spin>sleep>clr", WaitingFor{Kind: snapshot.ThreadSleep}},
		{Wall, "main>wait>stub>clr", WaitingFor{Kind: snapshot.MonitorWait}},
		{Wall, "main>work>join>clr>cond", WaitingFor{Kind: snapshot.ThreadJoin}}, // Thread.Join was inlined
		{Wall, "main>work>order>clr>cond", WaitingFor{Kind: snapshot.MonitorEnter, Type: "Shop.Order"}},
		{Wall, "main>enter>order>clr>cond", WaitingFor{Kind: snapshot.MonitorEnter, Type: "Shop.Order"}},
		{Wall, "main>work>clr>order>clr>cond", WaitingFor{Kind: snapshot.MonitorEnter, Type: "Shop.Order"}},
		{Wall, "main>work>clr>order>work>clr", WaitingFor{Kind: snapshot.WaitRuntime}},
		{Wall, "main>lock>monitor>cond", WaitingFor{Kind: snapshot.LockEnter}}, // .NET 11
		{Wall, "main>enter>lock>monitor>cond>order>futex", WaitingFor{snapshot.MonitorEnter, "Shop.Order", ""}},
		{Wall, "main>semi>pulse>clr>cond", WaitingFor{Kind: snapshot.SemaphoreWait}},
		{Wall, "main>work>permit>cond", WaitingFor{Kind: snapshot.SemaphoreWait}},
		{Wall, "main>work>one>permit>cond", WaitingFor{Kind: snapshot.SemaphoreWait}}, // the code between was inlined
		{Wall, "main>work>wait>gate>cond", WaitingFor{Kind: snapshot.EventWait}},      // inlined, too
		{Wall, "main>work>task>wait>gate>cond", WaitingFor{Kind: snapshot.TaskWait}},
		{Wall, "main>work>one>pulse>cond", WaitingFor{Kind: snapshot.MonitorWait, Type: "Shop.Order"}},
		{Wall, "main>work>one>cond", WaitingFor{Kind: snapshot.HandleOne}},
		{Wall, "main>work>clr>join>cond", WaitingFor{Kind: snapshot.WaitRuntime}}, // the method has not called this
		{Wall, "main>read>stub>pread>futex", WaitingFor{Kind: snapshot.WaitIO}},
		{Wall, "main>work>own>futex", WaitingFor{}}, // a library of the program's
		{Wall, "main>work>clr>cond", WaitingFor{Kind: snapshot.WaitRuntime}},
		{Wall, "worker>lifo>clr>cond", WaitingFor{Kind: snapshot.WaitIdle}},
		{Wall, "clr>cond", WaitingFor{Kind: snapshot.WaitRuntime}},
		{Wall, "cond", WaitingFor{}},
		{Waits, "worker>lifo>clr>idle", WaitingFor{Kind: snapshot.WaitIdle}},
		{Waits, "main>wait>Monitor.Wait Shop.Order", WaitingFor{snapshot.MonitorWait, "Shop.Order", "Shop"}},
		{Waits, "main>wait>Monitor.Wait A[B, C]", WaitingFor{snapshot.MonitorWait, "A[B, C]", "Shop"}},
		{Waits, "main>semi>SemaphoreSlim.Wait", WaitingFor{Kind: snapshot.SemaphoreWait}},
		{Waits, "main>other", WaitingFor{}},
		{Waits, "main>hostile text", WaitingFor{Type: "text", Module: "Shop"}},
		{Contention, "main>enter>lock Shop.Order #12>held by x", WaitingFor{snapshot.MonitorEnter, "Shop.Order",
			"Shop"}},
		{Contention, "main>clr>lock Shop.Order (others)>held by x", WaitingFor{snapshot.MonitorEnter, "Shop.Order",
			"Shop"}},
		{Contention, "main>lock of an unknown type>held by x", WaitingFor{Kind: snapshot.MonitorEnter}},
		{Contention, "main>enter>held by x", WaitingFor{Kind: snapshot.MonitorEnter}},
		{Contention, "held by x", WaitingFor{Kind: snapshot.MonitorEnter}},
	} {
		b := NewBuilder(Limits{})
		b.Thread(RecordedThread{})
		b.Add(Sample{Node: waitingStack(b, tt.stack), Mode: tt.mode, State: Waiting, Weight: 1})
		b.Add(Sample{Node: waitingStack(b, tt.stack), Mode: tt.mode, State: Running, Weight: 1})
		got := b.Recording().WaitSamples()
		if len(got) != 1 || !slices.Equal(got[tt.want], []int32{0}) {
			t.Errorf("%v %s: %v, want %v", tt.mode, tt.stack, got, tt.want)
		}
	}
}

// TestWaiterIsPrimitiveOf: waiter and PrimitiveOf agree on each stack.
func TestWaiterIsPrimitiveOf(t *testing.T) {
	names := slices.Sorted(maps.Keys(waitFrames))
	rng := rand.New(rand.NewPCG(1, 2))
	b := NewBuilder(Limits{})
	b.Thread(RecordedThread{})
	for range 3000 {
		var frames []string
		for range 1 + rng.IntN(7) {
			frames = append(frames, names[rng.IntN(len(names))])
		}
		b.Add(Sample{Node: waitingStack(b, strings.Join(frames, ">")), Mode: Wall, State: Waiting, Weight: 1})
	}
	r := b.Recording()
	w, kinds := r.waiter(), map[snapshot.WaitKind]int{}
	for i := range r.Samples {
		x := &r.Samples[i]
		var frames []snapshot.Frame
		for l := range r.Stack(x.Node) {
			f := &r.Functions[l.Function]
			frames = append(frames, snapshot.Frame{Kind: f.Kind, Module: f.Module, Method: f.Method})
		}
		want := snapshot.PrimitiveOf(frames).Kind
		got := w.kind(x.Node)
		if (want == snapshot.HandleOne || want == snapshot.MonitorWait) && w.saysMore(x.Node) {
			continue // the frames do not tell
		}
		if want != "" && got != want || want == "" && w.kinds[w.managed[x.Node]] != "" {
			t.Fatalf("%v: %q, want %q", frames, got, want)
		}
		kinds[want]++
	}
	if kinds[""] == 0 || kinds[snapshot.MonitorWait] == 0 || kinds[snapshot.TaskWait] == 0 {
		t.Errorf("the stacks are of no use: %v", kinds)
	}
}

func TestWaitTotals(t *testing.T) {
	b := NewBuilder(Limits{})
	b.Thread(RecordedThread{})
	add := func(stack string, state State, weight int64) {
		b.Add(Sample{Node: waitingStack(b, stack), Mode: Wall, State: state, Weight: weight})
	}
	add("main>work>semi>wait", Waiting, 5)
	add("main>semi>wait", Waiting, 7)
	add("main>work>semi", Waiting, 4)
	add("semi>wait", Waiting, 1)
	add("main>work>sleep", Waiting, 8)
	add("main>work", Running, 100)
	var got []string
	r := b.Recording()
	for _, x := range r.WaitTotals(Wall) {
		text := fmt.Sprintf("%v %d/%d", &x.WaitingFor, x.Waits.Weight, x.Waits.Samples)
		for _, m := range x.Methods {
			text += fmt.Sprintf(" %s %d", r.Functions[m.Function].Method, m.Waits.Weight)
		}
		got = append(got, text)
	}
	want := []string{
		"SemaphoreSlim.Wait 17/4 Shop.Orders.Work 9 Shop.Program.Main 7", "Thread.Sleep 8/1 Shop.Orders.Work 8",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := r.WaitTotals(CPU); got != nil {
		t.Errorf("of CPU time: %v", got)
	}
}

// TestByWait: the stacks of waiting threads gain one frame, and nothing else changes, idle threads included.
func TestByWait(t *testing.T) {
	b := NewBuilder(Limits{})
	b.Thread(RecordedThread{Role: "Finalizer"})
	stacks := map[string]State{
		"main>work>semi>wait": Waiting, "main>work": Running, "worker>lifo>clr>cond": Waiting, "clr>cond": Waiting,
		"main>work>sleep": Waiting,
	}
	for _, s := range slices.Sorted(maps.Keys(stacks)) {
		b.Add(Sample{Node: waitingStack(b, s), Mode: Wall, State: stacks[s], Weight: 3})
	}
	r := b.Recording()
	b.Hold(Hold{Node: r.Samples[0].Node, Lock: 0, Holder: 1})
	by := r.ByWait()
	want := []string{"[idle]", "[Thread.Sleep]", "[SemaphoreSlim.Wait]", "", "[idle]"}
	slices.Sort(want)
	var got []string
	for i := range by.Samples {
		x, was := &by.Samples[i], &r.Samples[i]
		stack, before := displays(by, x.Node), displays(r, was.Node)
		root := ""
		if x.State == Waiting {
			root = stack[len(stack)-1]
			stack = stack[:len(stack)-1]
		}
		got = append(got, root)
		if !slices.Equal(stack, before) || x.Weight != was.Weight || by.Idle(x) != r.Idle(was) {
			t.Errorf("%q, %v idle, was %q, %v idle", stack, by.Idle(x), before, r.Idle(was))
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if a, b := by.IdleTotals(Wall), r.IdleTotals(Wall); !slices.Equal(a, b) {
		t.Errorf("idle: %v, was %v", a, b)
	}
	if a, b := displays(by, by.Holds[0].Node), displays(r, r.Holds[0].Node); !slices.Equal(a, b) {
		t.Errorf("a holder at %q, was %q", a, b)
	}
	managed := by.Select(Selection{Managed: true})
	if stack := displays(managed, managed.Samples[0].Node); len(stack) == 0 ||
		!strings.HasPrefix(stack[len(stack)-1], "[") {
		t.Errorf("managed frames are %q", stack)
	}
}

func displays(r *Recording, node int32) (out []string) {
	for l := range r.Stack(node) {
		out = append(out, r.Functions[l.Function].Display)
	}
	return out
}
