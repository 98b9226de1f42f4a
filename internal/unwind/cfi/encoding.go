package cfi

import (
	"encoding/binary"

	"clrsnap/internal/arch"
)

// Pointer encodings (LSB 10.5.1): the low four bits are the form, the next
// three the base of a relative value.
const (
	peAbsptr  = 0x00
	peULEB128 = 0x01
	peUdata2  = 0x02
	peUdata4  = 0x03
	peUdata8  = 0x04
	peSigned  = 0x08 // a signed address-sized value; as a bit, the signed forms
	peSLEB128 = 0x09
	peSdata2  = 0x0a
	peSdata4  = 0x0b
	peSdata8  = 0x0c
	peForm    = 0x0f

	pePCRel   = 0x10
	peTextRel = 0x20
	peDataRel = 0x30
	peFuncRel = 0x40
	peAligned = 0x50
	peBase    = 0x70

	peIndirect = 0x80
	peOmit     = 0xff
)

// fixedSize is the size of an encoded value in bytes, 0 for a variable size.
func fixedSize(enc uint8) int {
	switch enc & peForm {
	case peUdata2, peSdata2:
		return 2
	case peUdata4, peSdata4:
		return 4
	case peAbsptr, peUdata8, peSigned, peSdata8:
		return 8
	}
	return 0
}

// reader reads values from b. Once a value does not fit, bad is set and every
// further value is zero, so that callers need to test bad only where it
// matters.
type reader struct {
	b   []byte
	pos int
	off int // of b in .eh_frame
	bad bool
}

func (r *reader) left() int { return len(r.b) - r.pos }

// take returns the next n bytes.
func (r *reader) take(n uint64) []byte {
	if r.bad || n > uint64(r.left()) {
		r.bad = true
		return nil
	}
	p := r.b[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return p
}

func (r *reader) u8() uint8 {
	if r.bad || r.pos >= len(r.b) {
		r.bad = true
		return 0
	}
	r.pos++
	return r.b[r.pos-1]
}

// fixed reads an unsigned value of n bytes: 1, 2, 4 or 8.
func (r *reader) fixed(n int) uint64 {
	p := r.take(uint64(n))
	if p == nil {
		return 0
	}
	switch n {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(p))
	case 4:
		return uint64(binary.LittleEndian.Uint32(p))
	}
	return binary.LittleEndian.Uint64(p)
}

// signed reads a signed value of n bytes: 1, 2, 4 or 8.
func (r *reader) signed(n int) uint64 {
	shift := 64 - 8*n
	return uint64(int64(r.fixed(n)<<shift) >> shift)
}

// maxLEB is the longest encoding of 64 bits (DWARF 5, 7.6), padding included.
const maxLEB = 10

func (r *reader) uleb() uint64 {
	var v uint64
	for i := range maxLEB {
		c := r.u8()
		v |= uint64(c&0x7f) << (7 * i)
		if c&0x80 == 0 {
			return v
		}
	}
	r.bad = true
	return 0
}

func (r *reader) sleb() int64 {
	var v int64
	for i := range maxLEB {
		c := r.u8()
		v |= int64(c&0x7f) << (7 * i)
		if c&0x80 == 0 {
			if c&0x40 != 0 {
				v |= -1 << (7*i + 7)
			}
			return v
		}
	}
	r.bad = true
	return 0
}

// value reads an encoded value without regard to its base.
func (r *reader) value(enc uint8) uint64 {
	switch enc & peForm {
	case peULEB128:
		return r.uleb()
	case peSLEB128:
		return uint64(r.sleb())
	}
	n := fixedSize(enc)
	switch {
	case n == 0:
		r.bad = true
		return 0
	case enc&peSigned != 0:
		return r.signed(n)
	}
	return r.fixed(n)
}

// pointer reads an encoded pointer that lies in s.
func (t *Table) pointer(r *reader, s *piece, enc uint8) arch.Addr {
	if enc&peBase == peAligned {
		at := s.addr + arch.Addr(r.pos)
		r.take(uint64(-at & 7))
		return arch.Addr(r.fixed(8))
	}
	at := s.addr + arch.Addr(r.pos)
	v := arch.Addr(r.value(enc))
	switch enc & peBase {
	case peAbsptr:
	case pePCRel:
		v += at
	case peDataRel:
		// In .eh_frame_hdr relative to its start; in .eh_frame to the global
		// offset table, which x86-64 and arm64 do not use for pointers.
		if s.base == 0 {
			r.bad = true
		}
		v += s.base
	default: // peTextRel and peFuncRel: relative to an unknown base
		r.bad = true
	}
	if enc&peIndirect != 0 && !r.bad {
		return t.load(r, v)
	}
	return v
}

// load reads the address at a; a must lie in the call frame information: the
// rest of the image cannot be read here. In practice only personality routines
// are indirect, and personality routines are skipped.
func (t *Table) load(r *reader, a arch.Addr) arch.Addr {
	for _, s := range []Section{t.frame, t.hdr} {
		if b, err := s.Bytes(uint64(a-s.Addr()), 8); err == nil {
			return arch.Addr(binary.LittleEndian.Uint64(b))
		}
	}
	r.bad = true
	return 0
}
