package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// emptyFile makes a file of zeros in a folder, with the name of the runtime's library.
func emptyFile(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "libcoreclr.so")
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, mapped); err != nil {
		t.Fatal(err)
	}
	return file
}

// silentVictim starts a victim with a file on a file system in user space. The file system then stops answering.
func silentVictim(t *testing.T, attr *syscall.SysProcAttr, kind string) (pid int, place string) {
	t.Helper()
	from := t.TempDir()
	emptyFile(t, from)
	place, order := slowFolder(t, from)
	pid, _ = helper(t, attr, "victim", kind, filepath.Join(place, "libcoreclr.so"))
	order("silent")
	return pid, place
}

// TestSlow: reading these processes blocks for ever. Each verb ends by itself and says why; ps lists the other
// processes; Ctrl-C ends each verb at once.
func TestSlow(t *testing.T) {
	app := testenv.Start(t, "idle", testenv.Options{Args: []string{"--threads", "1"}})
	for _, c := range []struct {
		name  string
		start func(t *testing.T) (pid int)
	}{
		{"file system in user space", func(t *testing.T) int {
			pid, _ := silentVictim(t, nil, "mapped")
			return pid
		}},
		{"mounted nowhere any more", func(t *testing.T) int {
			pid, _ := silentVictim(t, nil, "detached")
			return pid
		}},
		{"mounted where only it sees it", func(t *testing.T) int {
			pid, place := silentVictim(t, &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}, "mapped")
			if err := syscall.Unmount(place, syscall.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
			return pid
		}},
		{"pages that the process provides", func(t *testing.T) int {
			dir, err := os.MkdirTemp("/dev/shm", "clrsnap-test-")
			if err != nil {
				t.Skipf("SKIPPED, NOTHING WAS TESTED: no file system in memory: %v", err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			pid, _ := helper(t, nil, "victim", "fault", emptyFile(t, dir))
			return pid
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			id := strconv.Itoa(c.start(t))
			slowVerbs(t, id, strconv.Itoa(app.PID))
		})
	}
}

// slowVerbs runs all verbs, at the same time, on a process that blocks them.
func slowVerbs(t *testing.T, id, other string) {
	html := filepath.Join(t.TempDir(), "x.html")
	ps := launch(t, limited(t, "ps"))
	verbs := [][]string{
		{"stack", id}, {"stack", "--native", id}, {"doctor", id}, {"record", "-d", "1s", "-o", html, id},
	}
	begun := make([]*running, len(verbs))
	for i, args := range verbs {
		begun[i] = launch(t, limited(t, args...))
	}
	blocks := regexp.MustCompile(`(?m)^ *` + id + ` .*\n.* ✗ the process keeps clrsnap waiting`)
	testenv.UntilSeen(t, func() string { // ps takes three seconds, on a busy machine too
		r := ps.end(t)
		r.says(t, 0)
		if !regexp.MustCompile(`(?m)^ *`+other+` .*\d`).MatchString(r.stdout) || !blocks.MatchString(r.stdout) {
			ps = launch(t, limited(t, "ps"))
			return "both processes in " + r.stdout
		}
		return ""
	})

	interruptsSlow(t, id, 130, `interrupted by SIGINT`, syscall.SIGINT)
	interruptsSlow(t, id, 143, `interrupted by SIGTERM`, syscall.SIGTERM, syscall.SIGTERM)

	for _, b := range begun {
		r := b.end(t)
		r.says(t, 1, `gave up after 5s: reading the memory or the files of process `+id+` blocks`)
		if strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%v: more than one sentence: %s", b.Args, r.stderr)
		}
	}
}

// interruptsSlow interrupts a command that waits for a blocking process, once or twice. On a busy machine the signal
// may come before the command has begun, or after the command has given up.
func interruptsSlow(t *testing.T, id string, status int, says string, signals ...syscall.Signal) {
	t.Helper()
	testenv.UntilSeen(t, func() string {
		r := launch(t, limited(t, "stack", id))
		time.Sleep(time.Second)
		for i, s := range signals {
			if i > 0 {
				time.Sleep(2 * sameSignal)
			}
			_ = r.Process.Signal(s) // the status says whether the signal came
		}
		end := r.end(t)
		if end.status < 0 || end.status == 1 && strings.Contains(end.stderr, "gave up after 5s") {
			return says
		}
		end.says(t, status, says)
		return ""
	})
}

// TestSlowFiles: files on a file system that has stopped answering.
func TestSlowFiles(t *testing.T) {
	layer.Live(t)
	from := t.TempDir()
	emptyFile(t, from)
	place, order := slowFolder(t, from)
	file := filepath.Join(place, "libcoreclr.so")
	order("silent")
	for _, args := range [][]string{{"view", file}, {"stack", "--core", file}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			finish(t, limited(t, args...)).says(t, 1, `gave up after 5s: a file system does not answer`)
		})
	}
}

// TestSlowFolder: a program runs from a file system in user space, as in a container without root. The program is read
// like any other as long as the file system answers. TestSlowFolder is not parallel: commands of other tests would see
// the mount.
func TestSlowFolder(t *testing.T) {
	runtime := testenv.OrdinaryRuntime(t)
	if !slices.Contains(testenv.Shapes(runtime), testenv.SelfContained) {
		t.Skipf("SKIPPED, NOTHING WAS TESTED ON %s: it cannot be made self-contained here", runtime)
	}
	p := testenv.Publish(t, "idle", runtime, testenv.SelfContained, "")
	place, order := slowFolder(t, p.Dir)
	p.Exe = filepath.Join(place, filepath.Base(p.Exe))
	app := p.Start(t, testenv.Options{Args: []string{"--threads", "3"}})
	pid := strconv.Itoa(app.PID)
	look := func() {
		good(t, "ps").want(t, `^ *`+pid+` .* \d+\.0\.\d+ .*self-contained`)
		good(t, "stack", "--group=never", pid).want(t, `Idle\.Program\.Block`)
		good(t, "doctor", pid).want(t, `^ok .*runtime`)
		html := filepath.Join(t.TempDir(), "x.html")
		r := finish(t, limited(t, "record", "--mode", "wall", "-d", "1s", "-o", html, pid))
		r.says(t, 0, `written to `)
		r = launch(t, limited(t, "record", "-d", "1h", "-o", html, pid)).interrupted(t, recording)
		r.says(t, 0, `written to `)
	}
	look()
	order("silent")
	finish(t, limited(t, "stack", pid)).says(t, 1,
		`gave up after 5s: .* process `+pid+` .* is a file system of type fuse\.slow`)
	order("answering")
	look()
}

// TestMountDuringLook: while why looks at a program, somebody mounts a file system in user space. why looks once more,
// under a guard, and misses nothing.
func TestMountDuringLook(t *testing.T) {
	app := testenv.Start(t, "idle", testenv.Options{Args: []string{"--threads", "3"}})
	c, control := startOnTerminal(t, 2000, nil, "why", strconv.Itoa(app.PID))
	shown := ""
	for !strings.Contains(shown, "looking at process") {
		var b [4096]byte
		n, err := control.Read(b[:])
		must(t, err)
		shown += string(b[:n])
	}
	slowFolder(t, t.TempDir())
	shown += allShown(c, control)
	if c.ProcessState.ExitCode() != 0 || !strings.Contains(shown, " of samples: ") ||
		strings.Contains(shown, "wait for ever") {
		t.Errorf("status %d: %s", c.ProcessState.ExitCode(), shown)
	}
}

// interrupted sends Ctrl-C once the command has said something.
func (r *running) interrupted(t *testing.T, said *regexp.Regexp) result {
	t.Helper()
	r.await(t, said)
	r.signal(t, syscall.SIGINT)
	return r.end(t)
}
