package clrsnap_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
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

	"clrsnap/export"
	"clrsnap/profile"
)

// began is what a role says once it looks at its target.
const began = "began"

func untilStdinEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until it ends, however
		cancel()
	}()
	return ctx
}

// quality is what an observer has seen, and how well.
type quality struct {
	profile.ModeStats
	Memory  int64 // most that the observer used, in bytes
	Bytes   int64 // of its file
	Managed named
	Native  named // what is not managed
	Whole   int   // samples whose stack reaches its base

	Runtime   string             // version of .NET
	recording *profile.Recording // of clrsnap record
}

// named counts frames, and those among them that have a name.
type named struct{ Frames, Named int }

func (n *named) add(name bool, times int) {
	n.Frames += times
	if name {
		n.Named += times
	}
}

func judgeQuality(r *profile.Recording) *quality {
	q := &quality{Memory: r.Cost.OwnMemory, recording: r}
	if len(r.Processes) > 0 {
		q.Runtime = r.Processes[0].Runtime.Version
	}
	for _, m := range r.Modes {
		q.addStats(&m)
	}
	for i := range r.Samples {
		x := &r.Samples[i]
		if !x.Incomplete {
			q.Whole += int(x.Count)
		}
		for l := range r.Stack(x.Node) {
			of := &q.Native
			f := &r.Functions[l.Function]
			if f.Kind == profile.Managed {
				of = &q.Managed
			}
			of.add(f.Method != "", int(x.Count))
		}
	}
	return q
}

func (q *quality) addStats(m *profile.ModeStats) {
	q.Samples += m.Samples
	q.Lost += m.Lost
	q.Late += m.Late
	q.Broken += m.Broken
	q.Repaired += m.Repaired
}

func (q *quality) add(o *quality) {
	q.addStats(&o.ModeStats)
	q.Runtime = cmp.Or(q.Runtime, o.Runtime)
	q.Memory, q.Bytes, q.Whole = max(q.Memory, o.Memory), q.Bytes+o.Bytes, q.Whole+o.Whole
	q.Managed.Frames += o.Managed.Frames
	q.Managed.Named += o.Managed.Named
	q.Native.Frames += o.Native.Frames
	q.Native.Named += o.Native.Named
}

// An observer is a process that looks at a target.
type observer struct {
	cmd *exec.Cmd
	// end ends it and returns what it has seen.
	end   func() (*quality, error)
	ended time.Time
}

// observe has a process of its own take a role, and waits until it says that it
// has begun.
func observe(tb testing.TB, role string, pid int, env ...string) *observer {
	tb.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), "CLRSNAP_TEST_ROLE="+role, "CLRSNAP_TEST_PID="+strconv.Itoa(pid)), env...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { cmd.Process.Kill() }) // fails if it has ended
	out := bufio.NewReader(stdout)
	if line, err := out.ReadString('\n'); line != began+"\n" {
		tb.Fatalf("%s says %q, %v", role, line, err)
	}
	return &observer{cmd: cmd, end: func() (*quality, error) {
		stdin.Close()
		text, err := io.ReadAll(out)
		if err == nil {
			err = cmd.Wait()
		}
		q := new(quality)
		if err == nil {
			err = json.Unmarshal(text, q)
		}
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, text)
		}
		return q, err
	}}
}

// buildCommand builds cmd/clrsnap.
func buildCommand(tb testing.TB) string {
	tb.Helper()
	exe := filepath.Join(tb.TempDir(), "clrsnap")
	build := exec.Command("go", "build", "-o", exe, "./cmd/clrsnap")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	return exe
}

// recorderWith is clrsnap record with some flags as an observer.
func recorderWith(tb testing.TB, exe string, pid int, flags ...string) *observer {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "recording.clrsnap")
	cmd := exec.Command(exe, append([]string{"record", strconv.Itoa(pid), "--duration", "0", "--output", file}, flags...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { cmd.Process.Kill() }) // fails if it has ended
	said := bufio.NewReader(stderr)
	if line, err := said.ReadString('\n'); !strings.HasPrefix(line, "clrsnap: recording ") {
		tb.Fatalf("clrsnap says %q, %v", line, err)
	}
	o := &observer{cmd: cmd}
	o.end = func() (*quality, error) {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			return nil, err
		}
		rest, _ := io.ReadAll(said) // Wait says what went wrong
		err := cmd.Wait()
		if o.ended = time.Now(); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, rest)
		}
		return readQuality(file)
	}
	return o
}

// readQuality reads a recording from its file.
func readQuality(file string) (*quality, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := export.ReadRecording(f)
	if err != nil {
		return nil, err
	}
	q := judgeQuality(r)
	info, err := f.Stat()
	if err == nil {
		q.Bytes = info.Size()
	}
	return q, err
}

// cpu is the CPU time that the observer has used, its tracing tasks included,
// which are processes.
func (o *observer) cpu(tb testing.TB) time.Duration {
	tb.Helper()
	sum := processCPU(tb, o.cmd.Process.Pid)
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", o.cmd.Process.Pid))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(children)) {
			if pid, err := strconv.Atoi(child); err == nil {
				sum += processCPU(tb, pid)
			}
		}
	}
	return sum
}
