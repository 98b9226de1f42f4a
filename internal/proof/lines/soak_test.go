package lines

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"os/exec"
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

var soakTime = flag.Duration("soak", layer.Size(5*time.Second, 10*time.Minute),
	"how `long` TestSoak looks at each program")

// TestSoak takes snapshots of a program that makes, replaces and unloads code, throws and collects garbage. Each
// line must belong to its frame's method, as System.Reflection.Metadata reads the PDB.
func TestSoak(t *testing.T) {
	layer.Proof(t)
	testenv.EachOf(t, layer.Size([]string{testenv.DefaultRuntime, testenv.NewestRuntime}, testenv.AllRuntimes()),
		testSoak)
}

func testSoak(t *testing.T, runtime string) {
	seconds := strconv.Itoa(int(soakTime.Seconds()) + 300) // the test ends the program earlier
	a := testenv.Start(t, "scenarios", testenv.Options{
		Runtime: runtime, Reuse: true, Env: soon,
		Args: []string{"--busy", seconds, "--max-seconds", seconds, "--storm"},
	})
	s := &soak{truth: methodLines(t, testenv.BuildFor(t, "scenarios", runtime)), tiers: map[string]int{},
		methods: map[string]bool{}}
	p := livetest.Open(t, a, clrsnap.Options{Lines: true})
	for goOn := livetest.GoOn(*soakTime, s.few); goOn() && !t.Failed(); {
		snap, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s.snapshots++
		for i := range snap.Threads {
			for j := range snap.Threads[i].Frames {
				s.frame(t, &snap.Threads[i].Frames[j])
			}
		}
	}
	livetest.EndsWell(t, a)
	t.Logf("%d snapshots, %d frames of the program, %d with a line, %d of them approximate; %d methods; tiers %v; "+
		"of methods without a text or a PDB %d", s.snapshots, s.frames, s.lines, s.approximate, len(s.methods), s.tiers,
		s.without)
	if s.few() || s.lines*10 < s.frames*6 {
		t.Errorf("%d lines of %d frames, of %d methods", s.lines, s.frames, len(s.methods))
	}
}

// soak counts a test's findings.
type soak struct {
	truth                                          map[string]map[place]bool
	snapshots, frames, lines, approximate, without int
	tiers                                          map[string]int
	methods                                        map[string]bool
}

// few reports whether too little was seen for a verdict.
func (s *soak) few() bool { return s.lines < 2000 || len(s.methods) < 100 }

func (s *soak) frame(t *testing.T, f *snapshot.Frame) {
	t.Helper()
	if f.Kind != snapshot.Managed {
		return
	}
	if f.Module == "scenarios" {
		s.frames++
	} else if f.Line != nil {
		t.Errorf("%s!%s has line %s:%d", f.Module, f.Method, f.Line.File, f.Line.Line)
		return
	}
	if f.Line == nil {
		s.without++
		return
	}
	s.lines++
	s.tiers[f.Tier]++
	s.methods[f.Method] = true
	if f.Line.Approximate {
		s.approximate++
	}
	if at := (place{f.Line.File, f.Line.Line}); !s.truth[f.Method][at] {
		t.Errorf("%s+%#x (%s): line %v is none of the method's", f.Method, f.Offset, f.Tier, at)
	}
}

// methodLines returns the lines of each method of an assembly, by the method's name: overloads share an entry.
func methodLines(t *testing.T, dll string) map[string]map[place]bool {
	t.Helper()
	kit := testenv.Kit(t)
	reader := filepath.Join(t.TempDir(), "points.dll")
	if out, err := exec.Command(kit.Compiler(), "net10", "--rtc", "-out:"+reader,
		"testdata/points.cs").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(kit.Host(testenv.DefaultRuntime), reader, dll).Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[place]bool{}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		words := strings.Split(s.Text(), "\t")
		line, err := strconv.Atoi(words[len(words)-1])
		if err != nil || len(words) != 3 {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		if all[words[0]] == nil {
			all[words[0]] = map[place]bool{}
		}
		all[words[0]][place{words[1], line}] = true
	}
	if len(all) < 200 {
		t.Fatal(fmt.Errorf("%d methods have lines", len(all)))
	}
	return all
}
