package replay

import (
	"fmt"
	"slices"

	"clrsnap/internal/arch"
)

// stored is a Corpus in its file form: moments have most of their pages in common, so each page
// is kept once, and the moments refer to pages by number.
type stored struct {
	Machine arch.Machine
	Pool    [][]byte
	Files   []storedFile
	Moments []storedMoment
}

type storedFile struct {
	File  File // without pages
	Pages storedPages
}

type storedMoment struct {
	Moment Moment // without memory
	Memory storedPages
}

// storedPages are Pages: numbers in ascending order, and the contents: an index of the pool, or
// -1 for a blank page.
type storedPages struct {
	Numbers []uint64
	Data    []int
}

func (r *Corpus) store() *stored {
	pool := pool{index: map[string]int{}}
	s := &stored{Machine: r.Machine}
	for _, f := range r.Files {
		sf := storedFile{File: *f, Pages: pool.store(&f.Pages)}
		sf.File.Pages = Pages{}
		s.Files = append(s.Files, sf)
	}
	for _, m := range r.Moments {
		sm := storedMoment{Moment: *m, Memory: pool.store(&m.Memory)}
		sm.Moment.Memory = Pages{}
		s.Moments = append(s.Moments, sm)
	}
	s.Pool = pool.pages
	return s
}

type pool struct {
	pages [][]byte
	index map[string]int
}

func (p *pool) store(pages *Pages) (s storedPages) {
	for n := range pages.Data {
		s.Numbers = append(s.Numbers, n)
	}
	for n := range pages.Blank {
		s.Numbers = append(s.Numbers, n)
	}
	slices.Sort(s.Numbers)
	for _, n := range s.Numbers {
		data, ok := pages.Data[n]
		if !ok {
			s.Data = append(s.Data, -1)
			continue
		}
		i, ok := p.index[string(data)]
		if !ok {
			i = len(p.pages)
			p.index[string(data)] = i
			p.pages = append(p.pages, data)
		}
		s.Data = append(s.Data, i)
	}
	return s
}

func (s *stored) corpus() (*Corpus, error) {
	r := &Corpus{Machine: s.Machine}
	var err error
	for i := range s.Files {
		f := s.Files[i].File
		if f.Pages, err = s.pages(&s.Files[i].Pages); err != nil {
			return nil, err
		}
		r.Files = append(r.Files, &f)
	}
	for i := range s.Moments {
		m := s.Moments[i].Moment
		if m.Memory, err = s.pages(&s.Moments[i].Memory); err != nil {
			return nil, err
		}
		if !m.Mappings.Sorted() {
			return nil, fmt.Errorf("%w: its mappings are not in order", ErrFormat)
		}
		if slices.Contains(m.Threads, nil) {
			return nil, fmt.Errorf("%w: a thread is empty", ErrFormat)
		}
		r.Moments = append(r.Moments, &m)
	}
	return r, nil
}

func (s *stored) pages(sp *storedPages) (Pages, error) {
	p := newPages()
	if len(sp.Numbers) != len(sp.Data) {
		return p, fmt.Errorf("%w: %d pages have %d contents", ErrFormat, len(sp.Numbers), len(sp.Data))
	}
	for i, n := range sp.Numbers {
		switch k := sp.Data[i]; {
		case k == -1:
			p.Blank[n] = true
		case k < 0 || k >= len(s.Pool) || len(s.Pool[k]) > PageSize:
			return p, fmt.Errorf("%w: page %d is not in it", ErrFormat, k)
		default:
			p.Data[n] = s.Pool[k]
		}
	}
	return p, nil
}

// Merge adds the moments of another corpus.
func (r *Corpus) Merge(o *Corpus) error {
	if len(r.Moments) > 0 && r.Machine != o.Machine {
		return fmt.Errorf("corpora of architectures %d and %d do not go together", r.Machine, o.Machine)
	}
	r.Machine = o.Machine
	for _, f := range o.Files {
		if mine := r.file(f.Path, f.Dev, f.Inode); mine == nil {
			r.Files = append(r.Files, f)
		} else {
			mine.Pages.add(&f.Pages)
			mine.Size = max(mine.Size, f.Size)
		}
	}
	r.Moments = append(r.Moments, o.Moments...)
	return nil
}
