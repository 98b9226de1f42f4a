package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"

	"golang.org/x/sys/unix"
)

// hang is after how long a command is taken to hang.
const hang = testenv.Hang

// running is a running command.
type running struct {
	*exec.Cmd
	out, errs *watched
}

// watched is a buffer that can be read while a process writes.
type watched struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// launch starts the command. A hanging command is killed.
func launch(tb testing.TB, c *exec.Cmd) *running {
	tb.Helper()
	r := &running{c, new(watched), new(watched)}
	c.Stdout, c.Stderr = r.out, r.errs
	if err := c.Start(); err != nil {
		tb.Fatal(err)
	}
	kill := time.AfterFunc(hang, func() { c.Process.Kill() }) // fails if the command has ended
	tb.Cleanup(func() { kill.Stop() })
	return r
}

// begin starts the command and waits for the message that the recording has begun.
func begin(tb testing.TB, c *exec.Cmd) *running {
	tb.Helper()
	c.WaitDelay = time.Second // for a program that holds the command's outputs
	r := launch(tb, c)
	r.await(tb, recording)
	return r
}

var (
	recording = regexp.MustCompile(`clrsnap: recording .*\n`)
	awaits    = regexp.MustCompile(`clrsnap: waiting for the program \(process (\d+)\) to end; ` +
		`Ctrl-C leaves the program alone\n`)
)

// await waits until the command's output matches a pattern, and returns the match.
func (r *running) await(tb testing.TB, what *regexp.Regexp) []string {
	tb.Helper()
	return r.awaitIn(tb, r.errs, what)
}

func (r *running) awaitIn(tb testing.TB, out *watched, what *regexp.Regexp) []string {
	tb.Helper()
	for start := time.Now(); time.Since(start) < hang; time.Sleep(5 * time.Millisecond) {
		if m := what.FindStringSubmatch(out.String()); m != nil {
			return m
		}
	}
	tb.Fatalf("%v does not say %v:\n%s%s", r.Args, what, r.out, r.errs)
	return nil
}

// awaitReady waits until the program of the command is ready.
func (r *running) awaitReady(tb testing.TB) {
	tb.Helper()
	r.awaitIn(tb, r.out, regexp.MustCompile(`(?m)^READY$`))
}

// awaitUse waits until a process has used so much more CPU time.
func awaitUse(tb testing.TB, pid int, more time.Duration) {
	tb.Helper()
	for end := livetest.CPU(tb, pid) + more; livetest.CPU(tb, pid) < end; time.Sleep(5 * time.Millisecond) {
	}
}

// end waits for the end of the command.
func (r *running) end(tb testing.TB) result {
	tb.Helper()
	if err := r.Wait(); err != nil && r.ProcessState == nil {
		tb.Fatal(err)
	}
	return result{r.out.String(), r.errs.String(), r.ProcessState.ExitCode()}
}

func (r *running) signal(tb testing.TB, s syscall.Signal) {
	tb.Helper()
	if err := r.Process.Signal(s); err != nil {
		tb.Fatalf("%v: %v\n%s", s, err, r.errs)
	}
}

// says requires matches in standard error.
func (r result) says(tb testing.TB, status int, patterns ...string) {
	tb.Helper()
	if r.status != status {
		tb.Errorf("status %d, want %d: %s", r.status, status, r.stderr)
	}
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).MatchString(r.stderr) {
			tb.Errorf("no match for %s in:\n%s", p, r.stderr)
		}
	}
}

// limited is the command, killed if the command hangs.
func limited(tb testing.TB, args ...string) *exec.Cmd {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	tb.Cleanup(cancel)
	return exec.CommandContext(ctx, "clrsnap", args...)
}

// TestRecordAndView records a running program, and shows the recording.
func TestRecordAndView(t *testing.T) {
	layer.Check(t)
	testenv.EachOf(t, testenv.Supported(), testRecordAndView)
}

func testRecordAndView(t *testing.T, runtime string) {
	app := testenv.Start(t, "spin", testenv.Options{Runtime: runtime, Args: []string{"--threads", "2"}})
	file := filepath.Join(t.TempDir(), "a.clrsnap")
	r := finish(t, limited(t, "record", fmt.Sprint(app.PID), "-d", "300ms", "-o", file))
	r.says(t, 0, `^clrsnap: [\d.]+m?s: \d+ cpu samples?.*, \d+ wall samples?`,
		`^clrsnap: written to `+regexp.QuoteMeta(file)+`$`)
	isComplete(t, file, "Spin.Program.Mix(ulong)")
	if result, code := app.Stop(); result != "OK" || code != 0 {
		t.Errorf("the program ended with %q, %d", result, code)
	}
}

// TestRecordFormats records into a file of each format. clrsnap view shows or refuses the file.
func TestRecordFormats(t *testing.T) {
	t.Parallel()
	app := testenv.Start(t, "spin", testenv.Options{Args: []string{"--threads", "2"}})
	pid, dir := fmt.Sprint(app.PID), t.TempDir()
	for file, shown := range map[string]string{
		"a.html": "", "a.clrsnap": "", "a.pb.gz": "", "a.speedscope.json": "", "a.folded": "",
		"a.trace.json": "cannot read", "a.svg": "cannot read",
	} {
		path := filepath.Join(dir, file)
		r := finish(t, limited(t, "record", pid, "-d", "300ms", "-o", path))
		r.says(t, 0, `^clrsnap: recording process `+pid+` \(`,
			`^clrsnap: [\d.]+m?s: \d+ cpu samples?.*, \d+ wall samples?`,
			`^clrsnap: written to `+regexp.QuoteMeta(path)+`$`)
		if r.stdout != "" {
			t.Errorf("%s: %q on standard output", file, r.stdout)
		}
		r = finish(t, limited(t, "view", path, "--managed"))
		if shown == "" {
			r.says(t, 0)
			r.want(t, `Spin\.Program\.Mix`)
		} else {
			r.says(t, 1, "^clrsnap: .*"+shown)
		}
	}
	t.Run("default", func(t *testing.T) { testRecordDefault(t, pid) })
	t.Run("selection", func(t *testing.T) { testRecordSelection(t, pid) })
	t.Run("terminal", func(t *testing.T) { testRecordTerminal(t, pid) })
	if result, code := app.Stop(); result != "OK" || code != 0 {
		t.Errorf("the program ended with %q, %d", result, code)
	}
}

// Without -o there is one new file, an HTML page named after the process.
func testRecordDefault(t *testing.T, pid string) {
	c := limited(t, "record", pid, "-d", "300ms")
	c.Dir = t.TempDir()
	finish(t, c).says(t, 0)
	files, err := os.ReadDir(c.Dir)
	if err != nil || len(files) != 1 || !regexp.MustCompile(`^spin-\d{8}-\d{6}\.html$`).MatchString(files[0].Name()) {
		t.Fatalf("%v, %v", files, err)
	}
	path := filepath.Join(c.Dir, files[0].Name())
	page, err := os.ReadFile(path)
	if err != nil || !bytes.HasPrefix(bytes.ToLower(page), []byte("<!doctype html>")) ||
		!bytes.Contains(page, []byte(`id="recording"`)) {
		t.Errorf("no page: %.200s, %v", page, err)
	}
	good(t, "view", path, "--mode", "cpu").want(t, `Spin\.Program\.Mix\(ulong\)  spin$`, `^CPU time: `)
	good(t, "view", path, "--mode", "wall").want(t, `^Wall-clock time: `)
}

// The selection of threads and frames.
func testRecordSelection(t *testing.T, pid string) {
	var r result
	testenv.UntilSeen(t, func() string { // beside other programs the thread may have no CPU for so long
		r = finish(t, limited(t, "record", pid, "-d", "500ms", "--mode", "cpu", "--threads", "^spin-1$", "--managed",
			"-f", "folded", "-o", "-"))
		r.says(t, 0, `^clrsnap: [\d.]+m?s: \d+ cpu samples?\b`)
		if r.stdout == "" {
			return "a sample"
		}
		return ""
	})
	r.want(t, `^System\.Threading\.Thread\.StartCallback.*;Spin\.Program\.Descend.*;Spin\.Program\.Mix\(ulong\) \d+$`)
	for line := range strings.Lines(r.stdout) {
		if strings.Contains(line, ".so") || !strings.Contains(line, "Descend") {
			t.Errorf("not managed, or of another thread: %s", line)
		}
	}
	if strings.Contains(r.stderr, "written to") || strings.Contains(r.stderr, "wall") {
		t.Errorf("stderr: %s", r.stderr)
	}
	r = finish(t, limited(t, "record", pid, "-d", "300ms", "--mode", "wall", "--native", "-f", "folded", "-o", "-"))
	r.says(t, 0)
	r.want(t, `(\[libc\.so|start_thread).*Spin\.Program\.`) // the function's name is in libc6-dbg
}

// testRecordTerminal: on a terminal a line shows the progress, and is removed at the end.
func testRecordTerminal(t *testing.T, pid string) {
	file := filepath.Join(t.TempDir(), "a.html")
	shown, status := terminal(t, 100, "record", pid, "-d", "1200ms", "-o", file)
	line := regexp.MustCompile(`\r\x1b\[K1s of 1\.2s · [\d,]+ samples, [\d,]+ a second · \d+ threads use \d\.\d\d CPUs`)
	if status != 0 || !line.MatchString(shown) {
		t.Errorf("status %d: %q", status, shown)
	}
	last := shown[strings.LastIndex(shown, "\r\x1b[K")+len("\r\x1b[K"):]
	if !regexp.MustCompile(`^clrsnap: [\d.]+s: `).MatchString(last) {
		t.Errorf("after the last line of progress: %q", last)
	}
	shown, status = terminal(t, 100, "record", pid, "-f", "pprof", "-o", "-")
	if want := "clrsnap: a terminal cannot show pprof files: give a file with -o\n"; status != 2 || shown != want {
		t.Errorf("status %d: %q", status, shown)
	}
}

// isComplete requires that a file is a complete recording, with samples of a method.
func isComplete(t *testing.T, file, method string) {
	t.Helper()
	good(t, "view", file, "--managed", "-n", "0").want(t, regexp.QuoteMeta(method))
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), tempPrefix+"*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestRecordInterrupted: a signal or the end of the target ends a recording, and the recorded samples are written.
func TestRecordInterrupted(t *testing.T) {
	app := testenv.Start(t, "spin", testenv.Options{Args: []string{"--threads", "2"}})
	file := filepath.Join(t.TempDir(), "a.clrsnap")
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		r := begin(t, exec.Command("clrsnap", "record", fmt.Sprint(app.PID), "-d", "1h", "-o", file))
		awaitUse(t, app.PID, time.Second/2)
		if s == syscall.SIGKILL {
			_ = syscall.Kill(app.PID, s) // the process exists: the test would end otherwise
		} else {
			r.signal(t, s)
		}
		r.end(t).says(t, 0,
			`^clrsnap: recording .* for 1h0m0s; Ctrl-C ends the recording earlier and keeps the samples$`,
			`^clrsnap: [\d.]+m?s: `, `^clrsnap: written to `)
		isComplete(t, file, "Spin.Program.Mix(ulong)")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	finish(t, limited(t, "record", fmt.Sprint(app.PID), "-o", file)).says(t, 1,
		`^clrsnap: cannot attach to \d+: (no such process|process has ended)`)
}

// awaitTaken waits until no signal is pending for the command.
func (r *running) awaitTaken(t *testing.T) {
	t.Helper()
	for start := time.Now(); time.Since(start) < hang; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(`(?m)^ShdPnd:\s+0+$`).Match(b) {
			return
		}
	}
	t.Fatal("it takes no signal")
}

// TestRecordInterruptedTwice: the second signal ends the command at once, while nobody reads the command's output.
func TestRecordInterruptedTwice(t *testing.T) {
	app := testenv.Start(t, "spin", testenv.Options{Args: []string{"--threads", "2"}})
	pipe := filepath.Join(t.TempDir(), "pipe.html")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	r := begin(t, exec.Command("clrsnap", "record", fmt.Sprint(app.PID), "-d", "1h", "-o", pipe))
	r.signal(t, syscall.SIGINT)
	r.awaitTaken(t) // two pending signals become one
	time.Sleep(500 * time.Millisecond)
	r.signal(t, syscall.SIGINT)
	r.end(t).says(t, 130, `^clrsnap: interrupted by SIGINT, and gave up before the collected data was written$`)
	if result, code := app.Stop(); result != "OK" || code != 0 {
		t.Errorf("the program ended with %q, %d", result, code)
	}
}

// recordBegin is a command line that records the program "begin".
func recordBegin(t *testing.T, file string, flags []string, args ...string) *exec.Cmd {
	t.Helper()
	all := append([]string{"record", "-o", file}, flags...)
	all = append(all, "--", testenv.Kit(t).Host(testenv.DefaultRuntime), testenv.Build(t, "begin"))
	c := exec.Command("clrsnap", append(all, args...)...)
	c.Env = append(os.Environ(), "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1")
	return c
}

// awaitWaiting waits until the command waits for its program. The program is killed at the end of the test.
func (r *running) awaitWaiting(t *testing.T) {
	t.Helper()
	pid, err := strconv.Atoi(r.await(t, awaits)[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // fails if the program has ended
}

// TestRecordProgram: clrsnap records a program from its start, and waits for the program.
func TestRecordProgram(t *testing.T) {
	layer.Live(t)
	main := "Begin.Program.WorkAsParent(long)"
	t.Run("to its end", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "a.html")
		r := begin(t, recordBegin(t, file, nil, "--seconds", "1", "--code", "3")).end(t)
		r.says(t, 3, `^clrsnap: recording .* until the end; Ctrl-C`, `^clrsnap: the program ended with exit status 3$`)
		r.want(t, `^COUNT worked-us \d+$`, `^RESULT OK$`)
		isComplete(t, file, main)
	})
	t.Run("to its abort", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "a.clrsnap")
		c := limited(t, "record", "--event", "exception", "--mode", "both", "-o", file, "--",
			testenv.Kit(t).Host(testenv.DefaultRuntime), testenv.Build(t, "ordeal"), "--mode", "unhandled")
		c.Env = append(os.Environ(), "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1", "DOTNET_DbgEnableMiniDump=0")
		finish(t, c).says(t, 134, `^clrsnap: written to `, `^clrsnap: the program ended with signal: aborted`)
		good(t, "view", file, "--mode", "exception").want(t, `System\.InvalidOperationException`)
	})
	t.Run("for a time", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "a.html")
		r := begin(t, recordBegin(t, file, []string{"-d", "2s"}, "--seconds", "4")).end(t)
		r.says(t, 0, `^clrsnap: recording .* for 2s; `, `^clrsnap: [\d.]+m?s: `, `^clrsnap: waiting for the program`)
		r.want(t, `^RESULT OK$`)
		isComplete(t, file, main)
	})
	t.Run("Ctrl-C", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "a.html")
		r := begin(t, recordBegin(t, file, nil, "--seconds", "60"))
		r.awaitReady(t)
		r.signal(t, syscall.SIGINT)
		r.awaitWaiting(t)
		isComplete(t, file, main)
		r.signal(t, syscall.SIGINT)
		if out := r.end(t); out.status != 130 || strings.Contains(out.stderr, "gave up") {
			t.Errorf("status %d: %s", out.status, out.stderr)
		}
	})
	t.Run("SIGTERM", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "a.html")
		r := begin(t, recordBegin(t, file, nil, "--seconds", "60"))
		r.awaitReady(t)
		r.signal(t, syscall.SIGTERM)
		r.end(t).says(t, 143, `^clrsnap: written to `,
			`^clrsnap: the program ended with (exit status 143|signal: terminated)$`)
		isComplete(t, file, main)
	})
	t.Run("SIGTERM later", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "a.html")
		r := begin(t, recordBegin(t, file, []string{"-d", "2s"}, "--seconds", "60"))
		r.awaitWaiting(t)
		r.signal(t, syscall.SIGTERM)
		r.end(t).says(t, 143, `^clrsnap: the program ended with (exit status 143|signal: terminated)$`)
	})
	t.Run("subprocess", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "a.html")
		c := recordBegin(t, file, []string{"--subprocesses"}, "--seconds", "1")
		at := slices.Index(c.Args, "--") + 1
		c.Args = slices.Insert(c.Args, at, "sh", "-c", `"$@"; exit 5`, "sh")
		begin(t, c).end(t).says(t, 5, `^clrsnap: the program ended with exit status 5$`)
		isComplete(t, file, main)
	})
}

// TestRecordFullDisk: a recording that does not fit is saved elsewhere, and can be read there.
func TestRecordFullDisk(t *testing.T) {
	layer.Live(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("SKIPPED: to mount a small file system needs root: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	app := testenv.Start(t, "spin", testenv.Options{Args: []string{"--threads", "2"}})
	file := filepath.Join(dir, "a.html")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := limited(t, "record", fmt.Sprint(app.PID), "-d", "500ms", "-o", file)
	c.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	r := finish(t, c)
	r.says(t, 1,
		`^clrsnap: cannot write to `+regexp.QuoteMeta(file)+`: no space left on device: `+
			`the recording was saved elsewhere: `)
	saved := regexp.MustCompile(`clrsnap view (\S+/a-kept-\d{6}\.clrsnap) -o FILE writes it to FILE\n$`)
	m := saved.FindStringSubmatch(r.stderr)
	if m == nil {
		t.Fatalf("it is not named: %s", r.stderr)
	}
	isComplete(t, m[1], "Spin.Program.Mix(ulong)")
	good(t, "view", m[1], "-o", filepath.Join(t.TempDir(), "a.html"))
	if old, err := os.ReadFile(file); err != nil || string(old) != "old" {
		t.Errorf("the old file is %q, %v", old, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

// TestRecordNobody: a user without rights records a process of their own, also with the capabilities for cheaper
// samples.
func TestRecordNobody(t *testing.T) {
	layer.Live(t)
	t.Parallel()
	if asNobody("true").Run() != nil {
		t.Skip("SKIPPED: this needs root")
	}
	paranoid, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		t.Fatal(err)
	}
	dir, c, err := nobodysCommand()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	// The kit may be in a folder that only root can read.
	host := testenv.Kit(t).Host(testenv.DefaultRuntime)
	for _, args := range [][]string{{"-rL", filepath.Dir(host), dir + "/net"},
		{testenv.Build(t, "begin"), dir + "/begin.dll"}} {
		if out, err := exec.Command("cp", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := os.Mkdir(dir+"/out", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/out", 0o777); err != nil { // whatever the umask
		t.Fatal(err)
	}
	file := dir + "/out/a.clrsnap"
	command := []string{
		"record", "-o", file, "--", dir + "/net/" + filepath.Base(host), dir + "/begin.dll", "--seconds", "1",
	}
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1", "TMPDIR=" + dir + "/out"}
	run := func(t *testing.T, caps ...uintptr) result {
		t.Helper()
		again := exec.Command(c.Path, command...)
		again.Dir, again.Env = c.Dir, c.Env
		again.SysProcAttr = &syscall.SysProcAttr{Credential: c.SysProcAttr.Credential, AmbientCaps: caps}
		r := begin(t, again).end(t)
		r.says(t, 0, `^clrsnap: written to `)
		return r
	}
	from := func(t *testing.T, source profile.Source) {
		t.Helper()
		if got := good(t, "view", file, "--json").stdout; !strings.Contains(got, fmt.Sprintf(`"source":%q`, source)) {
			t.Errorf("not from %s:\n%.300s", source, got)
		}
		isComplete(t, file, "Begin.Program.WorkAsParent(long)")
	}
	const eachThread = `^clrsnap: note: The kernel sampled each thread by a timer of its own, because .*CAP_PERFMON`

	r := run(t)
	switch level := strings.TrimSpace(string(paranoid)); level {
	case "2":
		r.says(t, 0, `^clrsnap: [\d.]+s: [1-9]\d* cpu samples`,
			`^clrsnap: note: Time in the kernel is not counted, .* set the sysctl kernel\.perf_event_paranoid to 1\.$`,
			eachThread)
		if got := good(t, "view", file).stdout; strings.Contains(got, "kernel!") {
			t.Errorf("frames of the kernel:\n%s", got)
		}
		from(t, profile.FromThreads)
	case "1":
		r.says(t, 0, `^clrsnap: [\d.]+s: [1-9]\d* cpu samples`, eachThread)
		from(t, profile.FromThreads)
	case "-1", "0":
		r.says(t, 0, `^clrsnap: [\d.]+s: [1-9]\d* cpu samples`)
		from(t, profile.FromAllProcessors)
	default:
		r.says(t, 0, `^clrsnap: note: There are no CPU samples: `)
	}

	run(t, unix.CAP_PERFMON).says(t, 0,
		`^clrsnap: note: The kernel copied a stack for every sample of every program, .*CAP_BPF`)
	from(t, profile.FromAllProcessors)
	if got := run(t, unix.CAP_PERFMON, unix.CAP_BPF).stderr; strings.Contains(got, "note: The kernel") {
		t.Errorf("with all capabilities:\n%s", got)
	}
	from(t, profile.FromProcessors)
}

// TestRecordLeak: in a program that allocates and drops a lot, one command finds the allocator of the leak.
func TestRecordLeak(t *testing.T) {
	layer.Live(t)
	app := testenv.Start(t, "survivors", testenv.Options{})
	app.Ask("churn 20")
	file := filepath.Join(t.TempDir(), "leak.html")
	r := begin(t,
		exec.Command("clrsnap", "record", fmt.Sprint(app.PID), "-d", "2s", "--event", "alloc", "--live", "--gc",
			"--alloc-every", "100KB", "-o", file))
	for range 15 {
		app.Ask("leak 1")
		time.Sleep(100 * time.Millisecond)
	}
	r.end(t).says(t, 0, `^clrsnap: live: .* objects; \d+ samples, one for every 100 KiB$`,
		`^clrsnap: note: Of .* of allocations, .* were alive at the end: `)
	live := command(t, "view", file, "--mode", "live", "--top", "2")
	live.says(t, 0)
	for _, table := range []string{
		`function of your own code\n[^\n]*Site\.Leak\(`,
		// A listener is as large as its handler: either may be the first.
		`  class\n([^\n]*EventHandler[^\n]*\n)?[^\n]*Survivors\.Listener`,
	} {
		if !regexp.MustCompile(table).MatchString(live.stdout) {
			t.Errorf("no match for %s in:\n%s", table, live.stdout)
		}
	}
	if result, code := app.Stop(); result != "OK" || code != 0 {
		t.Errorf("the program ended with %q, %d", result, code)
	}
}
