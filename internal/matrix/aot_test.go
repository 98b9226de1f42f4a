package matrix

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

// TestNativeAOT takes the stacks of a process that has called native AOT code, which
// has called it back.
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
		wantComplete(t, th)
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
// point only. The functions between the two are NativeHost.InitializeModule,
// JSValue.CreateStringUtf16 and NodejsRuntime.CreateString; they have no names here.
func checkCalledBack(t *testing.T, frames []profile.Frame, library string) {
	t.Helper()
	callee := slices.IndexFunc(frames, func(f profile.Frame) bool { return f.Method == "napi_create_string_utf16" })
	entry := slices.IndexFunc(frames, func(f profile.Frame) bool {
		return f.Method == "napi_register_module_v1" && f.Module == library
	})
	if callee < 0 || entry-callee-1 < 3 || entry+1 >= len(frames) || frames[entry+1].Method != "main" {
		t.Errorf("the callback is frame %d, the entry point %d:\n%s", callee, entry, livetest.Text(frames))
		return
	}
	for _, f := range frames[callee+1 : entry] {
		if f.Kind != profile.Native || f.Module != library || f.Method != "" || f.Offset == 0 {
			t.Errorf("between callback and entry point is %+v", f)
		}
	}
}

// checkNoCLR requires that what needs the CLR fails with an error that says why.
func checkNoCLR(t *testing.T, p *clrsnap.Process, pid int) {
	t.Helper()
	says := "process " + strconv.Itoa(pid) + " is a native AOT program"
	ignore := func(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error { return nil }
	_, subscribed := events.Subscribe(context.Background(), p, events.Options{})
	for what, err := range map[string]error{
		"DoStackSnapshot": p.DoStackSnapshot(1, ignore, 0, nil, nil),
		"Subscribe":       subscribed,
	} {
		if !errors.Is(err, clrsnap.CORPROF_E_RUNTIME_UNINITIALIZED) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if id, err := p.GetFunctionFromIP(0x1000); id != 0 || err != nil {
		t.Errorf("GetFunctionFromIP: %v, %v", id, err)
	}
}
