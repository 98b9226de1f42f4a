package codemap

import (
	"errors"
	"testing"

	"clrsnap/internal/arch"
)

func TestNativeArray(t *testing.T) {
	const base = arch.Addr(0x10000)
	for _, c := range []struct {
		name string
		b    []byte
		want map[uint32]arch.Addr // offsets of the values
	}{
		// Nodes for the bits 8, 4 and 2 have a low branch only, the node for bit 1 has both branches.
		{"two values", []byte{2 << 2 << 1, 1, 2, 2, 2, (2<<2 | 3) << 1, 0xaa, 0xbb}, map[uint32]arch.Addr{0: 6, 1: 7}},
		{"one value", []byte{16 << 2 << 1, 1, 5 << 2 << 1, 0xaa}, map[uint32]arch.Addr{5: 3}},
		{"wide table", []byte{(16<<2 | 1) << 1 & 0xff, 2, 0, 5 << 2 << 1, 0xaa}, map[uint32]arch.Addr{5: 4}},
		{"widest table", []byte{(16<<2 | 2) << 1, 4, 0, 0, 0, 5 << 2 << 1, 0xaa}, map[uint32]arch.Addr{5: 6}},
	} {
		mem := memory{}
		mem.write(base, c.b)
		a := nativeArray{mem: newReader(mem), begin: base, end: base + arch.Addr(len(c.b))}
		for i := range uint32(20) {
			at, ok, err := a.entry(i)
			want, there := c.want[i]
			if err != nil || ok != there || ok && at != base+want {
				t.Errorf("%s: entry %d: %v, %v, %v, want %v, %v", c.name, i, at, ok, err, base+want, there)
			}
		}
		a.end = base + 2
		if _, _, err := a.entry(5); c.want[5] != 0 && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s, cut: %v", c.name, err)
		}
	}
}

func TestNativeUnsigned(t *testing.T) {
	const base = arch.Addr(0x10000)
	for want, b := range map[uint32][]byte{
		0: {0}, 127: {254}, 128: {1, 2}, 1<<14 - 1: {0xfd, 0xff}, 1 << 14: {3, 0, 2}, 1 << 21: {7, 0, 0, 2},
		0xffff_ffff: {15, 0xff, 0xff, 0xff, 0xff},
	} {
		mem := memory{}
		mem.write(base, b)
		a := nativeArray{mem: newReader(mem), begin: base, end: base + arch.Addr(len(b))}
		if got, n, err := a.unsigned(base); got != want || n != len(b) || err != nil {
			t.Errorf("% x: %d in %d bytes, %v, want %d", b, got, n, err, want)
		}
	}
}
