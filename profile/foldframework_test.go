package profile

import (
	"slices"
	"strings"
	"testing"

	"clrsnap/snapshot"
)

// web is the stack of a request, leaf first: from a thread to the program's code, and back to Kestrel. "n:" is native
// code, "own:" the program's, "package:" a package's.
var web = strings.Fields(`
	n:pthread_cond_wait
	n:
	System.Threading.Monitor.Wait
	own:Web.Orders.Hold
	package:Microsoft.AspNetCore.Extra.Middleware.Invoke
	Microsoft.AspNetCore.HostFiltering.HostFilteringMiddleware.Invoke
	Microsoft.AspNetCore.Server.Kestrel.Core.Internal.Http.HttpProtocol+<ProcessRequests>d__238.MoveNext
	System.Runtime.CompilerServices.AsyncMethodBuilderCore.Start
	System.Runtime.CompilerServices.AsyncTaskMethodBuilder.Start
	Microsoft.AspNetCore.Server.Kestrel.Core.Internal.Http.HttpProtocol.ProcessRequestsAsync
	System.Net.Sockets.SocketAsyncEngine.System.Threading.IThreadPoolWorkItem.Execute
	System.Threading.ThreadPoolWorkQueue.Dispatch
	System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart
	System.Threading.Thread.StartCallback
	n:start_thread`)

func framesOf(names []string) []snapshot.Frame {
	var out []snapshot.Frame
	for _, name := range names {
		f := snapshot.Frame{Kind: snapshot.Managed, Method: name, Display: name, Module: "System.Private.CoreLib"}
		if strings.HasPrefix(name, "Microsoft.AspNetCore.") {
			f.Module = "Microsoft.AspNetCore.Server.Kestrel.Core"
		}
		if where, rest, ok := strings.Cut(name, ":"); ok {
			f.Method, f.Display, f.Module = rest, rest, "Web"
			switch where {
			case "n":
				f.Kind, f.Module = snapshot.Native, "libc.so.6"
			case "package":
				f.Owner = snapshot.OfPackage
			}
		}
		out = append(out, f)
	}
	return out
}

func TestFolds(t *testing.T) {
	pool := []string{
		"System.Threading.ThreadPoolWorkQueue.Dispatch",
		"System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart", "System.Threading.Thread.StartCallback",
	}
	for _, c := range []struct {
		name  string
		stack []string
		want  []snapshot.Fold
	}{
		{"empty", nil, nil},
		{"native", []string{"n:a", "n:b"}, nil},
		{"request", web, []snapshot.Fold{{First: 5, Frames: 9, Parts: "pool → Kestrel → ASP.NET"}}},
		{"leaf", pool, nil},
		{"below a leaf", append([]string{"n:futex", "System.Threading.Tasks.Task.ExecuteEntry"}, pool...),
			[]snapshot.Fold{{First: 2, Frames: 3, Parts: "pool"}}},
		{"two", pool[1:], nil},
		{"two below own code", append([]string{"own:A.B"}, pool[1:]...), nil},
		{"thread", []string{
			"own:A.B", "System.Threading.ExecutionContext.RunInternal", "System.Threading.Thread+StartHelper.Run",
			"System.Threading.Thread.StartCallback",
		}, []snapshot.Fold{{First: 1, Frames: 3, Parts: "thread → tasks"}}},
		{"timer", []string{
			"own:A.B", "System.Threading.ExecutionContext.RunInternal", "System.Threading.TimerQueueTimer.Fire",
			"System.Threading.TimerQueue.FireNextTimers", "System.Threading.ThreadPoolWorkQueue.Dispatch",
			"System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart",
		}, []snapshot.Fold{{First: 1, Frames: 5, Parts: "pool → timer → tasks"}}},
		{"work of .NET's", slices.Concat([]string{"own:A.B", "System.Text.Json.JsonSerializer.Serialize"}, pool),
			[]snapshot.Fold{{First: 2, Frames: 3, Parts: "pool"}}},
		{"waits", slices.Concat([]string{
			"n:futex", "System.Threading.Monitor.Wait", "System.Threading.Tasks.Task.SpinThenBlockingWait",
			"System.Threading.Tasks.Task.InternalWaitCore", "own:A.B"}, pool),
			[]snapshot.Fold{{First: 5, Frames: 3, Parts: "pool"}}},
		{"awaits", []string{
			"own:A.C", "System.Threading.ExecutionContext.RunInternal",
			"System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1+AsyncStateMachineBox`1.MoveNext",
			"System.Threading.Tasks.AwaitTaskContinuation.RunOrScheduleAction",
			"System.Threading.Tasks.Task.RunContinuations", "System.Threading.Tasks.Task`1.TrySetResult", "own:A.B",
		}, []snapshot.Fold{{First: 1, Frames: 5, Parts: "tasks"}}},
		{"another's namespace", []string{
			"own:A.B", "own:Microsoft.AspNetCore.X", "own:Microsoft.AspNetCore.Y", "own:Microsoft.AspNetCore.Z",
		}, nil},
	} {
		if got := snapshot.Folds(framesOf(c.stack)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestFoldFramework: the stacks of a recording fold like the stacks of threads, and weights stay.
func TestFoldFramework(t *testing.T) {
	b := NewBuilder(Limits{})
	b.Thread(RecordedThread{OSThreadID: 1})
	stacks := [][]string{web, web[2:], web[3:], web[4:], web[5:], web[6:], web[11:], web[12:], nil}
	for i, names := range stacks {
		var locations []int32
		for _, f := range framesOf(names) {
			fn := Function{Kind: f.Kind, Method: f.Method, Display: f.Display, Module: f.Module, Owner: f.Owner}
			locations = append(locations, b.Location(Location{Function: b.Function(fn)}))
		}
		b.Add(Sample{Node: b.Stack(locations), Weight: 1 << i})
	}
	r := b.Recording()
	folded := r.FoldFramework()
	if len(folded.Samples) != len(stacks) || folded.Weight(CPU) != r.Weight(CPU) {
		t.Fatalf("%d samples of %d", len(folded.Samples), folded.Weight(CPU))
	}
	for i, names := range stacks {
		frames := framesOf(names)
		var want, got []string
		folds := snapshot.Folds(frames)
		for k := 0; k < len(frames); k++ {
			if len(folds) > 0 && folds[0].First == k {
				want = append(want, "["+folds[0].Parts+"]")
				k += folds[0].Frames - 1
				folds = folds[1:]
				continue
			}
			want = append(want, frames[k].Display)
		}
		for l := range folded.Stack(folded.Samples[i].Node) {
			got = append(got, folded.Functions[l.Function].Display)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q\nbecomes %q\nwant %q", names, got, want)
		}
	}
}

// TestFoldsWait: the framework frames of .NET 11 in which a primitive waits are folded. The frame nearest to the
// leaf, and the primitive's caller, are not. Up to .NET 10 a Lock has no such run.
func TestFoldsWait(t *testing.T) {
	lock := []string{"n:pthread_cond_wait", "System.Threading.WaitSubsystem+ThreadWaitInfo.Wait",
		"System.Threading.WaitSubsystem.Wait", "System.Threading.WaitHandle.WaitOneNoCheck",
		"System.Threading.Lock.TryEnterSlow", "System.Threading.Lock.Enter", "own:Web.Orders.Hold"}
	one := []snapshot.Fold{{First: 2, Frames: 3, Parts: "wait"}}
	if got := snapshot.Folds(framesOf(lock)); !slices.Equal(got, one) {
		t.Errorf("%+v", got)
	}
	if got := snapshot.Folds(framesOf(append(lock[:1:1], lock[3:]...))); len(got) != 0 {
		t.Errorf("before .NET 11: %+v", got)
	}
	// All of Thread.Sleep is inlined, and Thread.Sleep itself is what the thread does.
	frames := framesOf([]string{"System.Threading.LowLevelMonitor.WaitCore", "System.Threading.LowLevelMonitor.Wait",
		"System.Threading.WaitSubsystem+ThreadWaitInfo.Sleep", "System.Threading.WaitSubsystem.Sleep",
		"System.Threading.Thread.SleepInternal", "System.Threading.Thread.Sleep", "own:Web.Orders.Hold"})
	b := NewBuilder(Limits{})
	b.Thread(RecordedThread{OSThreadID: 1})
	var locations []int32
	for i := range frames {
		f := &frames[i]
		f.Inlined = i < 5
		fn := Function{Kind: f.Kind, Method: f.Method, Display: f.Display, Module: f.Module}
		locations = append(locations, b.Location(Location{Function: b.Function(fn), Inlined: f.Inlined}))
	}
	b.Add(Sample{Node: b.Stack(locations), Weight: 1})
	if got := snapshot.Folds(frames); !slices.Equal(got, []snapshot.Fold{{First: 1, Frames: 3, Parts: "wait"}}) {
		t.Errorf("inlined into Sleep: %+v", got)
	}
	var got []string
	folded := b.Recording().FoldFramework()
	for l := range folded.Stack(folded.Samples[0].Node) {
		got = append(got, folded.Functions[l.Function].Display)
	}
	want := []string{frames[0].Display, "[wait]", frames[4].Display, frames[5].Display, frames[6].Display}
	if !slices.Equal(got, want) {
		t.Errorf("inlined into Sleep, in a recording: %q, want %q", got, want)
	}
}
