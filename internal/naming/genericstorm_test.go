package naming_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestGenericsMove takes stacks while collections move the objects that tell the instantiations. The right
// instantiation of a frame follows from the frame's caller.
func TestGenericsMove(t *testing.T) { testenv.EachVersion(t, testGenericsMove) }

// stormType is the type argument of the callee, for each method of the program's Storm.
var stormType = map[string]string{
	"Generics.Storm.AsOrder": "Generics.Order",
	"Generics.Storm.AsBill":  "Generics.Bill",
	"Generics.Storm.AsText":  "string",
	"Generics.Storm.AsList":  "System.Collections.Generic.List<Generics.Order>",
}

func testGenericsMove(t *testing.T, runtime string) {
	for _, o := range []testenv.Options{
		{}, {Compile: []string{"-o-"}}, {Env: []string{"DOTNET_TieredCompilation=0"}},
	} {
		o.Runtime, o.Args = runtime, []string{"--storm", "6"}
		o.Env = append(o.Env, "DOTNET_GCgen0size=0x40000", "DOTNET_gcForceCompact=1")
		a := testenv.Start(t, "generics", o)
		p := livetest.Open(t, a, clrsnap.Options{ExactGenerics: true})
		var s storm
		look := func() {
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
		for end := time.Now().Add(layer.Size(time.Second, time.Minute)); time.Now().Before(end); {
			look()
		}
		testenv.UntilSeen(t, func() string {
			if look(); s.objects[1] < 100 || o.Compile != nil && s.plain[1] < 100 || s.methods[1] < 100 {
				return fmt.Sprintf("100 frames of each kind that are told: %+v", s)
			}
			return ""
		})
		t.Logf("not told and told, by an object: %v; by it as a mere argument: %v; by a method: %v", s.objects, s.plain,
			s.methods)
		if s.methods[0] > s.methods[1]/100 {
			t.Error("too few are told by a method")
		}
		livetest.EndsWell(t, a)
	}
}

// storm counts frames without an instantiation, and frames with an instantiation.
type storm struct{ objects, plain, methods [2]int }

func (s *storm) judge(t *testing.T, frames []snapshot.Frame) {
	t.Helper()
	managed := livetest.OfKind(frames, snapshot.Managed)
	for i := range managed[:max(len(managed)-1, 0)] {
		f, caller := &managed[i], &managed[i+1]
		var of *[2]int
		var format string
		switch f.Method {
		case "Generics.Deep`1.Go":
			of, format = &s.objects, "Generics.Deep<%>.Go"
		case "Generics.Deep`1.Plain":
			of, format = &s.plain, "Generics.Deep<%>.Plain"
		case "Generics.Storm.Method":
			of, format = &s.methods, "Generics.Storm.Method<%>"
		default:
			continue
		}
		if f.Generics != snapshot.ExactGenerics {
			of[0]++
			continue
		}
		of[1]++
		if want := strings.Replace(format, "%", stormType[caller.Method], 1); f.Display != want {
			t.Errorf("%s called by %s", f.Display, caller.Display)
		}
	}
}
