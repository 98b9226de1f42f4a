package pe

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/ecma335"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
)

const base = arch.Addr(0x10000)

type region target.Region

func (r region) ReadMemory(p []byte, addr arch.Addr) error {
	if o := uint64(addr - r.Base); o <= uint64(len(r.Data)) && uint64(len(p)) <= uint64(len(r.Data))-o {
		copy(p, r.Data[o:])
		return nil
	}
	return &target.ReadError{Addr: addr, Len: len(p)}
}

func find(image []byte) (arch.Addr, int, error) {
	return Metadata(target.NewReader(region{Base: base, Data: image}), base)
}

// image is a small assembly: headers, and a section at RVA 0x2000 and file
// offset 0x400, with the CLI header at its start and the metadata 0x80 behind
// the CLI header.
func image(flat bool) []byte {
	b := make([]byte, 0x3000)
	le := binary.LittleEndian
	const pe, opt = 0x80, 0x80 + coffSize
	le.PutUint32(b[offNewHeader:], pe)
	le.PutUint32(b[pe:], peSignature)
	le.PutUint16(b[pe+coffSections:], 1)
	le.PutUint16(b[pe+coffOptional:], 240)
	le.PutUint16(b[opt:], optMagic64)
	le.PutUint32(b[opt+optDirs64+dirCLR*8:], 0x2000)
	section := opt + 240
	for i, v := range []uint32{0x300, 0x2000, 0x400, 0x400} {
		le.PutUint32(b[section+8+4*i:], v)
	}
	cli := 0x2000
	if flat {
		cli = 0x400
	}
	le.PutUint32(b[cli:], cliHeaderSize)
	le.PutUint32(b[cli+cliMetadata:], 0x2080)
	le.PutUint32(b[cli+cliMetadata+4:], 0x100)
	le.PutUint32(b[cli+0x80:], rootSignature)
	return b
}

func TestMetadata(t *testing.T) {
	for flat, want := range map[bool]arch.Addr{false: base + 0x2080, true: base + 0x480} {
		if at, n, err := find(image(flat)); at != want || n != 0x100 || err != nil {
			t.Errorf("flat %v: %v, %d, %v", flat, at, n, err)
		}
	}
}

func TestNoMetadata(t *testing.T) {
	le := binary.LittleEndian
	for name, spoil := range map[string]func(b []byte){
		"no PE signature":       func(b []byte) { b[0x80] = 0 },
		"no CLI header":         func(b []byte) { le.PutUint32(b[0x80+coffSize+optDirs64+dirCLR*8:], 0) },
		"a short CLI header":    func(b []byte) { le.PutUint32(b[0x400:], 8) },
		"no metadata signature": func(b []byte) { b[0x480] = 0 },
		"too much metadata":     func(b []byte) { le.PutUint32(b[0x400+cliMetadata+4:], MaxMetadata+1) },
		"no sections":           func(b []byte) { le.PutUint16(b[0x80+coffSections:], 0) },
		"a thousand sections":   func(b []byte) { le.PutUint16(b[0x80+coffSections:], 1000) },
	} {
		b := image(true)
		spoil(b)
		if at, n, err := find(b); !errors.Is(err, ErrNoMetadata) {
			t.Errorf("%s: %v, %d, %v", name, at, n, err)
		}
	}
	if _, _, err := find(nil); err == nil {
		t.Error("metadata in no memory at all")
	}
}

// The files of a real framework, as plain copies.
func TestRealAssemblies(t *testing.T) {
	kit := testenv.Kit(t)
	files, err := filepath.Glob(filepath.Join(kit.Dir, "apps", "*", "*.dll"))
	if err != nil || len(files) == 0 {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: no assemblies below %s: %v", kit.Dir, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".r2r.dll") {
			continue // the code of several assemblies, with the metadata of none
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at, n, err := find(b)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		md, err := ecma335.Parse(b[at-base:][:n])
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if name, ok := md.AssemblyName(); !ok || name+".dll" != filepath.Base(file) {
			t.Errorf("%s: assembly %q", file, name)
		}
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add(image(false))
	f.Add(image(true))
	f.Fuzz(func(t *testing.T, b []byte) {
		var at arch.Addr
		var n int
		var err error
		testenv.Allocates(t, len(b), 1, 1<<16, func() { at, n, err = find(b) })
		if err == nil && (n <= 0 || n > MaxMetadata || uint64(at-base) >= uint64(len(b))) {
			t.Fatalf("%v, %d of %d bytes", at, n, len(b))
		}
	})
}
