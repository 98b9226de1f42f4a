package procfs

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/target"
	"clrsnap/internal/testenv"

	"golang.org/x/sys/unix"
)

func TestParseStatus(t *testing.T) {
	const text = "Name:\ta b\\nUid:\\t0\nUmask:\t0022\nState:\tS (sleeping)\n" +
		"Tgid:\t7\nNgid:\t0\nPid:\t8\nPPid:\t5\nTracerPid:\t9\n" +
		"Uid:\t1\t2\t3\t4294967294\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t9 10 \n" +
		"NStgid:\t7\t1\nNSpid:\t8\t2\nVmPeak:\t 10 kB\nVmRSS:\t  1234 kB\n" +
		"CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000006\nCapBnd:\t0000000000000001\nSeccomp:\t2\n" +
		"voluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n"
	want := Status{
		Name: `a b\nUid:\t0`, State: 'S', TGID: 7, PPID: 5, TracerPID: 9,
		UID: IDs{1, 2, 3, 4294967294}, GID: IDs{5, 6, 7, 8}, Groups: []int{9, 10}, NSPID: []int{8, 2}, RSS: 1234 << 10,
		CapPrm: 1<<41 - 1, CapEff: 6, CapBnd: 1, Seccomp: 2, VoluntarySwitches: 150, InvoluntarySwitches: 545,
	}
	if got, err := ParseStatus([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v (%v)", got, want, err)
	}
	if id, ok := want.InnermostPID(); id != 2 || !ok {
		t.Errorf("%d, %v in its own PID namespace", id, ok)
	}
	unknown := Status{UID: unknownIDs, GID: unknownIDs}
	if got, err := ParseStatus(nil); err != nil || !reflect.DeepEqual(got, unknown) {
		t.Errorf("of nothing: %+v, %v", got, err)
	}
	if id, ok := unknown.InnermostPID(); ok {
		t.Errorf("%d in a PID namespace that is not known", id)
	}
	for _, bad := range []string{
		"Uid:\t1\t2\t3\n", "Uid:\t1\t2\t3\tx\n", "Uid:\t1\t2\t3\t4\t5\n",
		"Gid:\t1\t2\t3\t-4\n", "Gid:\t1\t2\t3\t4294967296\n", "Groups:\t1 x\n",
		"CapEff:\tx\n", "CapEff:\t\n", "CapEff:\t00000000000000001\n0",
		"State:\t\n", "Tgid:\t99999999999999999999\n", "Tgid:\n",
		"VmRSS:\tx kB\n", "VmRSS:\t9999999999999999 kB\n", "VmRSS:\n",
		"NSpid:\t" + strings.Repeat("1\t", maxNSPID+1), "Groups:\t" + strings.Repeat("1 ", maxGroups+1),
	} {
		if got, err := ParseStatus([]byte(bad)); err != ErrFormat || !reflect.DeepEqual(got, unknown) {
			t.Errorf("%.40q: %+v, %v", bad, got, err)
		}
	}
	deepest := "NSpid:" + strings.Repeat("\t1", maxNSPID-1) + "\t42\n"
	if got, err := ParseStatus([]byte(deepest)); err != nil || got.NSPID[maxNSPID-1] != 42 {
		t.Errorf("in 32 PID namespaces: %v, %v", got.NSPID, err)
	}
}

func TestParseStat(t *testing.T) {
	s, err := ParseStat([]byte("42 (a) R (b\n) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 1 2 3\n"))
	want := Stat{Comm: "a) R (b\n", State: 'S', PPID: 7, Flags: 4194560, CPU: 11, Threads: 3, Start: 12345}
	if err != nil || s != want {
		t.Errorf("%+v, %v", s, err)
	}
	if s.KernelThread() {
		t.Error("a process is taken for a thread of the kernel")
	}
	s, err = ParseStat([]byte("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0\n"))
	if err != nil || !s.KernelThread() {
		t.Errorf("a thread of the kernel: %+v, %v", s, err)
	}
	for _, bad := range []string{
		"", "42 a S 7", "42 (a) S", "42 )a( S 7 42 42",
		"42 (a) S x 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 1",
		"42 (a) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0",
	} {
		if s, err := ParseStat([]byte(bad)); err != ErrFormat {
			t.Errorf("%q: %+v, %v", bad, s, err)
		}
	}
}

func TestParseSyscall(t *testing.T) {
	got, ok := ParseSyscall([]byte("7 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc0 0x7f01\n"))
	if want := (Syscall{7, [6]uint64{1, 2, 3, 4, 5, 6}, 0x7ffc0, 0x7f01}); !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
	if got, ok = ParseSyscall([]byte("-1 0x10 0x20\n")); !ok || got != (Syscall{Nr: -1, SP: 0x10, PC: 0x20}) {
		t.Errorf("%+v, %v", got, ok)
	}
	for _, s := range []string{"running\n", "", "7 0x1", "-1 0x10", "7 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc0 x\n"} {
		if got, ok := ParseSyscall([]byte(s)); ok {
			t.Errorf("%q is taken for blocked: %+v", s, got)
		}
	}
}

func TestParseSchedstat(t *testing.T) {
	for text, want := range map[string]Schedstat{
		"1000000 2000 3\n": {time.Millisecond, 2 * time.Microsecond, 3}, "0 0 0\n": {}, "": {}, "x\n": {},
	} {
		if got := ParseSchedstat([]byte(text)); got != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestParseMaps(t *testing.T) {
	const text = `55d0c5a00000-55d0c5a02000 r--p 00001000 fd:01 131 /usr/bin/a b
7f0000000000-7f0000001000 rw-s 00000000 00:01 2068 /memfd:doublemapper (deleted)
7f0000001000-7f0000002000 rw-p 00000000 00:00 0 
7f0000002000-7f0000003000 r-xp 00000000 08:10 7                          /tmp/x\012y
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`
	ms, err := ParseMaps([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := target.Mappings{
		{Start: 0x55d0c5a00000, End: 0x55d0c5a02000, Offset: 0x1000, Perm: target.PermRead,
			Path: "/usr/bin/a b", Inode: 131, Dev: unix.Mkdev(0xfd, 1)},
		{Start: 0x7f0000000000, End: 0x7f0000001000, Perm: target.PermRead | target.PermWrite | target.PermShared,
			Path: "/memfd:doublemapper", Inode: 2068, Dev: 1, Deleted: true},
		{Start: 0x7f0000001000, End: 0x7f0000002000, Perm: target.PermRead | target.PermWrite},
		{Start: 0x7f0000002000, End: 0x7f0000003000, Perm: target.PermRead | target.PermExec,
			Path: "/tmp/x\ny", Inode: 7, Dev: unix.Mkdev(8, 16)},
		{Start: 0x7ffc00000000, End: 0x7ffc00021000, Perm: target.PermRead | target.PermWrite, Path: "[stack]"},
		{Start: 0xffffffffff600000, End: 0xffffffffff601000, Perm: target.PermExec, Path: "[vsyscall]"},
	}
	if len(ms) != len(want) {
		t.Fatalf("%d mappings", len(ms))
	}
	for i := range ms {
		if ms[i] != want[i] {
			t.Errorf("%d: %+v, want %+v", i, ms[i], want[i])
		}
	}
}

func TestParseMounts(t *testing.T) {
	const text = "22 1 200:1 / / rw,relatime shared:1 - ext4 /dev/x rw\n" +
		"31 22 0:45 /a /home/u/remote\\040files rw,nosuid shared:9 master:1 - fuse.sshfs u@h: rw\n"
	var got []Mount
	err := ParseMounts([]byte(text+"x\n"), func(m Mount) { got = append(got, m) })
	want := []Mount{{unix.Mkdev(200, 1), "/", "/", "ext4"},
		{unix.Mkdev(0, 45), "/a", "/home/u/remote files", "fuse.sshfs"}}
	if !slices.Equal(got, want) || err == nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestLists: ids of children, ranges of user ids, paths of sockets.
func TestLists(t *testing.T) {
	for text, want := range map[string][]int{
		"": nil, "12 345 ": {12, 345}, "12 345 67": {12, 345}, "67": nil, "x 12 ": {12},
	} {
		if got := parseChildren([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("children of %q: %d", text, got)
		}
	}
	for text, want := range map[string][]IDRange{
		"         0          0 4294967295\n": {{0, 0, 4294967295}},
		"1 5 1\n0 7 1\n":                     {{1, 5, 1}, {0, 7, 1}},
		"":                                   nil,
		"x\n1 2\n1 2 3 4\n":                  nil,
	} {
		if got := parseIDMap([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("ranges of %q: %v", text, got)
		}
	}
	for line, want := range map[string]string{
		"ffff8881: 00000002 00000000 00010000 0001 01 12345 /tmp/a b":   "/tmp/a b",
		"0000000000000000: 00000002 00000000 00000000 0002 01     1 /x": "/x",
		"0000000000000000: 00000003 00000000 00000000 0001 03 123":      "",
		"0000000000000000: 00000002 00000000 00010000 0001 01 9 @/x":    "",
		"Num       RefCount Protocol Flags    Type St Inode Path":       "",
		"": "",
	} {
		if got := socketPath([]byte(line)); got != want {
			t.Errorf("%q: %q", line, got)
		}
	}
}

// TestParseArgs: the kernel's text, and a process's replacements.
func TestParseArgs(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, "\x00": nil, "\x00\x00\x00": nil, "a": {"a"}, "a\x00": {"a"}, "a b\x00c\x00": {"a b", "c"},
		"a\x00b": {"a", "b"}, "\x00b\x00": {"", "b"}, "a\x00\x00b\x00\x00": {"a", "", "b"},
		"\x1b[2J\n\x00\xff": {"\x1b[2J\n", "\xff"},
	} {
		if got := parseArgs([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	many := parseArgs([]byte(strings.Repeat("a\x00", maxFile/2)))
	last := many[len(many)-1]
	if len(many) != maxArgs || len(last) != 2*(maxFile/2-maxArgs+1)-1 || strings.Contains(last, "\x00") {
		t.Errorf("%d arguments, the last has %d bytes", len(many), len(last))
	}
}

// TestSelf: the kernel's files about the test process have the parsed formats.
func TestSelf(t *testing.T) {
	d, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s, err := d.Status()
	if err != nil || s.TGID != os.Getpid() || s.PPID != os.Getppid() ||
		s.UID.Effective != os.Geteuid() || s.GID.Real != os.Getgid() || s.RSS < 1<<20 || s.RSS > 1<<40 {
		t.Errorf("%+v, %v", s, err)
	}
	stat, err := d.Stat()
	if err != nil || stat.PPID != os.Getppid() || stat.Start == 0 {
		t.Errorf("%+v, %v", stat, err)
	}
	tids, err := d.Tasks()
	if err != nil || !slices.Contains(tids, os.Getpid()) {
		t.Errorf("%d, %v", tids, err)
	}
	if tids, err := TasksOf(os.Getpid()); err != nil || !slices.Contains(tids, os.Getpid()) {
		t.Errorf("%d, %v", tids, err)
	}
	if _, err := TasksOf(1 << 30); !errors.Is(err, ErrExited) {
		t.Errorf("threads of a process that does not exist: %v", err)
	}
	if n, err := d.CountTasks(); err != nil || n < 1 {
		t.Errorf("%d threads, %v", n, err)
	}
	comm, err1 := d.Comm()
	main, err2 := d.TaskComm(os.Getpid())
	if err1 != nil || err2 != nil || comm != stat.Comm || main != comm {
		t.Errorf("%q, %v; %q, %v", comm, err1, main, err2)
	}
	if s, err := d.Cmdline(); err != nil || s != strings.Join(os.Args, " ") {
		t.Errorf("%q, %v", s, err)
	}
	env, err := d.Environ()
	if path := "PATH=" + os.Getenv("PATH"); err != nil || !slices.Contains(slices.Collect(env), path) {
		t.Errorf("no %s, %v", path, err)
	}
	if ids, err := d.UIDMap(); err != nil || len(ids) == 0 {
		t.Errorf("%v, %v", ids, err)
	}
	b, err := d.ReadInto("maps", nil)
	if err != nil {
		t.Fatal(err)
	}
	if ms, err := ParseMaps(b); err != nil || !ms.Sorted() {
		t.Errorf("%v, %v", ms, err)
	}
	if pids, err := Processes(); err != nil || !slices.Contains(pids, os.Getpid()) {
		t.Errorf("%d, %v", pids, err)
	}
	if s := Sysctl("kernel/ostype"); s != "Linux" {
		t.Errorf("%q", s)
	}
}

// seed adds the kernel's file about the test process.
func seed(f *testing.F, name string) {
	f.Helper()
	b, err := os.ReadFile("/proc/self/" + name)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
}

// Bytes that a parser may allocate for each byte of its input, and besides.
const perByte, besides = 100, 1 << 16

func FuzzMaps(f *testing.F) {
	seed(f, "maps")
	f.Add([]byte("1-2 r--p 0 0:0 0 /a (deleted)\n3-4 "))
	f.Fuzz(func(t *testing.T, b []byte) {
		var ms target.Mappings
		var err error
		testenv.Allocates(t, len(b), perByte, besides, func() { ms, err = ParseMaps(b) })
		if err == nil && !ms.Sorted() {
			t.Errorf("out of order: %v", ms)
		}
	})
}

func FuzzStatus(f *testing.F) {
	seed(f, "status")
	f.Add([]byte("Groups:\t1 2\nNSpid:\t1\t2\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Status
		var err error
		testenv.Allocates(t, len(b), perByte, besides, func() { s, err = ParseStatus(b) })
		if len(s.NSPID) > maxNSPID || len(s.Groups) > maxGroups {
			t.Error("unbounded")
		}
		for _, ids := range []IDs{s.UID, s.GID} {
			low := min(ids.Real, ids.Effective, ids.Saved, ids.FileSystem)
			if low < 0 && ids != unknownIDs || err != nil && low >= 0 {
				t.Errorf("%+v, %v", ids, err)
			}
		}
	})
}

func FuzzStat(f *testing.F) {
	seed(f, "stat")
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseStat(b)
		if err == nil && !strings.Contains(string(b), s.Comm) {
			t.Errorf("name %q out of nowhere", s.Comm)
		}
		if s.PPID < 0 || s.Threads < 0 {
			t.Errorf("%+v", s)
		}
		testenv.Allocates(t, len(b), perByte, besides, func() { parseExitCode(b) })
	})
}

// A living process has no exit code yet, and neither has a text that is no stat.
func TestParseExitCode(t *testing.T) {
	const before, between = "42 (a) Z 1 2 3) ", " 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 1 2 3" +
		" 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51"
	for text, want := range map[string]int64{
		before + "Z" + between + " 134\n":  134,
		before + "X" + between + " 1792\n": 1792,
		before + "S" + between + " 134\n":  -1,
		before + "Z" + between + "\n":      -1,
		before + "Z" + between + " x\n":    -1,
		"":                                 -1,
	} {
		got := int64(-1)
		if status, ok := parseExitCode([]byte(text)); ok {
			got = int64(status)
		}
		if got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func FuzzSyscall(f *testing.F) {
	for _, line := range []string{
		"running\n", "-1 0x10 0x20\n", "7 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc0 0x7f01\n", "1000000 2000 3\n",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, blocked := ParseSyscall(b); s.Nr < -1 || !blocked && s != (Syscall{}) {
			t.Errorf("%+v, %v", s, blocked)
		}
		ParseSchedstat(b)
	})
}

func FuzzMounts(f *testing.F) {
	seed(f, "mountinfo")
	f.Add([]byte("31 22 0:45 / /home/u/remote\\040files rw,nosuid shared:9 master:1 - fuse.sshfs u@h: rw\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		lines, mounts := strings.Count(string(b), "\n")+1, 0
		testenv.Allocates(t, len(b), perByte, besides, func() { _ = ParseMounts(b, func(Mount) { mounts++ }) })
		if mounts > lines {
			t.Errorf("%d mounts in %d lines", mounts, lines)
		}
	})
}

func FuzzLists(f *testing.F) {
	seed(f, "uid_map")
	f.Add([]byte("12 345 67"))
	f.Add([]byte("ffff8881: 00000002 00000000 00010000 0001 01 12345 /tmp/a b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		testenv.Allocates(t, len(b), perByte, besides, func() {
			if slices.ContainsFunc(parseChildren(b), func(pid int) bool { return pid < 0 }) {
				t.Error("the id of a child is negative")
			}
			for _, r := range parseIDMap(b) {
				if min(r.Inside, r.Outside, r.Count) < 0 {
					t.Errorf("%+v", r)
				}
			}
			if path := socketPath(b); path != "" && path[0] != '/' {
				t.Errorf("%q", path)
			}
		})
	})
}

func TestMachineIdle(t *testing.T) {
	const stat = "cpu  100 20 300 4000 50 6 7 0 0 0\ncpu0 100 20 300 4000 50 6 7 0 0 0\n"
	if idle, err := parseIdle([]byte(stat)); err != nil || idle != 4050*ClockTick {
		t.Error(idle, err)
	}
	for _, bad := range []string{"", "cpu0 1 2 3 4 5", "cpu 1 2 3 4", "cpu 1 2 3 99999999999999999999 5"} {
		if idle, err := parseIdle([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, idle)
		}
	}
}
