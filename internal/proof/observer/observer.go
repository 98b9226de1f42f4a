// Package observer has processes that look at a target: clrsnap record, and roles of a test
// binary (livetest.Main). Benchmarks and soaks have the processes look from outside, so that
// the CPU time and memory of the observer and of the test are separate. Quality has the
// findings.
package observer

import (
	"bufio"
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

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv/role"
)

// An Observer is a process that looks at a target.
type Observer struct {
	Cmd   *exec.Cmd
	End   func() (*Quality, error) // ends the process and returns its findings
	Ended time.Time                // when a Recorder had ended
}

const began = "began\n"

// Began is called by a role when the role begins to look at the target: Observe
// waits for the call.
func Began() { fmt.Print(began) }

// UntilStdinEnds is the time during which a role looks at the target: Observer.End
// ends the time.
func UntilStdinEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until stdin ends, however
		cancel()
	}()
	return ctx
}

// Observe has a new process take a role, and waits until the role has begun. Once stdin
// ends, the role writes its Quality as JSON.
func Observe(tb testing.TB, what *role.Role, args ...any) *Observer {
	tb.Helper()
	cmd := what.Command(args...)
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
	tb.Cleanup(func() { cmd.Process.Kill() }) // fails if the process has ended
	out := bufio.NewReader(stdout)
	if line, err := out.ReadString('\n'); line != began {
		tb.Fatalf("%s says %q, %v", what, line, err)
	}
	return &Observer{Cmd: cmd, End: func() (*Quality, error) {
		stdin.Close()
		text, err := io.ReadAll(out)
		if err == nil {
			err = cmd.Wait()
		}
		q := new(Quality)
		if err == nil {
			err = json.Unmarshal(text, q)
		}
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, text)
		}
		return q, err
	}}
}

// Recorder is clrsnap record with some flags; exe is the command (livetest.Command).
func Recorder(tb testing.TB, exe string, pid int, flags ...string) *Observer {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "recording.clrsnap")
	args := append([]string{"record", strconv.Itoa(pid), "--duration", "0", "--output", file}, flags...)
	cmd := exec.Command(exe, args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { cmd.Process.Kill() }) // fails if the process has ended
	said := bufio.NewReader(stderr)
	if line, err := said.ReadString('\n'); !strings.HasPrefix(line, "clrsnap: recording ") {
		tb.Fatalf("clrsnap says %q, %v", line, err)
	}
	o := &Observer{Cmd: cmd}
	o.End = func() (*Quality, error) {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			return nil, err
		}
		rest, _ := io.ReadAll(said) // Wait reports an error
		err := cmd.Wait()
		if o.Ended = time.Now(); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, rest)
		}
		return ReadQuality(file)
	}
	return o
}

// CPU is the CPU time of the observer and of its children, which may have ended. Tracing tasks are processes.
func (o *Observer) CPU(tb testing.TB) time.Duration {
	tb.Helper()
	sum := livetest.CPU(tb, o.Cmd.Process.Pid)
	sum += endedChildren(o.Cmd.Process.Pid)
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", o.Cmd.Process.Pid))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(children)) {
			if pid, err := strconv.Atoi(child); err == nil {
				sum += livetest.CPU(tb, pid)
			}
		}
	}
	return sum
}

// endedChildren is the CPU time of a process's ended children, to 10 ms (man 5 proc_pid_stat).
func endedChildren(pid int) time.Duration {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // empty if the process has ended
	_, rest, _ := strings.Cut(string(stat), ") ")             // no process here has a name with ")"
	const cutime, cstime, tick = 16 - 3, 17 - 3, 10 * time.Millisecond
	fields := strings.Fields(rest)
	if len(fields) <= cstime {
		return 0
	}
	user, _ := strconv.Atoi(fields[cutime])
	system, _ := strconv.Atoi(fields[cstime])
	return time.Duration(user+system) * tick
}
