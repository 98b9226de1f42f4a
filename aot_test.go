package clrsnap_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
)

// TestNativeAOT looks at a process that has called native AOT code, which has called
// back.
func TestNativeAOT(t *testing.T) {
	pid := testenv.StartAheadOfTime(t)
	library := filepath.Base(testenv.AheadOfTime(t))
	p, err := clrsnap.Open(context.Background(), pid, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	want := profile.Runtime{Version: testenv.AheadOfTimeVersion, Path: testenv.AheadOfTime(t), Shape: "native AOT"}
	if got := p.Info().Runtime; got != want || p.HasRuntime() {
		t.Errorf("the runtime is %+v, readable: %v", got, p.HasRuntime())
	}
	s, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for i := range s.Threads {
		th := &s.Threads[i]
		names[th.Name] = true
		if !th.Complete || th.Error != "" {
			t.Errorf("thread %d %q: complete %v, error %q\n%s", th.OSThreadID, th.Name, th.Complete, th.Error, text(th.Frames))
		}
		if th.OSThreadID == pid {
			checkCalledBack(t, th.Frames, library)
		}
	}
	if !names[".NET Finalizer"] || len(s.Threads) != 3 {
		t.Errorf("the threads are %v", names)
	}
	checkNoCLR(t, p, pid)
}

// checkCalledBack requires a stack of the host's main function, the library, and the
// host's function that its managed code calls. The library has a symbol for its entry
// point and for nothing else: NativeHost.InitializeModule, which that calls, calls
// JSValue.CreateStringUtf16, that NodejsRuntime.CreateString.
func checkCalledBack(t *testing.T, frames []profile.Frame, library string) {
	t.Helper()
	callee := slices.IndexFunc(frames, func(f profile.Frame) bool { return f.Method == "napi_create_string_utf16" })
	entry := slices.IndexFunc(frames, func(f profile.Frame) bool {
		return f.Method == "napi_register_module_v1" && f.Module == library
	})
	if callee < 0 || entry-callee-1 < 3 || entry+1 >= len(frames) || frames[entry+1].Method != "main" {
		t.Errorf("the callback is frame %d, the entry point %d:\n%s", callee, entry, text(frames))
		return
	}
	for _, f := range frames[callee+1 : entry] {
		if f.Kind != profile.Native || f.Module != library || f.Method != "" || f.Offset == 0 {
			t.Errorf("between callback and entry point is %+v", f)
		}
	}
}

// checkNoCLR requires an error that says why from what needs the CLR.
func checkNoCLR(t *testing.T, p *clrsnap.Process, pid int) {
	t.Helper()
	nothing := func(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error { return nil }
	_, subscribed := events.Subscribe(context.Background(), p, events.Options{})
	for what, err := range map[string]error{
		"DoStackSnapshot": p.DoStackSnapshot(1, nothing, 0, nil, nil),
		"Subscribe":       subscribed,
	} {
		if !errors.Is(err, clrsnap.CORPROF_E_RUNTIME_UNINITIALIZED) || !strings.Contains(err.Error(), "process "+strconv.Itoa(pid)+" is a native AOT program") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if id, err := p.GetFunctionFromIP(0x1000); id != 0 || err != nil {
		t.Errorf("GetFunctionFromIP: %v, %v", id, err)
	}
}

// TestNativeAOTRecord samples native AOT code while it uses a processor.
func TestNativeAOTRecord(t *testing.T) {
	pid := testenv.StartAheadOfTime(t, "spin")
	library := filepath.Base(testenv.AheadOfTime(t))
	p, err := clrsnap.Open(context.Background(), pid, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r := recorded(t, p, record.Options{Modes: both, Rate: 199, Duration: time.Second})
	for _, m := range both {
		var all, whole int64
		for i := range r.Samples {
			x := &r.Samples[i]
			if x.Mode != m || r.Threads[x.Thread].OSThreadID != pid {
				continue
			}
			all += x.Weight
			if !x.Incomplete && calledBack(r, x.Node, library) {
				whole += x.Weight
			}
		}
		if all == 0 || float64(whole) < .99*float64(all) {
			t.Errorf("%v: %v of %v have the whole stack (%v)", m, time.Duration(whole), time.Duration(all), r.Notes)
		}
	}
}

// calledBack is checkCalledBack for a recorded stack, which may go on in the kernel.
func calledBack(r *profile.Recording, node int32, library string) bool {
	var methods []string
	for l := range r.Stack(node) {
		f := r.Functions[l.Function]
		if f.Kind == profile.Kernel {
			continue
		}
		if f.Module == library && f.Method == "" {
			f.Method = "managed"
		}
		methods = append(methods, f.Method)
	}
	callee, entry := slices.Index(methods, "napi_create_string_utf16"), slices.Index(methods, "napi_register_module_v1")
	return callee == 0 && entry > 3 && !slices.ContainsFunc(methods[1:entry], func(m string) bool { return m != "managed" }) &&
		slices.Contains(methods[entry:], "main")
}

// TestNativeAOTCommand: what the command says of such a program.
func TestNativeAOTCommand(t *testing.T) {
	command, pid := buildCommand(t), testenv.StartAheadOfTime(t)
	library := filepath.Base(testenv.AheadOfTime(t))
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"stack", strconv.Itoa(pid)}, []string{".NET " + testenv.AheadOfTimeVersion + " (native AOT)", library + "!+0x", library + "!napi_register_module_v1", "host!main"}},
		{[]string{"doctor", strconv.Itoa(pid)}, []string{"(native AOT)", "3 of 3 threads complete"}},
		{[]string{"ps"}, []string{strconv.Itoa(pid), "native AOT"}},
	} {
		out, err := exec.Command(command, tt.args...).CombinedOutput()
		if err != nil {
			t.Errorf("clrsnap %v: %v\n%s", tt.args, err, out)
		}
		for _, want := range tt.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("clrsnap %v does not say %q:\n%s", tt.args, want, out)
			}
		}
	}
	if out, err := exec.Command(command, "ps", "--json").Output(); err != nil || strings.Contains(string(out), "native AOT program") {
		t.Errorf("clrsnap ps has a fault to find: %v\n%s", err, out)
	}
}
