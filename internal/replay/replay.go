package replay

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/engine"
	"clrsnap/internal/target"
	"clrsnap/internal/target/recorded"
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
	return recorded.Memory{Pages: &s.m.Memory, Fragments: &s.m.Fragments}.ReadMemory(p, addr)
}

func (s source) OpenMapping(m *target.Mapping) (target.File, error) {
	return recorded.FindFile(s.r.Files, m.Path, m.Dev, m.Inode).Open(m.Path)
}
