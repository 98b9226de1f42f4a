package report

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"clrsnap/internal/profiletest"
	"clrsnap/snapshot"
)

func awaits(display, short string, line int) snapshot.Frame {
	f := snapshot.Frame{
		Kind: snapshot.Async, Method: display + ".MoveNext", Display: display, Short: short, Signature: "(int)",
		Module: "Shop",
	}
	if line > 0 {
		f.Line = &snapshot.SourceLine{File: "/src/Shop/Orders.cs", Line: line, Column: 9}
	}
	return f
}

// waitingMethods is the tasks of the synthetic process.
func waitingMethods() *snapshot.Tasks {
	load, handle := awaits("Shop.Stock.Load{async}", "Stock.Load{async}", 41), awaits("Shop.Orders.Handle{async}",
		"Orders.Handle{async}", 17)
	all := snapshot.Frame{
		Kind: snapshot.Async, Method: "System.Threading.Tasks.Task.WhenAll",
		Display: "System.Threading.Tasks.Task.WhenAll", Short: "Task.WhenAll", Module: coreLib,
	}
	return &snapshot.Tasks{
		Process: synthetic().Process, CapturedAt: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		Duration: 120 * time.Millisecond, Methods: 2510, Unproven: 3, Unread: 2, ConsistentShare: 0.98,
		Chains: []snapshot.TaskChain{
			{Count: 1201, State: snapshot.TaskWaiting, Frames: []snapshot.Frame{load, all, handle},
				WaitsFor: &snapshot.Awaited{
					Kind: snapshot.AwaitsSocket, Type: "System.Net.Sockets.Socket+AwaitableSocketAsyncEventArgs",
					Target: "recv tcp 10.1.2.3:41234 → 10.1.2.9:5432 established",
				}},
			{Count: 12, State: snapshot.TaskWaiting, Frames: []snapshot.Frame{handle}, WaitsFor: &snapshot.Awaited{
				Kind: snapshot.AwaitsTimer, Type: "System.Threading.Tasks.Task+DelayPromise",
				Due: 1500 * time.Millisecond, HasDue: true,
			}},
			{Count: 3, State: snapshot.TaskWaiting, Frames: []snapshot.Frame{handle}, WaitsFor: &snapshot.Awaited{
				Kind: snapshot.AwaitsSemaphore, Type: "System.Threading.SemaphoreSlim", Object: 0x7f10,
			}},
			{Count: 2, State: snapshot.TaskFaulted, Frames: []snapshot.Frame{load}, WaitsFor: &snapshot.Awaited{
				Kind: snapshot.AwaitsCompletion, Type: "System.Threading.Tasks.Task<evil\x1b>", Object: 0x7f20,
			}},
			{Count: 1, State: snapshot.TaskReady, Frames: []snapshot.Frame{load}, WaitsFor: &snapshot.Awaited{
				Kind: snapshot.AwaitsMethod, Type: "AsyncStateMachineBox", Target: "Shop.Stock.Read{async}",
			}},
			{Count: 1, State: snapshot.TaskWaiting, Frames: []snapshot.Frame{load}, WaitsFor: &snapshot.Awaited{
				Kind: snapshot.AwaitsYield,
			}},
			{Count: 1, State: snapshot.TaskReady, Frames: []snapshot.Frame{load}, WaitsFor: &snapshot.Awaited{
				Kind: snapshot.AwaitsYield,
			}},
			{Count: 1, State: snapshot.TaskWaiting, Frames: []snapshot.Frame{load}, WaitsFor: &snapshot.Awaited{
				Kind: snapshot.AwaitsMethod, Type: "RuntimeAsyncTask", Object: 0x7f30,
			}},
			{Count: 1, State: snapshot.TaskRunning, Frames: []snapshot.Frame{load, handle}},
			{Count: 5, State: snapshot.TaskRunning, Frames: []snapshot.Frame{handle}, Threads: []snapshot.ThreadRef{
				{OSThreadID: 4251, ManagedThreadID: 6, Name: "worker\x1b"}, {OSThreadID: 4252}, {OSThreadID: 4253},
				{OSThreadID: 4254}, {OSThreadID: 4255},
			}},
		},
		Pool: &snapshot.Pool{
			Workers: 14, Idle: 2, Minimum: 8, Maximum: 32767, Target: 12, Queued: 1204, HasWork: true,
			Work: []snapshot.QueuedWork{{Count: 1200, What: "Shop.Stock.Load{async}"},
				{Count: 4, What: "Shop.Evil\x1b"}},
		},
		Timers: []snapshot.Timer{
			{Count: 12, Callback: "Task.Delay", Due: -20 * time.Millisecond, HasDue: true},
			{Count: 5, Callback: "Task.WaitAsync", Due: -3 * time.Millisecond, HasDue: true},
			{Count: 1, Callback: "Shop.Cache", Due: 40 * time.Second, HasDue: true, Period: time.Minute},
		},
	}
}

func TestTasksText(t *testing.T) {
	for name, o := range map[string]TasksOptions{
		"plain": {}, "80-color": {Terminal: Terminal{Width: 80, Color: true}}, "rows": {Rows: 1},
	} {
		var b bytes.Buffer
		if err := TasksText(&b, waitingMethods(), o); err != nil {
			t.Fatal(err)
		}
		profiletest.Golden(t, "tasks-"+name+".txt", b.Bytes())
	}
}

// TestTasksTextCore: nothing changes during the reading of a dump. The text says
// what the dump lacks.
func TestTasksTextCore(t *testing.T) {
	tasks := waitingMethods()
	tasks.Process.Core = &snapshot.Core{Writer: "createdump", Missing: []string{"a page\x1b was needed"}}
	var b bytes.Buffer
	if err := TasksText(&b, tasks, TasksOptions{Rows: 1}); err != nil {
		t.Fatal(err)
	}
	profiletest.Golden(t, "tasks-core.txt", b.Bytes())
}

func TestTasksJSON(t *testing.T) {
	var b, indented bytes.Buffer
	if err := TasksJSON(&b, waitingMethods(), TasksOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	profiletest.Golden(t, "tasks.json", indented.Bytes())
}

// asyncThreads are threads that run async methods, as in stacks.
func asyncThreads() *snapshot.Snapshot {
	waited := snapshot.Frame{
		Kind: snapshot.Async, Method: "System.Threading.Tasks.Task.Wait", Display: "System.Threading.Tasks.Task.Wait",
		Short: "Task.Wait", Module: coreLib,
		Waiter: &snapshot.ThreadRef{OSThreadID: 4242, ManagedThreadID: 1, Name: "Shop\x1b"},
	}
	frames := []snapshot.Frame{
		managed("Shop", "Shop.Stock+<Load>d__1.MoveNext", "Shop.Stock.Load{async}", "Stock.Load{async}", "(int)"),
		awaits("Shop.Orders.Handle{async}", "Orders.Handle{async}", 17), waited,
		managed(coreLib, "System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1+AsyncStateMachineBox`1.MoveNext",
			"AsyncStateMachineBox<Shop.Stock.Load>.MoveNext", "AsyncStateMachineBox<Stock.Load>.MoveNext", "()"),
	}
	s := &snapshot.Snapshot{Process: synthetic().Process, CapturedAt: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)}
	s.Threads = []snapshot.Thread{{
		OSThreadID: 4250, ManagedThreadID: 5, ThreadID: 0x55d0_5000, Name: ".NET TP Worker", State: "running",
		Complete: true, Frames: append(frames, base()...),
	}}
	return s
}

func TestAsyncFrames(t *testing.T) {
	for name, o := range map[string]TextOptions{"plain": {}, "managed-ip": {Managed: true, IP: true}} {
		var b bytes.Buffer
		if err := Text(&b, asyncThreads(), o); err != nil {
			t.Fatal(err)
		}
		profiletest.Golden(t, "async-"+name+".txt", b.Bytes())
	}
	var b, indented bytes.Buffer
	if err := JSON(&b, asyncThreads()); err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	profiletest.Golden(t, "async.json", indented.Bytes())
}
