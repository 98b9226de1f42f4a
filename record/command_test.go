package record_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/record"
)

// begin is the command line of the program that works from its first instruction on.
func begin(tb testing.TB, args ...string) []string {
	tb.Helper()
	kit := testenv.Kit(tb)
	return append([]string{kit.Host(testenv.DefaultRuntime), testenv.Build(tb, "begin")}, args...)
}

// worked is the CPU time of Main's first call in each of the program's processes, as the program says.
func worked(t *testing.T, s *livetest.Started) []time.Duration {
	t.Helper()
	var all []time.Duration
	for _, m := range regexp.MustCompile(`COUNT worked-us (\d+)`).FindAllSubmatch(s.Out.Bytes(), -1) {
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, time.Duration(n)*time.Microsecond)
	}
	return all
}

// spentIn sums up samples of a mode with a method in their stack, by process.
func spentIn(r *profile.Recording, m profile.Mode, method string) map[int32]time.Duration {
	out := map[int32]time.Duration{}
	for i := range r.Samples {
		if x := &r.Samples[i]; x.Mode == m && framesOf(r, x, method) > 0 {
			out[r.Threads[x.Thread].Process] += time.Duration(x.Weight)
		}
	}
	return out
}

// incomplete is the CPU time in incomplete stacks.
func incomplete(r *profile.Recording) time.Duration {
	var sum time.Duration
	for i := range r.Samples {
		if x := &r.Samples[i]; x.Mode == profile.CPU && x.Incomplete {
			sum += time.Duration(x.Weight)
		}
	}
	return sum
}

// framesOf is how many frames of a method a sample has.
func framesOf(r *profile.Recording, x *profile.Sample, method string) int {
	n := 0
	for l := range r.Stack(x.Node) {
		if r.Functions[l.Function].Method == method {
			n++
		}
	}
	return n
}

// near compares sampled CPU time with used CPU time. near allows for begun periods and for the calls around; for the
// chance by which a turn of a CPU's timer meets a thread with many short turns on the CPU, beside other work (four
// standard deviations); for turns that the timers missed, without samples; and for time that other machines took away,
// with samples.
func near(r *profile.Recording, got, want, stolen time.Duration) bool {
	m, _ := r.Mode(profile.CPU)
	chance := 4 * math.Sqrt(want.Seconds()/m.Rate)
	slack := max(want/20+20*time.Millisecond, time.Duration(chance*float64(time.Second)))
	missed := time.Duration(float64(m.Missed) / m.Rate * float64(time.Second))
	return got >= want-slack-missed && got <= want+slack+stolen
}

var both = []profile.Mode{profile.CPU, profile.Wall}

// TestRecordCommand: nothing of Main is missed, its first instructions included. The program goes on
// for a while, because nothing can be read from an ended program: on a busy machine the end may come
// before the first look.
func TestRecordCommand(t *testing.T) {
	layer.Live(t)
	for _, modes := range [][]profile.Mode{{profile.CPU}, both} {
		before := livetest.StolenCPU(t)
		s := livetest.RecordCommand(t, begin(t, "--work", "300", "--seconds", "1"), clrsnap.Options{},
			record.Options{Rate: 1999, Modes: modes})
		stolen := livetest.StolenCPU(t) - before
		r := s.Good(t)
		want, got := worked(t, s), spentIn(r, profile.CPU, "Begin.Program.WorkAsParent")
		if len(want) != 1 {
			t.Fatalf("Main's first call took %v", want)
		}
		// Samples that could not be walked are in no method, but they are there, and say so.
		walked := got[0] + max(0, min(incomplete(r), want[0]-got[0]))
		if !near(r, walked, want[0], stolen) {
			t.Errorf("%v: Main's first call took %v of a processor, sampled %v; other machines took %v\n%s",
				modes, want, got, stolen, livetest.Top(t, r))
		}
		if len(r.Processes) != 1 || r.Processes[0].PID != s.Process.Pid || r.Processes[0].Runtime.Version == "" {
			t.Errorf("processes: %+v", r.Processes)
		}
		if time.Duration(r.Weight(profile.CPU)) <= got[0] {
			t.Errorf("there is nothing of the time before Main")
		}
		if wall := spentIn(r, profile.Wall, "Begin.Program.WorkAsParent"); len(modes) > 1 && wall[0] == 0 {
			t.Errorf("by the clock on the wall Main's first call took no time")
		}
	}
}

// TestRecordCommandExit: how the program ends is its own affair and the caller's.
func TestRecordCommandExit(t *testing.T) {
	s := livetest.RecordCommand(t, begin(t, "--work", "20", "--seconds", "1", "--code", "7"), clrsnap.Options{},
		record.Options{Rate: 999})
	if s.Err != nil || s.ProcessState.ExitCode() != 7 {
		t.Errorf("%v, %v", s.Err, s.ProcessState)
	}
	ctx, cancel := context.WithTimeout(context.Background(), livetest.Hang)
	defer cancel()
	args := begin(t, "--work", "50", "--seconds", "60")
	cmd := exec.Command(args[0], args[1:]...)
	r, err := record.Command(ctx, cmd, clrsnap.Options{},
		record.Options{Modes: both, Progress: func(p record.Progress) {
			if p.Elapsed > 700*time.Millisecond {
				cmd.Process.Kill() // fails if the program has ended
			}
		}})
	if werr := cmd.Wait(); werr == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("%v, %v", werr, cmd.ProcessState)
	}
	if err != nil || len(r.Samples) == 0 || ctx.Err() != nil {
		t.Errorf("of a program that was killed: %v, %v", err, r)
	}
}

// TestRecordCommandDuration: the program goes on when the recording is over.
func TestRecordCommandDuration(t *testing.T) {
	const lasts = 1500 * time.Millisecond // there is a runtime by then
	args := begin(t, "--work", "4000", "--code", "3")
	cmd := exec.Command(args[0], args[1:]...)
	r, err := record.Command(context.Background(), cmd, clrsnap.Options{}, record.Options{Duration: lasts})
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the program has ended: %v", err)
	}
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	if r.Duration < lasts || len(r.Samples) == 0 {
		t.Errorf("%v, %d samples", r.Duration, len(r.Samples))
	}
}

// TestRecordCommandBad: programs that cannot be recorded, and why.
func TestRecordCommandBad(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no program\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte{0x7f, 'E', 'L', 'F', 0}, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		is   error  // the error, or
		says string // a part of its text
	}{
		{args: []string{filepath.Join(dir, "none")}, is: fs.ErrNotExist},
		{args: []string{dir}, is: fs.ErrPermission},
		{args: []string{text}, is: fs.ErrPermission},
		{args: []string{garbage}, is: syscall.ENOEXEC},
		{args: []string{"no-such-program-anywhere"}, is: exec.ErrNotFound},
		{args: []string{"true"}, says: "exited before clrsnap saw a .NET runtime: " +
			"if the command starts the .NET program as another process, record subprocesses too"},
		{args: []string{"sh", "-c", "kill -9 $$"}, says: "exited before clrsnap saw a .NET runtime"},
	} {
		s := livetest.RecordCommand(t, c.args, clrsnap.Options{}, record.Options{Modes: both})
		switch {
		case s.Err == nil || s.Recording != nil:
			t.Errorf("%v: no error", c.args)
		case c.is != nil && !errors.Is(s.Err, c.is), !bytes.Contains([]byte(s.Err.Error()), []byte(c.says)):
			t.Errorf("%v: %v", c.args, s.Err)
		}
		if running := s.Process != nil && s.ProcessState == nil; running {
			t.Errorf("%v is left behind", c.args)
		}
	}
	s := livetest.RecordCommand(t, []string{"true"}, clrsnap.Options{}, record.Options{Subprocesses: true})
	const says = "give a .NET program, or a program that starts a .NET program"
	if s.Err == nil || !bytes.Contains([]byte(s.Err.Error()), []byte(says)) {
		t.Errorf("with subprocesses: %v", s.Err)
	}
}

// workC is a program without .NET: it uses a processor for a while, in a function called by another
// function.
const workC = `
#include <time.h>
volatile unsigned long state = 1;
__attribute__((noinline)) void inner_work(void) {
	for (int i = 0; i < 100000; i++) state = state * 6364136223846793005UL + 1442695040888963407UL;
}
__attribute__((noinline)) int outer_work(double seconds) {
	struct timespec t;
	do {
		inner_work();
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	} while (t.tv_sec + t.tv_nsec * 1e-9 < seconds);
	return (int)state & 0;
}
int main(void) { return outer_work(0.4); }
`

// TestRecordCommandNative: a program without .NET, with its symbols.
func TestRecordCommandNative(t *testing.T) {
	layer.Live(t)
	dir := t.TempDir()
	source, exe := filepath.Join(dir, "work.c"), filepath.Join(dir, "work")
	if err := os.WriteFile(source, []byte(workC), 0o644); err != nil {
		t.Fatal(err)
	}
	compile := exec.Command(testenv.CC(t), "-O1", "-fno-omit-frame-pointer", "-o", exe, source)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const used = 400 * time.Millisecond
	before := livetest.StolenCPU(t)
	r := livetest.RecordCommand(t, []string{exe}, clrsnap.Options{NativeOnly: true},
		record.Options{Modes: both, Rate: 499}).Good(t)
	stolen, all := livetest.StolenCPU(t)-before, time.Duration(r.Weight(profile.CPU))
	if !near(r, all, used, stolen) {
		t.Errorf("it used %v of a processor, sampled %v; other machines took %v\n%s", used, all, stolen,
			livetest.Top(t, r))
	}
	for _, f := range []string{"inner_work", "outer_work", "main"} {
		if got := spentIn(r, profile.CPU, f)[0]; got < all*9/10 {
			t.Errorf("%v of %v are in %s", got, all, f)
		}
	}
	if s, _ := r.Mode(profile.CPU); s.Broken > s.Samples/50 {
		t.Errorf("%d of %d stacks are broken", s.Broken, s.Samples)
	}
	if time.Duration(r.Weight(profile.Wall)) < 200*time.Millisecond {
		t.Errorf("wall-clock samples stand for %v", time.Duration(r.Weight(profile.Wall)))
	}
}

// TestRecordSubprocesses: .NET in a process started by a shell, or by another .NET program.
func TestRecordSubprocesses(t *testing.T) {
	layer.Live(t)
	// The rate is near no multiple of 250 Hz: at 499 Hz each turn of a thread has as many samples as the
	// turn before, and beside busy programs 300 ms of CPU time had samples of 272 to 339 ms.
	o := record.Options{Modes: both, Rate: 457, Subprocesses: true}
	t.Run("shell", func(t *testing.T) {
		args := begin(t, "--work", "300", "--seconds", "1")
		shell := append([]string{"sh", "-c", `"$@"; true`, "sh"}, args...) // not with exec
		s := livetest.RecordCommand(t, shell, clrsnap.Options{}, o)
		r := s.Good(t)
		if len(r.Processes) != 1 || r.Processes[0].PID == s.Process.Pid {
			t.Errorf("the shell is %d, recorded: %+v", s.Process.Pid, r.Processes)
		}
		got, want := spentIn(r, profile.CPU, "Begin.Program.WorkAsParent"), worked(t, s)
		if len(want) != 1 || got[0] == 0 || got[0] > want[0]*11/10+20*time.Millisecond {
			t.Errorf("Main's first call took %v, sampled %v", want, got)
		}
	})
	t.Run("dotnet", func(t *testing.T) {
		s := livetest.RecordCommand(t, begin(t, "--work", "300", "--start", "--seconds", "1"), clrsnap.Options{}, o)
		r := s.Good(t)
		m := regexp.MustCompile(`COUNT child (\d+)`).FindSubmatch(s.Out.Bytes())
		if m == nil || len(r.Processes) != 2 {
			t.Fatalf("processes %+v\n%s", r.Processes, &s.Out)
		}
		if r.Processes[0].PID != s.Process.Pid || fmt.Sprint(r.Processes[1].PID) != string(m[1]) {
			t.Errorf("processes %+v\n%s", r.Processes, &s.Out)
		}
		for i, method := range []string{"Begin.Program.WorkAsParent", "Begin.Program.WorkAsChild"} {
			for _, mode := range both {
				got := spentIn(r, mode, method)
				if len(got) != 1 || got[int32(i)] == 0 {
					t.Errorf("%v: %s took 300 ms in process %d alone, sampled %v\n%s",
						mode, method, i, got, livetest.Top(t, r))
				}
				t.Logf("%v: %s took 300 ms, sampled %v", mode, method, got)
			}
		}
		waits := spentIn(r, profile.Wall, "Begin.Program.StartChild")
		if len(waits) != 1 || waits[0] == 0 {
			t.Errorf("the parent waits for its child, sampled %v", waits)
		}
	})
	t.Run("without", func(t *testing.T) {
		o.Subprocesses = false
		args := begin(t, "--work", "50", "--start", "--seconds", "1")
		r := livetest.RecordCommand(t, args, clrsnap.Options{}, o).Good(t)
		if got := spentIn(r, profile.CPU, "Begin.Program.WorkAsChild"); len(r.Processes) != 1 || len(got) != 0 {
			t.Errorf("without Subprocesses: %+v, of the child %v", r.Processes, got)
		}
	})
}
