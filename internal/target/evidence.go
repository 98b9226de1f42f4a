package target

import (
	"bytes"
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
)

// Bounds of an Evidence.
const (
	maxEvidence      = 1 << 12 // pieces
	maxEvidenceBytes = 1 << 20
)

// Evidence is a Memory that keeps the bytes of each read, for a later comparison with memory. A
// running target changes its memory during the reads. If every piece is the same on a second
// reading, begun after all pieces had been read, then memory was as read at one moment: between
// the last of the first readings and the first of the second readings. Not safe for concurrent
// use.
type Evidence struct {
	mem    Memory
	keeps  bool
	full   bool
	pieces []Region
	buf    []byte

	live    Memory // what mem is a cache of; nil: not a cache
	now     []byte
	again   []Region
	regions []stretch // what Stands reads
	in      []int32   // by piece: the index in regions
	links   []Region  // pieces of a list that sameLinks compares
	nexts   []byte    // their data
}

// Directly makes Links read live, the memory behind the cache mem.
func (e *Evidence) Directly(live Memory) { e.live = live }

// NewEvidence returns an Evidence of mem, which keeps nothing yet.
func NewEvidence(mem Memory) *Evidence { return &Evidence{mem: mem} }

// Begin forgets the earlier reads, and keeps the reads from now on.
func (e *Evidence) Begin() {
	e.keeps, e.full, e.pieces, e.buf = true, false, e.pieces[:0], e.buf[:0]
}

// End stops keeping reads.
func (e *Evidence) End() { e.keeps = false }

// Aside calls read without keeping the reads.
func (e *Evidence) Aside(read func()) {
	keeps := e.keeps
	e.keeps = false
	read()
	e.keeps = keeps
}

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

// Keep adds bytes that were read elsewhere.
func (e *Evidence) Keep(p []byte, addr arch.Addr) {
	if len(e.pieces) >= maxEvidence || len(e.buf)+len(p) > maxEvidenceBytes {
		e.full = true
		return
	}
	from := len(e.buf)
	e.buf = append(e.buf, p...)
	e.pieces = append(e.pieces, Region{Base: addr, Data: e.buf[from:len(e.buf):len(e.buf)]})
}

// Full reports whether the reads exceeded the bounds.
func (e *Evidence) Full() bool { return e.full }

// Crowded reports whether the reads have used half of the room.
func (e *Evidence) Crowded() bool {
	return e.full || len(e.pieces) > maxEvidence/2 || len(e.buf) > maxEvidenceBytes/2
}

// Stands reports whether mem still has all bytes as read. It is false after Full. Pieces of one page that were read
// shortly after one another are read again as one region, unless mem has gaps in a page.
func (e *Evidence) Stands(mem Memory) bool {
	if e.full {
		return false
	}
	if e.gather(recentStretches); !e.readAgain(mem) {
		if e.gather(0); !e.readAgain(mem) {
			return false
		}
	}
	for i, p := range e.pieces {
		r := &e.again[e.in[i]]
		if !bytes.Equal(p.Data, r.Data[p.Base-r.Base:][:len(p.Data)]) {
			return false
		}
	}
	return true
}

// readAgain reads the regions.
func (e *Evidence) readAgain(mem Memory) bool {
	n := 0
	for i := range e.regions {
		n += e.regions[i].len()
	}
	if cap(e.now) < n {
		e.now = make([]byte, n)
	}
	e.again = e.again[:0]
	from := 0
	for _, r := range e.regions {
		e.again = append(e.again, Region{Base: r.from, Data: e.now[from : from+r.len()]})
		from += r.len()
	}
	return ReadMany(mem, e.again) == nil
}

// stretch is the memory of some pieces.
type stretch struct{ from, to arch.Addr }

func (s stretch) len() int { return int(s.to - s.from) }

// recentStretches is how many stretches a piece may join.
const recentStretches = 8

// gather joins pieces of one page: each piece with one of the recent stretches before.
func (e *Evidence) gather(recent int) {
	e.regions, e.in = e.regions[:0], e.in[:0]
	for _, p := range e.pieces {
		from, to := p.Base, p.Base+arch.Addr(len(p.Data))
		at := len(e.regions)
		for i := max(0, at-recent); i < len(e.regions); i++ {
			r := &e.regions[i]
			low, high := min(r.from, from), max(r.to, to)
			if len(p.Data) > 0 && low/pageSize == (high-1)/pageSize {
				r.from, r.to, at = low, high, i
				break
			}
		}
		if at == len(e.regions) {
			e.regions = append(e.regions, stretch{from, to})
		}
		e.in = append(e.in, int32(at))
	}
}

// Pieces returns copies of the reads; nil: the reads exceeded the bounds.
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

// Links follows a list whose items begin with the address of the next item, and returns the
// addresses of the items: nil if there are more than most. list is a guess, from an earlier time:
// Links then reads all items of the guess at once.
func (e *Evidence) Links(first arch.Addr, list []arch.Addr, most int) ([]arch.Addr, error) {
	if v, ok := e.live.(Vector); ok && len(list) > 1 && list[0] == first {
		if e.sameLinks(v, list, 0) {
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

// SameLinks reports whether a list is unchanged, and keeps an unchanged list as evidence. Each item of the list has the
// address of the next item at an offset; the last item has 0. False if the memory is not Directly known.
func (e *Evidence) SameLinks(list []arch.Addr, at uint32) bool {
	v, ok := e.live.(Vector)
	return ok && e.sameLinks(v, list, arch.Addr(at))
}

func (e *Evidence) sameLinks(v Vector, list []arch.Addr, offset arch.Addr) bool {
	const link = 8
	e.nexts = slices.Grow(e.nexts[:0], link*len(list))[:link*len(list)]
	e.links = e.links[:0]
	for i, at := range list {
		e.links = append(e.links, Region{Base: at + offset, Data: e.nexts[link*i : link*(i+1)]})
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
