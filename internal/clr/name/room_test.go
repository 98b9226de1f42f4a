package name

import (
	"encoding/binary"
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
)

// manyModules is memory with modules that all have as much metadata as they say.
type manyModules struct {
	clrtest.Words
	read int // bytes of metadata
}

const metadataFrom = arch.Addr(1) << 40

func (m *manyModules) ReadMemory(p []byte, addr arch.Addr) error {
	if _, ok := m.Words[addr&^7]; ok || addr < metadataFrom {
		return m.Words.ReadMemory(p, addr)
	}
	m.read += len(p)
	copy(p, emptyMetadata())
	return nil
}

// emptyMetadata is metadata with a stream of tables without tables (ECMA-335, II.24.2).
func emptyMetadata() []byte {
	le := binary.LittleEndian
	b := []byte("BSJB\x01\x00\x01\x00\x00\x00\x00\x00\x04\x00\x00\x00v4\x00\x00\x00\x00\x01\x00")
	b = le.AppendUint32(b, uint32(len(b)+12))
	b = le.AppendUint32(b, 24)
	b = append(b, "#~\x00\x00"...)
	return append(b, make([]byte, 24)...)
}

// TestRoomForMetadata: a program has loaded a thousand assemblies with 4 MB of metadata each. 64 MB are kept, and the
// methods of the other assemblies have no names. Metadata that can be unloaded makes room again.
func TestRoomForMetadata(t *testing.T) {
	for _, collectible := range []bool{false, true} {
		mem := &manyModules{Words: clrtest.Words{}}
		n := namerOf(t, mem, clrtest.Net10)
		const (
			modules = 1000
			size    = 4 << 20
			at      = arch.Addr(0x1_0000_0000)
			step    = arch.Addr(0x10000)
		)
		for i := range arch.Addr(modules) {
			module, dynamic, assembly := at+i*step, metadataFrom+i*size-arch.Addr(n.moduleL.DynData), at+i*step+0x8000
			mem.Words[module+arch.Addr(n.moduleL.Dynamic)] = uint64(dynamic)
			mem.Uint32(dynamic+arch.Addr(n.moduleL.DynSize), size)
			mem.Words[module+arch.Addr(n.l.ModAssembly)] = uint64(assembly)
			flag := uint64(0)
			if collectible {
				flag = 1 << (8 * (n.l.AsmCollectible & 7))
			}
			mem.Words[assembly+arch.Addr(n.l.AsmCollectible&^7)] = flag
		}
		look := func(i int) error {
			_, err := n.assembly(at + arch.Addr(i)*step)
			return err
		}
		kept := 0
		for i := range modules {
			err := look(i)
			if err == nil {
				kept++
			} else if !errors.Is(err, ErrLimit) {
				t.Fatal(err)
			}
		}
		if kept != maxKept/(size+assemblyCost) || kept != len(n.assemblies) ||
			mem.read > 2*maxKept || len(n.failed) > maxFailed {
			t.Errorf("%d modules with 4 MB of metadata are kept, %d MB were read, %d failed", kept, mem.read>>20,
				len(n.failed))
		}
		if err := look(0); err != nil {
			t.Errorf("the first one: %v", err)
		}
		n.Begin()
		if err := look(modules - 1); (err == nil) != collectible {
			t.Errorf("the last one, a moment later, of modules that can be unloaded %v: %v", collectible, err)
		}
		if n.Begin(); collectible && n.room != maxKept {
			t.Errorf("room for %d bytes where all can be unloaded", n.room)
		}
	}
}
