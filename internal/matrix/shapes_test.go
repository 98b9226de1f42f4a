package matrix

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// fates are the possible fates of a program's files while the program runs, one after the other.
var fates = []struct {
	name   string
	befall func(*testenv.Program, testing.TB)
}{
	{"intact", func(*testenv.Program, testing.TB) {}},
	{"replaced", (*testenv.Program).Replace},
	{"deleted", (*testenv.Program).Delete},
}

// versionOf is the version of a runtime in a shape: the kit's single-file hosts do not all have the version of the
// kit's frameworks.
func versionOf(runtime string, s testenv.Shape) string {
	if version, ok := testenv.InstalledVersion(runtime); ok {
		return version
	}
	if runtime == "net9" && (s == testenv.SingleFile || s == testenv.Compressed) {
		return "9.0.9"
	}
	return map[string]string{
		"net11": "11.0.0", "net10": "10.0.12", "net10:dotnet-10.0.8": "10.0.8", "net9": "9.0.5", "net8": "8.0.30",
	}[runtime]
}

// recognisedAs is the shape that clrsnap sees in a program.
func recognisedAs(runtime string, s testenv.Shape) string {
	switch {
	case !testenv.Ordinary(runtime) || strings.HasSuffix(string(s), string(testenv.SingleFile)):
		return "single-file"
	case s == testenv.SelfContained:
		return "self-contained"
	}
	return "shared"
}

// TestShapes takes the stacks of the scenarios in every shape of a program, with the files in place, removed and
// replaced.
func TestShapes(t *testing.T) {
	layer.Matrix(t)
	kit, command := testenv.Kit(t), livetest.Command(t)
	for _, runtime := range layer.Size(testenv.KitRuntimes(), testenv.AllRuntimes()) {
		for _, shape := range shapesOf(runtime) {
			t.Run(fmt.Sprintf("%s/%s", testenv.Name(runtime), shape), func(t *testing.T) {
				kit.Need(t, runtime)
				p := testenv.Publish(t, "scenarios", runtime, shape, "")
				row := supportRow{versionOf(runtime, shape), string(shape)}
				if shape != testenv.FrameworkDependent { // TestCores has framework-dependent programs
					dumpEach(t, p, row)
				}
				checkFates(t, p, command, row, recognisedAs(runtime, shape))
			})
		}
	}
}

// checkFates starts a program and checks the program after each of the fates of its files.
func checkFates(t *testing.T, p *testenv.Program, command string, row supportRow, shape string) {
	t.Helper()
	a := p.Start(t, testenv.Options{Args: []string{"--assembly", p.Assembly}})
	for _, fate := range fates {
		fate.befall(p, t)
		t.Run(fate.name, func(t *testing.T) {
			if fate.name == "intact" {
				works(t, row, doLive)
			} else {
				works(t, row, doFates)
			}
			checkShape(t, a, command, row.version, shape)
		})
	}
}

// shapesOf are the tested shapes of a runtime. Hosts of all versions unpack a compressed bundle in the same way: the
// short form has only the default runtime's.
func shapesOf(runtime string) []testenv.Shape {
	return slices.DeleteFunc(testenv.Shapes(runtime), func(s testenv.Shape) bool {
		return s == testenv.Compressed && runtime != testenv.DefaultRuntime && layer.Size(true, false)
	})
}

// dumpEach dumps a program in every way that all runtimes know, and checks the stacks in the dumps.
func dumpEach(t *testing.T, p *testenv.Program, row supportRow) {
	t.Helper()
	kinds := []testenv.DumpKind{testenv.DumpGCore, testenv.DumpKernel, testenv.DumpCrash}
	eachDump(t, "", kinds, func(t *testing.T, kind testenv.DumpKind, a *testenv.App) {
		works(t, row, string(kind))
		path := testenv.Dump(t, a, kind)
		checkScenarioStacks(t, a, livetest.SnapshotCore(t, path, clrsnap.CoreOptions{}), kind)
	}, func(t *testing.T, kind testenv.DumpKind) *testenv.App {
		return p.Start(t, testenv.DumpOptions(t, kind, testenv.Options{Args: []string{"--assembly", p.Assembly}}))
	})
}

// checkShape checks what the library and the command say of a program.
func checkShape(t *testing.T, a *testenv.App, command, version, shape string) {
	t.Helper()
	p := livetest.Open(t, a, clrsnap.Options{})
	if r := p.Info().Runtime; r.Version != version || r.Shape != shape {
		t.Errorf("the runtime is %+v, want %s, %s", r, version, shape)
	}
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]int{}
	for i := range snap.Threads {
		th := &snap.Threads[i]
		byName[th.Name] = i
		wantComplete(t, th)
	}
	if len(a.Stacks) < 40 {
		t.Errorf("the program told of %d scenarios only", len(a.Stacks))
	}
	for name, want := range a.Stacks {
		i, ok := byName[name]
		if !ok {
			t.Errorf("no thread %q", name)
			continue
		}
		if err := compareStack(&snap.Threads[i], want); err != nil {
			walked := livetest.Text(snap.Threads[i].Frames)
			t.Errorf("%s: %v\n%s--\n%s", name, err, walked, strings.Join(want.Lines, "\n"))
		}
	}
	checkCommand(t, a, command, version, shape)
}

// checkCommand checks that clrsnap stack shows the program, and every scenario in the program.
func checkCommand(t *testing.T, a *testenv.App, command, version, shape string) {
	t.Helper()
	cmd := exec.Command(command, "stack", fmt.Sprint(a.PID), "--full", "--group=never")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("clrsnap stack: %v\n%s", err, stderr.String())
	}
	header, _, _ := strings.Cut(string(out), "\n\n")
	for _, want := range []string{version, shape} {
		if !strings.Contains(header, want) {
			t.Errorf("the header does not say %s:\n%s", want, header)
		}
	}
	for name := range a.Stacks {
		if !strings.Contains(string(out), name) {
			t.Errorf("clrsnap stack does not show %s", name)
		}
	}
}
