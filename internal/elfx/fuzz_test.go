package elfx

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/testenv"
)

// Bounds of the allocations for reading everything, with both readers: per byte of input,
// for sections and symbols; besides, for the buffers of reads of symbols.
const (
	allocatesPerByte = 50
	allocatesBesides = 1 << 18
)

// FuzzELF reads everything, from a file and from memory.
func FuzzELF(f *testing.F) {
	exe := build(f, "int f(void){return 1;} int main(void){return f();}",
		"-rdynamic", "-s", "-nostdlib", "-Wl,-e,f,--build-id,--hash-style=both")
	b, err := os.ReadFile(exe)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:0x400])
	for i := 16; i < 64; i += 2 { // damage every field of the header
		c := bytes.Clone(b)
		c[i] ^= 0xff
		f.Add(c)
	}
	f.Add(longNames(b))
	for _, how := range []string{"-gz=zlib", "-gz=zlib-gnu"} {
		packed, err := os.ReadFile(build(f, "int f(void){return 1;}", "-g", how, "-nostdlib", "-Wl,-e,f,--build-id"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	header := bytes.Clone(b[:64])
	binary.LittleEndian.PutUint16(header[56:], maxProgs)
	f.Add(header)
	f.Fuzz(func(t *testing.T, b []byte) {
		testenv.Allocates(t, len(b), allocatesPerByte, allocatesBesides, func() {
			if m, err := New(bytes.NewReader(b)); err == nil {
				everything(m)
			}
			const base = 0x10000
			if m, err := NewMemory(&loaded{base: base, data: b}, base); err == nil {
				everything(m)
			}
		})
	})
}

// longNames returns the headers of a file whose section of names claims to have a megabyte.
func longNames(file []byte) []byte {
	le := binary.LittleEndian
	b := bytes.Clone(file)
	table := le.Uint64(b[40:])
	names := b[table+uint64(le.Uint16(b[62:]))*shdrSize:]
	le.PutUint64(names[32:], 1<<20)
	return b
}

func everything(m *Image) {
	_, _ = m.BuildID()
	m.sectionBuildID()
	m.DebugLink()
	for _, name := range []string{".debug_line", ".debug_str"} {
		if r, size, err := m.DebugSection(name, 1<<16); err == nil {
			_, _ = r.ReadAt(make([]byte, 64), size-64)
		}
	}
	_, _ = m.Frames()
	_, _ = m.Lookup("f")
	_, _ = m.Bias(0x555555554000, 0x1000)
	n := 0
	_ = m.Functions(func(s *Symbol) bool {
		_, _ = m.SymbolName(s)
		m.CodeEnd(s.Value)
		n++
		return n < 1000
	})
	for i := range m.Progs {
		m.InPLT(m.Progs[i].Vaddr)
		var p [8]byte
		_ = m.ReadMemory(p[:], m.Progs[i].Vaddr+arch.Addr(m.Progs[i].Filesz)-8)
	}
}
