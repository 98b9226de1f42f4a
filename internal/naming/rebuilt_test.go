package naming_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/report"
	"clrsnap/snapshot"
)

// rebuilt is a program whose file is overwritten by another build.
type rebuilt struct {
	dll, runtime string
	a            *testenv.App
}

// startRebuilt starts a copy of the program; the copy's files can be changed.
func startRebuilt(t *testing.T, runtime string, kind testenv.DumpKind) *rebuilt {
	t.Helper()
	r := &rebuilt{dll: filepath.Join(t.TempDir(), "rebuilt.dll"), runtime: runtime}
	r.become(t)
	r.copy(t, "rebuilt.runtimeconfig.json", testenv.BuildWith(t, "rebuilt", runtime))
	p := &testenv.Program{Exe: testenv.Kit(t).Host(runtime), Args: []string{r.dll}}
	r.a = p.Start(t, testenv.DumpOptions(t, kind, testenv.Options{}))
	return r
}

// become overwrites the file, and the PDB beside the file, with another build.
func (r *rebuilt) become(t *testing.T, compile ...string) {
	t.Helper()
	dll := testenv.BuildWith(t, "rebuilt", r.runtime, compile...)
	r.copy(t, "rebuilt.dll", dll)
	r.copy(t, "rebuilt.pdb", dll)
}

func (r *rebuilt) copy(t *testing.T, name, beside string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(beside), name))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(r.dll), name), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// backdate gives the files an old time, as files of a container's image have.
func (r *rebuilt) backdate(t *testing.T) {
	t.Helper()
	old := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range []string{"rebuilt.dll", "rebuilt.pdb"} {
		if err := os.Chtimes(filepath.Join(filepath.Dir(r.dll), name), old, old); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOtherBuild: an assembly's file has become another build. Names that the runtime's memory contradicts are not
// used, and unproved names are marked: in a dump without the file, and in a process whose file was written to.
func TestOtherBuild(t *testing.T) { testenv.EachVersion(t, testOtherBuild) }

// otherBuilds are the builds that the runtime's memory contradicts. The last build has as many classes, methods and
// fields as the running build.
var otherBuilds = []string{"MORE", "FIELD", "MOVED"}

func testOtherBuild(t *testing.T, runtime string) {
	t.Run("live", func(t *testing.T) {
		r := startRebuilt(t, runtime, testenv.DumpGCore)
		open := func() *clrsnap.Process { return livetest.Open(t, r.a, clrsnap.Options{Lines: true}) }
		checkRebuilt(t, open(), proved)
		r.become(t, "-define:BODY") // written to now; with an older time the file would pass for the right file
		checkRebuilt(t, open(), marked)
		recording := livetest.Recorded(t, open(), record.Options{
			Duration: time.Second, Rate: 20, Modes: []profile.Mode{profile.Wall},
		})
		const recorded = "Rebuilt.Program.Hold (?)"
		if !slices.ContainsFunc(recording.Functions, func(f profile.Function) bool { return f.Display == recorded }) {
			t.Errorf("the recording has no %s", recorded)
		}
		for _, build := range otherBuilds {
			r.become(t, "-define:"+build)
			checkRebuilt(t, open(), nameless)
		}
	})
	for _, kind := range []testenv.DumpKind{testenv.DumpGCore, testenv.DumpKernel} {
		t.Run(string(kind), func(t *testing.T) {
			r := startRebuilt(t, runtime, kind)
			path := testenv.Dump(t, r.a, kind)
			open := func() *clrsnap.Process {
				o := clrsnap.CoreOptions{Options: clrsnap.Options{Lines: true}}
				p, err := clrsnap.OpenCore(t.Context(), path, o)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { p.Close() })
				return p
			}
			checkRebuilt(t, open(), marked) // the file is the right file, but unproved
			r.become(t, "-define:BODY")
			r.backdate(t)
			checkRebuilt(t, open(), marked)
			for _, build := range otherBuilds {
				r.become(t, "-define:"+build)
				r.backdate(t)
				checkRebuilt(t, open(), nameless)
			}
		})
	}
}

// TestBundleUnproved: a single-file program has the build id of its host. The build id does not prove the assemblies in
// the bundle.
func TestBundleUnproved(t *testing.T) {
	single := slices.DeleteFunc(testenv.Versions(), func(runtime string) bool {
		return !slices.Contains(testenv.Shapes(runtime), testenv.SingleFile)
	})
	testenv.EachOf(t, single, func(t *testing.T, runtime string) {
		program := testenv.Publish(t, "rebuilt", runtime, testenv.SingleFile, "")
		r := &rebuilt{dll: filepath.Join(program.Dir, "rebuilt.dll"), runtime: runtime}
		r.copy(t, "rebuilt.pdb", testenv.BuildWith(t, "rebuilt", runtime))
		a := program.Start(t, testenv.DumpOptions(t, testenv.DumpGCore, testenv.Options{}))
		o := clrsnap.Options{Lines: true}
		checkRebuilt(t, livetest.Open(t, a, o), proved)
		p, err := clrsnap.OpenCore(t.Context(), testenv.Dump(t, a, testenv.DumpGCore), clrsnap.CoreOptions{Options: o})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		checkRebuilt(t, p, marked)
	})
}

// How the names of an assembly are to be shown.
type certainty string

const (
	proved   certainty = "proved"
	marked   certainty = "marked"
	nameless certainty = "nameless"
)

// checkRebuilt looks at frames, locks and classes of the program.
func checkRebuilt(t *testing.T, p *clrsnap.Process, want certainty) {
	t.Helper()
	s, err := p.SnapshotWaits(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for thread, name := range map[string]string{"holder": "Rebuilt.Program.Hold", "waiter": "Rebuilt.Program.Wait"} {
		th := livetest.Thread(t, s, thread)
		checkRebuiltFrames(t, th, name, want)
	}
	gate := livetest.Thread(t, s, "waiter").Wait
	if gate == nil {
		gate = new(snapshot.Wait)
	}
	other := want == nameless && strings.Contains(gate.Type, "Rebuilt") ||
		want == proved && strings.Contains(gate.Type, "(?)")
	if other || want != nameless && gate.Type != wantName("Rebuilt.Gate", want) {
		t.Errorf("%s: waits for %+v", want, gate)
	}
	for i := range s.Threads {
		for _, f := range s.Threads[i].Frames {
			if f.Unproved && f.Module != "rebuilt" && f.Module != "run" { // run starts programs
				t.Errorf("%s: %s of %s is not proved", want, f.Display, f.Module)
			}
		}
	}
	var out bytes.Buffer
	if err := report.JSON(&out, s); err != nil {
		t.Fatal(err)
	}
	got := bytes.Contains(out.Bytes(), []byte(`"unproved":true`))
	if got != (want == marked) && want != nameless || !json.Valid(out.Bytes()) {
		t.Errorf("%s: JSON says that frames are not proved: %v", want, got)
	}
	out.Reset()
	if err := report.Text(&out, s, report.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	const text = "Rebuilt.Program.Hold(ManualResetEventSlim)"
	if !strings.Contains(out.String(), wantName(text, want)) != (want == nameless) {
		t.Errorf("%s: %s is not as it should be in:\n%s", want, text, out.String())
	}
	h, err := p.Heap(t.Context(), clrsnap.HeapOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, c := range h.Types {
		found = found || c.Name == wantName("Rebuilt.Gate", want)
		isMarked := strings.HasSuffix(c.Name, "(?)")
		if strings.HasPrefix(c.Name, "Rebuilt.") && (want == nameless || isMarked != (want == marked)) {
			t.Errorf("%s: objects of %s", want, c.Name)
		}
	}
	if found != (want != nameless) {
		t.Errorf("%s: there are objects of the lock's class: %v", want, found)
	}
	if c := s.Process.Core; c != nil {
		said := strings.Contains(strings.Join(c.Missing, "\n"), map[certainty]string{
			marked: "end in (?)): ", nameless: "rebuilt.dll is another file: it is another build",
		}[want])
		if !said {
			t.Errorf("%s: said of the dump: %q", want, c.Missing)
		}
	}
}

func wantName(name string, want certainty) string {
	if want == marked {
		return name + " (?)"
	}
	return name
}

// checkRebuiltFrames requires that the thread has the method, with the wanted certainty.
func checkRebuiltFrames(t *testing.T, th *snapshot.Thread, name string, want certainty) {
	t.Helper()
	for i := range th.Frames {
		f := &th.Frames[i]
		if f.Kind != snapshot.Managed || strings.HasPrefix(f.Method, "System.") {
			continue
		}
		if want == nameless {
			if !strings.HasPrefix(f.Display, "[method 0x") || f.Line != nil || i+2 >= len(th.Frames) {
				t.Errorf("%s: %s at line %v", want, f.Display, f.Line)
			}
			return
		}
		if f.Display != wantName(name, want) || f.Unproved != (want == marked) {
			t.Errorf("%s: %s, not proved: %v", want, f.Display, f.Unproved)
		}
		if f.Line == nil || want == marked && !f.Line.Approximate {
			t.Errorf("%s: %s: line %+v", want, f.Display, f.Line)
		}
		return
	}
	t.Errorf("%s: %q has no frame of the program:\n%s", want, th.Name, livetest.Text(th.Frames))
}
