package recorded

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// PageSize is the unit of recorded memory and files, in bytes.
const PageSize = 4096

// errNotRecorded is the reason of every failed read.
var errNotRecorded = errors.New("not recorded")

// Pages are pieces of memory or of a file, by page number. A page in Blank was readable, but no
// result depends on its contents: it reads as zeros.
type Pages struct {
	Data  map[uint64][]byte
	Blank map[uint64]bool
}

// NewPages returns Pages without a page.
func NewPages() Pages {
	return Pages{Data: map[uint64][]byte{}, Blank: map[uint64]bool{}}
}

func (p *Pages) has(n uint64) bool { return p.Data[n] != nil || p.Blank[n] }

// read fills b from position at, and reports whether all of the bytes were recorded.
func (p *Pages) read(b []byte, at uint64) bool {
	for len(b) > 0 {
		n, off := at/PageSize, at%PageSize
		if !p.has(n) {
			return false
		}
		k := min(len(b), int(PageSize-off))
		if data := p.Data[n]; uint64(len(data)) >= off+uint64(k) {
			copy(b[:k], data[off:])
		} else if p.Blank[n] {
			clear(b[:k])
		} else {
			return false
		}
		b, at = b[k:], at+uint64(k)
	}
	return true
}

// Add takes over another recording of the same pages. If a result of either recording depends on a
// page, Add keeps the page's contents.
func (p *Pages) Add(o *Pages) {
	for n := range o.Blank {
		if p.Data[n] == nil {
			p.Blank[n] = true
		}
	}
	for n, data := range o.Data {
		p.Data[n] = data
		delete(p.Blank, n)
	}
}

// Memory is recorded memory: whole pages, and readable pieces of pages that are not readable as a
// whole.
type Memory struct {
	Pages     *Pages
	Fragments *[]target.Region
}

// ReadMemory implements target.Memory.
func (m Memory) ReadMemory(p []byte, addr arch.Addr) error {
	if m.Pages.read(p, uint64(addr)) {
		return nil
	}
	for _, f := range *m.Fragments {
		if o := uint64(addr - f.Base); o <= uint64(len(f.Data)) && uint64(len(p)) <= uint64(len(f.Data))-o {
			copy(p, f.Data[o:])
			return nil
		}
	}
	return &target.ReadError{Addr: addr, Len: len(p), Err: errNotRecorded}
}

// Keep records the pages around p, which has just been read from src at addr.
func (m Memory) Keep(src target.Memory, p []byte, addr arch.Addr) {
	if len(p) == 0 {
		return
	}
	last := uint64(addr) + uint64(len(p)-1)
	for n := uint64(addr) / PageSize; n <= last/PageSize; n++ {
		if m.Pages.has(n) {
			continue
		}
		page := make([]byte, PageSize)
		if src.ReadMemory(page, arch.Addr(n*PageSize)) == nil {
			m.Pages.Data[n] = page
			continue
		}
		lo, hi := max(uint64(addr), n*PageSize), min(last, n*PageSize+PageSize-1)
		*m.Fragments = append(*m.Fragments, target.Region{
			Base: arch.Addr(lo), Data: append([]byte(nil), p[lo-uint64(addr):hi-uint64(addr)+1]...),
		})
	}
}

// present is how many of the n bytes at addr were recorded, from addr on.
func (m Memory) present(addr arch.Addr, n int) int {
	var b [1]byte
	for k := 0; k < n; {
		at := addr + arch.Addr(k)
		if m.ReadMemory(b[:], at) != nil {
			return k
		}
		k += PageSize - int(at%PageSize)
	}
	return n
}
