package heap

import (
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// pieces are pieces of memory that are read together, one after the other.
type pieces struct {
	list  []target.Region
	sizes []int
	have  int // pieces that have been read
	buf   []byte
}

func (p *pieces) begin() { p.list, p.sizes, p.have, p.buf = p.list[:0], p.sizes[:0], 0, p.buf[:0] }

// add adds a piece.
func (p *pieces) add(at arch.Addr, size int) {
	p.list, p.sizes = append(p.list, target.Region{Base: at}), append(p.sizes, size)
}

// word adds a variable of four bytes, and returns a function that returns the value, once read. Without an address the
// value is 0.
func (p *pieces) word(at arch.Addr) (value func() uint32) {
	if at == 0 {
		return func() uint32 { return 0 }
	}
	i := len(p.list)
	p.add(at, 4)
	return func() uint32 { return binary.LittleEndian.Uint32(p.list[i].Data) }
}

// read reads the pieces that have been added since the last read.
func (p *pieces) read(mem target.Memory) error {
	need := 0
	for _, n := range p.sizes[p.have:] {
		need += n
	}
	p.buf = slices.Grow(p.buf, need) // earlier pieces keep their memory
	for i := p.have; i < len(p.list); i++ {
		from := len(p.buf)
		p.buf = p.buf[:from+p.sizes[i]]
		p.list[i].Data = p.buf[from:]
	}
	list := p.list[p.have:]
	p.have = len(p.list)
	return target.ReadMany(mem, list)
}

// last returns the last n pieces.
func (p *pieces) last(n int) []target.Region { return p.list[len(p.list)-n:] }
