package matrix

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// TestPInvokes: in recordings, too, a stub is named after its native function, and a function of the runtime without a
// symbol after the P/Invoke that calls the function. The JIT notes the called function; code compiled ahead of time has
// no note.
func TestPInvokes(t *testing.T) { testenv.EachRuntime(t, testPInvokes) }

func testPInvokes(t *testing.T, runtime string) {
	a := testenv.Start(t, "scenarios", testenv.Options{
		Runtime: runtime, Args: []string{"--only", "pinvoke-shared,pinvoke-string,monitor-wait,sleep,join"},
		Env: []string{"DOTNET_ReadyToRun=0", "DOTNET_TieredCompilation=0"},
	})
	p := livetest.Open(t, a, clrsnap.Options{})
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for scenario, want := range qcalls(runtime) {
		called := func(f snapshot.Frame) bool { return inRuntime(&f, want) }
		for _, th := range snap.Threads {
			if th.Name == scenario && !slices.ContainsFunc(th.Frames, called) {
				t.Errorf("%s: the runtime's %s is not on the stack\n%s", scenario, want, livetest.Text(th.Frames))
			}
		}
	}
	for _, th := range snap.Threads {
		for _, f := range th.Frames {
			if strings.HasPrefix(f.Module, "libc.so") && f.Method == "" && !strings.Contains(f.Nearest, "+0x") {
				t.Errorf("no exported function is near %s!+%#x", f.Module, f.Offset)
			}
		}
	}
	r := livetest.Recorded(t, p, record.Options{Modes: []profile.Mode{profile.Wall}, Rate: 19, Duration: time.Second})
	stubs := []string{"[P/Invoke sleep in libc]", "[P/Invoke write in libc]"}
	if testenv.Framework(runtime) == "net11" { // the DllImport method has code of its own instead
		stubs = []string{"Scenarios.Native.sleep", "Scenarios.Native.write"}
	}
	for _, want := range stubs {
		if !slices.ContainsFunc(r.Functions, func(f profile.Function) bool {
			return f.Display == want
		}) {
			t.Errorf("nothing in the recording is called %s", want)
		}
	}
	for _, f := range r.Functions {
		if strings.HasPrefix(f.Display, "[IL stub: P/Invoke") {
			t.Errorf("the recording has a %s%s", f.Display, f.Signature)
		}
	}
	for _, want := range qcalls(runtime) {
		called := func(f profile.Function) bool { return f.Method == want && f.Kind == snapshot.Native }
		if !slices.ContainsFunc(r.Functions, called) {
			t.Errorf("nothing in the recording is called %s", want)
		}
	}
	livetest.EndsWell(t, a)
}

// qcalls are the runtime's functions in which scenarios wait, where the functions are P/Invokes. In .NET 8 the
// functions are called in another way, and have no names; .NET 11 waits in managed code.
func qcalls(runtime string) map[string]string {
	switch framework, _, _ := strings.Cut(runtime, ":"); framework {
	case "net8", "net11":
		return nil
	case "net9":
		return map[string]string{"monitor-wait": "Monitor_Wait", "sleep": "ThreadNative_Sleep"}
	}
	return map[string]string{"monitor-wait": "Monitor_Wait", "sleep": "ThreadNative_Sleep", "join": "ThreadNative_Join"}
}

// inRuntime reports whether a frame is of a function of the runtime. The runtime is a library or part of the host.
func inRuntime(f *snapshot.Frame, name string) bool {
	return f.Kind == snapshot.Native && f.Method == name && f.Display == name && f.Offset > 0 && f.Offset < 1<<12 &&
		(f.Module == "libcoreclr.so" || strings.HasPrefix(f.Module, "dotnet"))
}
