package lines

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// TestManyAssemblies shows a stack through 2,000 assemblies, each with its own PDB, with lines and without.
func TestManyAssemblies(t *testing.T) {
	layer.Proof(t)
	const count = 2000
	a := testenv.Start(t, "assemblies", testenv.Options{
		Args: []string{"--count", strconv.Itoa(count), "--folder", t.TempDir()},
	})
	command := livetest.Command(t)
	without, memoryWithout, tookWithout := linesOf(t, command, a.PID, "--lines=never")
	with, memory, took := linesOf(t, command, a.PID, "--lines=always")
	t.Logf("%d frames with a line: %d MB, %v; without lines: %d MB, %v", with, memory>>20, took, memoryWithout>>20,
		tookWithout)
	if without != 0 || with < count {
		t.Errorf("%d frames with a line, without lines %d; want %d", with, without, count)
	}
	const most = 224 << 20 // docs/security.md
	if memory > most || took > 20*time.Second {
		t.Errorf("%d MB, %v", memory>>20, took)
	}
	livetest.EndsWell(t, a)
}

// linesOf runs the command, and returns the number of frames with a line, the peak memory in bytes, and the CPU
// time. All lines must be right.
func linesOf(t *testing.T, command string, pid int, flag string) (n int, memory int64, took time.Duration) {
	t.Helper()
	c := exec.Command(command, "stack", "--json", flag, strconv.Itoa(pid))
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %v", c.Args, err)
	}
	var snap struct {
		Threads []struct {
			Frames []struct {
				Kind, Method, File string
				Line               int
			}
		}
	}
	if err := json.Unmarshal(out, &snap); err != nil {
		t.Fatal(err)
	}
	call := lineWith(t, "../../../testdata/apps/assemblies/Program.cs", "// of the next copy")
	for _, th := range snap.Threads {
		for _, f := range th.Frames {
			if f.Kind != "managed" || f.Line == 0 {
				continue
			}
			n++
			if f.Method == "Assemblies.Link.Call" && f.Line != call {
				t.Errorf("%s has line %s:%d", f.Method, f.File, f.Line)
			}
		}
	}
	s := c.ProcessState
	return n, s.SysUsage().(*syscall.Rusage).Maxrss << 10, s.UserTime() + s.SystemTime()
}

// lineWith is the line of a file that contains a text.
func lineWith(t *testing.T, file, text string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, _, ok := strings.Cut(string(b), text)
	if !ok {
		t.Fatalf("%s has no %q", file, text)
	}
	return strings.Count(before, "\n") + 1
}
