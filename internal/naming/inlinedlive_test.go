package naming_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// inlinedCases has, for each thread of the program "inlined", the inlined methods between the callee and the case,
// innermost first.
var inlinedCases = map[string][]string{
	"One":           {"Inlined.Small.Step"},
	"Two":           {"Inlined.Small.Step", "Inlined.Small.Above"},
	"Result":        {"Inlined.Small.Value"},
	"Property":      {"Inlined.Counter.get_Next"},
	"Constructor":   {"Inlined.Made..ctor"},
	"GenericMethod": {"Inlined.Small.Generic"},
	"GenericType":   {"Inlined.Holder`1.Put"},
	"PInvoke":       {"Inlined.Small.Native"},
	"Unique":        {"Inlined.Small.Step", "Inlined.Small.Both"},
	"Atomic":        {"Inlined.Small.Value"},
	"Interface":     {"Inlined.Worker.Work"},
	"Plain":         nil,
	"Direct":        nil,
	"Either":        nil,
	"OrNone":        nil,
	"Tail":          {"Inlined.Small.Last"},
	"Delegate":      nil,
}

// TestInlined compares the inlined frames with the knowledge of the program's author, and with the JIT's reports of
// inlining. The frames are proved, or come from the inline tree, which the JIT records on demand.
func TestInlined(t *testing.T) { testenv.EachVersion(t, testInlined) }

func testInlined(t *testing.T, runtime string) {
	for _, recorded := range []string{"", "DOTNET_RichDebugInfo=1"} {
		name := "proved"
		if recorded != "" {
			name = "recorded"
		}
		t.Run(name, func(t *testing.T) {
			list := filepath.Join(t.TempDir(), "inlinings")
			env := append(livetest.WatchInlinings(t, runtime, list), recorded)
			a := testenv.Start(t, "inlined", testenv.Options{Runtime: runtime, Env: env})
			checkInlined(t, a, runtime, list, recorded != "")
		})
	}
}

func checkInlined(t *testing.T, a *testenv.App, runtime, list string, recorded bool) {
	p := livetest.Open(t, a, clrsnap.Options{Inlined: true, Lines: true})
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	events := livetest.Inlinings(t, list, func(pairs map[livetest.Inlining]bool) bool {
		for name, methods := range inlinedCases {
			for _, m := range methods {
				if !pairs[livetest.Inlining{Root: "Inlined.Cases." + name, Inlinee: m}] {
					return false
				}
			}
		}
		return true
	})
	met := 0
	for i := range snap.Threads {
		th := &snap.Threads[i]
		root := slices.IndexFunc(th.Frames, func(f snapshot.Frame) bool {
			return strings.HasPrefix(f.Method, "Inlined.Cases.")
		})
		if root < 0 {
			continue
		}
		met++
		name := strings.TrimPrefix(th.Frames[root].Method, "Inlined.Cases.")
		want, ok := inlinedCases[name]
		if !ok {
			t.Errorf("case %q is not known", name)
		}
		var got []string
		for k := root - 1; k >= 0 && th.Frames[k].Inlined; k-- {
			f := &th.Frames[k]
			got = slices.Insert(got, 0, f.Method)
			if !events[livetest.Inlining{Root: th.Frames[root].Method, Inlinee: f.Method}] {
				t.Errorf("%s: the JIT does not say that it has inlined %s", name, f.Method)
			}
			line := f.Line != nil && filepath.Base(f.Line.File) == "Program.cs"
			switch either := f.Method == "Inlined.Small.Both"; { // the frame is of either of two calls
			case either && recorded && runtime == testenv.NewestRuntime: // the record may be uninitialised memory
			case line != (!either || recorded):
				t.Errorf("%s: %s has line %+v", name, f.Method, f.Line)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: inlined %q, want %q", name, got, want)
		}
	}
	if met != len(inlinedCases) {
		t.Errorf("%d cases, want %d", met, len(inlinedCases))
	}
	livetest.EndsWell(t, a)
}
