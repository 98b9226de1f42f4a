package core

import (
	"testing"

	"clrsnap/internal/arch"
)

// big is a dump of a thousand segments.
func big(b *testing.B) string {
	b.Helper()
	f := newFake()
	for i := range uint64(1000) {
		f.segments = append(f.segments,
			fakeSegment{vaddr: 0x10_0000_0000 + i<<21, memsz: 1 << 20, data: make([]byte, 4*pageSize), flags: flagRead})
	}
	return f.write(b)
}

func BenchmarkOpen(b *testing.B) {
	path := big(b)
	for b.Loop() {
		c, err := Open(path, Options{})
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}

func BenchmarkReadMemory(b *testing.B) {
	c := openCore(b, big(b), Options{})
	var p [pageSize]byte
	for i := uint64(0); b.Loop(); i++ {
		if err := c.ReadMemory(p[:], arch.Addr(0x10_0000_0000+i*7919%1000<<21)); err != nil {
			b.Fatal(err)
		}
	}
}
