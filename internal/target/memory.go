// Package target defines a target: readable memory, threads to capture, mappings to list. Its
// sub-packages are the kinds of target. Code that reads a target through these types does not
// know whether the bytes come from a live process, a core dump or a recording.
package target

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"clrsnap/internal/arch"
)

// Memory reads a target's memory.
type Memory interface {
	// ReadMemory fills p from addr or returns a *ReadError. It never reads short.
	ReadMemory(p []byte, addr arch.Addr) error
}

// Vector is a Memory that reads many pieces at once, for less than one after the other.
type Vector interface {
	Memory
	// ReadMany fills the Data of each piece from its Base. After an error the contents of Data
	// are undefined.
	ReadMany(pieces []Region) error
}

// ReadMany reads pieces of any memory.
func ReadMany(mem Memory, pieces []Region) error {
	if v, ok := mem.(Vector); ok {
		return v.ReadMany(pieces)
	}
	for _, p := range pieces {
		if err := mem.ReadMemory(p.Data, p.Base); err != nil {
			return err
		}
	}
	return nil
}

// File is an open file of a target.
type File interface {
	io.ReaderAt
	io.Closer
}

// ReadError reports memory that could not be read.
type ReadError struct {
	Addr arch.Addr // first byte requested
	Len  int       // bytes requested
	Err  error     // the reason, where there is one
}

func (e *ReadError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("cannot read %d bytes at %v", e.Len, e.Addr)
	}
	return fmt.Sprintf("cannot read %d bytes at %v: %v", e.Len, e.Addr, e.Err)
}

func (e *ReadError) Unwrap() error { return e.Err }

// Reader reads typed little-endian values from a Memory without allocating. It is not safe for
// concurrent use.
type Reader struct {
	mem Memory
	buf [8]byte
}

// NewReader returns a Reader on mem.
func NewReader(mem Memory) *Reader { return &Reader{mem: mem} }

// ReadMemory makes a Reader a Memory.
func (r *Reader) ReadMemory(p []byte, addr arch.Addr) error { return r.mem.ReadMemory(p, addr) }

// Uint64 reads the 8 bytes at addr.
func (r *Reader) Uint64(addr arch.Addr) (uint64, error) {
	if err := r.mem.ReadMemory(r.buf[:8], addr); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(r.buf[:8]), nil
}

// Uint32 reads the 4 bytes at addr.
func (r *Reader) Uint32(addr arch.Addr) (uint32, error) {
	if err := r.mem.ReadMemory(r.buf[:4], addr); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(r.buf[:4]), nil
}

// Uint16 reads the 2 bytes at addr.
func (r *Reader) Uint16(addr arch.Addr) (uint16, error) {
	if err := r.mem.ReadMemory(r.buf[:2], addr); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint16(r.buf[:2]), nil
}

// Uint8 reads the byte at addr.
func (r *Reader) Uint8(addr arch.Addr) (uint8, error) {
	if err := r.mem.ReadMemory(r.buf[:1], addr); err != nil {
		return 0, err
	}
	return r.buf[0], nil
}

// Pointer reads an address at addr.
func (r *Reader) Pointer(addr arch.Addr) (arch.Addr, error) {
	v, err := r.Uint64(addr)
	return arch.Addr(v), err
}

// Bytes reads n bytes at addr into a new slice. The caller has bounded n.
func (r *Reader) Bytes(addr arch.Addr, n int) ([]byte, error) {
	p := make([]byte, n)
	if err := r.mem.ReadMemory(p, addr); err != nil {
		return nil, err
	}
	return p, nil
}

// Pieces is Bytes for a size that the target states. Pieces reads piece by piece, so a false size
// costs no more memory than the readable bytes.
func (r *Reader) Pieces(addr arch.Addr, n int) ([]byte, error) {
	const piece = 64 << 10
	var out []byte
	for len(out) < n {
		p, err := r.Bytes(addr+arch.Addr(len(out)), min(piece, n-len(out)))
		if err != nil {
			return nil, err
		}
		out = append(out, p...)
	}
	return out, nil
}

// CString reads a zero-terminated string of at most max bytes at addr.
func (r *Reader) CString(addr arch.Addr, max int) (string, error) {
	const step = 64 // aligned, so CString never reads a page beyond the string
	var out []byte
	for len(out) < max {
		n := min(step-int(addr%step), max-len(out))
		p, err := r.Bytes(addr, n)
		if err != nil {
			return "", err
		}
		if i := bytes.IndexByte(p, 0); i >= 0 {
			return string(append(out, p[:i]...)), nil
		}
		out = append(out, p...)
		next, ok := addr.Add(uint64(n))
		if !ok {
			break
		}
		addr = next
	}
	return "", &ReadError{Addr: addr, Len: max, Err: fmt.Errorf("no end of string within %d bytes", max)}
}
