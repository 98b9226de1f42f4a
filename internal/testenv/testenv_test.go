package testenv

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clrsnap/internal/testenv/layer"
)

func TestScenarios(t *testing.T) {
	EachOf(t, Versions(), func(t *testing.T, runtime string) {
		a := Start(t, "scenarios", Options{Runtime: runtime, Args: []string{"--finalizer"}})
		if len(a.Stacks) < 60 {
			t.Errorf("%d scenarios", len(a.Stacks))
		}
		for _, s := range a.Stacks {
			checkStack(t, a, s)
		}
		checkContents(t, a)
		if result, code := a.Stop(); result != "OK" || code != 0 {
			t.Errorf("result %q, exit code %d\n%s", result, code, a.Stderr())
		}
	})
}

// TestKill: a killed program has ended, even if its child keeps its output open.
func TestKill(t *testing.T) {
	a := start(t, "sh", exec.Command("sh", "-c", "sleep 1000 & echo READY; cat"), Options{})
	a.kill()
	select {
	case <-a.ended:
	default:
		t.Error("its output is still read")
	}
}

// checkStack checks the rules for the stack of every scenario.
func checkStack(t *testing.T, a *App, s Stack) {
	t.Helper()
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", a.PID, s.TID)); err != nil || s.ManagedID == 0 {
		t.Errorf("%s: thread %d, managed id %d: %v", s.Scenario, s.TID, s.ManagedID, err)
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", a.PID, s.TID))
	if got := strings.TrimSpace(string(comm)); got != s.Scenario {
		t.Errorf("thread name %q, want %q (%v)", got, s.Scenario, err)
	}
	// State machines have other names in the two listings; their numbers are equal.
	lines, frames := s.Methods(), s.Names(Shown, PInvoke, Dynamic)
	if len(lines) != len(frames) || len(lines) == 0 {
		t.Errorf("%s: StackTrace has %d methods, frames %d:\n%s\n--\n%s", s.Scenario,
			len(lines), len(frames), strings.Join(lines, "\n"), strings.Join(frames, "\n"))
		return
	}
	for i := range lines {
		if lines[i] != frames[i] && !strings.HasSuffix(frames[i], ".MoveNext") {
			t.Errorf("%s: frame %d is %s in StackTrace, %s in frames", s.Scenario, i, lines[i], frames[i])
		}
	}
	for _, f := range s.Frames {
		if (f.Token == 0) != (f.Kind == Dynamic) || (f.MethodDesc == 0) != (f.Kind == Dynamic) {
			t.Errorf("%s: %+v", s.Scenario, f)
		}
	}
}

func checkContents(t *testing.T, a *App) {
	t.Helper()
	for scenario, want := range map[string][]string{
		"deep-recursion": {"Scenarios.Here.Block", "Scenarios.Calls.Deep"},
		"lambda":         {"Scenarios.Here.Block", "Scenarios.Calls.<>c.<Lambda>b__1_0", "Scenarios.Calls.Lambda"},
		"gen-nested": {"Scenarios.Here.Block", "Scenarios.Generics.Outer`1.Inner`1.Go",
			"Scenarios.Generics.Nested"},
		"iterator":       {"Scenarios.Here.Block", "Scenarios.Calls.<Iterator>g__Inner|4_1+MoveNext"},
		"dynamic-method": {"Scenarios.Here.Block", "EmittedBlock", "Scenarios.Dynamic.Method"},
		"tail-explicit": {"Scenarios.Here.Block", "Scenarios.Dynamic.TailTarget",
			"Scenarios.Dynamic.ExplicitTailCall"},
		"cctor":         {"Scenarios.Here.Block", "Scenarios.Calls.Lazy..cctor", "Scenarios.Calls.StaticConstructor"},
		"eh-catch":      {"Scenarios.Here.Block", "Scenarios.Exceptions.Catch"},
		"pinvoke-sleep": {"Scenarios.Native.Sleep"},
		"finalizer":     {"Scenarios.Here.BlockAs", "Scenarios.Async.Finalized.Finalize"},
	} {
		got := a.Stacks[scenario].Methods()
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("%s: got\n%s\nwant\n%s", scenario, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	deep := 0
	for _, name := range a.Stacks["deep-recursion"].Methods() {
		if name == "Scenarios.Calls.Deep" {
			deep++
		}
	}
	if deep != 1000 {
		t.Errorf("deep-recursion: %d frames of Deep", deep)
	}
}

func TestBusy(t *testing.T) {
	a := Start(t, "scenarios", Options{Args: []string{"--no-blocked", "--busy", "6"}})
	result, code := a.Wait()
	if result != "OK" || code != 0 {
		t.Errorf("result %q, exit code %d\n%s", result, code, a.Stderr())
	}
	if a.Counts["gen-0"] == 0 {
		t.Errorf("no garbage collections counted: %v", a.Counts)
	}
	if len(a.Loads) < 20 {
		t.Errorf("%d busy workers", len(a.Loads))
	}
	for name, rounds := range a.Loads {
		if rounds == 0 {
			t.Errorf("%s did nothing", name)
		}
	}
}

func TestOtherApps(t *testing.T) {
	layer.Live(t)
	for _, app := range []string{"idle", "spin", "service"} {
		t.Run(app, func(t *testing.T) {
			a := Start(t, app, Options{})
			time.Sleep(300 * time.Millisecond)
			if result, code := a.Stop(); result != "OK" || code != 0 {
				t.Errorf("result %q, exit code %d\n%s", result, code, a.Stderr())
			}
		})
	}
	for _, tt := range []struct {
		app string
		o   Options
	}{
		{"spin", Options{Args: []string{"--threads", "3", "--idle", "30"}}},
		{"handover", Options{Args: []string{"--pairs", "3"}}},
	} {
		t.Run(tt.app+" works", func(t *testing.T) { checkUnits(t, Start(t, tt.app, tt.o)) })
	}
	t.Run("shortlived", func(t *testing.T) {
		a := Start(t, "shortlived", Options{NoReady: true, Args: []string{"--code", "7"}})
		if _, code := a.Wait(); code != 7 {
			t.Errorf("exit code %d, want 7\n%s", code, a.Stderr())
		}
	})
	t.Run("max-seconds", func(t *testing.T) {
		a := Start(t, "idle", Options{NoReady: true, Args: []string{"--max-seconds", "1"}})
		if _, code := a.Wait(); code != 124 || !strings.Contains(a.Stderr(), "--max-seconds") {
			t.Errorf("exit code %d, want 124; stderr %q", code, a.Stderr())
		}
	})
}

func TestBusyApp(t *testing.T) {
	EachOf(t, []string{"net10", "net11", "net9"}, func(t *testing.T, runtime string) {
		checkUnits(t, Start(t, "busy", Options{Args: []string{"--threads", "3"}, Runtime: runtime}))
	})
}

// checkUnits requires a program to go on with its work until the test ends the program.
func checkUnits(t *testing.T, a *App) {
	t.Helper()
	first := a.Ask("units")
	second := first
	for end := time.Now().Add(Hang); slices.Equal(first, second) && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		second = a.Ask("units")
	}
	if len(first) != 1 || len(second) != 1 || first[0] == second[0] {
		t.Errorf("the answers are %q and %q", first, second)
	}
	if result, code := a.Stop(); result != "OK" || code != 0 {
		t.Errorf("result %q, exit code %d\n%s", result, code, a.Stderr())
	}
}

// TestWeb has a web server answer on every runtime with ASP.NET Core.
func TestWeb(t *testing.T) { EachAspNet(t, testWeb) }

func testWeb(t *testing.T, runtime string) {
	a := Start(t, "web", Options{Runtime: runtime})
	url := a.Ask("url")[0]
	for path, want := range map[string]string{"/text": "Hello", "/orders/17": `{"Id":17,`, "/nonesuch": ""} {
		r, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || (r.StatusCode == http.StatusOK) != (want != "") || !strings.HasPrefix(string(body), want) {
			t.Errorf("%s: status %s, %q, %v", path, r.Status, body, err)
		}
	}
	if answer := a.Ask("units")[0]; !strings.HasPrefix(answer, "UNITS 3 ") {
		t.Errorf("after three requests it says %q", answer)
	}
	if result, code := a.Stop(); result != "OK" || code != 0 {
		t.Errorf("result %q, exit code %d\n%s", result, code, a.Stderr())
	}
}

func TestInstalled(t *testing.T) {
	t.Setenv("CLRSNAP_DOTNET_ROOTS", "")
	if runtime, err := Installed("10.0.14"); err == nil || !strings.Contains(err.Error(), "CLRSNAP_DOTNET_ROOTS") {
		t.Errorf("without the variable: %q, %v", runtime, err)
	}
	dir := t.TempDir()
	t.Setenv("CLRSNAP_DOTNET_ROOTS", dir)
	if runtime, err := Installed("10.0.14"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in an empty folder: %q, %v", runtime, err)
	}
	host := filepath.Join(dir, "10.0.14", "dotnet")
	if err := os.Mkdir(filepath.Dir(host), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(host, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if runtime, err := Installed("10.0.14"); err != nil || runtime != "net10:"+host ||
		(DotNet{"/kit"}).Host(runtime) != host {
		t.Errorf("%q, %v", runtime, err)
	}
}

// TestInstalledRuntimes: installed runtimes add to the runtimes for repeated tests, and replace no runtime of the kit.
func TestInstalledRuntimes(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CLRSNAP_DOTNET_ROOTS", "")
	t.Setenv("CLRSNAP_DOTNET", t.TempDir())
	writeHost(t, InKit(NewestRuntime), "11.0.1")
	kits := AllRuntimes()
	if len(InstalledRuntimes()) != 0 || !slices.Equal(kits,
		[]string{"net10", "net11", "net10:dotnet-10.0.8", "net9", "net8"}) {
		t.Fatalf("with nothing installed: %q", kits)
	}

	roots := t.TempDir()
	for _, version := range []string{"10.0.14", "9.0.22", "9.0.9"} {
		writeHost(t, filepath.Join(roots, version), version)
	}
	for _, other := range []string{"11.0.1", "10.0.0-rc.1", "crossgen2"} {
		writeHost(t, filepath.Join(roots, other), other)
	}
	if err := os.Mkdir(filepath.Join(roots, "8.0.33"), 0o755); err != nil { // without a dotnet
		t.Fatal(err)
	}
	t.Setenv("CLRSNAP_DOTNET_ROOTS", roots)

	sdk, bin := t.TempDir(), t.TempDir()
	for _, version := range []string{"8.0.9", "8.0.10", "9.0.22", "7.0.20", "10.0.0-rc.2", "11.0.2"} {
		writeHost(t, sdk, version)
	}
	if err := os.Symlink(filepath.Join(sdk, "dotnet"), filepath.Join(bin, "dotnet")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)

	var names []string
	for _, runtime := range AllRuntimes() {
		names = append(names, Name(runtime))
	}
	// The SDK's dotnet runs the newest runtime of a version. If the folder has the same runtime, the folder's counts.
	want := append(slices.Clone(kits), "net8:8.0.10", "net9:9.0.9", "net9:9.0.22", "net10:10.0.14", "net11:11.0.2")
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if !slices.Equal(AllRuntimes()[:len(kits)], kits) {
		t.Errorf("%q, want those of the kit first", AllRuntimes())
	}
	for _, b := range InstalledRuntimes() {
		host := filepath.Join(roots, b.Version, "dotnet")
		if b.Version == "8.0.10" || b.Version == "11.0.2" {
			host = filepath.Join(sdk, "dotnet")
		}
		if got := (DotNet{"/kit"}).Host(b.Runtime); got != host || b.Always || !DumpNormal.Runs(b.Runtime) ||
			!slices.Equal(Shapes(b.Runtime), []Shape{FrameworkDependent}) {
			t.Errorf("%+v: host %s, want %s; shapes %q", b, got, host, Shapes(b.Runtime))
		}
	}
}

// writeHost makes the files by which an installation with a runtime is found.
func writeHost(t *testing.T, dir, version string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "shared", "Microsoft.NETCore.App", version), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dotnet"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestKitBesideSDK: scripts/get-dotnet.sh leaves the kit its own runtime where an SDK is on PATH.
func TestKitBesideSDK(t *testing.T) {
	apps, err := appsDir()
	if err != nil {
		t.Fatal(err)
	}
	scripts := filepath.Join(apps, "..", "..", "scripts")
	const sources = `cat "$0/get-dotnet.sh" "$0"/dotnet/* | sha256sum | cut -c1-16`
	state, err := exec.Command("bash", "-c", sources, scripts).Output()
	if err != nil {
		t.Fatal(err)
	}
	kit, sdk := t.TempDir(), t.TempDir()
	framework := filepath.Join(sdk, "shared", "Microsoft.NETCore.App", "10.0.7")
	files := map[string]string{
		filepath.Join(kit, "net10", "dotnet"): "the kit's own",
		filepath.Join(kit, "net10", ".fw"):    filepath.Join(kit, "net10") + "\n",
		filepath.Join(sdk, "dotnet"):          "#!/bin/sh\necho \"10.0.107 [" + sdk + "/sdk]\"\n",

		filepath.Join(sdk, "sdk", "10.0.107", "Roslyn", "bincore", "csc.dll"): "",
		filepath.Join(framework, "System.Private.CoreLib.dll"):                "",
	}
	for _, part := range []string{"net10", "csc", "hello10", "builds10"} { // nothing is to be made again
		files[filepath.Join(kit, ".done-"+part)] = string(state)
	}
	for file, text := range files {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := exec.Command(filepath.Join(scripts, "get-dotnet.sh"), kit, "10")
	script.Env = append(os.Environ(), "PATH="+sdk+":"+os.Getenv("PATH"))
	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, file := range []string{"net10/dotnet", "net10/.fw"} {
		file = filepath.Join(kit, file)
		if got, err := os.ReadFile(file); err != nil || string(got) != files[file] {
			t.Errorf("%s: %v, %q, want %q", file, err, got, files[file])
		}
	}
}

func TestBuildOnce(t *testing.T) {
	kit := Kit(t)
	dlls := make([]string, 4)
	var wg sync.WaitGroup
	for i := range dlls {
		wg.Go(func() {
			var err error
			if dlls[i], err = kit.build("shortlived", DefaultRuntime); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, dll := range dlls {
		if dll != dlls[0] || !exists(dll) {
			t.Errorf("built %q and %q", dlls[0], dll)
		}
	}
	if _, err := kit.build("nonesuch", DefaultRuntime); err == nil {
		t.Error("built a program that is not there")
	}
}

// recorder notes how a test ended.
type recorder struct {
	testing.TB
	how string
}

func (r *recorder) Helper()        {}
func (r *recorder) Fatal(a ...any) { r.how = "failed: " + fmt.Sprint(a...); panic(r) }
func (r *recorder) Skip(a ...any)  { r.how = "skipped: " + fmt.Sprint(a...); panic(r) }

func TestMissingKit(t *testing.T) {
	layer.Live(t)
	t.Setenv("CLRSNAP_DOTNET", t.TempDir())
	want := "skipped: "
	if layer.Required {
		want = "failed"
	}
	r := &recorder{TB: t}
	func() {
		defer func() { recover() }()
		Kit(r)
	}()
	if !strings.HasPrefix(r.how, want) || !strings.Contains(r.how, "scripts/get-dotnet.sh") {
		t.Errorf("%q, want %q", r.how, want)
	}
}

func TestMethodName(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"   at System.Environment.get_StackTrace()", "System.Environment.get_StackTrace"},
		{"   at Ns.Type.Method(String s, Int32 n) in /src/a (b).cs:line 7", "Ns.Type.Method"},
		{"   at System.Collections.Generic.List`1.ConvertAll[TOutput](Converter`2 converter)",
			"System.Collections.Generic.List`1.ConvertAll"},
		{"   at Ns.Outer`1.Inner`2.Go[A,B](A a)", "Ns.Outer`1.Inner`2.Go"},
		{"   at Ns.Type..ctor(Int32 n)", "Ns.Type..ctor"},
		{"   at Ns.Type..cctor()", "Ns.Type..cctor"},
		{"   at Ns.Program.<>c.<Main>b__0_0()", "Ns.Program.<>c.<Main>b__0_0"},
		{"   at Ns.Program.<Main>g__Local|0_1(Int32 x, <>c__DisplayClass3_0&)", "Ns.Program.<Main>g__Local|0_1"},
		{"   at Ns.Type.Numbers()+MoveNext()", "Ns.Type.Numbers+MoveNext"},
		{"   at Ns.Type.Numbers(Int32 n)+MoveNext() in /src/a.cs:line 3", "Ns.Type.Numbers+MoveNext"},
		{"   at EmittedBlock()", "EmittedBlock"},
		{"   at lambda_method1(Closure, Int32)", "lambda_method1"},
		{"   at Ns.T.System.Collections.Generic.IEnumerable<System.Int32>.GetEnumerator()",
			"Ns.T.System.Collections.Generic.IEnumerable<System.Int32>.GetEnumerator"},
		{"--- End of stack trace from previous location ---", ""},
		{"   at ", ""},
		{"", ""},
	} {
		got, ok := MethodName(tt.line)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("MethodName(%q) = %q, %v; want %q", tt.line, got, ok, tt.want)
		}
	}
}
