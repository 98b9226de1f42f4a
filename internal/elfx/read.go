package elfx

import (
	"bytes"
	"fmt"
	"io"
	"math"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// readFile fills p from offset off of the file.
func (m *Image) readFile(p []byte, off uint64) error {
	if err := m.budget.read(int64(len(p))); err != nil {
		return err
	}
	return m.pread(p, off)
}

// pread is readFile without charging the budget.
func (m *Image) pread(p []byte, off uint64) error {
	if off > math.MaxInt64-uint64(len(p)) {
		return fmt.Errorf("%w: offset 0x%x", ErrFormat, off)
	}
	n, err := m.file.ReadAt(p, int64(off))
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("reading %d bytes at offset 0x%x: %w", len(p), off, err)
}

// wholly reads n bytes from offset off; the caller has bounded n. wholly reads the last
// byte first, so that a false length does not cost n bytes of memory.
func wholly(read func(p []byte, off uint64) error, off, n uint64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	var last [1]byte
	if off > math.MaxInt64-n {
		return nil, fmt.Errorf("%w: offset 0x%x", ErrFormat, off)
	}
	if err := read(last[:], off+n-1); err != nil {
		return nil, err
	}
	p := make([]byte, n)
	return p, read(p, off)
}

// ReadMemory fills p from the image at the link-time address addr, and thereby
// makes an Image a target.Memory. Bytes that a segment has only in memory
// (.bss) cannot be read from a file, and data changed by the dynamic linker
// have their original value in the file.
func (m *Image) ReadMemory(p []byte, addr arch.Addr) error {
	// The search through an image's segments is charged, too.
	if err := m.budget.read(int64(len(p) + len(m.Progs))); err != nil {
		return &target.ReadError{Addr: addr, Len: len(p), Err: err}
	}
	return m.readAt(p, addr)
}

// readAt is ReadMemory without charging the budget.
func (m *Image) readAt(p []byte, addr arch.Addr) error {
	seg := m.segment(addr, uint64(len(p)))
	if seg == nil {
		return &target.ReadError{Addr: addr, Len: len(p), Err: ErrUnbacked}
	}
	var err error
	if m.mem != nil {
		err = m.mem.ReadMemory(p, addr+m.bias)
	} else {
		err = m.pread(p, seg.Offset+uint64(addr-seg.Vaddr))
	}
	if err != nil {
		return &target.ReadError{Addr: addr, Len: len(p), Err: err}
	}
	return nil
}

// backed is the number of readable bytes of a segment.
func (m *Image) backed(p *Prog) uint64 {
	if m.mem != nil {
		return p.Memsz
	}
	return p.Filesz
}

// segment returns the loaded segment that has n readable bytes at addr.
func (m *Image) segment(addr arch.Addr, n uint64) *Prog {
	for i := range m.Progs {
		p := &m.Progs[i]
		if p.Type != ptLoad || addr < p.Vaddr {
			continue
		}
		size, o := m.backed(p), uint64(addr-p.Vaddr)
		if o < size && n <= size-o {
			return p
		}
	}
	return nil
}

// bytes reads n bytes at addr; the caller has bounded n. bytes reads the last
// byte first, so that a false length does not cost n bytes of memory.
func (m *Image) bytes(addr arch.Addr, n uint64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	var last [1]byte
	end, ok := addr.Add(n - 1)
	if !ok {
		return nil, &target.ReadError{Addr: addr, Len: int(n), Err: ErrUnbacked}
	}
	if err := m.ReadMemory(last[:], end); err != nil {
		return nil, err
	}
	p := make([]byte, n)
	return p, m.ReadMemory(p, addr)
}

// span is a piece of the image: at an address, or, for unmapped pieces, at an
// offset of the file.
type span struct {
	at, size uint64
	inFile   bool
}

// read fills p from offset off of the span.
func (m *Image) readSpan(s span, p []byte, off uint64) error {
	if off > s.size || uint64(len(p)) > s.size-off || s.at+off < off {
		return fmt.Errorf("%w: 0x%x exceeds a table of 0x%x bytes", ErrFormat, off, s.size)
	}
	if s.inFile {
		return m.readFile(p, s.at+off)
	}
	return m.ReadMemory(p, arch.Addr(s.at+off))
}

// stringAt reads the zero-terminated string at offset off of a string table.
func (m *Image) stringAt(s span, off uint64) (string, error) {
	var buf [256]byte
	var out []byte
	for len(out) < maxName {
		if off >= s.size {
			break
		}
		p := buf[:min(uint64(len(buf)), s.size-off)]
		if err := m.readSpan(s, p, off); err != nil {
			return "", err
		}
		if i := bytes.IndexByte(p, 0); i >= 0 {
			return string(append(out, p[:i]...)), nil
		}
		out = append(out, p...)
		off += uint64(len(p))
	}
	return "", fmt.Errorf("%w: a string does not end", ErrFormat)
}
