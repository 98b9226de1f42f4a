package matrix

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// pdbOf is the PDB beside an assembly.
func pdbOf(dll string) string { return strings.TrimSuffix(dll, ".dll") + ".pdb" }

// waitLine is the line at which clrsnap sees the blocking method of the program "inmemory": "file number"; "": no line.
func waitLine(t *testing.T, s *snapshot.Snapshot) string {
	t.Helper()
	for _, th := range s.Threads {
		i := slices.IndexFunc(th.Frames, func(f snapshot.Frame) bool { return f.Method == "InMemory.Program.Wait" })
		if i < 0 {
			continue
		}
		if l := th.Frames[i].Line; l != nil {
			return fmt.Sprintf("%s %d", l.File, l.Line)
		}
		return ""
	}
	t.Fatal("no thread is in the method Wait")
	return ""
}

func linesOf(t *testing.T, a *testenv.App) string {
	t.Helper()
	s, err := livetest.Open(t, a, clrsnap.Options{Lines: true}).SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return waitLine(t, s)
}

// TestPDBInMemory: an assembly that exists in memory only has the PDB with which the assembly was loaded.
func TestPDBInMemory(t *testing.T) { testenv.EachVersion(t, testPDBInMemory) }

func testPDBInMemory(t *testing.T, runtime string) {
	dll := testenv.BuildFor(t, "inmemory", runtime)
	other := pdbOf(testenv.BuildFor(t, "spin", runtime))
	start := func(args ...string) *testenv.App {
		return testenv.Start(t, "inmemory",
			testenv.Options{Runtime: runtime, Args: append([]string{"--image", dll}, args...)})
	}
	a := start("--pdb", pdbOf(dll))
	want := a.Ask("line")[0]
	if got := linesOf(t, a); got != want {
		t.Errorf("line %q, want %q", got, want)
	}
	if k := testenv.DumpGCore; k.Runs(runtime) {
		s := livetest.SnapshotCore(t, testenv.Dump(t, a, k), clrsnap.CoreOptions{Options: clrsnap.Options{Lines: true}})
		if got := waitLine(t, s); got != want {
			t.Errorf("%s: line %q, want %q", k, got, want)
		}
	}
	livetest.EndsWell(t, a)
	for _, args := range [][]string{nil, {"--pdb", other}} {
		a := start(args...)
		if got := linesOf(t, a); got != "" {
			t.Errorf("line %q of an assembly that was loaded with %v", got, args)
		}
		livetest.EndsWell(t, a)
	}
}

// TestPDBOfSingleFile: the PDB of an assembly in a bundle is in the bundle, or beside the program; both in the
// program's own mount namespace.
func TestPDBOfSingleFile(t *testing.T) { testenv.EachVersion(t, testPDBOfSingleFile) }

func testPDBOfSingleFile(t *testing.T, runtime string) {
	needRoot(t)
	if !slices.Contains(testenv.Shapes(runtime), testenv.SingleFile) {
		t.Skip("SKIPPED, NOTHING WAS TESTED: nothing here can make a single file for this runtime")
	}
	dll := testenv.BuildFor(t, "inmemory", runtime)
	for _, shape := range []testenv.Shape{testenv.SingleFile, testenv.Compressed} {
		for _, place := range []string{"bundle", "beside", "nowhere"} {
			var more []string
			if place == "bundle" {
				more = []string{pdbOf(dll)}
			}
			p := testenv.PublishWith(t, "inmemory", runtime, shape, publicDir(t), more...)
			beside := filepath.Join(p.Dir, "inmemory.pdb")
			os.Remove(beside) // some packers put the PDB there themselves
			if place == "beside" {
				if err := os.Link(pdbOf(dll), beside); err != nil {
					t.Fatal(err)
				}
			}
			// Only the program sees its files at this path.
			seen := p.At(filepath.Join(publicDir(t), "program"))
			if err := os.Mkdir(seen.Dir, 0o755); err != nil {
				t.Fatal(err)
			}
			a := seen.Start(t, testenv.Options{Prepare: func(cmd *exec.Cmd) {
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
				inShell(cmd, "set -e\nmount --make-rprivate /\nmount --bind \"$1\" \"$2\"\nshift 2\nexec \"$@\"",
					p.Dir, seen.Dir)
			}})
			want := a.Ask("line")[0]
			if place == "nowhere" {
				want = ""
			}
			if got := linesOf(t, a); got != want {
				t.Errorf("%s, %s: line %q, want %q", shape, place, got, want)
			}
			livetest.EndsWell(t, a)
		}
	}
}
