package target

import (
	"encoding/binary"
	"slices"
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
	mem.data[0], mem.data[0x20] = 1, 1 // read before and after, so not a change
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

// pagesAt is memory that counts the pieces that are read again.
type pagesAt struct {
	*bytesAt
	pieces int
}

func (m *pagesAt) ReadMany(pieces []Region) error {
	m.pieces += len(pieces)
	return ReadMany(m.bytesAt, pieces)
}

// TestEvidenceJoined: pieces of one page are read again together, pieces of several pages are not, and a change of any
// piece is noticed.
func TestEvidenceJoined(t *testing.T) {
	mem := &pagesAt{bytesAt: &bytesAt{0x1000, make([]byte, 4*pageSize)}}
	e := NewEvidence(mem)
	r := NewReader(e)
	places := []arch.Addr{0x1100, 0x2ff8, 0x10f8, 0x1ffc, 0x3000, 0x1200, 0x2004, 0x1100}
	look := func() bool {
		t.Helper()
		e.Begin()
		for _, at := range places {
			if _, err := r.Uint64(at); err != nil {
				t.Fatal(err)
			}
		}
		e.End()
		mem.pieces = 0
		return e.Stands(mem)
	}
	// The first page, the second, the piece across both, and the third.
	if !look() || mem.pieces != 4 {
		t.Errorf("%d pieces are read again", mem.pieces)
	}
	for _, at := range places {
		for _, changed := range []arch.Addr{at, at + 7} {
			look()
			mem.data[changed-mem.at]++
			if e.Stands(mem) {
				t.Errorf("the byte at %v has changed", changed)
			}
		}
	}
	look()
	mem.data[0x180]++ // between two pieces
	if !e.Stands(mem) {
		t.Error("nothing of what was read has changed")
	}
}

// holed is memory without some bytes.
type holed struct {
	*bytesAt
	hole arch.Addr
}

func (m holed) ReadMemory(p []byte, addr arch.Addr) error {
	if m.hole >= addr && m.hole < addr+arch.Addr(len(p)) {
		return &ReadError{Addr: addr, Len: len(p)}
	}
	return m.bytesAt.ReadMemory(p, addr)
}

// TestEvidenceHole: pieces of one page are evidence even if the memory between the pieces cannot be read.
func TestEvidenceHole(t *testing.T) {
	mem := holed{&bytesAt{0x1000, make([]byte, pageSize)}, 0x1100}
	e := NewEvidence(mem)
	r := NewReader(e)
	for _, changed := range []arch.Addr{0, 0x10f0, 0x1120} {
		e.Begin()
		for _, at := range []arch.Addr{0x10f0, 0x1120} {
			if _, err := r.Uint64(at); err != nil {
				t.Fatal(err)
			}
		}
		if changed != 0 {
			mem.data[changed-mem.at]++
		}
		if e.Stands(mem) != (changed == 0) {
			t.Errorf("the change of %v", changed)
		}
	}
}

// TestCrowded: an Evidence says when half of its room is used, in pieces or in bytes.
func TestCrowded(t *testing.T) {
	mem := &bytesAt{0x1000, make([]byte, maxEvidenceBytes)}
	e := NewEvidence(mem)
	for _, size := range []int{1, maxEvidenceBytes / 8} {
		e.Begin()
		for n := 0; !e.Crowded(); n++ {
			if n > maxEvidence/2 || n*size > maxEvidenceBytes/2 {
				t.Fatalf("%d pieces of %d bytes are not much", n, size)
			}
			e.Keep(mem.data[:size], mem.at)
		}
		if !e.Stands(mem) {
			t.Error("all of it is kept")
		}
	}
}

// Reads beyond the bounds are no evidence.
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

// atOnce is memory that reads several pieces at once.
type atOnce struct{ *bytesAt }

func (m atOnce) ReadMany(pieces []Region) error { return ReadMany(m.bytesAt, pieces) }

// TestLinks: Links follows a list, also a changed list, and refuses an endless list.
func TestLinks(t *testing.T) {
	mem := &bytesAt{0x1000, make([]byte, 64)}
	link := func(from, to arch.Addr) { binary.LittleEndian.PutUint64(mem.data[from-mem.at:], uint64(to)) }
	link(0x1000, 0x1010)
	link(0x1010, 0x1020)
	e := NewEvidence(atOnce{mem})
	e.Directly(atOnce{mem})
	e.Begin()
	want := func(list []arch.Addr, most int, want ...arch.Addr) {
		t.Helper()
		if got, err := e.Links(0x1000, list, most); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	list := []arch.Addr{0x1000, 0x1010, 0x1020}
	want(nil, 3, list...)
	want(list, 3, list...)
	link(0x1020, 0x1030)
	want(list, 4, 0x1000, 0x1010, 0x1020, 0x1030)
	link(0x1010, 0)
	link(0x1020, 0)
	want(list, 3, 0x1000, 0x1010)
	link(0x1010, 0x1000)
	want(list, 10)
}

// TestSameLinks: a list is unchanged only if each item leads to the next item, and the last item to none. What was
// compared is evidence.
func TestSameLinks(t *testing.T) {
	const at = 8 // of the address of the next item
	mem := &bytesAt{0x1000, make([]byte, 64)}
	link := func(from, to arch.Addr) { binary.LittleEndian.PutUint64(mem.data[from+at-mem.at:], uint64(to)) }
	list := []arch.Addr{0x1000, 0x1010, 0x1020}
	link(list[0], list[1])
	link(list[1], list[2])
	e := NewEvidence(atOnce{mem})
	if e.Begin(); e.SameLinks(list, at) {
		t.Error("memory behind a cache is not known")
	}
	e.Directly(atOnce{mem})
	for i, to := range []arch.Addr{0x1020, 0x1000, 0x1030} {
		if e.Begin(); !e.SameLinks(list, at) || !e.Stands(mem) {
			t.Error("nothing has changed")
		}
		was := binary.LittleEndian.Uint64(mem.data[list[i]+at-mem.at:])
		if link(list[i], to); e.Stands(mem) {
			t.Errorf("item %d has changed since", i)
		}
		if e.Begin(); e.SameLinks(list, at) {
			t.Errorf("item %d leads elsewhere", i)
		}
		link(list[i], arch.Addr(was))
	}
	if e.SameLinks(list[:2], at) || !e.SameLinks(list[2:], at) {
		t.Error("a list ends with the item that leads nowhere")
	}
}

// TestCString: a string is read up to its end, which may be the end of memory.
func TestCString(t *testing.T) {
	mem := &bytesAt{0x1000, make([]byte, 128)}
	copy(mem.data[50:], "a name that reaches beyond the first piece")
	copy(mem.data[120:], "the end")
	r := NewReader(mem)
	for at, want := range map[arch.Addr]string{
		0x1032: "a name that reaches beyond the first piece", 0x1078: "the end", 0x1000: "",
	} {
		if s, err := r.CString(at, 100); err != nil || s != want {
			t.Errorf("%q, %v, want %q", s, err, want)
		}
	}
	if s, err := r.CString(0x1032, 10); err == nil {
		t.Errorf("%q is more than was asked for", s)
	}
}
