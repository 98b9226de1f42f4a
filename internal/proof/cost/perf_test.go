package cost

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/proof/observer"
	"clrsnap/internal/testenv"
)

// BenchmarkAgainstPerf has perf record and clrsnap look at the same program in
// turns, and compares the number of named frames, the stacks that reach the base
// of the thread, and the cost. For perf the program must have been started with a
// perf map; perf follows frame pointers.
func BenchmarkAgainstPerf(b *testing.B) {
	if _, err := exec.LookPath("perf"); err != nil {
		b.Skip("SKIPPED, NOTHING WAS MEASURED: there is no perf: run scripts/get-tools.sh bench")
	}
	a := testenv.Start(b, "busy", testenv.Options{
		Args: []string{"--max-seconds", "3600"},
		Env:  perfEnv,
	})
	ways := []*way{
		{name: "perf", start: func(b *testing.B, pid int) *observer.Observer {
			// In user mode only: not everybody may let perf do more.
			return perfRecord(b, perfQuality, "-e", "cpu-clock:u", "-F", "99", "-g", "-p", strconv.Itoa(pid))
		}},
		recordWay("cpu-99", livetest.Command(b), "--mode", "cpu", "-r", "99"),
	}
	subjectOf(b, a).compareWays(b, ways)
	livetest.EndsWell(b, a)
	count := func(head string, of func(*observer.Quality) any) column {
		return column{head, func(w *way) string { return fmt.Sprint(of(&w.seen)) }}
	}
	reportWays(b, "50 threads compute, started for perf."+shortWindows.compared(), "units", ways,
		count("KB", func(q *observer.Quality) any { return q.Bytes >> 10 }),
		count("managed frames", func(q *observer.Quality) any { return q.Managed.Frames }),
		count("named %", func(q *observer.Quality) any { return percent(q.Managed.Named, q.Managed.Frames) }),
		count("native frames", func(q *observer.Quality) any { return q.Native.Frames }),
		count("named %", func(q *observer.Quality) any { return percent(q.Native.Named, q.Native.Frames) }),
		count("to the base %", func(q *observer.Quality) any { return percent(q.Whole, q.Samples) }))
}

func percent(n, of int) string { return fmt.Sprintf("%.2f", 100*float64(n)/float64(max(1, of))) }

// floorWay has perf look at the whole machine: the cost of stacks that the kernel
// follows, and nobody walks or names.
func floorWay(rate int) *way {
	args := []string{"-e", "cpu-clock", "-F", strconv.Itoa(rate), "-g", "-a"}
	return &way{
		key: fmt.Sprintf("perf-%d", rate), floor: true, name: "`perf record " + strings.Join(args, " ") + "`",
		start: func(b *testing.B, pid int) *observer.Observer {
			return perfRecord(b, func(file string) (*observer.Quality, error) { return perfCount(file, pid) }, args...)
		},
	}
}

// perfEnv are perf's demands on the runtime: a map of the code in /tmp, and code in
// anonymous memory. By default, writable memory is never executable, and code is in
// a memory file. perf does not look into the map for a memory file, and then names
// no frame of a jitted method.
var perfEnv = []string{"DOTNET_PerfMapEnabled=1", "DOTNET_EnableWriteXorExecute=0"}

// perfRecord is perf record as an observer; judge looks at perf's file. The events
// come from a clock of CPU time, as with clrsnap: not every virtual machine has a
// hardware counter.
func perfRecord(b *testing.B, judge func(file string) (*observer.Quality, error), args ...string) *observer.Observer {
	b.Helper()
	file := filepath.Join(b.TempDir(), "perf.data")
	cmd := exec.Command("perf", append([]string{"record", "-q", "-o", file}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Kill() }) // fails if perf has ended
	return &observer.Observer{Cmd: cmd, End: func() (*observer.Quality, error) {
		defer os.Remove(file)
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			return nil, err
		}
		_ = cmd.Wait() // perf ends itself with the signal
		info, err := os.Stat(file)
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, &stderr)
		}
		q, err := judge(file)
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, &stderr)
		}
		q.Bytes = info.Size()
		if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			q.Memory = u.Maxrss << 10
		}
		return q, nil
	}}
}

// perfCount has perf count its samples of a process.
func perfCount(file string, pid int) (*observer.Quality, error) {
	return perfScript(file, func(out io.Reader) (*observer.Quality, error) {
		q := new(observer.Quality)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "PERF_RECORD_LOST") {
				q.Lost++
			} else {
				q.Samples++
			}
		}
		return q, lines.Err()
	}, "-F", "tid", "--pid", strconv.Itoa(pid))
}

// perfQuality has perf list its samples.
func perfQuality(file string) (*observer.Quality, error) {
	return perfScript(file, readPerfScript, "-F", "tid,ip,sym,dso")
}

func perfScript(
	file string, read func(io.Reader) (*observer.Quality, error), args ...string,
) (*observer.Quality, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	args = append([]string{"script", "-f", "-i", file, "--show-lost-events"}, args...)
	cmd := exec.CommandContext(ctx, "perf", args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	q, err := read(out)
	if waitErr := cmd.Wait(); err == nil {
		err = waitErr
	}
	return q, err
}

// readPerfScript reads stacks: a line with the thread, then the frames, leaf
// first, each
//
//	7f31a3e4a4d0 long [busy] Busy.Pricing::Visit(…) (/tmp/perf-4711.map)
//
// and an empty line.
func readPerfScript(r io.Reader) (*observer.Quality, error) {
	q := &observer.Quality{}
	last, in := "", false
	end := func() {
		if in {
			q.Samples++
			if atBase(last) {
				q.Whole++
			} else {
				q.Broken++
			}
		}
		in, last = false, ""
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		address, rest, ok := strings.Cut(line, " ")
		file := strings.LastIndex(rest, " (/")
		if file < 0 {
			file = strings.LastIndex(rest, " ([")
		}
		switch {
		case strings.Contains(line, "PERF_RECORD_LOST"):
			q.Lost++
		case ok && file >= 0 && isHex(address):
			last = rest[:file]
			perfFrame(q, rest[file+1:], last != "[unknown]")
		default:
			end()
			in = line != ""
		}
	}
	end()
	return q, lines.Err()
}

func isHex(s string) bool {
	_, err := strconv.ParseUint(s, 16, 64)
	return err == nil
}

// perfFrame counts a frame by the file of its code. Assemblies compiled ahead
// of time are files; other code is in the perf map.
func perfFrame(q *observer.Quality, file string, name bool) {
	for _, managed := range []string{".dll", "/perf-", "//anon", "doublemapper"} {
		if strings.Contains(file, managed) {
			q.Managed.Add(name, 1)
			return
		}
	}
	q.Native.Add(name, 1)
}

// atBase reports whether a frame is where threads begin.
func atBase(name string) bool {
	for _, base := range []string{"clone", "start_thread", "_start", "__libc_start", "thread_start"} {
		if strings.Contains(name, base) {
			return true
		}
	}
	return false
}
