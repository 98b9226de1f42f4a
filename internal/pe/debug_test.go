package pe

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
)

// deflate packs b.
func deflate(b []byte) []byte {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		panic(err)
	}
	w.Write(b)
	w.Close()
	return out.Bytes()
}

var thePDB = bytes.Repeat([]byte("the PDB itself"), 20)

// The offsets of withDebug's additions to image's section, which lies at RVA 0x2000.
const (
	tableAt, codeViewAt, nativeAt, checksumAt, embeddedAt = 0x110, 0x200, 0x240, 0x260, 0x290
	tableEntries                                          = 6
)

// withDebug is image with a debug directory like crossgen2's.
func withDebug(flat bool) []byte {
	b := image(flat)
	le := binary.LittleEndian
	const opt = 0x80 + coffSize
	le.PutUint32(b[opt+optDirs64-4:], 16)
	le.PutUint32(b[opt+optDirs64+dirDebug*8:], 0x2000+tableAt)
	le.PutUint32(b[opt+optDirs64+dirDebug*8+4:], tableEntries*entrySize)
	section := b[sectionIn(flat):]
	codeView := append([]byte("RSDS0123456789abcdef\x01\x00\x00\x00"), "shop.pdb\x00"...)
	checksum := append([]byte("SHA256\x00"), bytes.Repeat([]byte{7}, 32)...)
	packed := append(le.AppendUint32([]byte("MPDB"), uint32(len(thePDB))), deflate(thePDB)...)
	for i, e := range []struct {
		kind         uint32
		major, minor uint16
		stamp        uint32
		at           int
		data         []byte
	}{
		{kind: typeCodeView, at: nativeAt, data: []byte("RSDSnative-code-pdb.\x02\x00\x00\x00")},
		{typeCodeView, 0x100, portableMinor, 0x89abcdef, codeViewAt, codeView},
		{typeChecksum, 1, 0, 0, checksumAt, checksum},
		{kind: typeReproducible},
		{typeEmbedded, minPortable, embeddedMinor, 0, embeddedAt, packed},
		{kind: 21, at: 0x7000, data: make([]byte, 50)}, // of ReadyToRun, and not there
	} {
		p := section[tableAt+i*entrySize:]
		le.PutUint32(p[4:], e.stamp)
		le.PutUint16(p[8:], e.major)
		le.PutUint16(p[10:], e.minor)
		le.PutUint32(p[12:], e.kind)
		le.PutUint32(p[16:], uint32(len(e.data)))
		if e.at != 0 {
			le.PutUint32(p[20:], uint32(0x2000+e.at))
			le.PutUint32(p[24:], uint32(0x400+e.at))
		}
		if e.at < 0x7000 {
			copy(section[e.at:], e.data)
		}
	}
	return b
}

func sectionIn(flat bool) int {
	if flat {
		return 0x400
	}
	return 0x2000
}

func inMemory(b []byte) *target.Reader { return target.NewReader(region{Base: base, Data: b}) }

func TestDebugDirectory(t *testing.T) {
	want := &Debug{
		CodeView: []CodeView{
			{GUID: [16]byte([]byte("native-code-pdb.")), Age: 2},
			{GUID: [16]byte([]byte("0123456789abcdef")), Age: 1, Stamp: 0x89abcdef, Path: "shop.pdb", Portable: true},
		},
		Checksums:    []Checksum{{"SHA256", bytes.Repeat([]byte{7}, 32)}},
		Reproducible: true,
	}
	for name, tt := range map[string]struct {
		mem  *target.Reader
		base arch.Addr
	}{
		"laid out in memory": {inMemory(withDebug(false)), base},
		"flat in memory":     {inMemory(withDebug(true)), base},
		"a file":             {File(bytes.NewReader(withDebug(true))), 0},
	} {
		d, err := DebugDirectory(tt.mem, tt.base)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		pdb, err := d.Embedded(tt.mem)
		if err != nil || !d.HasEmbedded() || !bytes.Equal(pdb, thePDB) {
			t.Errorf("%s: embedded %q, %v", name, pdb, err)
		}
		d.embedded = nil
		if !reflect.DeepEqual(d, want) {
			t.Errorf("%s: %+v, want %+v", name, d, want)
		}
		c, ok := d.Portable()
		if id := c.ID(); !ok || string(id[:]) != "0123456789abcdef\xef\xcd\xab\x89" {
			t.Errorf("%s: id %q, %v", name, id, ok)
		}
	}
}

func TestNoDebugDirectory(t *testing.T) {
	const dir = 0x80 + coffSize + optDirs64 + dirDebug*8
	for name, spoil := range map[string]func(b []byte){
		"no directory":      func(b []byte) { clear(b[dir : dir+8]) },
		"six directories":   func(b []byte) { b[0x80+coffSize+optDirs64-4] = 6 },
		"directory of none": func(b []byte) { clear(b[dir+4 : dir+8]) },
	} {
		b := withDebug(true)
		spoil(b)
		d, err := DebugDirectory(inMemory(b), base)
		if err != nil || !reflect.DeepEqual(d, &Debug{}) {
			t.Errorf("%s: %+v, %v", name, d, err)
			continue
		}
		if _, ok := d.Portable(); ok {
			t.Errorf("%s: a PDB", name)
		}
		if _, err := d.Embedded(inMemory(b)); !errors.Is(err, ErrNoEmbedded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := DebugDirectory(inMemory(nil), base); err == nil {
		t.Error("no memory at all")
	}
}

func TestWrongDebugDirectory(t *testing.T) {
	le := binary.LittleEndian
	const dir = 0x80 + coffSize + optDirs64 + dirDebug*8
	entry := func(i, at int) int { return 0x400 + tableAt + i*entrySize + at }
	for name, spoil := range map[string]func(b []byte){
		"half an entry":             func(b []byte) { b[dir+4]++ },
		"a thousand entries":        func(b []byte) { le.PutUint32(b[dir+4:], 1000*entrySize) },
		"outside of all sections":   func(b []byte) { le.PutUint32(b[dir:], 0x9000) },
		"a short CodeView":          func(b []byte) { b[entry(1, 16)] = 23 },
		"a CodeView of 1 GB":        func(b []byte) { b[entry(1, 19)] = 0x40 },
		"a CodeView that is not":    func(b []byte) { b[entry(1, 26)] = 0x40 },
		"a checksum of version 2":   func(b []byte) { b[entry(2, 8)] = 2 },
		"a checksum without end":    func(b []byte) { b[0x400+checksumAt+6] = 'x' },
		"a checksum without name":   func(b []byte) { b[0x400+checksumAt] = 0 },
		"no checksum":               func(b []byte) { b[entry(2, 16)] = 7 },
		"an empty checksum":         func(b []byte) { b[entry(2, 16)] = 0 },
		"embedded, version 2":       func(b []byte) { b[entry(4, 11)] = 2 },
		"embedded, before 1.0":      func(b []byte) { b[entry(4, 9)] = 0 },
		"embedded, no signature":    func(b []byte) { b[0x400+embeddedAt] = 'm' },
		"embedded, of no bytes":     func(b []byte) { clear(b[0x400+embeddedAt+4 : 0x400+embeddedAt+8]) },
		"embedded, of 4 GB":         func(b []byte) { b[0x400+embeddedAt+7] = 0xff },
		"embedded, 1 GB packed":     func(b []byte) { b[entry(4, 19)] = 0x40 },
		"embedded, only a header":   func(b []byte) { b[entry(4, 16)] = 7 },
		"embedded twice":            func(b []byte) { copy(b[entry(5, 0):entry(6, 0)], b[entry(4, 0):entry(5, 0)]) },
		"embedded, not in the file": func(b []byte) { b[entry(4, 26)] = 0x40 },
	} {
		b := withDebug(true)
		spoil(b)
		if d, err := DebugDirectory(inMemory(b), base); err == nil {
			t.Errorf("%s: %+v", name, d)
		}
	}
	for name, spoil := range map[string]func(b []byte){
		"more than it says":   func(b []byte) { b[0x400+embeddedAt+4]-- },
		"less than it says":   func(b []byte) { b[0x400+embeddedAt+4]++ },
		"16 MB of few bytes":  func(b []byte) { b[0x400+embeddedAt+7] = 1 },
		"cut off":             func(b []byte) { b[entry(4, 16)] -= 4 },
		"more than there are": func(b []byte) { b[entry(4, 18)] = 1 },
		"not deflated":        func(b []byte) { b[0x400+embeddedAt+8] = 0xff },
	} {
		b := withDebug(true)
		spoil(b)
		d, err := DebugDirectory(inMemory(b), base)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if pdb, err := d.Embedded(inMemory(b)); err == nil {
			t.Errorf("%s: %d bytes", name, len(pdb))
		}
	}
}

// TestUnmappedData: data outside of all sections is not in memory: linkers put
// such data behind the sections.
func TestUnmappedData(t *testing.T) {
	b := withDebug(false)
	for i := range tableEntries {
		clear(b[0x2000+tableAt+i*entrySize+20:][:4])
	}
	d, err := DebugDirectory(inMemory(b), base)
	if err != nil || len(d.CodeView)+len(d.Checksums) > 0 || d.HasEmbedded() || !d.Reproducible {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestDebugOfProcess compares each assembly's debug directory in the memory of a process with the
// assembly's file: the framework's assemblies are laid out by sections, others are mapped flat.
func TestDebugOfProcess(t *testing.T) {
	testenv.EachRuntime(t, func(t *testing.T, runtime string) {
		app := testenv.Start(t, "idle", testenv.Options{Runtime: runtime, Compile: []string{"-debug:embedded"}})
		mem, err := os.Open(filepath.Join("/proc", strconv.Itoa(app.PID), "mem"))
		if err != nil {
			t.Fatal(err)
		}
		defer mem.Close()
		flat := map[bool]int{}
		own := false
		for at, path := range assemblies(t, app.PID) {
			isFlat, isOwn := compareDebug(t, mem, at, path)
			flat[isFlat]++
			own = own || isOwn && filepath.Base(path) == "idle.dll"
		}
		t.Logf("%d assemblies are laid out, %d flat", flat[false], flat[true])
		if flat[false]+flat[true] == 0 || !own {
			t.Errorf("no assembly, or not the program's: %v, %v", flat, own)
		}
	})
}

// assemblies returns the addresses where a process has mapped the beginnings of assembly files.
func assemblies(t *testing.T, pid int) map[arch.Addr]string {
	t.Helper()
	maps, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "maps"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[arch.Addr]string{}
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) != 6 || !strings.HasSuffix(f[5], ".dll") || strings.Trim(f[2], "0") != "" {
			continue
		}
		first, _, _ := strings.Cut(f[0], "-")
		at, err := strconv.ParseUint(first, 16, 63)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		found[arch.Addr(at)] = f[5]
	}
	return found
}

// compareDebug compares an assembly in memory with its file, and reports its layout in memory
// and whether it contains its PDB.
func compareDebug(t *testing.T, mem *os.File, at arch.Addr, path string) (flat, embedded bool) {
	t.Helper()
	a, err := open(File(mem), at)
	if err != nil {
		t.Errorf("%s at %v: %v", path, at, err)
		return false, false
	}
	got, err := DebugDirectory(File(mem), at)
	if err != nil {
		t.Errorf("%s at %v: %v", path, at, err)
		return a.flat, false
	}
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want, err := DebugDirectory(File(r), 0)
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return a.flat, false
	}
	if _, ok := want.Portable(); !ok && strings.Contains(path, "System.") {
		t.Errorf("%s names no portable PDB: %+v", path, want)
	}
	if want.HasEmbedded() {
		embedded = sameEmbedded(t, path, got, File(mem), want, File(r))
	}
	got.embedded, want.embedded = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: in memory %+v, in the file %+v", path, got, want)
	}
	return a.flat, embedded
}

func sameEmbedded(t *testing.T, path string, a *Debug, memA *target.Reader, b *Debug, memB *target.Reader) bool {
	t.Helper()
	x, errA := a.Embedded(memA)
	y, errB := b.Embedded(memB)
	if errA != nil || errB != nil || !slices.Equal(x, y) {
		t.Errorf("%s: in memory %d bytes, %v; in the file %d, %v", path, len(x), errA, len(y), errB)
		return false
	}
	return true
}

// FuzzDebugDirectory reads hostile debug directories behind sound headers. section contains the whole
// directory.
func FuzzDebugDirectory(f *testing.F) {
	// A single entry for each seed, with the entry's data right behind: Go's fuzzer takes minutes to
	// shorten long inputs.
	section := withDebug(true)[0x400:]
	for i := range tableEntries {
		e := bytes.Clone(section[tableAt+i*entrySize:][:entrySize])
		at := binary.LittleEndian.Uint32(e[24:])
		binary.LittleEndian.PutUint32(e[20:], 0x2000+tableAt+entrySize)
		binary.LittleEndian.PutUint32(e[24:], 0x400+tableAt+entrySize)
		if size := binary.LittleEndian.Uint32(e[16:]); at < 0x7000 && size > 0 {
			e = append(e, section[at-0x400:][:size]...)
		}
		f.Add(i%2 == 0, uint32(tableAt), uint32(entrySize), e)
	}
	f.Fuzz(func(t *testing.T, flat bool, at, size uint32, section []byte) {
		b := withDebug(flat)
		b = append(b[:sectionIn(flat)+tableAt], section...)
		const dir = 0x80 + coffSize + optDirs64 + dirDebug*8
		binary.LittleEndian.PutUint32(b[dir:], 0x2000+at)
		binary.LittleEndian.PutUint32(b[dir+4:], size)
		mem := inMemory(b)
		// A deflated byte may stand for 1,032. All entries may name the same bytes.
		testenv.Allocates(t, len(section), 1100, maxEntries*maxCodeView*4+1<<18, func() {
			d, err := DebugDirectory(mem, base)
			if err != nil {
				return
			}
			d.Portable()
			if pdb, err := d.Embedded(mem); err == nil && len(pdb) == 0 {
				t.Fatal("an empty PDB")
			}
		})
	})
}
