package confine

import (
	"clrsnap/internal/testenv/role"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A task tells a child of the test how to confine itself, before the child tries
// everything.
type task struct {
	Dir     string // with setUp's files
	Replace bool
	Keep    []int // capabilities
	Free    bool  // does not confine itself
	Old     bool  // is on a kernel without Landlock
	Network bool  // keeps the network, and a folder
}

func TestMain(m *testing.M) { role.Main(m) }

// outcome is the result of an attempt: "done", or the name of an error.
func outcome(err error) string {
	var errno unix.Errno
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// attempts are all attempts of a thread. n makes the names of files unique. Sockets and
// files in o were opened before.
func attempts(k *task, n int, o *opened) map[string]string {
	at := func(name string) string { return filepath.Join(k.Dir, name) }
	open := func(name string, flags int) error {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o600)
		unix.Close(fd)
		return err
	}
	socket := func(domain, kind, protocol int) error {
		fd, err := unix.Socket(domain, kind, protocol)
		unix.Close(fd)
		return err
	}
	self := fmt.Sprintf("/proc/self/fd/%d", o.made[n].Fd())
	fresh := at(fmt.Sprintf("make/fresh-%d", n))
	tcp, _ := unix.Getsockname(o.server)
	tries := map[string]func() error{
		"read elsewhere":    func() error { return open(at("secret"), unix.O_RDONLY) },
		"read a system's":   func() error { return open("/etc/passwd", unix.O_RDONLY) },
		"read of proc":      func() error { return open("/proc/self/status", unix.O_RDONLY) },
		"list elsewhere":    func() error { return open(k.Dir, unix.O_RDONLY|unix.O_DIRECTORY) },
		"read named":        func() error { return open(at("read"), unix.O_RDONLY) },
		"read below named":  func() error { return open(at("folder/file"), unix.O_RDONLY) },
		"read where made":   func() error { return open(at("make/old"), unix.O_RDONLY) },
		"write what's read": func() error { return open(at("read"), unix.O_WRONLY) },
		"write elsewhere":   func() error { return open(at("secret"), unix.O_WRONLY) },
		"make elsewhere": func() error {
			return open(at(fmt.Sprint("new-", n)), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
		},
		"folder elsewhere": func() error { return unix.Mkdir(at(fmt.Sprint("newdir-", n)), 0o700) },
		"link elsewhere": func() error {
			return unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, at(fmt.Sprint("l-", n)), unix.AT_SYMLINK_FOLLOW)
		},
		"cut elsewhere":    func() error { return unix.Truncate(at("secret"), 0) },
		"remove elsewhere": func() error { return unix.Unlink(at(fmt.Sprint("spare-", n))) },
		"write output":     func() error { return open(at("write"), unix.O_WRONLY|unix.O_TRUNC) },
		"read output":      func() error { return open(at("write"), unix.O_RDONLY) },
		"write where made": func() error { return open(at("make/old"), unix.O_WRONLY) },
		"write made":       func() error { _, err := unix.Write(int(o.made[n].Fd()), []byte("text")); return err },
		"name made": func() error {
			return unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, fresh, unix.AT_SYMLINK_FOLLOW)
		},
		"folder where made": func() error { return unix.Mkdir(at(fmt.Sprint("make/newdir-", n)), 0o700) },
		"replace":           func() error { return unix.Rename(at(fmt.Sprint("make/from-", n)), at("make/to")) },
		"TCP":               func() error { return socket(unix.AF_INET, unix.SOCK_STREAM, 0) },
		"MPTCP":             func() error { return socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP) },
		"UDP":               func() error { return socket(unix.AF_INET6, unix.SOCK_DGRAM, 0) },
		"unix":              func() error { return socket(unix.AF_UNIX, unix.SOCK_STREAM, 0) },
		"netlink":           func() error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, 0) },
		"connect":           func() error { return unix.Connect(o.tcp[n], tcp) },
		"bind": func() error {
			return unix.Bind(o.bound[n], &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
		},
		"connect abstract": func() error { return unix.Connect(o.unix[n], &unix.SockaddrUnix{Name: o.abstract}) },
		"run":              func() error { return unix.Exec("/none", nil, nil) },
		"start":            func() error { return start("/bin/true") },
		"signal":           func() error { return unix.Kill(os.Getppid(), 0) },
		"trace":            func() error { return unix.PtraceAttach(0) },
		"look inside":      func() error { _, err := unix.ProcessVMReadv(os.Getppid(), nil, nil, 0); return err },
		"ring": func() error {
			if _, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 0, 0, 0); e != 0 {
				return e
			}
			return nil
		},
		"x32": func() error {
			if _, _, e := unix.Syscall(0x40000000|unix.SYS_GETPID, 0, 0, 0); e != 0 {
				return e
			}
			return nil
		},
		"mode":         func() error { return o.made[n].Chmod(0o600) },
		"mode by name": func() error { return unix.Chmod(at("read"), 0o600) },
		"owner":        func() error { return o.made[n].Chown(os.Getuid(), os.Getgid()) },
		"times": func() error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, at("read"), make([]unix.Timespec, 2), 0)
		},
		"attribute": func() error { return unix.Setxattr(at("read"), "user.clrsnap", []byte("x"), 0) },
		"limit":     func() error { return unix.Prlimit(0, unix.RLIMIT_CORE, nil, new(unix.Rlimit)) },
		"key": func() error {
			_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_PROCESS_KEYRING, true)
			return err
		},
		"signals": func() error {
			_, err := unix.FcntlInt(o.made[n].Fd(), unix.F_SETOWN, os.Getpid())
			return err
		},
		"type":        func() error { return unix.IoctlSetInt(int(o.made[n].Fd()), unix.TIOCSTI, 0) },
		"own process": func() error { return unix.Kill(os.Getpid(), 0) },
		"capabilities": func() error {
			var data [2]unix.CapUserData
			hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			if err := unix.Capget(&hdr, &data[0]); err != nil {
				return err
			}
			if mask := uint64(data[1].Permitted)<<32 | uint64(data[0].Permitted); mask != 0 {
				return fmt.Errorf("%#x", mask)
			}
			return nil
		},
	}
	got := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(tries)) {
		got[name] = outcome(tries[name]())
	}
	return got
}

// start runs a program without a file of the program's own.
func start(name string) error {
	p, err := os.StartProcess(name, []string{name}, &os.ProcAttr{})
	if err == nil {
		_, err = p.Wait()
	}
	return err
}

// opened are the files and sockets that a child opens before it confines itself: one
// of each for each thread.
type opened struct {
	made             []*os.File
	tcp, bound, unix []int
	server           int
	abstract         string
}

const threads = 4

func open(k *task) (*opened, error) {
	o := &opened{abstract: "@" + filepath.Base(k.Dir)}
	var all error
	socket := func(domain int) int {
		fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		all = errors.Join(all, err)
		return fd
	}
	o.server = socket(unix.AF_INET)
	all = errors.Join(all,
		unix.Bind(o.server, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(o.server, 2*threads))
	for range threads {
		fd, err := unix.Open(filepath.Join(k.Dir, "make"), unix.O_WRONLY|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
		all = errors.Join(all, err)
		o.made = append(o.made, os.NewFile(uintptr(fd), "made"))
		o.tcp, o.bound, o.unix =
			append(o.tcp, socket(unix.AF_INET)), append(o.bound, socket(unix.AF_INET)),
			append(o.unix, socket(unix.AF_UNIX))
	}
	return o, all
}

// child confines itself and writes the outcomes of all attempts, a line for each thread.
// Some threads start before the confinement, some after.
var child = role.New("child", func(a role.Args) error {
	var k task
	die := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	die(json.Unmarshal([]byte(a[0]), &k))
	o, err := open(&k)
	die(err)
	if k.Old {
		die(withoutLandlock())
	}
	confined, results := make(chan bool), make(chan map[string]string)
	thread := func(n int) {
		runtime.LockOSThread()
		results <- nil
		<-confined
		results <- attempts(&k, n, o)
		select {} // the thread stays, for its status to be read
	}
	for n := range threads - 1 { // started before
		go thread(n)
		<-results
	}
	write, err := os.OpenFile(filepath.Join(k.Dir, "write"), unix.O_PATH, 0)
	die(err)
	folder, err := os.OpenFile(filepath.Join(k.Dir, "make"), unix.O_PATH, 0)
	die(err)
	switch {
	case k.Network:
		die(To(Rights{Network: true, Folder: folder, Read: []string{
			filepath.Join(k.Dir, "read"), filepath.Join(k.Dir, "folder"),
		}}))
	case !k.Free:
		die(To(Rights{
			Read:  []string{filepath.Join(k.Dir, "read"), filepath.Join(k.Dir, "folder"), filepath.Join(k.Dir, "none")},
			Write: write, Make: folder, Replace: k.Replace, Capabilities: k.Keep,
		}))
	}
	go thread(threads - 1) // started after
	<-results
	close(confined)
	enc := json.NewEncoder(os.Stdout)
	for range threads {
		die(enc.Encode(<-results))
	}
	io.Copy(io.Discard, os.Stdin) // until the parent has looked
	return nil
})

// withoutLandlock has the kernel answer like a kernel without Landlock.
func withoutLandlock() error {
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number, in struct seccomp_data
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	return setFilter(program)
}

// result is a child's output, and the parent's view of the child's threads.
type result struct {
	threads []map[string]string
	status  []string // /proc/PID/task/TID/status
}

// play has a child do a task.
func play(t *testing.T, k task) result {
	t.Helper()
	k.Dir = t.TempDir()
	setUp(t, &k)
	text, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	c := child.Command(string(text))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer in.Close()
	var r result
	for dec := json.NewDecoder(out); len(r.threads) < threads; {
		var got map[string]string
		if err := dec.Decode(&got); err != nil {
			rest, _ := io.ReadAll(dec.Buffered())
			t.Fatalf("%v: %s", err, rest)
		}
		r.threads = append(r.threads, got)
	}
	tids, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", c.Process.Pid))
	if err != nil || len(tids) < threads {
		t.Fatalf("%d threads, %v", len(tids), err)
	}
	for _, name := range tids {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r.status = append(r.status, string(text))
	}
	return r
}

// setUp makes the files, and a server with an abstract name.
func setUp(t *testing.T, k *task) {
	t.Helper()
	for _, dir := range []string{"make", "folder"} {
		if err := os.Mkdir(filepath.Join(k.Dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"secret", "read", "write", "folder/file", "make/old", "make/to"}
	for n := range threads {
		names = append(names, "make/from-"+strconv.Itoa(n), "spare-"+strconv.Itoa(n))
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(k.Dir, name), []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", "@"+filepath.Base(k.Dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

func needLandlock(t *testing.T, abi int) {
	t.Helper()
	if has := LandlockABI(); has < abi {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: the kernel has version %d of Landlock's interface, and this needs %d",
			has, abi)
	}
}

// want checks the outcomes of attempts, on every thread.
func (r result) want(t *testing.T, want map[string]string) {
	t.Helper()
	for n, got := range r.threads {
		for _, name := range slices.Sorted(maps.Keys(got)) {
			if w, ok := want[name]; !ok || got[name] != w {
				t.Errorf("thread %d: %s: %s, want %s", n, name, got[name], w)
			}
		}
	}
}

// onlyOutput is the outcome of every attempt where new files may be created.
func onlyOutput() map[string]string {
	return map[string]string{
		"read elsewhere": "EACCES", "read a system's": "EACCES", "read of proc": "EACCES", "list elsewhere": "EACCES",
		"read named": "done", "read below named": "done", "read where made": "EACCES",
		"write what's read": "EACCES", "write elsewhere": "EACCES", "make elsewhere": "EACCES",
		"folder elsewhere": "EPERM", "link elsewhere": "EACCES", "cut elsewhere": "EPERM",
		"remove elsewhere": "EACCES", "write output": "done", "read output": "EACCES",
		"write where made": "EACCES", "write made": "done", "name made": "done",
		"folder where made": "EPERM", "replace": "EACCES",
		"TCP": "EPERM", "MPTCP": "EPERM", "UDP": "EPERM", "unix": "EPERM",
		"netlink": "EPERM", "ring": "EPERM", "x32": "EPERM",
		"connect": "EPERM", "bind": "EPERM", "connect abstract": "EPERM",
		"run": "EPERM", "start": "EPERM", "signal": "EPERM", "trace": "EPERM", "look inside": "EPERM",
		"mode": "EPERM", "mode by name": "EPERM", "owner": "EPERM", "times": "EPERM", "attribute": "EPERM",
		"limit": "EPERM", "key": "EPERM", "signals": "EPERM", "type": "EPERM",
		"own process": "done", "capabilities": "done",
	}
}

// TestConfined: only named rights work, on every thread.
func TestConfined(t *testing.T) {
	needLandlock(t, 6)
	r := play(t, task{})
	r.want(t, onlyOutput())
	for _, s := range r.status {
		for _, line := range []string{
			"NoNewPrivs:\t1\n", "Seccomp:\t2\n", "CapPrm:\t0000000000000000\n",
			"CapEff:\t0000000000000000\n", "CapInh:\t0000000000000000\n", "CapAmb:\t0000000000000000\n",
		} {
			if !strings.Contains(s, "\n"+line) {
				t.Errorf("a thread lacks %q:\n%s", line, s)
			}
		}
	}
}

// TestFree: every denied attempt works in a process without confinement, so the
// attempt itself does not cause the denial.
func TestFree(t *testing.T) {
	want := map[string]string{"run": "ENOENT", "trace": "ESRCH"} // no such program, no such process
	got := play(t, task{Free: true}).threads[0]
	for name, confined := range onlyOutput() {
		switch name {
		case "MPTCP", "ring", "x32", "look inside", "bind", "key", "type", "attribute":
			// not in every kernel, or folder
			continue
		}
		if w := cmp.Or(want[name], "done"); confined != "done" && got[name] != w {
			t.Errorf("%s: %s, want %s", name, got[name], w)
		}
	}
}

// TestConfinedReplace: with Replace, files in the folder of new files can be replaced.
func TestConfinedReplace(t *testing.T) {
	needLandlock(t, 6)
	want := onlyOutput()
	want["replace"] = "done"
	play(t, task{Replace: true}).want(t, want)
}

// TestNetwork: with the network and a folder, nothing else works.
func TestNetwork(t *testing.T) {
	needLandlock(t, 6)
	want := onlyOutput()
	for _, name := range []string{
		"TCP", "UDP", "connect", "read where made", "write where made", "replace",
	} {
		want[name] = "done"
	}
	want["write output"] = "EACCES"
	r := play(t, task{Network: true})
	for _, got := range r.threads {
		delete(got, "MPTCP") // not in every kernel
	}
	r.want(t, want)
}

// TestKept: named capabilities are kept, and give no rights that Landlock denies.
func TestKept(t *testing.T) {
	needLandlock(t, 6)
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: only root has capabilities")
	}
	want := onlyOutput()
	want["capabilities"] = fmt.Sprintf("%#x", 1<<unix.CAP_DAC_READ_SEARCH)
	play(t, task{Keep: []int{unix.CAP_DAC_READ_SEARCH}}).want(t, want)
}

// TestOldKernel: without Landlock the other rights are given up all the same.
func TestOldKernel(t *testing.T) {
	r := play(t, task{Old: true})
	for n, got := range r.threads {
		for name, want := range map[string]string{
			"read elsewhere": "done", "make elsewhere": "done", "TCP": "EPERM", "start": "EPERM",
			"capabilities": "done",
		} {
			if got[name] != want {
				t.Errorf("thread %d: %s: %s, want %s", n, name, got[name], want)
			}
		}
	}
	for _, s := range r.status {
		if !strings.Contains(s, "\nNoNewPrivs:\t1\n") {
			t.Errorf("a thread can get new privileges:\n%s", s)
		}
	}
}

// TestFiles: the kernel's file systems are not among the files.
func TestFiles(t *testing.T) {
	names := Files()
	if !slices.Contains(names, "/etc") || !slices.Contains(names, "/usr") {
		t.Errorf("%v", names)
	}
	for _, made := range []string{"/proc", "/sys", "/dev", "/"} {
		if slices.Contains(names, made) {
			t.Errorf("%s is among them", made)
		}
	}
}
