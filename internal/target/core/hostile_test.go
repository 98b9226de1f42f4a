package core

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
)

func TestFake(t *testing.T) {
	for _, xnum := range []bool{false, true} {
		f := newFake()
		f.xnum = xnum
		c := openCore(t, f.write(t), Options{})
		if c.PID() != 7 || c.Command() != "fake" || c.Writer() != "kernel" || c.Signal() != nil || c.Crashed() != 0 {
			t.Errorf("%d %q %q %v %d", c.PID(), c.Command(), c.Writer(), c.Signal(), c.Crashed())
		}
		if th := c.Threads(); len(th) != 2 || th[0].TID != 7 || th[1].Context.IP != 0x401010 {
			t.Errorf("threads %+v", th)
		}
		ms, err := c.Mappings()
		want := target.Mappings{
			{Start: 0x400000, End: 0x402000, Perm: target.PermRead | target.PermExec, Path: "/no/such/program"},
			{Start: 0x7000000, End: 0x7001000, Perm: target.PermRead | target.PermWrite},
			{Start: 0x9000000, End: 0x9001000, Perm: target.PermRead | target.PermWrite},
		}
		if err != nil || !slices.Equal(ms, want) {
			t.Errorf("mappings %+v (%v)", ms, err)
		}
	}
}

// TestNoZeros: missing memory is an error, and never zeros.
func TestNoZeros(t *testing.T) {
	f := newFake()
	c := openCore(t, f.write(t), Options{})
	for _, tt := range []struct {
		name string
		addr arch.Addr
		n    int
		ok   bool
	}{
		{"dumped", 0x7000000, pageSize, true},
		{"the end of what was dumped", 0x400ff8, 8, true},
		{"half dumped", 0x400ff8, 16, false},
		{"left out, of a file that is not there", 0x401000, 1, false},
		{"left out, anonymous", 0x9000000, 8, false},
		{"no memory", 0x5000000, 1, false},
		{"the end of memory", 0x7000ff8, 9, false},
		{"the end of the address space", ^arch.Addr(0) - 3, 8, false},
		{"nothing", 0x5000000, 0, true},
	} {
		p := bytes.Repeat([]byte{0xaa}, tt.n)
		err := c.ReadMemory(p, tt.addr)
		var re *target.ReadError
		if (err == nil) != tt.ok || err != nil && (!errors.As(err, &re) || re.Addr != tt.addr || re.Len != tt.n) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	missing := c.Missing("")
	want := []string{
		"/no/such/program cannot be read: no such file or directory " +
			"(--sysroot names the folder with the process's files)",
		"1 page was needed, but neither in the dump nor in a file, the first at 0x9000000",
	}
	if !slices.Equal(missing, want) {
		t.Errorf("missing %q", missing)
	}
}

// TestForbidden: memory that the process itself could not access is not reported as missing.
func TestForbidden(t *testing.T) {
	f := newFake()
	f.segments = append(f.segments, fakeSegment{vaddr: 0xa000000, memsz: pageSize})
	c := openCore(t, f.write(t), Options{})
	var b [8]byte
	if err := c.ReadMemory(b[:], 0xa000000); !errors.Is(err, errForbidden) {
		t.Errorf("read: %v", err)
	}
	if missing := c.Missing(""); c.Lacks(0xa000000, 8) || len(missing) > 0 {
		t.Errorf("missing: %q", missing)
	}
}

// TestFileError: the needed file, and how to supply it.
func TestFileError(t *testing.T) {
	empty := t.TempDir()
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{}, "the dump needs the file /no/such/program, but this file cannot be read: no such file or " +
			"directory (--sysroot names the folder with the process's files)"},
		{Options{Sysroot: empty}, "the dump needs the file /no/such/program, but this file is not below " + empty +
			": no such file or directory (--sysroot names the folder with the process's files)"},
	} {
		c := openCore(t, newFake().write(t), tt.o)
		if err := c.FileError("/no/such/program"); err == nil || err.Error() != tt.want {
			t.Errorf("%v, want %s", err, tt.want)
		}
		if err := c.FileError("/not/mapped"); err != nil {
			t.Errorf("a file that the process had not: %v", err)
		}
	}
}

// TestDumped: how far the dump itself has memory.
func TestDumped(t *testing.T) {
	f := newFake()
	f.segments = append(f.segments,
		fakeSegment{vaddr: 0x7001000, memsz: 2 * pageSize, data: make([]byte, pageSize), flags: flagRead})
	c := openCore(t, f.write(t), Options{})
	for _, tt := range []struct {
		name string
		addr arch.Addr
		n    int
		want int
	}{
		{"all of it", 0x7000008, 16, 16},
		{"across two pieces", 0x7000ff8, 16, 16},
		{"up to what was left out", 0x7000000, 4 * pageSize, 2 * pageSize},
		{"up to the end of memory", 0x400ff8, 64, 8},
		{"left out", 0x9000000, 8, 0},
		{"no memory", 0x5000000, 8, 0},
		{"the end of the address space", ^arch.Addr(0), 8, 0},
	} {
		if got := c.Dumped(tt.addr, tt.n); got != tt.want {
			t.Errorf("%s: %d bytes, want %d", tt.name, got, tt.want)
		}
	}
}

// TestLacks: Lacks distinguishes left-out memory from memory that never existed.
func TestLacks(t *testing.T) {
	traceless := newFake() // a gcore dump
	traceless.notes = nil
	traceless.note("CORE", noteProcess, make([]byte, 136))
	traceless.note("CORE", noteStatus, status(7, 0x401000, 0x7000100))
	for _, tt := range []struct {
		name          string
		addr          arch.Addr
		n             int
		kernel, gcore bool
	}{
		{"dumped", 0x7000000, pageSize, false, false},
		{"left out", 0x9000000, 8, true, true},
		{"half of it left out", 0x400ff8, 16, true, true},
		{"not known to the dump", 0x5000000, 8, false, true},
		{"the lowest page", 8, 8, false, false},
		{"no address", 1 << 63, 8, false, false},
		{"the end of the address space", ^arch.Addr(0) - 3, 8, false, false},
	} {
		for f, want := range map[*fake]bool{newFake(): tt.kernel, traceless: tt.gcore} {
			c := openCore(t, f.write(t), Options{})
			if got := c.Lacks(tt.addr, tt.n); got != want {
				t.Errorf("%s, in a dump by %s: %v", tt.name, c.Writer(), got)
			}
		}
	}
}

// TestRefused: a sentence for every unreadable dump.
func TestRefused(t *testing.T) {
	set := func(off int, b ...byte) func([]byte) []byte {
		return func(all []byte) []byte { copy(all[off:], b); return all }
	}
	cut := func(n int) func([]byte) []byte { return func(all []byte) []byte { return all[:n] } }
	start := func(s string) func([]byte) []byte {
		return func(all []byte) []byte { return append([]byte(s), all...) }
	}
	firstLoad := ehdrSize + phdrSize
	for _, tt := range []struct {
		name  string
		spoil func([]byte) []byte
		want  string
	}{
		{"empty", cut(0), "the dump is empty"},
		{"cut off in the header", cut(40), "the dump is cut off after 40 bytes, within the header"},
		{"cut off in the program headers", cut(ehdrSize + 10), "the dump is cut off: 4 program headers"},
		{"cut off before the notes", cut(ehdrSize + 4*phdrSize), "the dump is cut off before the threads"},
		{"gzip", start("\x1f\x8b"), "the dump is compressed: unpack it first, with gunzip"},
		{"zstd", start("\x28\xb5\x2f\xfd"), "the dump is compressed: unpack it first, with zstd"},
		{"lz4", start("\x04\x22\x4d\x18"), "the dump is compressed: unpack it first, with lz4"},
		{"xz", start("\xfd7zXZ\x00"), "the dump is compressed: unpack it first, with xz"},
		{"text", start("hello"), "the dump is not an ELF file"},
		{"32 bit", set(4, 1), "the dump is of a 32-bit process"},
		{"big endian", set(5, 2), "the dump is of a big-endian machine"},
		{"arm64", set(18, 183), "the dump is of an arm64 machine"},
		{"unknown machine", set(18, 0xff, 0xff), "the dump is of another machine (e_machine 65535)"},
		{"library", set(16, 3), "the dump is an ELF file but not a core dump"},
		{"program headers of another size", set(54, 32), "the dump is damaged: the program headers have 32 bytes"},
		{"too many program headers", set(56, 0xfe, 0xff), "the dump is cut off: 65534 program headers"},
		{"number of program headers nowhere",
			func(b []byte) []byte { le.PutUint64(b[40:], 1<<62); return set(56, 0xff, 0xff)(b) },
			"the dump is damaged: the number of program headers is not in the file"},
		{"no program headers", set(56, 0, 0), "the dump has no threads"},
		{"more in the file than in memory", func(b []byte) []byte { le.PutUint64(b[firstLoad+32:], 1<<40); return b },
			"the dump is damaged: the sizes of the memory at 0x7000000"},
		{"beyond the address space", func(b []byte) []byte {
			le.PutUint64(b[firstLoad+40:], 1<<63)
			le.PutUint64(b[firstLoad+16:], 1<<63)
			return b
		},
			"the dump is damaged: the sizes of the memory at 0x8000000000000000"},
		{"offset that wraps", func(b []byte) []byte { le.PutUint64(b[firstLoad+8:], 1<<63-1); return b },
			"the dump is damaged: the sizes of the memory at 0x7000000"},
		{"overlap", func(b []byte) []byte { le.PutUint64(b[firstLoad+16:], 0x400800); return b },
			"the dump is damaged: the memory at 0x400800 is there twice"},
	} {
		f := newFake()
		f.spoil = tt.spoil
		path := f.write(t)
		want := "cannot read the core dump " + path + ": " + tt.want
		c, err := Open(path, Options{})
		if err == nil {
			c.Close()
			t.Errorf("%s: it was read", tt.name)
		} else if !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", tt.name, err, want)
		}
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir(), "/dev/null"} {
		if c, err := Open(path, Options{}); err == nil {
			c.Close()
			t.Errorf("%s was read", path)
		}
	}
}

// TestDamagedNotes: notes with false contents.
func TestDamagedNotes(t *testing.T) {
	huge := func(f *fake) { le.PutUint32(f.notes[4:], 1<<32-1) }
	for _, tt := range []struct {
		name    string
		change  func(*fake)
		err     string
		threads int
		missing string
	}{
		{"double thread", func(f *fake) { f.note("CORE", noteStatus, status(8, 1, 2)) }, "", 2,
			"the dump has 1 more thread with the id of another thread"},
		{"registers of another size", func(f *fake) { f.note("CORE", noteStatus, make([]byte, 144)) },
			"the dump is damaged: a thread's registers have 144 bytes", 0, ""},
		{"first note is huge", huge, "the dump is damaged within its notes, before the threads", 0, ""},
		{"name is huge", func(f *fake) { le.PutUint32(f.notes, 1<<32-1) },
			"the dump is damaged within its notes, before the threads", 0, ""},
		{"a note behind the first thread is huge", func(f *fake) { le.PutUint32(f.notes[len(threadNote())+4:], 1<<31) },
			"", 1, "the dump is damaged within its notes: there may be more threads"},
		{"the last thread is zeros", func(f *fake) { clear(f.notes[len(f.notes)-len(threadNote()):]) }, "", 1,
			"the dump is damaged within its notes: there may be more threads"},
		{"auxv is huge", func(f *fake) { f.note("CORE", noteAuxv, make([]byte, 1<<17)) },
			"the dump is damaged: a note of type 0x6 has 131072 bytes", 0, ""},
		{"short process information", func(f *fake) {
			f.notes = nil
			f.note("CORE", noteProcess, make([]byte, 8))
			f.note("CORE", noteStatus, status(3, 1, 1))
		}, "", 1, ""},
		{"more files than bytes", func(f *fake) { f.notes = nil; f.note("CORE", noteFile, fileNote(1<<60, 1, nil)) },
			"the dump is damaged: 1152921504606846976 files in a note of 16 bytes", 0, ""},
		{"files without names", func(f *fake) {
			f.notes = nil
			f.note("CORE", noteStatus, status(3, 1, 1))
			f.note("CORE", noteFile, append(fileNote(2, 1, [][3]uint64{{1, 2, 3}, {4, 5, 6}}), "xx"...))
		}, "", 1, ""},
		{"files that overlap and wrap", func(f *fake) {
			f.notes = nil
			f.note("CORE", noteStatus, status(3, 1, 1))
			ranges := [][3]uint64{{0x1000, 0x5000, 3}, {0x2000, 0x6000, 1 << 62}, {0x7000, 0x6000, 0},
				{0, 1<<64 - 1, 9}}
			f.note("CORE", noteFile, fileNote(4, 1<<63, ranges, "/a", "/b", "/c", "/d"))
		}, "", 1, ""},
		{"signal before any thread", func(f *fake) {
			f.notes = append([]byte(nil), f.notes...)
			f.prepend("CORE", noteSignal, make([]byte, 128))
		}, "", 2, ""},
		{"a thread that was never in user mode", func(f *fake) { f.note("CORE", noteStatus, status(9, 0, 0)) },
			"", 3, ""},
		{"notes of others", func(f *fake) { f.note("OTHER", noteStatus, make([]byte, 4)) }, "", 2, ""},
		{"cut off in the second thread", func(f *fake) {
			f.segments = nil
			f.spoil = func(b []byte) []byte { return b[:len(b)-100] }
		}, "", 1, "the dump is cut off within its notes: there may be more threads"},
		{"cut off in memory", func(f *fake) { f.spoil = func(b []byte) []byte { return b[:len(b)-100] } }, "", 2,
			"the dump is cut off: 100 bytes of memory are missing at the end"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			tt.change(f)
			c, err := Open(f.write(t), Options{})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("%v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if len(c.Threads()) != tt.threads {
				t.Errorf("%d threads, want %d", len(c.Threads()), tt.threads)
			}
			missing := strings.Join(c.Missing(""), "\n")
			if !strings.Contains(missing, tt.missing) || tt.missing == "" && missing != "" {
				t.Errorf("missing %q, want %q", missing, tt.missing)
			}
			useEverything(t, c)
		})
	}
}

// threadNote is the note of a thread.
func threadNote() []byte {
	var f fake
	f.note("CORE", noteStatus, status(1, 2, 3))
	return f.notes
}

func (f *fake) prepend(owner string, typ uint32, desc []byte) {
	rest := f.notes
	f.notes = nil
	f.note(owner, typ, desc)
	f.notes = append(f.notes, rest...)
}

// useEverything calls every method and checks the properties of any dump.
func useEverything(t *testing.T, c *Core) {
	t.Helper()
	ms, err := c.Mappings()
	if err != nil || !ms.Sorted() {
		t.Errorf("mappings are not in order: %v %+v", err, ms)
	}
	c.Command()
	c.Executable()
	c.Signal()
	var buf [64]byte
	for i := range ms {
		if i > 100 {
			break
		}
		c.ReadMemory(buf[:], ms[i].Start)
		c.ReadMemory(buf[:], ms[i].End-32)
		if f, err := c.OpenMapping(&ms[i]); err == nil {
			f.Close()
		}
	}
	for _, th := range c.Threads() {
		if sp, ok := th.Context.Reg(arch.RSP); ok {
			c.ReadMemory(buf[:], arch.Addr(sp))
		}
		if th.Context.IP == 0 && th.Context.Regs[arch.RSP] == 0 && (th.Context.Valid != 0 || th.Syscall != -1) {
			t.Errorf("thread %+v has registers", th)
		}
	}
	if n := len(c.Missing("")); n > maxNamed+10 {
		t.Errorf("%d sentences on what is missing", n)
	}
}

// TestTruncated cuts a real layout off everywhere: no panic, and an error or fewer threads and
// pages.
func TestTruncated(t *testing.T) {
	all := newFake().bytes()
	path := filepath.Join(t.TempDir(), "core")
	for n := 0; n < len(all); n += 1 + n/200 {
		if err := os.WriteFile(path, all[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := Open(path, Options{}); err == nil {
			useEverything(t, c)
			if len(c.Missing("")) == 0 {
				t.Errorf("%d of %d bytes: nothing is missing", n, len(all))
			}
			c.Close()
		}
	}
}

// TestCutMapping: what is cut off of a mapping is read from the mapped file, if the rest of the mapping agrees with the
// file.
func TestCutMapping(t *testing.T) {
	text := append(bytes.Repeat([]byte{0x44}, pageSize), bytes.Repeat([]byte{0x45}, pageSize)...)
	for name, file := range map[string][]byte{
		"the file": text, "another file": append([]byte{1}, text[1:]...), "a file of another size": text[:pageSize],
	} {
		path := filepath.Join(t.TempDir(), "mapped")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		f := newFake()
		f.notes = nil
		f.note("CORE", noteStatus, status(7, 0x401000, 0x7000100))
		f.note("CORE", noteFile, fileNote(1, pageSize, [][3]uint64{{0x400000, 0x402000, 0}}, path))
		f.segments = f.segments[:2] // the mapping comes last
		f.segments[1].data = text
		f.spoil = func(b []byte) []byte { return b[:len(b)-pageSize] }
		c := openCore(t, f.write(t), Options{})
		var b [16]byte
		err := c.ReadMemory(b[:], 0x401000-8)
		var re *target.ReadError
		switch {
		case name == "the file":
			if want := text[pageSize-8:][:16]; err != nil || !bytes.Equal(b[:], want) {
				t.Errorf("%s: % x, %v, want % x", name, b, err, want)
			}
		case !errors.As(err, &re) || !errors.Is(err, errCut):
			t.Errorf("%s: % x, %v", name, b, err)
		}
	}
}

// TestShrinks: a file that is truncated during the reads gives errors.
func TestShrinks(t *testing.T) {
	path := newFake().write(t)
	c := openCore(t, path, Options{})
	var b [8]byte
	if err := c.ReadMemory(b[:], 0x7000000); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	var re *target.ReadError
	if err := c.ReadMemory(b[:], 0x7000000); !errors.As(err, &re) {
		t.Errorf("after the file was cut: %v", err)
	}
}

// TestManySegments: PN_XNUM, and a quick search.
func TestManySegments(t *testing.T) {
	f := newFake()
	f.xnum = true
	const count = 70_000
	for i := range uint64(count) {
		f.segments = append(f.segments,
			fakeSegment{vaddr: 0x10_0000_0000 + 2*pageSize*i, memsz: pageSize, data: []byte{byte(i)}, flags: flagRead})
	}
	c := openCore(t, f.write(t), Options{})
	var b [1]byte
	for i := range uint64(count) {
		if err := c.ReadMemory(b[:], arch.Addr(0x10_0000_0000+2*pageSize*i)); err != nil || b[0] != byte(i) {
			t.Fatalf("segment %d: %v, %d", i, err, b[0])
		}
	}
	f.phnum = maxSegments + 1
	if _, err := Open(f.write(t), Options{}); err == nil ||
		!strings.Contains(err.Error(), "program headers do not fit") {
		t.Errorf("more program headers than fit: %v", err)
	}
}

// TestHeld: a dump that describes too much is refused at once.
func TestHeld(t *testing.T) {
	for name, more := range map[string]func(f *fake){
		"memory": func(f *fake) {
			f.xnum = true
			for i := range uint64(maxHeld/segmentCosts + 1) {
				f.segments = append(f.segments, fakeSegment{vaddr: 0x10_0000_0000 + 2*pageSize*i, memsz: pageSize})
			}
		},
		"files": func(f *fake) {
			ranges, names := make([][3]uint64, maxHeld/fileCosts), make([]string, maxHeld/fileCosts)
			f.notes = nil // there is such a note already
			f.note("CORE", noteStatus, status(7, 0, 0))
			f.note("CORE", noteFile, fileNote(uint64(len(ranges)), pageSize, ranges, names...))
		},
		"threads": func(f *fake) {
			for i := range uint32(maxHeld / threadCosts) {
				f.note("CORE", noteStatus, status(100+i, 0, 0))
			}
		},
	} {
		f := newFake()
		more(f)
		if _, err := Open(f.write(t), Options{}); err == nil ||
			!strings.Contains(err.Error(), "the dump describes more than is read") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	for _, xnum := range []bool{false, true} {
		small := newFake()
		small.xnum = xnum
		for i := range small.segments {
			small.segments[i].data = small.segments[i].data[:min(len(small.segments[i].data), 16)]
		}
		f.Add(small.bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "core")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		o := Options{Sysroot: t.TempDir()}
		testenv.Allocates(t, len(data), 50, 1<<18, func() {
			c, err := Open(path, o)
			if err != nil {
				return
			}
			defer c.Close()
			useEverything(t, c)
		})
	})
}

// FuzzPE: any file can be at an assembly's path.
func FuzzPE(f *testing.F) {
	f.Add([]byte("MZ"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p *peImage
		testenv.Allocates(t, len(data), 10, 1<<16, func() { p = readPE(bytes.NewReader(data)) })
		if p == nil {
			return
		}
		m := &mapping{Mapping: target.Mapping{Start: 0x10000, End: 0x12000}}
		for _, s := range first(p.place(0x10000, m)) {
			if s.start < m.Start || s.end > m.End || s.start > s.end {
				t.Errorf("%+v of %+v", s, m.Mapping)
			}
		}
		p.permissions(0x10000, m)
		if words, alike := p.relocated(zeros{}, 0, 0x10000); alike > words {
			t.Errorf("%d of %d", alike, words)
		}
	})
}

func first(s []span, _ bool) []span { return s }

// zeros is memory of zeros.
type zeros struct{}

func (zeros) ReadMemory(p []byte, _ arch.Addr) error { clear(p); return nil }
