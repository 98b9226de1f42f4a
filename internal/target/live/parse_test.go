package live

import (
	"os"
	"strings"
	"testing"

	"clrsnap/internal/target"
	"clrsnap/internal/testenv"

	"golang.org/x/sys/unix"
)

func TestParseMaps(t *testing.T) {
	const text = `55d0c5a00000-55d0c5a02000 r--p 00001000 fd:01 131 /usr/bin/a b
7f0000000000-7f0000001000 rw-s 00000000 00:01 2068 /memfd:doublemapper (deleted)
7f0000001000-7f0000002000 rw-p 00000000 00:00 0 
7f0000002000-7f0000003000 r-xp 00000000 08:10 7                          /tmp/x\012y
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`
	ms, err := parseMaps([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := target.Mappings{
		{Start: 0x55d0c5a00000, End: 0x55d0c5a02000, Offset: 0x1000, Perm: target.PermRead, Path: "/usr/bin/a b",
			Inode: 131, Dev: unix.Mkdev(0xfd, 1)},
		{Start: 0x7f0000000000, End: 0x7f0000001000, Perm: target.PermRead | target.PermWrite | target.PermShared,
			Path: "/memfd:doublemapper", Inode: 2068, Dev: 1, Deleted: true},
		{Start: 0x7f0000001000, End: 0x7f0000002000, Perm: target.PermRead | target.PermWrite},
		{Start: 0x7f0000002000, End: 0x7f0000003000, Perm: target.PermRead | target.PermExec, Path: "/tmp/x\ny", Inode: 7,
			Dev: unix.Mkdev(8, 16)},
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

func TestParseStat(t *testing.T) {
	s, err := parseStat([]byte("42 (a) R (b) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 1 2 3\n"))
	if err != nil || s.comm != "a) R (b" || s.state != 'S' || s.ppid != 7 || s.count != 3 || s.start != 12345 ||
		s.flags != 4194560 {
		t.Errorf("%+v %v", s, err)
	}
}

func TestParseSyscall(t *testing.T) {
	l, ok := parseSyscall([]byte("7 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc0 0x7f01\n"))
	if !ok || l.nr != 7 || l.args != [6]uint64{1, 2, 3, 4, 5, 6} || l.sp != 0x7ffc0 || l.pc != 0x7f01 {
		t.Errorf("%+v %v", l, ok)
	}
	if l, ok = parseSyscall([]byte("-1 0x10 0x20\n")); !ok || l.nr != -1 || l.sp != 0x10 || l.pc != 0x20 {
		t.Errorf("%+v %v", l, ok)
	}
	for _, s := range []string{"running\n", "", "7 0x1"} {
		if _, ok := parseSyscall([]byte(s)); ok {
			t.Errorf("%q is taken for blocked", s)
		}
	}
}

func FuzzParseMaps(f *testing.F) {
	own, _ := os.ReadFile("/proc/self/maps")
	f.Add(own)
	f.Add([]byte("1-2 r--p 0 0:0 0 /a (deleted)\n3-4 "))
	f.Fuzz(func(t *testing.T, b []byte) {
		var ms target.Mappings
		var err error
		testenv.Allocates(t, len(b), 100, 1<<16, func() { ms, err = parseMaps(b) })
		if err == nil && !ms.Sorted() {
			t.Errorf("out of order: %v", ms)
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	for _, name := range []string{"stat", "status", "syscall"} {
		own, _ := os.ReadFile("/proc/self/" + name)
		f.Add(own)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseStat(b); err == nil && !strings.Contains(string(b), s.comm) {
			t.Errorf("name %q out of nowhere", s.comm)
		}
		if s := parseStatus(b); len(s.nspid) > 32 {
			t.Error("unbounded")
		}
		parseSyscall(b)
	})
}
