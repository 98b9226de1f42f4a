package dwarfline

import (
	"encoding/binary"
	"io"
)

var errEnd = malformed("a section ends too early")

// ReadByte implements io.ByteReader.
func (r *reader) ReadByte() (byte, error) {
	b, err := r.buf.ReadByte()
	if err != nil {
		return 0, ended(err)
	}
	r.pos++
	return b, nil
}

// ended replaces the end of a section by what is wrong with it.
func ended(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errEnd
	}
	return err
}

// fixed reads a number of n bytes, 8 at most.
func (r *reader) fixed(n int) (uint64, error) {
	var b [8]byte
	if _, err := io.ReadFull(r.buf, b[:n]); err != nil {
		return 0, ended(err)
	}
	r.pos += int64(n)
	return binary.LittleEndian.Uint64(b[:]), nil
}

// offset reads an offset in a section.
func (r *reader) offset() (uint64, error) {
	if r.wide {
		return r.fixed(8)
	}
	return r.fixed(4)
}

// uleb reads an unsigned LEB128. Bits beyond the 64th must be 0.
func (r *reader) uleb() (v uint64, err error) {
	for shift := uint(0); ; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if shift >= 63 && b > 1 || shift > 63 {
			return 0, malformed("a number of more than 64 bits")
		}
		v |= uint64(b&0x7f) << shift
		if b&0x80 == 0 {
			return v, nil
		}
	}
}

// sleb reads a signed LEB128.
func (r *reader) sleb() (v int64, err error) {
	for shift := uint(0); ; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if shift > 63 {
			return 0, malformed("a number of more than 64 bits")
		}
		v |= int64(b&0x7f) << shift
		if b&0x80 == 0 {
			if shift < 57 && b&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v, nil
		}
	}
}

func (r *reader) skip(n uint64) error {
	if n > uint64(r.end-r.pos) {
		return errEnd
	}
	for n > 0 {
		got, err := r.buf.Discard(int(min(n, 1<<20)))
		r.pos += int64(got)
		if n -= uint64(got); err != nil {
			return ended(err)
		}
	}
	return nil
}

// text reads a text that a zero ends.
func (r *reader) text() (string, error) {
	var out []byte
	for {
		b, err := r.ReadByte()
		if err != nil {
			return "", err
		}
		if b == 0 {
			return string(out), nil
		}
		if out = append(out, b); len(out) > maxName {
			return "", malformed("a name of more than %d bytes", maxName)
		}
	}
}

// length reads how long a unit is, and so which format it has.
func (r *reader) length() (uint64, error) {
	n, err := r.fixed(4)
	if err != nil {
		return 0, err
	}
	const first, wide = 0xfffffff0, 0xffffffff
	if n == wide {
		r.wide = true
		return r.fixed(8)
	}
	if n >= first {
		return 0, malformed("a unit of length %#x", n)
	}
	return n, nil
}
