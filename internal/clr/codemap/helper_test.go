package codemap

import (
	"encoding/binary"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// memory is a target's memory, page by page.
type memory map[arch.Addr]*[4096]byte

func (m memory) ReadMemory(p []byte, addr arch.Addr) error {
	for i := range p {
		page := m[(addr+arch.Addr(i))&^4095]
		if page == nil {
			return &target.ReadError{Addr: addr, Len: len(p)}
		}
		p[i] = page[(addr+arch.Addr(i))&4095]
	}
	return nil
}

func (m memory) write(addr arch.Addr, b []byte) {
	for i, v := range b {
		at := addr + arch.Addr(i)
		if m[at&^4095] == nil {
			m[at&^4095] = new([4096]byte)
		}
		m[at&^4095][at&4095] = v
	}
}

func (m memory) u64(addr arch.Addr, v uint64) {
	m.write(addr, binary.LittleEndian.AppendUint64(nil, v))
}
func (m memory) u32(addr arch.Addr, v uint32) {
	m.write(addr, binary.LittleEndian.AppendUint32(nil, v))
}
func (m memory) ptr(addr, v arch.Addr) { m.u64(addr, uint64(v)) }

func newMap(t testing.TB, mem target.Memory) *Map {
	return newMapOf(t, mem, clrtest.Descriptor(t, clrtest.Net10))
}

func newMapOf(t testing.TB, mem target.Memory, d *contract.Descriptor) *Map {
	t.Helper()
	m, err := New(mem, d)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// addSection puts a range section with one fragment for [begin, end) into the
// range section map; the nodes of the tree lie from at on.
func (m memory) addSection(l *layout, at, begin, end, section arch.Addr, flags uint32) {
	p := l.TopMap
	for level := levels - 1; level >= 0; level-- {
		slot := p + arch.Addr(uint64(begin)>>(chunkBits+level*levelBits)&0xff*8)
		m.write(p, make([]byte, 1))
		m.fill(p, 256*8)
		next := at + arch.Addr(levels-level)*0x1000
		m.ptr(slot, next|pointerFlag)
		p = next
	}
	m.fill(p, 64)
	m.ptr(p+arch.Addr(l.FragBegin), begin)
	m.ptr(p+arch.Addr(l.FragEnd), end)
	m.ptr(p+arch.Addr(l.FragSection), section)
	m.fill(section, 128)
	m.ptr(section+arch.Addr(l.SecBegin), begin)
	m.ptr(section+arch.Addr(l.SecEnd), end)
	m.u32(section+arch.Addr(l.SecFlags), flags)
}

// fill makes n bytes at addr readable.
func (m memory) fill(addr arch.Addr, n int) {
	for a := addr &^ 4095; a < addr+arch.Addr(n); a += 4096 {
		if m[a] == nil {
			m[a] = new([4096]byte)
		}
	}
}

func newReader(m memory) *target.Reader { return target.NewReader(m) }
