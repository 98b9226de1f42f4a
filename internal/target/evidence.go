package target

import (
	"bytes"
	"encoding/binary"
	"slices"

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

	live  Memory // what mem is a cache of; nil: it is none
	now   []byte
	again []Region
	links []Region // what a list is compared with
	nexts []byte   // their data
}

// Directly has Links read memory that mem is a cache of.
func (e *Evidence) Directly(live Memory) { e.live = live }

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

// Full reports whether more was read than is kept.
func (e *Evidence) Full() bool { return e.full }

// Stands reports whether mem still has all that was read. It is false if more was read than is kept.
func (e *Evidence) Stands(mem Memory) bool {
	if e.full {
		return false
	}
	if n := len(e.buf); cap(e.now) < n {
		e.now = make([]byte, n)
	}
	e.again = e.again[:0]
	from := 0
	for _, p := range e.pieces {
		e.again = append(e.again, Region{Base: p.Base, Data: e.now[from : from+len(p.Data)]})
		from += len(p.Data)
	}
	if ReadMany(mem, e.again) != nil {
		return false
	}
	for i, p := range e.pieces {
		if !bytes.Equal(p.Data, e.again[i].Data) {
			return false
		}
	}
	return true
}

// Pieces returns copies of what was read; nil: it was more than is kept.
func (e *Evidence) Pieces() []Region {
	if e.full {
		return nil
	}
	out := make([]Region, 0, len(e.pieces))
	for _, p := range e.pieces {
		if !slices.ContainsFunc(out, func(q Region) bool { return q.Base == p.Base && len(q.Data) == len(p.Data) }) {
			out = append(out, Region{Base: p.Base, Data: bytes.Clone(p.Data)})
		}
	}
	return out
}

// Links follows a list whose items begin with the address of the next one, and returns the addresses of its items: nil
// if they are more than most. list is what it may be, from an earlier time: then it is read at once.
func (e *Evidence) Links(first arch.Addr, list []arch.Addr, most int) ([]arch.Addr, error) {
	if v, ok := e.live.(Vector); ok && len(list) > 1 && list[0] == first {
		if e.sameLinks(v, list) {
			return list, nil
		}
	}
	r := NewReader(e)
	var out []arch.Addr
	for at := first; at != 0; {
		if len(out) == most {
			return nil, nil
		}
		out = append(out, at)
		var err error
		if at, err = r.Pointer(at); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sameLinks reports whether a list is as it was, and keeps it as evidence if so.
func (e *Evidence) sameLinks(v Vector, list []arch.Addr) bool {
	const link = 8
	e.nexts = slices.Grow(e.nexts[:0], link*len(list))[:link*len(list)]
	e.links = e.links[:0]
	for i, at := range list {
		e.links = append(e.links, Region{Base: at, Data: e.nexts[link*i : link*(i+1)]})
	}
	pieces := e.links
	if v.ReadMany(pieces) != nil {
		return false
	}
	for i, p := range pieces {
		next := arch.Addr(0)
		if i+1 < len(list) {
			next = list[i+1]
		}
		if arch.Addr(binary.LittleEndian.Uint64(p.Data)) != next {
			return false
		}
	}
	if e.keeps {
		for _, p := range pieces {
			e.Keep(p.Data, p.Base)
		}
	}
	return true
}
