package replay

// PageSize is the unit in which memory and files are kept.
const PageSize = 4096

// Pages are pieces of memory or of a file, by page number. A page in Blank could
// be read, but no walk depends on what it held: it reads as zeros.
type Pages struct {
	Data  map[uint64][]byte
	Blank map[uint64]bool
}

func newPages() Pages {
	return Pages{Data: map[uint64][]byte{}, Blank: map[uint64]bool{}}
}

func (p *Pages) has(n uint64) bool { return p.Data[n] != nil || p.Blank[n] }

// read fills b from position at, and reports whether all of it was there.
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

// add takes over what another reading of the same pages brought: what one of the
// two depends on is kept.
func (p *Pages) add(o *Pages) {
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
