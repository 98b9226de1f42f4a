package matrix

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// relabelled copies the 10.0.8 runtime, which does not describe itself, and changes the version in the copy. The new
// stamp is as long as the old stamp.
func relabelled(t *testing.T, stamp string) string {
	t.Helper()
	kit := testenv.Kit(t)
	kit.Need(t, "net10:dotnet-10.0.8")
	host, dir := kit.Host("net10:dotnet-10.0.8"), t.TempDir()
	text, err := os.ReadFile(host)
	if err != nil {
		t.Fatal(err)
	}
	const own = "@(#)Version 10.0.826."
	changed := bytes.ReplaceAll(text, []byte(own), []byte("@(#)Version "+stamp))
	if len(changed) != len(text) || bytes.Equal(changed, text) {
		t.Fatalf("%s does not have the stamp %q, or it is longer than %q", host, own, stamp)
	}
	if err := os.WriteFile(filepath.Join(dir, "dotnet"), changed, 0o755); err != nil {
		t.Fatal(err)
	}
	framework, err := filepath.Glob(filepath.Join(filepath.Dir(host), "*.dll"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range framework {
		if err := os.Symlink(file, filepath.Join(dir, filepath.Base(file))); err != nil {
			t.Fatal(err)
		}
	}
	name, err := filepath.Rel(filepath.Join(kit.Dir, "net10"), filepath.Join(dir, "dotnet"))
	if err != nil {
		t.Fatal(err)
	}
	return "net10:" + name
}

// TestUnlistedBuild: a build that nobody has tested is read if the build looks like its relatives.
func TestUnlistedBuild(t *testing.T) {
	a := testenv.Start(t, "scenarios", testenv.Options{
		Runtime: relabelled(t, "10.0.726."), Args: []string{"--only", "lambda,eh-catch"},
	})
	p := livetest.Open(t, a, clrsnap.Options{})
	if v := p.Info().Runtime.Version; v != "10.0.7" {
		t.Errorf("version %q", v)
	}
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for name, want := range a.Stacks {
		for i := range snap.Threads {
			if th := &snap.Threads[i]; th.OSThreadID == want.TID {
				compared++
				if err := compareStack(th, want); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	if compared < 2 || compared != len(a.Stacks) {
		t.Errorf("of %d stacks %d were compared", len(a.Stacks), compared)
	}
	livetest.EndsWell(t, a)
}

// TestUnreadableRuntimes: an unknown runtime is refused, and also a runtime that lies about its version. The error
// names the version. Native stacks can be had.
func TestUnreadableRuntimes(t *testing.T) {
	layer.Live(t)
	for _, tt := range []struct {
		stamp string
		words []string
	}{
		{"7.00.826.", []string{".NET 7.0.8", "does not describe itself", "update clrsnap"}},
		{"9.00.526.", []string{".NET 9.0.5", "update clrsnap"}},
	} {
		t.Run(tt.stamp, func(t *testing.T) {
			a := testenv.Start(t, "idle", testenv.Options{Runtime: relabelled(t, tt.stamp)})
			var p *clrsnap.Process
			var err error
			// For some seconds the runtime might not have started yet.
			end := time.Now().Add(testenv.Hang)
			for !errors.Is(err, clrsnap.ErrUnsupported) && time.Now().Before(end) {
				time.Sleep(100 * time.Millisecond)
				if p, err = clrsnap.Open(context.Background(), a.PID, clrsnap.Options{}); err == nil {
					p.Close()
				}
			}
			livetest.WantSentence(t, err, append(tt.words, strconv.Itoa(a.PID), "--native")...)
			var blocking []string
			for _, c := range clrsnap.Diagnose(context.Background(), a.PID) {
				if c.Outcome == snapshot.Blocking {
					blocking = append(blocking, c.Name+": "+c.Detail)
				}
			}
			if len(blocking) != 1 || !strings.HasPrefix(blocking[0], "runtime: ") {
				t.Errorf("doctor: in the way are %q", blocking)
			}
			native := livetest.Open(t, a, clrsnap.Options{NativeOnly: true})
			snap, err := native.SnapshotAll(context.Background(), nil)
			if err != nil || len(snap.Threads) == 0 || len(snap.Threads[0].Frames) == 0 {
				t.Errorf("native stacks: %v, %+v", err, snap)
			}
			livetest.EndsWell(t, a)
		})
	}
}

// TestDiagnoseOtherRuntimes: the doctor says which contracts come from the runtime, and which from clrsnap.
func TestDiagnoseOtherRuntimes(t *testing.T) {
	layer.Matrix(t)
	for _, tt := range []struct {
		runtime string
		words   []string
	}{
		{"net9", []string{"types", "ExecutionManager 1 (clrsnap's)", "Thread 1,"}},
		{"net10:dotnet-10.0.8", []string{"none", "Thread 1 (clrsnap's)"}},
	} {
		t.Run(tt.runtime, func(t *testing.T) {
			testenv.Kit(t).Need(t, tt.runtime)
			a := testenv.Start(t, "idle", testenv.Options{Runtime: tt.runtime})
			var said strings.Builder
			for _, c := range clrsnap.Diagnose(context.Background(), a.PID) {
				if c.Outcome == snapshot.Blocking {
					t.Errorf("%s: %s", c.Name, c.Detail)
				}
				said.WriteString(c.Name + ": " + c.Detail + ",\n")
			}
			for _, w := range tt.words {
				if !strings.Contains(said.String(), w) {
					t.Errorf("not said: %q in\n%s", w, &said)
				}
			}
			livetest.EndsWell(t, a)
		})
	}
}

// TestOpenWhileStarting: the error for a runtime that is still starting says that the runtime is not there yet, or not
// ready yet, and nothing else.
func TestOpenWhileStarting(t *testing.T) { testenv.EachRuntime(t, testOpenWhileStarting) }

func testOpenWhileStarting(t *testing.T, runtime string) {
	early := map[string]int{}
	for n := 0; n < 5 || n < 50 && len(early) == 0; n++ {
		a := testenv.Start(t, "idle", testenv.Options{Runtime: runtime, NoReady: true})
		for end := time.Now().Add(testenv.Hang); ; {
			p, err := clrsnap.Open(context.Background(), a.PID, clrsnap.Options{})
			if err == nil {
				p.Close()
				break
			}
			starting := !errors.Is(err, clrsnap.ErrUnsupported) &&
				strings.HasSuffix(err.Error(), "try again in a moment")
			if !starting && !errors.Is(err, clrsnap.ErrNotDotNet) || time.Now().After(end) {
				t.Fatal(err)
			}
			early[err.Error()[strings.LastIndex(err.Error(), ": ")+2:]]++
		}
		livetest.EndsWell(t, a)
	}
	if t.Logf("before it had started: %v", early); len(early) == 0 {
		t.Error("the runtime had started before it was first looked at")
	}
}

// TestOpenInStorm: a runtime is readable although its threads and methods change while clrsnap opens the process.
func TestOpenInStorm(t *testing.T) { testenv.EachRuntime(t, testOpenInStorm) }

func testOpenInStorm(t *testing.T, runtime string) {
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime, Args: []string{
		"--no-blocked", "--busy", "600", "--workers", "thread-churn,ping-pong,eh-storm,eh-native",
	}})
	for range 50 {
		p, err := clrsnap.Open(context.Background(), a.PID, clrsnap.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
	}
	livetest.EndsWell(t, a)
}

// TestSameContracts: a servicing build that nobody has tested, and a new version with known contracts, are read like
// the version with the same contracts.
func TestSameContracts(t *testing.T) {
	for version, texts := range map[string]map[string]string{
		"11.0.3": {"@(#)Version 11.0.26.53018 ": "@(#)Version 11.0.326.5301 "},
		"12.0.0": {"@(#)Version 11.0.26.": "@(#)Version 12.0.26."},
	} {
		t.Run(version, func(t *testing.T) {
			runtime := testenv.Altered(t, testenv.NewestRuntime, texts)
			a := testenv.Start(t, "scenarios", testenv.Options{
				Runtime: runtime, Args: []string{"--only", "lambda,eh-catch"},
			})
			p := livetest.Open(t, a, clrsnap.Options{Lines: true})
			if got := p.Info().Runtime.Version; got != version || len(p.Unknown()) > 0 {
				t.Errorf("it is %q, and not understood are %v", got, p.Unknown())
			}
			snap, err := p.SnapshotAll(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			checkScenarioStacks(t, a, snap, "")
			lines := 0
			eachFrame(snap, func(f *snapshot.Frame) {
				if f.Line != nil {
					lines++
				}
			})
			if lines < 5 {
				t.Errorf("%d lines", lines)
			}
			if h, err := p.Heap(t.Context(), clrsnap.HeapOptions{}); err != nil || h.ConsistentShare < 0.5 {
				t.Errorf("%+v, %v", h, err)
			}
			livetest.EndsWell(t, a)
		})
	}
}

// TestUnknownContracts: if a runtime follows an unknown version of a contract, clrsnap shows everything that does not
// depend on the contract, and names the omissions. Nothing is read by the layout of another version.
func TestUnknownContracts(t *testing.T) {
	for _, tt := range []struct {
		contract, says string
		check          func(t *testing.T, p *clrsnap.Process, snap *snapshot.Snapshot)
	}{
		{"DebugInfo", "without source lines", func(t *testing.T, _ *clrsnap.Process, snap *snapshot.Snapshot) {
			eachFrame(snap, func(f *snapshot.Frame) {
				if f.Kind == snapshot.Managed && (f.Line != nil || f.Inlined) {
					t.Errorf("a line, or inlined: %+v", f)
				}
			})
		}},
		{"SyncBlock", "without locks", func(t *testing.T, _ *clrsnap.Process, snap *snapshot.Snapshot) {
			for i := range snap.Threads {
				if th := &snap.Threads[i]; len(th.Holds) > 0 {
					t.Errorf("%q holds %+v", th.Name, th.Holds)
				}
			}
		}},
		{"GCInfo", "without type arguments", func(t *testing.T, _ *clrsnap.Process, snap *snapshot.Snapshot) {}},
		{"GC", "without the heap", func(t *testing.T, p *clrsnap.Process, _ *snapshot.Snapshot) {
			for what, err := range map[string]error{
				"heap":     second(p.Heap(t.Context(), clrsnap.HeapOptions{})),
				"tasks":    second(p.Tasks(t.Context(), clrsnap.TasksOptions{})),
				"requests": second(p.Requests(t.Context(), clrsnap.RequestsOptions{})),
			} {
				if err == nil || !strings.Contains(err.Error(), "version c9 of the contract GC") {
					t.Errorf("%s: %v", what, err)
				}
			}
		}},
	} {
		t.Run(tt.contract, func(t *testing.T) {
			is := `"` + tt.contract + `":"c`
			runtime := testenv.Altered(t, testenv.NewestRuntime, map[string]string{is + `1"`: is + `9"`})
			a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime})
			p := livetest.Open(t, a, clrsnap.Options{Lines: true, Inlined: true, ExactGenerics: true})
			unknown := p.Unknown()
			if len(unknown) != 1 || unknown[0].Contract != tt.contract || !strings.Contains(unknown[0].Text, tt.says) {
				t.Errorf("%+v", unknown)
			}
			snap, err := p.SnapshotAll(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			checkScenarioStacks(t, a, snap, "")
			tt.check(t, p, snap)
			livetest.EndsWell(t, a)
		})
	}
}

func second[T any](_ T, err error) error { return err }

func eachFrame(s *snapshot.Snapshot, do func(*snapshot.Frame)) {
	for i := range s.Threads {
		for j := range s.Threads[i].Frames {
			do(&s.Threads[i].Frames[j])
		}
	}
}
