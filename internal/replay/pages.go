package replay

// PageSize is the unit of recorded memory and files, in bytes.
const PageSize = 4096

// Pages are pieces of memory or of a file, by page number. A page in Blank was readable, but no
// walk depends on its contents: it reads as zeros.
type Pages struct {
	Data  map[uint64][]byte
	Blank map[uint64]bool
}

func newPages() Pages {
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

// add takes over another recording of the same pages. If a walk of either recording depends on a
// page, add keeps the page's contents.
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
