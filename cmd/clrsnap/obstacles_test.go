package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// TestNoPlaceForSocket: a program whose TMPDIR is too long for the path of a socket, or does not exist, has no
// diagnostics socket. The error says so, with the remedy, and does not advise to try again.
func TestNoPlaceForSocket(t *testing.T) {
	layer.Live(t)
	t.Parallel()
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 108))
	must(t, os.Mkdir(long, 0o755))
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct{ tmp, says string }{
		{long, "its TMPDIR " + long + " is too long for the path of a socket"},
		{missing, "its TMPDIR " + missing + " does not exist"},
	} {
		a := testenv.Start(t, "events", testenv.Options{Env: []string{"TMPDIR=" + c.tmp}})
		pid := fmt.Sprint(a.PID)
		r := finish(t, exec.Command("clrsnap", "record", pid, "--event", "exception", "-d", "1s", "-o",
			filepath.Join(t.TempDir(), "a.clrsnap")))
		r.says(t, 1, c.says, "start the program again, with an existing directory with a short path as TMPDIR")
		why := finish(t, exec.Command("clrsnap", "why", pid))
		if !strings.Contains(unwrapped(why.stdout+why.stderr), c.says) {
			t.Errorf("why does not say %q:\n%s%s", c.says, why.stdout, why.stderr)
		}
		for _, text := range []string{r.stderr, why.stdout + why.stderr} {
			if strings.Contains(unwrapped(text), "try again") {
				t.Errorf("another attempt does not help:\n%s", text)
			}
		}
		finish(t, exec.Command("clrsnap", "stack", pid)).says(t, 0) // takes no socket
		livetest.EndsWell(t, a)
	}
}

// unwrapped is a text without its line breaks.
func unwrapped(text string) string { return strings.Join(strings.Fields(text), " ") }

// TestFileCapabilities: a user cannot look at an own program with file capabilities. The error names the capability,
// and says the remedy once. What belongs to the target is told from what belongs to clrsnap.
func TestFileCapabilities(t *testing.T) {
	layer.Live(t)
	t.Parallel()
	dir, c, err := nobodysCommand()
	must(t, err)
	defer os.RemoveAll(dir)
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	if asNobody("true").Run() != nil || st.Flags&unix.ST_NOSUID != 0 {
		layer.Lacking(t, "only root gives a file capabilities, and not on a file system that is mounted nosuid")
	}
	a, _ := publicApp(t, dir, nobody, func(host string) {
		set := cap.NewSet()
		must(t, set.SetFlag(cap.Permitted, true, cap.NET_BIND_SERVICE))
		must(t, set.SetFlag(cap.Effective, true, cap.NET_BIND_SERVICE))
		must(t, set.SetFile(host))
	})
	pid := fmt.Sprint(a.PID)
	for _, args := range [][]string{
		{"stack", pid}, {"locks", pid}, {"heap", pid}, {"why", pid, "--for", "1s"}, {"doctor", pid},
		{"record", pid, "-d", "1s", "-o", c.Path + ".html"},
	} {
		r := finish(t, asNobody(c.Path, args...))
		text := unwrapped(r.stdout + r.stderr)
		t.Logf("%v: status %d: %s", args, r.status, text)
		if r.status == 0 {
			t.Errorf("%v: status 0", args)
		}
		if args[0] == "doctor" {
			_, text, _ = strings.Cut(text, "process "+pid+":") // before that the doctor tells about clrsnap itself
		}
		for part, n := range map[string]int{
			"CAP_NET_BIND_SERVICE": 1, "0x400": 0, "run as root": 1, "the program": 0, "just exited": 0,
		} {
			if got := strings.Count(text, part); got != n {
				t.Errorf("%v: %q is there %d times, want %d", args, part, got, n)
			}
		}
	}
	finish(t, exec.Command("clrsnap", "stack", pid)).says(t, 0) // as root
	livetest.EndsWell(t, a)
}
