package elfx

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Debug sections.
const (
	shfCompressed = 0x800 // SHF_COMPRESSED (gABI, "Section Compression")
	chdrSize      = 24    // Elf64_Chdr: type 4, reserved 4, size 8, alignment 8
	chZlib        = 1
	zdebugSize    = 12 // "ZLIB" and the size, big-endian, of sections with names that begin with .zdebug (binutils)
)

// DebugLink returns the contents of .gnu_debuglink: the name of the file with the debug sections, and its
// checksum (gdb's manual, "Separate Debug Files").
func (m *Image) DebugLink() (name string, crc uint32, ok bool) {
	const most = 4096 + 8
	s := m.section(".gnu_debuglink")
	if s == nil || s.typ == shtNobits || s.size > most {
		return "", 0, false
	}
	b, err := wholly(m.readFile, s.off, s.size)
	if err != nil {
		return "", 0, false
	}
	text, _, ended := bytes.Cut(b, []byte{0})
	at := (len(text) + 4) &^ 3
	if !ended || len(text) == 0 || at+4 > len(b) {
		return "", 0, false
	}
	return string(text), binary.LittleEndian.Uint32(b[at:]), true
}

// Checksum computes a file's checksum in the form of DebugLink. Checksum reads at most most bytes.
func Checksum(file io.ReaderAt, most int64) (uint32, error) {
	h := crc32.NewIEEE()
	n, err := io.Copy(h, io.NewSectionReader(file, 0, most+1))
	if err == nil && n > most {
		err = fmt.Errorf("%w: more than %d bytes", ErrFormat, most)
	}
	return h.Sum32(), err
}

// sectionBuildID is the build id according to the section headers. In a file with only the stripped parts of
// another file, the program headers may lead anywhere.
func (m *Image) sectionBuildID() []byte {
	s := m.section(".note.gnu.build-id")
	if s == nil || s.typ == shtNobits || s.size > maxNotes {
		return nil
	}
	b, err := wholly(m.readFile, s.off, s.size)
	if err != nil {
		return nil
	}
	return buildID(b, 4)
}

// DebugSection returns the unpacked contents of a section like .debug_line, and the size of the contents in
// bytes. The error wraps ErrNotFound if the section is missing. Contents of more than most bytes are an
// error. Memory for unpacked contents is charged to the budget.
func (m *Image) DebugSection(name string, most int64) (io.ReaderAt, int64, error) {
	s, old := m.section(name), false
	if s == nil {
		s, old = m.section(".z"+name[1:]), true
	}
	if s == nil || s.typ == shtNobits || s.size == 0 {
		return nil, 0, fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	if s.size > uint64(most) || s.off > 1<<62 {
		return nil, 0, fmt.Errorf("%s has %d bytes, more than %d", name, s.size, most)
	}
	if !old && s.flags&shfCompressed == 0 {
		return &sectionFile{m, s.off, s.size}, int64(s.size), nil
	}
	head := make([]byte, chdrSize)
	if old {
		head = head[:zdebugSize]
	}
	if s.size < uint64(len(head)) {
		return nil, 0, fmt.Errorf("%w: %s has %d bytes", ErrFormat, name, s.size)
	}
	if err := m.readFile(head, s.off); err != nil {
		return nil, 0, err
	}
	size, err := unpackedSize(head, old)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", name, err)
	}
	if size > uint64(most) {
		return nil, 0, fmt.Errorf("%s has %d bytes, more than %d", name, size, most)
	}
	in := io.NewSectionReader(&sectionFile{m, s.off, s.size}, int64(len(head)), int64(s.size)-int64(len(head)))
	b, err := m.unpack(in, int64(s.size), int64(size))
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", name, err)
	}
	return bytes.NewReader(b), int64(len(b)), nil
}

func unpackedSize(head []byte, old bool) (uint64, error) {
	switch kind := binary.LittleEndian.Uint32(head); {
	case old && string(head[:4]) == "ZLIB":
		return binary.BigEndian.Uint64(head[4:]), nil
	case !old && kind == chZlib:
		return binary.LittleEndian.Uint64(head[8:]), nil
	default:
		return 0, errors.New("it is compressed in a way that is not known")
	}
}

// unpack inflates packed bytes to size. The memory grows with the inflated bytes.
func (m *Image) unpack(in io.Reader, packed, size int64) ([]byte, error) {
	const ratio = 258 * 8 / 2 // at most (RFC 1951, 3.2.5)
	if size/ratio > packed {
		return nil, fmt.Errorf("%w: %d bytes in %d", ErrFormat, size, packed)
	}
	if err := m.Reserve(size); err != nil {
		return nil, err
	}
	z, err := zlib.NewReader(in)
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	_, err = io.ReadFull(z, b)
	return b, err
}

// sectionFile reads a section, and charges the read bytes.
type sectionFile struct {
	m         *Image
	off, size uint64
}

// ReadAt implements io.ReaderAt.
func (f *sectionFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || uint64(off) >= f.size {
		return 0, io.EOF
	}
	n := min(uint64(len(p)), f.size-uint64(off))
	if err := f.m.readFile(p[:n], f.off+uint64(off)); err != nil {
		return 0, err
	}
	if n < uint64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}
