package clrsnap_test

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

	"clrsnap/internal/testenv"
)

// BenchmarkAgainstPerf has perf record and clrsnap look at the same program in
// turns: who names how many frames, whose stacks reach the base of the thread, and
// what it costs. For perf the program must have been started with a perf map, and
// stacks are followed by frame pointers.
func BenchmarkAgainstPerf(b *testing.B) {
	perf, err := exec.LookPath("perf")
	if err != nil {
		b.Skip("SKIPPED, NOTHING WAS MEASURED: there is no perf")
	}
	a := testenv.Start(b, "busy", testenv.Options{
		Args: []string{"--max-seconds", "3600"},
		Env:  perfEnv,
	})
	dir := b.TempDir()
	compareWays(b, a, []*way{
		{name: "perf", start: func(b *testing.B, pid int) *observer {
			return perfRecord(b, perf, pid, filepath.Join(dir, "perf.data"))
		}},
		recordWay(buildCommand(b), "cpu", 99),
	})
}

// perfEnv is what perf needs of the runtime: a map of its code in /tmp, and code in
// anonymous memory. Where writable memory is never executable, which is the default,
// code is in a memory file, and perf does not look into the map for that: it then
// names no frame of a jitted method.
var perfEnv = []string{"DOTNET_PerfMapEnabled=1", "DOTNET_EnableWriteXorExecute=0"}

// perfRecord is perf as an observer.
func perfRecord(b *testing.B, perf string, pid int, file string) *observer {
	b.Helper()
	// The clock of a thread's CPU time is what clrsnap samples by, too, and there is
	// no hardware counter in every virtual machine.
	cmd := exec.Command(perf, "record", "-q", "-F", "99", "-g", "-e", "cpu-clock:u", "-p", strconv.Itoa(pid), "-o", file)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Kill() }) // fails if it has ended
	return &observer{cmd, func() (*quality, error) {
		var peak int64
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			return nil, err
		}
		_ = cmd.Wait() // perf ends itself with the signal
		if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			peak = u.Maxrss << 10
		}
		info, err := os.Stat(file)
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, &stderr)
		}
		q, err := perfQuality(perf, file)
		if err == nil {
			q.Bytes, q.Memory = info.Size(), peak
		}
		return q, err
	}}
}

// perfQuality has perf list what it has seen.
func perfQuality(perf, file string) (*quality, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, perf, "script", "-f", "-i", file, "-F", "tid,ip,sym,dso", "--show-lost-events")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	q, err := readPerfScript(out)
	if waitErr := cmd.Wait(); err == nil {
		err = waitErr
	}
	return q, err
}

// readPerfScript reads stacks: a line with the thread, the frames below it,
// leaf first, each
//
//	7f31a3e4a4d0 long [busy] Busy.Pricing::Visit(…) (/tmp/perf-4711.map)
//
// and an empty line.
func readPerfScript(r io.Reader) (*quality, error) {
	q := &quality{}
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

// perfFrame counts a frame by the file that its code is from. Assemblies are
// files if they are compiled ahead of time, else the perf map has their code.
func perfFrame(q *quality, file string, name bool) {
	if strings.Contains(file, ".dll") || strings.Contains(file, "/perf-") || strings.Contains(file, "//anon") || strings.Contains(file, "doublemapper") {
		q.Managed.add(name, 1)
	} else {
		q.Native.add(name, 1)
	}
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
