package target

import (
	"errors"
	"slices"

	"clrsnap/internal/arch"
)

var errWrap = errors.New("the range leaves the address space")

const (
	pageSize = 4096

	// DefaultCachePages is the default size of a Cache: 8 MB.
	DefaultCachePages = 2048

	// chunkPages is the growth step of a Cache, in pages. A Cache never moves its pages.
	chunkPages = 64

	// A read that lacks more than maxFill pages bypasses the cache: a large copy would only evict
	// pages that are used again.
	maxFill = 16
)

// Cache is a Memory that keeps pages of another Memory. The bytes are as old as the last
// Invalidate: the owner of a live target calls Invalidate whenever the target has run. A failed
// read is never remembered, because missing memory can exist a moment later. Not safe for
// concurrent use.
type Cache struct {
	mem   Memory
	index map[arch.Addr]int32 // page address → slot
	pages [][]byte            // of the slots, chunkPages in each
	slots []slot
	max   int
	hand  int // of the clock that chooses a victim
	last  slotHint

	regulars regulars

	moments int // invalidations since pages were last given back
	most    int // most slots in use at any of these moments

	scratch []byte // what a fill reads, until known to be good
}

type slot struct {
	page arch.Addr
	used bool // since the clock hand passed
	read bool // since the last Invalidate, and not only filled ahead
}

// slotHint remembers the page of the last hit: a read mostly follows the previous read.
type slotHint struct {
	page arch.Addr
	slot int32
	ok   bool
}

// NewCache returns a Cache of at most maxPages pages of mem; 0 stands for DefaultCachePages.
func NewCache(mem Memory, maxPages int) *Cache {
	if maxPages <= 0 {
		maxPages = DefaultCachePages
	}
	return &Cache{mem: mem, index: make(map[arch.Addr]int32), max: max(maxPages, maxFill)}
}

// Invalidate drops all pages. The cache keeps memory for new pages, as much as the latest moments
// have needed.
func (c *Cache) Invalidate() {
	const remembered = 32
	c.regulars.note(c.slots)
	c.most = max(c.most, len(c.slots))
	if c.moments++; c.moments == remembered {
		if n := (c.most + chunkPages - 1) / chunkPages; n < len(c.pages) {
			c.pages = slices.Clone(c.pages[:n])
			c.index = make(map[arch.Addr]int32)
		}
		c.moments, c.most = 0, 0
	}
	clear(c.index)
	c.slots = c.slots[:0]
	c.hand = 0
	c.last = slotHint{}
}

// Len is the number of pages held.
func (c *Cache) Len() int { return len(c.slots) }

// ReadMemory implements Memory.
func (c *Cache) ReadMemory(p []byte, addr arch.Addr) error {
	off := int(addr % pageSize)
	if off+len(p) <= pageSize && c.last.ok && c.last.page == addr-arch.Addr(off) {
		copy(p, c.slot(c.last.slot)[off:])
		return nil
	}
	return c.read(p, addr)
}

func (c *Cache) read(p []byte, addr arch.Addr) error {
	if len(p) == 0 {
		return nil
	}
	// The last byte, not the end: memory may reach up to the end of the address space, and an end
	// there would be 0.
	last, ok := addr.Add(uint64(len(p)) - 1)
	if !ok {
		return &ReadError{Addr: addr, Len: len(p), Err: errWrap}
	}
	first := addr &^ (pageSize - 1)
	count := int((last-first)/pageSize) + 1
	if count > maxFill || !c.fill(first, count) {
		// Whole pages cannot be read (at the end of a copied piece, say): read exactly the
		// requested bytes, and return that read's error.
		return c.mem.ReadMemory(p, addr)
	}
	for n, page := 0, first; n < len(p); page += pageSize {
		s := c.index[page]
		c.slots[s].used, c.slots[s].read = true, true
		c.last = slotHint{page, s, true}
		n += copy(p[n:], c.slot(s)[int(addr)%pageSize:])
		addr = page + pageSize
	}
	return nil
}

// fill makes sure that the cache holds count pages from first on. It reads from the first to the
// last missing page with one call.
func (c *Cache) fill(first arch.Addr, count int) bool {
	lo, hi := count, 0
	for i := range count {
		page := first + arch.Addr(i)*pageSize
		if s, ok := c.index[page]; ok {
			c.slots[s].used = true // keeps the page while others get room
		} else {
			lo, hi = min(lo, i), i+1
		}
	}
	if lo >= hi {
		return true
	}
	if len(c.slots) == 0 && c.fillRegulars() {
		return c.fill(first, count)
	}
	n := (hi - lo) * pageSize
	if len(c.scratch) < n {
		c.scratch = make([]byte, n)
	}
	from := first + arch.Addr(lo)*pageSize
	if c.mem.ReadMemory(c.scratch[:n], from) != nil {
		return false
	}
	for i := range hi - lo {
		c.put(from+arch.Addr(i)*pageSize, c.scratch[i*pageSize:(i+1)*pageSize])
	}
	return c.holds(first, count)
}

// holds reports whether the cache still has all of the pages after making room.
func (c *Cache) holds(first arch.Addr, count int) bool {
	for i := range count {
		if _, ok := c.index[first+arch.Addr(i)*pageSize]; !ok {
			return false
		}
	}
	return true
}

func (c *Cache) put(page arch.Addr, data []byte) {
	s, ok := c.index[page]
	if !ok {
		s = c.victim()
		c.index[page] = s
	}
	c.slots[s] = slot{page: page, used: true}
	copy(c.slot(s), data)
}

// victim returns a free slot: a new slot within the bound, else the slot of a page not used since
// the clock's hand last came by.
func (c *Cache) victim() int32 {
	if n := len(c.slots); n < c.max {
		c.slots = append(c.slots, slot{})
		if len(c.pages)*chunkPages < len(c.slots) {
			c.pages = append(c.pages, make([]byte, chunkPages*pageSize))
		}
		return int32(n)
	}
	for c.slots[c.hand].used {
		c.slots[c.hand].used = false
		c.hand = (c.hand + 1) % len(c.slots)
	}
	s := c.hand
	c.hand = (c.hand + 1) % len(c.slots)
	delete(c.index, c.slots[s].page)
	if c.last.slot == int32(s) {
		c.last = slotHint{}
	}
	return int32(s)
}

func (c *Cache) slot(s int32) []byte {
	at := int(s) % chunkPages * pageSize
	return c.pages[s/chunkPages][at : at+pageSize]
}
