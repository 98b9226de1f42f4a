package target

import (
	"bytes"

	"clrsnap/internal/arch"
)

// Bounds of what an Evidence keeps.
const (
	maxEvidence      = 1 << 12 // pieces
	maxEvidenceBytes = 1 << 20
)

// Evidence is a Memory that keeps what is read of it, so that it can be compared with what is there later.
// A running target changes its memory while it is read. If each piece is the same when all of them have been
// read, then there was a moment, between the last first reading and the first second one, at which memory
// was as it was read. Not safe for concurrent use.
type Evidence struct {
	mem    Memory
	keeps  bool
	full   bool
	pieces []Region
	buf    []byte
}

// NewEvidence returns an Evidence of mem, which keeps nothing yet.
func NewEvidence(mem Memory) *Evidence { return &Evidence{mem: mem} }

// Begin forgets what was read, and keeps what is read from now on.
func (e *Evidence) Begin() {
	e.keeps, e.full, e.pieces, e.buf = true, false, e.pieces[:0], e.buf[:0]
}

// End stops keeping what is read.
func (e *Evidence) End() { e.keeps = false }

// ReadMemory implements Memory.
func (e *Evidence) ReadMemory(p []byte, addr arch.Addr) error {
	if err := e.mem.ReadMemory(p, addr); err != nil {
		return err
	}
	if e.keeps {
		e.Keep(p, addr)
	}
	return nil
}

// Keep adds what was read elsewhere.
func (e *Evidence) Keep(p []byte, addr arch.Addr) {
	if len(e.pieces) >= maxEvidence || len(e.buf)+len(p) > maxEvidenceBytes {
		e.full = true
		return
	}
	from := len(e.buf)
	e.buf = append(e.buf, p...)
	e.pieces = append(e.pieces, Region{Base: addr, Data: e.buf[from:len(e.buf):len(e.buf)]})
}

// Stands reports whether mem still has all that was read. It is false if more was read than is kept.
func (e *Evidence) Stands(mem Memory) bool {
	if e.full {
		return false
	}
	var now []byte
	for _, p := range e.pieces {
		if cap(now) < len(p.Data) {
			now = make([]byte, len(p.Data))
		}
		now = now[:len(p.Data)]
		if mem.ReadMemory(now, p.Base) != nil || !bytes.Equal(now, p.Data) {
			return false
		}
	}
	return true
}
