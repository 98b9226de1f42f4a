package core

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"

	"golang.org/x/sys/unix"
)

// parked is a running testdata/parked.c.
type parked struct {
	pid   int
	exe   string
	dir   string // its working directory
	ended chan struct{}
}

// buildParked compiles parked.c with build id or without.
func buildParked(t *testing.T, flags ...string) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "parked")
	args := append([]string{"-O1", "-pthread", "-o", exe, "testdata/parked.c"}, flags...)
	if out, err := exec.Command(testenv.CC(t), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exe
}

// startParked starts the program and waits until all of its threads are parked.
func startParked(t *testing.T, exe string, args ...string) *parked {
	t.Helper()
	p := &parked{exe: exe, dir: t.TempDir(), ended: make(chan struct{})}
	cmd := exec.Command(exe, args...)
	cmd.Dir = p.dir
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit // the kernel dumps a process that dies by itself
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: old.Max, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	if rerr := unix.Setrlimit(unix.RLIMIT_CORE, &old); err != nil || rerr != nil {
		t.Fatal(err, rerr)
	}
	p.pid = cmd.Process.Pid
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("parked said %q: %v", line, err)
	}
	go func() {
		cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-p.ended
	})
	return p
}

func openCore(t testing.TB, path string, o Options) *Core {
	t.Helper()
	c, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// livePage reads a page of a process.
func livePage(pid int, at arch.Addr, b []byte) bool {
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}, 0)
	return err == nil && n == len(b)
}

// liveMaps are the mappings of a process, with only addresses, permissions, offset and path.
func liveMaps(t *testing.T, pid int) (out target.Mappings) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var m target.Mapping
		var perm, dev string
		var inode uint64
		if _, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &m.Start, &m.End, &perm, &m.Offset, &dev,
			&inode); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for i, c := range "rwx" {
			if perm[i] == byte(c) {
				m.Perm |= 1 << i
			}
		}
		if _, path, ok := strings.Cut(line, "/"); ok {
			m.Path = "/" + strings.TrimSuffix(path, "\n")
		}
		out = append(out, m)
	}
	return out
}

// pages counts the pages of a process by their source: the dump, a file, nowhere.
type pages struct{ dumped, filed, lacking int }

// compareMemory requires that every page of the dump equals the page of the process, which does
// not change. It compares all pages, or only pages from files.
func compareMemory(t *testing.T, c *Core, live *liveMemory, onlyFiles bool) (n pages) {
	t.Helper()
	var is [pageSize]byte
	wrong := 0
	for _, at := range live.order {
		if c.ReadMemory(is[:], at) != nil {
			n.lacking++
			continue
		}
		fromDump := (dumped{c}).ReadMemory(make([]byte, pageSize), at) == nil
		if fromDump {
			n.dumped++
		} else {
			n.filed++
		}
		was := live.page(at)
		if was == nil || fromDump && onlyFiles || bytes.Equal(was, is[:]) {
			continue
		}
		if wrong++; wrong <= 20 {
			m := c.mapping(at)
			t.Errorf("%v of %+v (from the dump: %v) differs", at, m.Mapping, fromDump)
		}
	}
	if wrong > 0 {
		t.Errorf("%d pages differ", wrong)
	}
	return n
}

// liveMemory is the current or former memory of a process.
type liveMemory struct {
	pid   int
	order []arch.Addr
	kept  map[arch.Addr][]byte // nil: read on demand
	buf   [pageSize]byte
}

// memoryOf lists the readable pages of a process. With keep, memoryOf lists only the pages of the
// selected mappings, and copies them.
func memoryOf(t *testing.T, pid int, keep func(*target.Mapping) bool) *liveMemory {
	t.Helper()
	l := &liveMemory{pid: pid}
	if keep != nil {
		l.kept = map[arch.Addr][]byte{}
	}
	for _, m := range liveMaps(t, pid) {
		if m.Perm&target.PermRead == 0 || m.Start > 1<<47 || keep != nil && !keep(&m) {
			continue
		}
		for at := m.Start; at < m.End; at += pageSize {
			if keep != nil && !livePage(pid, at, l.buf[:]) {
				continue // beyond the end of a file, or the kernel's own page
			}
			l.order = append(l.order, at)
			if keep != nil {
				l.kept[at] = slices.Clone(l.buf[:])
			}
		}
	}
	return l
}

// page returns nil for a missing page.
func (l *liveMemory) page(at arch.Addr) []byte {
	if l.kept != nil {
		return l.kept[at]
	}
	if !livePage(l.pid, at, l.buf[:]) {
		return nil
	}
	return l.buf[:]
}
