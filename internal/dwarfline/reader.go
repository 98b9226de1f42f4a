package dwarfline

import (
	"fmt"
	"io"

	"clrsnap/internal/pace"
)

var (
	errEnd    = malformed("a section ends too early")
	errEffort = fmt.Errorf("%w: too much of the tables had to be read for the others", ErrNone)
)

// reader reads encoded data of a section, from an offset to an end, piece by piece.
type reader struct {
	src  io.ReaderAt
	free []byte // buffer for pieces
	buf  []byte // the present piece
	next int    // index in buf
	base int64  // offset of buf
	end  int64
	wide bool // the 64-bit format

	effort *pace.Allowance // for the read bytes; nil: not counted
}

// reader returns a reader for a piece of a section, with a count of its effort.
func (t *Table) reader(section io.ReaderAt, at, end int64, size int) *reader {
	return t.readerIn(make([]byte, size), section, at, end)
}

// readerIn is reader with a buffer of the caller.
func (t *Table) readerIn(buf []byte, section io.ReaderAt, at, end int64) *reader {
	return &reader{src: section, free: buf, base: at, end: end, effort: t.effort}
}

// pos is the offset of the next byte.
func (r *reader) pos() int64 { return r.base + int64(r.next) }

// limit moves the end to an earlier place.
func (r *reader) limit(end int64) {
	r.end = end
	if over := r.base + int64(len(r.buf)) - end; over > 0 {
		r.buf = r.buf[:max(r.next, len(r.buf)-int(over))]
	}
}

// ReadByte implements io.ByteReader.
func (r *reader) ReadByte() (byte, error) {
	if r.next >= len(r.buf) {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	b := r.buf[r.next]
	r.next++
	return b, nil
}

// fill reads the next piece.
func (r *reader) fill() error {
	r.base += int64(r.next)
	r.buf, r.next = nil, 0
	n := int(min(int64(len(r.free)), r.end-r.base))
	if n <= 0 {
		return errEnd
	}
	if r.effort != nil && !r.effort.Take(int64(n)) {
		return errEffort
	}
	got, err := r.src.ReadAt(r.free[:n], r.base)
	if r.buf = r.free[:got]; got > 0 {
		return nil
	}
	if err == nil || err == io.EOF {
		err = errEnd
	}
	return err
}

// fixed reads a number of n bytes, 8 at most.
func (r *reader) fixed(n int) (v uint64, err error) {
	for i := range n {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		v |= uint64(b) << (8 * i)
	}
	return v, nil
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
	if n > uint64(r.end-r.pos()) {
		return errEnd
	}
	if n <= uint64(len(r.buf)-r.next) {
		r.next += int(n)
		return nil
	}
	r.base, r.buf, r.next = r.pos()+int64(n), nil, 0
	return nil
}

// text reads a text up to its terminating zero.
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

// length reads the length of a unit, and with it the format.
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
