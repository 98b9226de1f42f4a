package matrix

import (
	"context"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
)

// TestGenericsMove takes stacks while collections move the objects by which instantiations are told.
// Which one runs in a frame follows from its caller.
func TestGenericsMove(t *testing.T) { testenv.EachRuntime(t, testGenericsMove) }

// stormType is the type argument of what a method of the program's Storm calls.
var stormType = map[string]string{
	"Generics.Storm.AsOrder": "Generics.Order",
	"Generics.Storm.AsBill":  "Generics.Bill",
	"Generics.Storm.AsText":  "string",
	"Generics.Storm.AsList":  "System.Collections.Generic.List<Generics.Order>",
}

func testGenericsMove(t *testing.T, runtime string) {
	for _, env := range [][]string{nil, {"DOTNET_TieredCompilation=0"}} {
		a := testenv.Start(t, "generics", testenv.Options{
			Runtime: runtime, Args: []string{"--storm", "6"},
			Env: append(env, "DOTNET_GCgen0size=0x40000", "DOTNET_gcForceCompact=1"),
		})
		p := livetest.Open(t, a, clrsnap.Options{ExactGenerics: true})
		var s storm
		for end := time.Now().Add(time.Duration(layer.Size(5, 60)) * time.Second); time.Now().Before(end); {
			snap, err := p.SnapshotAll(context.Background(), func(th *clrsnap.Thread) bool {
				return strings.HasPrefix(th.Name, "storm-")
			})
			if err != nil {
				t.Fatal(err)
			}
			for i := range snap.Threads {
				s.judge(t, snap.Threads[i].Frames)
			}
		}
		t.Logf("objects: %d told, %d not; methods: %d told, %d not", s.objects[1], s.objects[0], s.methods[1], s.methods[0])
		if s.objects[1] < 100 || s.methods[0] > s.methods[1]/100 {
			t.Error("too few are told")
		}
		livetest.EndsWell(t, a)
	}
}

// storm counts frames that are told, and frames that are not.
type storm struct{ objects, methods [2]int }

func (s *storm) judge(t *testing.T, frames []profile.Frame) {
	t.Helper()
	managed := livetest.OfKind(frames, profile.Managed)
	for i := range managed[:max(len(managed)-1, 0)] {
		f, caller := &managed[i], &managed[i+1]
		of, format := &s.objects, "Generics.Deep<%>.Go"
		if f.Method == "Generics.Storm.Method" {
			of, format = &s.methods, "Generics.Storm.Method<%>"
		} else if f.Method != "Generics.Deep`1.Go" {
			continue
		}
		if f.Generics != profile.ExactGenerics {
			of[0]++
			continue
		}
		of[1]++
		if want := strings.Replace(format, "%", stormType[caller.Method], 1); f.Display != want {
			t.Errorf("%s called by %s", f.Display, caller.Display)
		}
	}
}
