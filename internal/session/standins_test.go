package session_test

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/report"
)

// standins are the objects that the locks of threads stand for, by the threads' name, and the form in which clrsnap
// shows the objects.
var standins = map[string]struct{ of, shown string }{
	"type": {"typeof(System.Collections.Generic.Dictionary<string, Standins.Repo>)",
		"Monitor of typeof(System.Collections.Generic.Dictionary<string, Standins.Repo>) 0x"},
	"synchronized": {"typeof(Standins.Repo)", "Monitor of typeof(Standins.Repo) 0x"},
	"text":         {`"config"`, `Monitor of string "config" 0x`},
	"method": {"Standins.Repo.Load(int)",
		"Monitor of System.Reflection.RuntimeMethodInfo Standins.Repo.Load(int) 0x"},
	"assembly": {"standins", "Monitor of System.Reflection.RuntimeAssembly standins 0x"},
	"module":   {"standins", "Monitor of System.Reflection.RuntimeModule standins 0x"},
	"instance": {"Standins.Repo.Ready()", "Monitor of System.Action Standins.Repo.Ready() 0x"},
	"static":   {"Standins.Program.Static()", "Monitor of System.Action Standins.Program.Static() 0x"},
	"both":     {"2 methods", "Monitor of System.Action 2 methods 0x"},
}

// TestStandins: some objects stand for a type, a method or an assembly. clrsnap names the type, method or assembly:
// where threads hold the object and wait for the object, in paths to objects, and in lists of objects.
func TestStandins(t *testing.T) { testenv.EachOfKit(t, testStandins) }

func testStandins(t *testing.T, runtime string) {
	a := testenv.Start(t, "standins", testenv.Options{Runtime: runtime})
	p := livetest.Open(t, a, clrsnap.Options{})
	s, err := p.SnapshotWaits(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := report.Text(&text, s, report.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	g := s.WaitGraph()
	for name, want := range standins {
		w := livetest.Thread(t, s, name+"-waits").Wait
		if w == nil || w.Of != want.of {
			t.Errorf("%s: waits for %+v, want %s", name, w, want.of)
		}
		held := ""
		for _, h := range livetest.Thread(t, s, name+"-holds").Holds {
			held += h.Of
		}
		if held != want.of {
			t.Errorf("%s: holds %s, want %s", name, held, want.of)
		}
		for _, verb := range []string{"holds ", "waits to enter "} {
			if !strings.Contains(text.String(), verb+want.shown) {
				t.Errorf("%s: %q is missing in:\n%s", name, verb+want.shown, text.String())
			}
		}
		found := false
		for i := range g.Locks {
			found = found || g.Locks[i].Of == want.of
		}
		if !found {
			t.Errorf("%s: no lock is of %s", name, want.of)
		}
	}
	h, err := p.Heap(t.Context(), clrsnap.HeapOptions{Roots: regexp.MustCompile(`^Standins\.Repo$`)})
	if err != nil {
		t.Fatal(err)
	}
	ofs := map[string]bool{}
	for i := range h.Paths {
		for _, step := range h.Paths[i].Steps {
			ofs[step.Of] = true
		}
	}
	if !ofs["Standins.Repo.Ready()"] {
		t.Errorf("what keeps the object of a delegate does not name its method: %v", ofs)
	}
	h, err = p.Heap(t.Context(), clrsnap.HeapOptions{Type: regexp.MustCompile(`^System\.RuntimeType$`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range h.Instances {
		ofs[x.Of] = true
	}
	if !ofs["typeof(Standins.Repo)"] {
		t.Errorf("the objects of types are %v", ofs)
	}
}
