package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unsafe"

	"clrsnap/internal/confine"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
)

// beforeReading runs the command and calls look when the command is about to read a file for the first time. The kernel
// makes the command wait meanwhile (fanotify(7)).
func beforeReading(t *testing.T, file string, look func(pid int), args ...string) result {
	t.Helper()
	group, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK,
		unix.O_RDONLY|unix.O_CLOEXEC)
	if err == nil {
		defer unix.Close(group)
		err = unix.FanotifyMark(group, unix.FAN_MARK_ADD, unix.FAN_ACCESS_PERM, unix.AT_FDCWD, file)
	}
	if err != nil {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: a reader cannot be held (fanotify: %v)", err)
	}
	var out, errs bytes.Buffer
	c := exec.Command("clrsnap", args...)
	c.Stdout, c.Stderr = &out, &errs
	must(t, c.Start())
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	looked := false
	for {
		select {
		case <-done:
			if !looked {
				t.Fatalf("clrsnap %v has not read %s: %s%s", args, file, out.String(), errs.String())
			}
			return result{out.String(), errs.String(), c.ProcessState.ExitCode()}
		case <-time.After(time.Millisecond):
		}
		for _, e := range readers(t, group) {
			if int(e.Pid) == c.Process.Pid && !looked {
				looked = true
				look(c.Process.Pid)
			}
			answer := unix.FanotifyResponse{Fd: e.Fd, Response: unix.FAN_ALLOW}
			_, err := unix.Write(group, unsafe.Slice((*byte)(unsafe.Pointer(&answer)), unsafe.Sizeof(answer)))
			must(t, errors.Join(err, unix.Close(int(e.Fd))))
		}
	}
}

// readers returns the processes that wait for permission to read.
func readers(t *testing.T, group int) []unix.FanotifyEventMetadata {
	t.Helper()
	var waiting [32]unix.FanotifyEventMetadata
	const size = int(unsafe.Sizeof(waiting[0]))
	n, err := unix.Read(group, unsafe.Slice((*byte)(unsafe.Pointer(&waiting)), unsafe.Sizeof(waiting)))
	if err != nil && err != unix.EAGAIN {
		t.Fatal(err)
	}
	return waiting[:max(n, 0)/size]
}

// isConfined checks that the threads of a process have only the given capabilities, and cannot get others.
func isConfined(t *testing.T, pid int, capabilities uint64) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		must(t, err)
		for _, line := range []string{
			"NoNewPrivs:\t1", "Seccomp:\t2",
			fmt.Sprintf("CapPrm:\t%016x", capabilities), fmt.Sprintf("CapEff:\t%016x", capabilities),
		} {
			if !strings.Contains(string(text), "\n"+line+"\n") {
				t.Errorf("a thread has not %q when it reads:\n%s", line, text)
			}
		}
	}
}

// TestConfinedVerbs: a verb that reads files of strangers has dropped all other rights before the verb reads the first
// byte.
func TestConfinedVerbs(t *testing.T) {
	layer.Live(t)
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: only root can hold a reader, and has capabilities to lose")
	}
	dir := t.TempDir()
	folded := filepath.Join(dir, "a.folded")
	must(t, os.WriteFile(folded, []byte("main;work 3\nmain;rest 1\n"), 0o600))
	base := filepath.Join(dir, "base.folded")
	must(t, os.WriteFile(base, []byte("main;work 1\nmain;rest 1\n"), 0o600))
	app := testenv.Start(t, "idle", testenv.Options{})
	dump := testenv.GCoreDump(t, app.PID)
	app.Stop()
	const readsAll = 1 << unix.CAP_DAC_READ_SEARCH
	for _, c := range []struct {
		name, reads  string
		capabilities uint64
		writes       string // must be in the output
		args         []string
	}{
		{"view", folded, 0, `main;work 3`, []string{"view", folded, "-f", "folded"}},
		{"view --diff", base, 0, `main|work`, []string{"view", folded, "--diff", base}},
		{"view --diff, the first", folded, 0, `main|work`, []string{"view", folded, "--diff", base}},
		{"stack --core", dump, readsAll, `Idle\.Program\.`, []string{"stack", "--core", dump}},
		{
			"stack --core --sysroot", dump, readsAll, `Idle\.Program\.`,
			[]string{"stack", "--core", dump, "--sysroot", "/"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			see := func(pid int) { isConfined(t, pid, c.capabilities) }
			r := beforeReading(t, c.reads, see, c.args...)
			r.says(t, 0)
			r.want(t, c.writes)

			// The verb must not write to a file put in the output's place. Landlock refuses the write before clrsnap
			// can check the file.
			if confine.LandlockABI() == 0 {
				t.Skip("SKIPPED, LITTLE WAS TESTED: the kernel has no Landlock")
			}
			out := filepath.Join(t.TempDir(), "out.html") // only this format supports --diff
			must(t, unix.Mkfifo(out, 0o600))
			swap := func(pid int) {
				must(t, os.WriteFile(out+".new", []byte("precious"), 0o600))
				must(t, os.Rename(out+".new", out))
			}
			args := append(c.args, "-o", out)
			beforeReading(t, c.reads, swap, args...).says(t, 1,
				`^clrsnap: cannot write to `+regexp.QuoteMeta(out)+`: permission denied\n$`)
			unharmed(t, out)
		})
	}
}

// TestConfinedReaches: a user can read and write the same files when confined.
func TestConfinedReaches(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: only root needs capabilities for its files")
	}
	dir := filepath.Join(t.TempDir(), "theirs")
	must(t, os.Mkdir(dir, 0o700))
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"a.folded", "old.svg"} {
		must(t, os.WriteFile(at(name), []byte("main;work 3\n"), 0o600))
		must(t, os.Chown(at(name), nobody, nobody))
	}
	must(t, os.Chown(dir, nobody, nobody))
	for _, name := range []string{"new.svg", "old.svg"} {
		good(t, "view", at("a.folded"), "-o", at(name))
		if text, err := os.ReadFile(at(name)); err != nil || !bytes.Contains(text, []byte("<svg")) {
			t.Errorf("%s: %v, %.40s", name, err, text)
		}
	}
	pipe := at("pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0)
	must(t, err)
	defer reader.Close()
	good(t, "view", at("a.folded"), "-f", "folded", "-o", pipe)
	var text [64]byte
	if n, err := reader.Read(text[:]); err != nil || !strings.Contains(string(text[:n]), "main;work 3") {
		t.Errorf("through a pipe: %q, %v", text[:n], err)
	}
	nothingLeft(t, dir)
}
