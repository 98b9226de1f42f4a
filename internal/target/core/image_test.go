package core

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// TestAssemblies: which assembly is used, if the dump has its headers (createdump), only its
// data, or nothing of it (the kernel).
func TestAssemblies(t *testing.T) {
	layer.Live(t)
	const framework = "System.Private.CoreLib.dll"
	for _, tt := range []struct {
		kind     testenv.DumpKind
		assembly string
		change   func(t *testing.T, b []byte) []byte
		want     string // the report about the file; empty: the file is used
	}{
		{testenv.DumpNormal, framework, same, ""},
		{testenv.DumpNormal, framework, otherTime, "is another file: the contents differ from the dump"},
		{testenv.DumpKernel, framework, same, ""},
		{testenv.DumpKernel, framework, otherData, "is another file: the contents differ from the dump"},
		{testenv.DumpKernel, framework, longer, "is another file: the size or layout does not fit the mappings"},
		{testenv.DumpKernel, "idle.dll", same, "trusted"},
		{testenv.DumpKernel, "idle.dll", longer, "is another file: the size or layout does not fit the mappings"},
		{testenv.DumpKernel, "idle.dll", func(*testing.T, []byte) []byte { return []byte("no assembly") },
			"is another file: the size or layout does not fit the mappings"},
	} {
		t.Run(string(tt.kind)+"/"+tt.assembly+"/"+tt.want, func(t *testing.T) {
			path := dumpOnce(t, tt.kind)
			original := imageNamed(t, openCore(t, path, Options{}), tt.assembly).path
			b, err := os.ReadFile(original)
			if err != nil {
				t.Fatal(err)
			}
			root := t.TempDir()
			if err := os.MkdirAll(root+filepath.Dir(original), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(root+original, tt.change(t, b), 0o644); err != nil {
				t.Fatal(err)
			}
			c := openCore(t, path, Options{Sysroot: root})
			im := imageNamed(t, c, tt.assembly)
			err = im.load()
			if tt.want == "" || tt.want == "trusted" {
				if err != nil || im.isTrusted() != (tt.want == "trusted") {
					t.Errorf("%v, taken on trust: %v", err, im.isTrusted())
				}
			} else if err == nil || err.Error() != tt.want {
				t.Errorf("%v, want %s", err, tt.want)
			}
			var p [8]byte
			if rerr := c.ReadMemory(p[:], im.mappings[0].Start+0x1000); (rerr == nil) != (err == nil) {
				t.Errorf("reading: %v", rerr)
			}
		})
	}
}

var dumps = map[testenv.DumpKind]string{}

// dumpOnce returns a dump of "idle", the same for the whole of a test.
func dumpOnce(t *testing.T, kind testenv.DumpKind) string {
	t.Helper()
	if dumps[kind] != "" {
		return dumps[kind]
	}
	app := testenv.Start(t, "idle", testenv.DumpOptions(t, kind,
		testenv.Options{Runtime: testenv.OrdinaryRuntime(t), Args: []string{"--threads", "1", "--pool", "1"}}))
	from := testenv.Dump(t, app, kind)
	dir, err := os.MkdirTemp("", "clrsnap-core")
	if err != nil {
		t.Fatal(err)
	}
	dumps[kind] = filepath.Join(dir, "core")
	if err := os.Rename(from, dumps[kind]); err != nil {
		t.Fatal(err)
	}
	return dumps[kind]
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, path := range dumps {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func imageNamed(t *testing.T, c *Core, name string) *image {
	t.Helper()
	for _, im := range c.images {
		if filepath.Base(im.path) == name {
			return im
		}
	}
	t.Fatalf("%s is not in the dump", name)
	return nil
}

func same(_ *testing.T, b []byte) []byte   { return b }
func longer(_ *testing.T, b []byte) []byte { return append(b, make([]byte, 2*pageSize)...) }

// otherTime changes the time stamp in the COFF header, like any other build.
func otherTime(_ *testing.T, b []byte) []byte {
	b[le.Uint32(b[0x3c:])+8] ^= 1
	return b
}

// otherData changes the written section, like a build of other code.
func otherData(t *testing.T, b []byte) []byte {
	t.Helper()
	for _, s := range readPE(bytes.NewReader(b)).sections {
		if s.flags&peWrite == 0 {
			continue
		}
		for i := range s.size {
			b[s.off+i] += 16
		}
	}
	return b
}

// TestTrust: a file without any byte in the dump must be older than the dump, unless the user
// names the file.
func TestTrust(t *testing.T) {
	path := dumpOnce(t, testenv.DumpKernel)
	c := openCore(t, path, Options{})
	c.written = time.Unix(0, 0)
	err := imageNamed(t, c, "idle.dll").load()
	if err == nil ||
		!strings.HasPrefix(err.Error(), "may be another file: the file was written to after the dump was made") {
		t.Errorf("%v", err)
	}
	if err := imageNamed(t, c, "libcoreclr.so").load(); err != nil {
		t.Errorf("a file with a build id: %v", err)
	}
	c = openCore(t, path, Options{Sysroot: "/"})
	c.written = time.Unix(0, 0)
	if err := imageNamed(t, c, "idle.dll").load(); err != nil {
		t.Errorf("a file that the user vouches for: %v", err)
	}
	c = openCore(t, path, Options{})
	im := imageNamed(t, c, "idle.dll")
	touchInode(t, im.path)
	var b [8]byte
	if err := c.ReadMemory(b[:], im.mappings[0].Start); err != nil || b[0] != 'M' {
		t.Errorf("% x: %v", b, err)
	}
	if missing := c.Missing(""); len(missing) != 1 ||
		missing[0] != "1 file was taken on trust, because the dump has nothing to compare "+
			"(names of it end in (?)): idle.dll" {
		t.Errorf("missing: %q", missing)
	}
}

// touchInode changes a file's ctime and nothing else.
func touchInode(t *testing.T, path string) {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, st.Mode()); err != nil {
		t.Fatal(err)
	}
}

// TestRelocated: used cells do not count, even if most cells have been used.
func TestRelocated(t *testing.T) {
	const base, linked, cells = 0x50000, 0x10000, 100
	file := make([]byte, 3*pageSize)
	relocs := le.AppendUint32(nil, pageSize)
	relocs = le.AppendUint32(relocs, 8+2*cells)
	for i := range uint64(cells) {
		le.PutUint64(file[pageSize+8*i:], linked+16*i)
		relocs = le.AppendUint16(relocs, uint16(10<<12|8*i))
	}
	copy(file[2*pageSize:], relocs)
	p := &peImage{file: bytes.NewReader(file), base: linked, relocs: 2 * pageSize, relocLen: uint64(len(relocs)),
		sections: []peSection{{rva: pageSize, off: pageSize, size: 2 * pageSize}}}
	for _, tt := range []struct {
		name         string
		cell         func(i uint64) uint64
		words, alike int
	}{
		{"as loaded", func(i uint64) uint64 { return base + 16*i }, cells, cells},
		{"another build", func(i uint64) uint64 { return base + 16*i + 8 }, cells, 0},
		{"most have been used", func(i uint64) uint64 {
			if i >= 20 {
				return 0x7f0000000000 + i
			}
			return base + 16*i
		}, 20, 20},
		{"all have been used", func(i uint64) uint64 { return 0x7f0000000000 + i }, 0, 0},
	} {
		mem := cellMemory{at: base + pageSize, data: make([]byte, pageSize)}
		for i := range uint64(cells) {
			le.PutUint64(mem.data[8*i:], tt.cell(i))
		}
		if words, alike := p.relocated(mem, base, base+3*pageSize); words != tt.words || alike != tt.alike {
			t.Errorf("%s: %d of %d alike, want %d of %d", tt.name, alike, words, tt.alike, tt.words)
		}
	}
}

// cellMemory is memory that begins at an address.
type cellMemory struct {
	at   arch.Addr
	data []byte
}

func (m cellMemory) ReadMemory(p []byte, addr arch.Addr) error {
	if addr < m.at || addr+arch.Addr(len(p)) > m.at+arch.Addr(len(m.data)) {
		return errLeftOut
	}
	copy(p, m.data[addr-m.at:])
	return nil
}

// TestLinkMap: without NT_FILE, the dynamic linker's list gives the places of code.
func TestLinkMap(t *testing.T) {
	p := startParked(t, buildParked(t))
	maps := liveMaps(t, p.pid)
	path := testenv.GCoreDump(t, p.pid)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	note := bytes.Index(b, append(le.AppendUint32(nil, noteFile), "CORE\x00"...))
	if note < 0 {
		t.Fatal("no NT_FILE in the dump")
	}
	b[note]++
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	c := openCore(t, path, Options{})
	got, err := c.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	if exe, err := c.Executable(); exe != p.exe || err != nil {
		t.Errorf("program %q: %v", exe, err)
	}
	var is, was [pageSize]byte
	for _, m := range maps {
		if m.Perm&target.PermExec == 0 || m.Path == "" {
			continue
		}
		if err := c.ReadMemory(is[:], m.Start); err != nil || !livePage(p.pid, m.Start, was[:]) || is != was {
			t.Errorf("code at %v of %s: %v", m.Start, m.Path, err)
		}
		if g := got.Find(m.Start); g.Start != m.Start || g.End != m.End || g.Perm != m.Perm || g.Offset != m.Offset ||
			filepath.Base(g.Path) != filepath.Base(m.Path) {
			t.Errorf("mapping %+v, want %+v", g, m)
		}
	}
}

// TestNoBuildID: a program without build id is compared with the dump's pages.
func TestNoBuildID(t *testing.T) {
	p := startParked(t, buildParked(t, "-Wl,--build-id=none"))
	path := testenv.KernelDump(t, p.pid, p.ended)
	b, err := os.ReadFile(p.exe)
	if err != nil {
		t.Fatal(err)
	}
	if err := imageNamed(t, openCore(t, path, Options{}), "parked").load(); err != nil {
		t.Errorf("the very file: %v", err)
	}
	b[9]++ // padding of the ELF header, ignored by everybody
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := imageNamed(t, openCore(t, path, Options{Exe: other}), "parked").load(); !errors.Is(err, errDiffers) {
		t.Errorf("another file: %v", err)
	}
}

// TestVDSO: the kernel's own library is an image without a file.
func TestVDSO(t *testing.T) {
	p := startParked(t, buildParked(t))
	c := openCore(t, testenv.GCoreDump(t, p.pid), Options{})
	ms, err := c.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	m := ms.Find(arch.Addr(c.auxv[auxVDSO]))
	if m == nil || m.Path != "[vdso]" || m.Perm&target.PermExec == 0 {
		t.Errorf("%+v", m)
	}
}
