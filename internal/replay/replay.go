package replay

import (
	"errors"
	"fmt"
	"io"

	"clrsnap/internal/arch"
	"clrsnap/internal/engine"
	"clrsnap/internal/target"
)

// Source returns a moment as a target.
func (r *Corpus) Source(m *Moment) engine.Source { return source{r, m} }

// Open returns an engine on a moment.
func (r *Corpus) Open(m *Moment) (*engine.Engine, error) {
	if r.Machine != arch.AMD64.Machine {
		return nil, fmt.Errorf("the corpus is of the unknown architecture %d", r.Machine)
	}
	return engine.Open(r.Source(m))
}

// Walk walks a recorded thread again.
func (t *Thread) Walk(e *engine.Engine, how How) Walk { return t.walk(e, how) }

// Verify walks every thread in every way with a recorded result, and returns the differences.
func (r *Corpus) Verify() []error {
	var out []error
	for _, m := range r.Moments {
		e, err := r.Open(m)
		if err != nil {
			out = append(out, fmt.Errorf("%s: %w", m.Note, err))
			continue
		}
		for _, t := range m.Threads {
			for _, how := range Ways {
				want, ok := t.Walks[how]
				if !ok {
					continue
				}
				if got := t.walk(e, how); !got.Equal(&want) {
					out = append(out,
						fmt.Errorf("%s, thread %q, walk %q:\n got\n%v want\n%v", m.Note, t.Name, how, &got, &want))
				}
			}
		}
		e.Close()
	}
	return out
}

// source is a moment as a target.
type source struct {
	r *Corpus
	m *Moment
}

func (s source) Arch() *arch.Arch                   { return arch.AMD64 }
func (s source) Executable() (string, error)        { return s.m.Executable, nil }
func (s source) Mappings() (target.Mappings, error) { return s.m.Mappings, nil }

func (s source) ReadMemory(p []byte, addr arch.Addr) error {
	if s.m.Memory.read(p, uint64(addr)) {
		return nil
	}
	for i := range s.m.Fragments {
		f := &s.m.Fragments[i]
		if o := uint64(addr - f.Base); o <= uint64(len(f.Data)) && uint64(len(p)) <= uint64(len(f.Data))-o {
			copy(p, f.Data[o:])
			return nil
		}
	}
	return &target.ReadError{Addr: addr, Len: len(p), Err: errNotRecorded}
}

var errNotRecorded = errors.New("it was not recorded")

func (s source) OpenMapping(m *target.Mapping) (target.File, error) {
	f := s.r.file(m.Path, m.Dev, m.Inode)
	if f == nil {
		return nil, fmt.Errorf("%s: %w", m.Path, errNotRecorded)
	}
	if f.Error != "" {
		return nil, errors.New(f.Error)
	}
	return file{f}, nil
}

type file struct{ f *File }

func (f file) Close() error { return nil }

func (f file) ReadAt(p []byte, at int64) (int, error) {
	var end error
	if f.f.Size > 0 {
		if at >= f.f.Size {
			return 0, io.EOF
		}
		if left := f.f.Size - at; int64(len(p)) > left {
			p, end = p[:left], io.EOF
		}
	}
	if at < 0 || !f.f.Pages.read(p, uint64(at)) {
		return 0, fmt.Errorf("%s at %#x: %w", f.f.Path, at, errNotRecorded)
	}
	return len(p), end
}
