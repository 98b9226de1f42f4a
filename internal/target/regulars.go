package target

import "clrsnap/internal/arch"

// regulars are the pages that are read at nearly every moment: of classes, of locks, of the list of threads. A Cache
// reads the regulars at once when it reads the first page of a moment, where the memory is a Vector.
type regulars struct {
	marks map[arch.Addr]int8
	pages []arch.Addr // with enough marks
	buf   []byte
}

// A page that is read at a moment gets a mark; a regular that is not read loses more. So a regular is read at most
// moments.
const (
	maxRegulars   = 32
	maxMarked     = 1 << 12
	regularMarks  = 2
	mostMarks     = 4
	marksLost     = 2
	regularsInUse = 2 // at least: one page alone needs no help
)

// note ends a moment.
func (r *regulars) note(slots []slot) {
	if len(slots) == 0 {
		return
	}
	if r.marks == nil || len(r.marks) > maxMarked {
		r.marks = map[arch.Addr]int8{}
	}
	r.pages = r.pages[:0]
	for i := range slots {
		s := &slots[i]
		n := r.marks[s.page]
		if s.read {
			n = min(n+1, mostMarks)
		} else if n -= marksLost; n <= 0 {
			delete(r.marks, s.page)
			continue
		}
		r.marks[s.page] = n
		if n >= regularMarks && len(r.pages) < maxRegulars {
			r.pages = append(r.pages, s.page)
		}
	}
}

// fillRegulars fills an empty cache with the regulars, and reports whether the cache has pages.
func (c *Cache) fillRegulars() bool {
	r := &c.regulars
	v, ok := c.mem.(Vector)
	if !ok || len(r.pages) < regularsInUse {
		return false
	}
	if len(r.buf) < len(r.pages)*pageSize {
		r.buf = make([]byte, maxRegulars*pageSize)
	}
	pieces := make([]Region, len(r.pages))
	for i, page := range r.pages {
		pieces[i] = Region{Base: page, Data: r.buf[i*pageSize:][:pageSize]}
	}
	if v.ReadMany(pieces) != nil {
		*r = regulars{} // one of the pages cannot be read any more
		return false
	}
	for _, p := range pieces {
		c.put(p.Base, p.Data)
	}
	return true
}
