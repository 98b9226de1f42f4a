package procfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/role"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { role.Main(m) }

// pretender is a process with a long command line.
var pretender = role.New("pretender", func(role.Args) error {
	if err := pretend(); err != nil {
		return err
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
	return nil
})

// pretended is the length of the process's pretended command line.
const pretended = 1 << 30

// pretend presents a large part of the memory as the command line and the environment, which
// takes no rights (prctl(2), PR_SET_MM_MAP).
func pretend() error {
	const private = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE
	at, err := unix.MmapPtr(-1, 0, nil, pretended, unix.PROT_READ|unix.PROT_WRITE, private)
	if err != nil {
		return err
	}
	start, end := uint64(uintptr(at)), uint64(uintptr(at))+pretended
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	_, after, _ := strings.Cut(string(text), ") ")
	stat := strings.Fields(after)
	field := func(n int) uint64 { // as proc_pid_stat(5) counts them
		v, _ := strconv.ParseUint(stat[n-3], 10, 64)
		return v
	}
	// struct prctl_mm_map of include/uapi/linux/prctl.h
	m := struct {
		code, data, brk [2]uint64
		stack           uint64
		arg, env        [2]uint64
		auxv            uint64
		auxvSize, exe   uint32
	}{
		[2]uint64{field(26), field(27)}, [2]uint64{field(45), field(46)}, [2]uint64{field(47), field(47)},
		field(28), [2]uint64{start, end}, [2]uint64{start, end}, 0, 0, ^uint32(0),
	}
	return unix.Prctl(unix.PR_SET_MM, unix.PR_SET_MM_MAP, uintptr(unsafe.Pointer(&m)), unsafe.Sizeof(m), 0)
}

// TestLong: a pretended command line and environment are read up to a bound.
func TestLong(t *testing.T) {
	cmd := pretender.Command()
	if said := testenv.StartSaying(t, cmd); said != "ready" {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: this kernel lets no process tell where its command line is: %s", said)
	}
	d, err := Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, name := range []string{"cmdline", "environ"} {
		if b, err := d.ReadFile(name); err != nil || len(b) != maxFile {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

// TestDir: existing files, missing files, and the end.
func TestDir(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d, err := Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if to, err := d.Readlink("exe"); err != nil || !strings.HasPrefix(to, "/") {
		t.Errorf("%q, %v", to, err)
	}
	if names, err := d.Names("task"); err != nil || len(names) != 1 || names[0] != fmt.Sprint(d.PID()) {
		t.Errorf("%q, %v", names, err)
	}
	if root, err := d.Root(); err != nil {
		t.Error(err)
	} else {
		defer root.Close()
		theirs, err1 := root.Stat()
		ours, err2 := os.Stat("/")
		if err1 != nil || err2 != nil || !os.SameFile(theirs, ours) {
			t.Errorf("the root is another directory (%v, %v)", err1, err2)
		}
	}
	if _, err := d.ReadFile("nothing"); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrExited) {
		t.Errorf("a file that is not there: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	want := fmt.Sprintf("process %d has exited", d.PID())
	if _, err := d.ReadFile("status"); !errors.Is(err, ErrExited) || err.Error() != want {
		t.Errorf("a file of a process that has ended: %v", err)
	}
	if _, err := d.Readlink("exe"); !errors.Is(err, ErrExited) {
		t.Errorf("a link of a process that has ended: %v", err)
	}
	if _, err := Open(1 << 30); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a process that does not exist: %v", err)
	}
}
