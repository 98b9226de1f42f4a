package target

import (
	"testing"

	"clrsnap/internal/arch"
)

// bytesAt is memory from an address on.
type bytesAt struct {
	at   arch.Addr
	data []byte
}

func (b *bytesAt) ReadMemory(p []byte, addr arch.Addr) error {
	if addr < b.at || uint64(addr-b.at)+uint64(len(p)) > uint64(len(b.data)) {
		return &ReadError{Addr: addr, Len: len(p)}
	}
	copy(p, b.data[addr-b.at:])
	return nil
}

func TestEvidence(t *testing.T) {
	mem := &bytesAt{0x1000, make([]byte, 64)}
	e := NewEvidence(mem)
	r := NewReader(e)
	read := func(at arch.Addr) {
		t.Helper()
		if _, err := r.Uint64(at); err != nil {
			t.Fatal(err)
		}
	}
	read(0x1000)
	e.Begin()
	read(0x1010)
	e.Keep([]byte{0, 0}, 0x1030)
	e.End()
	read(0x1020)
	mem.data[0], mem.data[0x20] = 1, 1 // read before and after, so it does not count
	if !e.Stands(mem) {
		t.Error("nothing of what counts has changed")
	}
	mem.data[0x30] = 1
	if e.Stands(mem) {
		t.Error("what was read elsewhere has changed")
	}
	e.Begin()
	read(0x1010)
	mem.data[0x17] = 1
	if e.Stands(mem) {
		t.Error("what was read has changed")
	}
	e.Begin()
	read(0x1010)
	if !e.Stands(mem) {
		t.Error("what was read before Begin does not count")
	}
	if mem.data = mem.data[:16]; e.Stands(mem) {
		t.Error("what was read is not there any more")
	}
}

// More than is kept is no evidence.
func TestEvidenceBound(t *testing.T) {
	mem := &bytesAt{0x1000, make([]byte, 64)}
	e := NewEvidence(mem)
	e.Begin()
	r := NewReader(e)
	for range maxEvidence {
		if _, err := r.Uint64(0x1000); err != nil {
			t.Fatal(err)
		}
	}
	if !e.Stands(mem) {
		t.Error("all of it is kept")
	}
	if _, err := r.Uint64(0x1000); err != nil || e.Stands(mem) {
		t.Error("not all of it is kept", err)
	}
}
