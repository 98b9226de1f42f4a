package core

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// fake is a core dump made by a test.
type fake struct {
	notes    []byte
	segments []fakeSegment
	xnum     bool // the number of program headers is in section header 0
	phnum    int  // the announced number; 0: the right number
	spoil    func(b []byte) []byte
}

type fakeSegment struct {
	vaddr, memsz uint64
	data         []byte
	flags        uint32
}

var le = binary.LittleEndian

// note appends a note.
func (f *fake) note(owner string, typ uint32, desc []byte) {
	var b []byte
	b = le.AppendUint32(b, uint32(len(owner)+1))
	b = le.AppendUint32(b, uint32(len(desc)))
	b = le.AppendUint32(b, typ)
	b = append(b, owner...)
	b = append(b, make([]byte, 4-len(owner)%4)...)
	b = append(b, desc...)
	f.notes = append(f.notes, append(b, make([]byte, -len(desc)&3)...)...)
}

// status is the description of an NT_PRSTATUS note.
func status(tid uint32, ip, sp uint64) []byte {
	b := make([]byte, 336)
	le.PutUint32(b[prPID:], tid)
	le.PutUint64(b[prReg+16*8:], ip)
	le.PutUint64(b[prReg+19*8:], sp)
	return b
}

// newFake is a dump of two threads in the kernel's format: a page of stack, a left-out page, and
// two pages, one of them left out.
func newFake() *fake {
	f := &fake{}
	f.note("CORE", noteStatus, status(7, 0x401000, 0x7000100))
	info := make([]byte, 136)
	le.PutUint32(info[24:], 7)
	copy(info[40:], "fake")
	f.note("CORE", noteProcess, info)
	f.note("CORE", noteAuxv, make([]byte, 32))
	f.note("CORE", noteFile, fileNote(1, pageSize, [][3]uint64{{0x400000, 0x402000, 0}}, "/no/such/program"))
	f.note("LINUX", 0x202, make([]byte, 13))
	f.note("CORE", noteStatus, status(8, 0x401010, 0x7000200))
	f.segments = []fakeSegment{
		{vaddr: 0x7000000, memsz: pageSize, data: bytes.Repeat([]byte{0x77}, pageSize), flags: flagRead | flagWrite},
		{vaddr: 0x400000, memsz: 2 * pageSize, data: bytes.Repeat([]byte{0x44}, pageSize), flags: flagRead | flagExec},
		{vaddr: 0x9000000, memsz: pageSize, flags: flagRead | flagWrite},
	}
	return f
}

func fileNote(count, page uint64, ranges [][3]uint64, names ...string) []byte {
	b := le.AppendUint64(nil, count)
	b = le.AppendUint64(b, page)
	for _, r := range ranges {
		b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, r[0]), r[1]), r[2])
	}
	for _, n := range names {
		b = append(append(b, n...), 0)
	}
	return b
}

func (f *fake) bytes() []byte {
	count := len(f.segments) + 1
	head := ehdrSize
	if f.xnum {
		head += shdrSize
	}
	at := head + count*phdrSize
	b := make([]byte, at)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], typeCore)
	le.PutUint16(b[18:], 62)
	le.PutUint64(b[32:], uint64(head))
	le.PutUint16(b[54:], phdrSize)
	announced := count
	if f.phnum != 0 {
		announced = f.phnum
	}
	if f.xnum {
		le.PutUint16(b[56:], moreProg)
		le.PutUint64(b[40:], ehdrSize)
		le.PutUint32(b[ehdrSize+44:], uint32(announced))
	} else {
		le.PutUint16(b[56:], uint16(announced))
	}
	put := func(i int, typ, flags uint32, vaddr, filesz, memsz uint64) {
		p := b[head+i*phdrSize:]
		le.PutUint32(p, typ)
		le.PutUint32(p[4:], flags)
		le.PutUint64(p[8:], uint64(len(b)))
		le.PutUint64(p[16:], vaddr)
		le.PutUint64(p[32:], filesz)
		le.PutUint64(p[40:], memsz)
	}
	put(0, segNote, 0, 0, uint64(len(f.notes)), 0)
	b = append(b, f.notes...)
	for i, s := range f.segments {
		put(i+1, segLoad, s.flags, s.vaddr, uint64(len(s.data)), s.memsz)
		b = append(b, s.data...)
	}
	if f.spoil != nil {
		b = f.spoil(b)
	}
	return b
}

// write writes the dump to a file of the test.
func (f *fake) write(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "core")
	if err := os.WriteFile(path, f.bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
