package elfx

import (
	"encoding/binary"
	"errors"
	"fmt"

	"clrsnap/internal/arch"
)

// Frames is the call frame information of an image.
type Frames struct {
	Hdr   *Section // .eh_frame_hdr; empty if the image has none
	Frame *Section // .eh_frame, possibly with other bytes behind it in its segment
}

// NoFrames reports whether the image certainly has no call frame information.
func (m *Image) NoFrames() bool {
	for i := range m.Progs {
		if m.Progs[i].Type == ptGNUEHFrame {
			return false
		}
	}
	_, err := m.Frames()
	return errors.Is(err, ErrNotFound)
}

// Frames finds the image's call frame information. The program header
// PT_GNU_EH_FRAME locates .eh_frame_hdr (LSB 10.7). Only the section header has
// the length of .eh_frame; without a section header, .eh_frame is taken to
// reach to the end of its segment, and its own terminator ends it.
func (m *Image) Frames() (*Frames, error) {
	f := Frames{Hdr: &Section{}}
	for i := range m.Progs {
		p := &m.Progs[i]
		if p.Type != ptGNUEHFrame {
			continue
		}
		if s, err := m.sectionAt(p.Vaddr, m.backed(p)); err == nil {
			f.Hdr = s
		}
		break
	}
	var at arch.Addr
	var size uint64
	if s := m.section(".eh_frame"); s != nil && s.typ != shtNobits {
		at, size = s.addr, s.size
	} else if a, ok := ehFramePointer(f.Hdr); ok {
		at = a
		if p := m.segment(a, 1); p != nil {
			size = m.backed(p) - uint64(a-p.Vaddr)
		}
	}
	if size == 0 {
		return nil, fmt.Errorf(".eh_frame: %w", ErrNotFound)
	}
	var err error
	f.Frame, err = m.sectionAt(at, size)
	if err != nil {
		return nil, err
	}
	return &f, nil
}

// ehFramePointer decodes eh_frame_ptr: .eh_frame_hdr begins with a version and
// three encodings; the first encoding is the pointer's (LSB 10.6.2; encodings
// in LSB 10.5.1). Linkers write the pointer in 4 bytes, relative to its own
// place.
func ehFramePointer(s *Section) (arch.Addr, bool) {
	hdr, err := s.Bytes(0, 12)
	if err != nil || hdr[0] != 1 {
		return 0, false
	}
	addr := s.addr
	var v int64
	switch hdr[1] & 0xf {
	case 0x3:
		v = int64(binary.LittleEndian.Uint32(hdr[4:]))
	case 0xb:
		v = int64(int32(binary.LittleEndian.Uint32(hdr[4:])))
	case 0x0, 0x4, 0xc:
		v = int64(binary.LittleEndian.Uint64(hdr[4:]))
	default:
		return 0, false
	}
	switch hdr[1] & 0xf0 {
	case 0x00:
		return arch.Addr(v), true
	case 0x10: // relative to the pointer's own place
		return addr + 4 + arch.Addr(v), true
	case 0x30: // relative to .eh_frame_hdr
		return addr + arch.Addr(v), true
	}
	return 0, false
}
