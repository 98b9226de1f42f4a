package replay

import (
	"fmt"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target/recorded"
)

// stored is a Corpus in its file form: moments have most of their pages in common, so each page
// is kept once, and the moments refer to pages by number.
type stored struct {
	Machine arch.Machine
	Pool    [][]byte
	Files   []recorded.StoredFile
	Moments []storedMoment
}

type storedMoment struct {
	Moment Moment // without memory
	Memory recorded.StoredPages
}

func (r *Corpus) store() *stored {
	var pool recorded.Pool
	s := &stored{Machine: r.Machine, Files: pool.StoreFiles(r.Files)}
	for _, m := range r.Moments {
		sm := storedMoment{Moment: *m, Memory: pool.Store(&m.Memory)}
		sm.Moment.Memory = recorded.Pages{}
		s.Moments = append(s.Moments, sm)
	}
	s.Pool = pool.Pages
	return s
}

func (s *stored) corpus() (*Corpus, error) {
	r, pool := &Corpus{Machine: s.Machine}, recorded.Pool{Pages: s.Pool}
	var err error
	if r.Files, err = pool.LoadFiles(s.Files); err != nil {
		return nil, err
	}
	for i := range s.Moments {
		m := s.Moments[i].Moment
		if m.Memory, err = pool.Load(&s.Moments[i].Memory); err != nil {
			return nil, err
		}
		if !m.Mappings.Sorted() {
			return nil, fmt.Errorf("%w: the mappings are not in order", ErrFormat)
		}
		if slices.Contains(m.Threads, nil) {
			return nil, fmt.Errorf("%w: a thread is empty", ErrFormat)
		}
		r.Moments = append(r.Moments, &m)
	}
	return r, nil
}

// Merge adds the moments of another corpus.
func (r *Corpus) Merge(o *Corpus) error {
	if len(r.Moments) > 0 && r.Machine != o.Machine {
		return fmt.Errorf("corpora of architectures %d and %d do not go together", r.Machine, o.Machine)
	}
	r.Machine = o.Machine
	for _, f := range o.Files {
		if mine := recorded.FindFile(r.Files, f.Path, f.Dev, f.Inode); mine == nil {
			r.Files = append(r.Files, f)
		} else {
			mine.Pages.Add(&f.Pages)
			mine.Size = max(mine.Size, f.Size)
		}
	}
	r.Moments = append(r.Moments, o.Moments...)
	return nil
}
