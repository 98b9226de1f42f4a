package elfx

import (
	"fmt"
	"sync"

	"clrsnap/internal/arch"
)

const (
	pageSize = 4096
	numPages = 1024
)

// pages is a direct-mapped cache of recently read pages of sections: each page has a
// single place, and replaces the previous page there.
type pages struct {
	mu       sync.Mutex
	sections uint64
	slots    []*page
}

// page is a page of a section. Its data never change.
type page struct {
	section, n uint64
	data       []byte
}

// Section is a piece of an image, read on demand.
type Section struct {
	img  *Image
	id   uint64
	addr arch.Addr
	size uint64
}

// sectionAt returns size bytes at addr as a Section, if the image has them.
func (m *Image) sectionAt(addr arch.Addr, size uint64) (*Section, error) {
	if m.segment(addr, size) == nil {
		return nil, fmt.Errorf("%d bytes at %v: %w", size, addr, ErrUnbacked)
	}
	p := &m.budget.pages
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slots == nil {
		p.slots = make([]*page, numPages)
	}
	p.sections++
	return &Section{img: m, id: p.sections, addr: addr, size: size}, nil
}

// Addr is the link-time address of the section.
func (s *Section) Addr() arch.Addr { return s.addr }

// Size is the length of the section, in bytes.
func (s *Section) Size() uint64 { return s.size }

// Bytes returns n bytes at an offset. The caller must not change the bytes.
func (s *Section) Bytes(off uint64, n int) ([]byte, error) {
	if off > s.size || uint64(n) > s.size-off {
		return nil, fmt.Errorf("%w: 0x%x exceeds a section of 0x%x bytes", ErrFormat, off, s.size)
	}
	if n == 0 {
		return nil, nil
	}
	first, at := off/pageSize, off%pageSize
	if at+uint64(n) > pageSize {
		return s.join(off, n)
	}
	b, err := s.page(first)
	if err != nil {
		return nil, err
	}
	return b[at : at+uint64(n)], nil
}

// join returns bytes from more than one page.
func (s *Section) join(off uint64, n int) ([]byte, error) {
	out := make([]byte, 0, n)
	for len(out) < n {
		b, err := s.page(off / pageSize)
		if err != nil {
			return nil, err
		}
		b = b[off%pageSize:]
		b = b[:min(len(b), n-len(out))]
		out = append(out, b...)
		off += uint64(len(b))
	}
	return out, nil
}

// page returns a page of the section; the last page ends at the section's end.
func (s *Section) page(n uint64) ([]byte, error) {
	p := &s.img.budget.pages
	p.mu.Lock()
	defer p.mu.Unlock()
	const spread = 97 // the pages of different sections get different places
	slot := &p.slots[(s.id*spread+n)%numPages]
	if *slot != nil && (*slot).section == s.id && (*slot).n == n {
		return (*slot).data, nil
	}
	data := make([]byte, min(pageSize, s.size-n*pageSize))
	if err := s.img.readAt(data, s.addr+arch.Addr(n*pageSize)); err != nil {
		return nil, err
	}
	*slot = &page{s.id, n, data}
	return data, nil
}
