package replay

import (
	"errors"
	"maps"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target/recorded"
)

// Minimize blanks every page whose content no recorded walk depends on: most of the metadata and
// unwind information of large modules, because these are read as a whole. Of the stacks Minimize
// keeps the part below the base of the walks; above the first frame of a program are its
// environment variables, which are nobody's business. It walks again and again with half of the
// remaining pages, so it can take a minute. The present results of the walks must not change,
// right or wrong; Minimize leaves the recorded results alone.
func (r *Corpus) Minimize() error { return r.MinimizeBeside(&Corpus{}) }

// MinimizeBeside is Minimize for a corpus that is about to be merged into kept. A page that kept
// has too costs nothing there, so MinimizeBeside does not try it: for the second moment of a
// target, few pages are left to try.
func (r *Corpus) MinimizeBeside(kept *Corpus) error {
	now, err := r.results(nil)
	if err != nil {
		return err
	}
	same := func() bool {
		_, err := r.results(now)
		return err == nil
	}
	had := kept.contents()
	for _, m := range r.Moments {
		for _, t := range m.Threads {
			t.trim(same)
		}
	}
	var all []*recorded.Pages
	for _, m := range r.Moments {
		all = append(all, &m.Memory)
	}
	for _, f := range r.Files {
		all = append(all, &f.Pages)
	}
	for _, p := range all {
		var pages []recorded.Page
		for _, n := range slices.Sorted(maps.Keys(p.Data)) {
			if !had[string(p.Data[n])] {
				pages = append(pages, recorded.Page{Of: p, Number: n})
			}
		}
		recorded.Reduce(pages, 1, same)
	}
	return nil
}

// trim cuts the stack behind the last frame, if the walks do not change.
func (t *Thread) trim(same func() bool) {
	var base arch.Addr
	for _, f := range t.Walks[Unwind].Frames {
		base = max(base, f.SP)
	}
	for i := range t.Stack {
		s := &t.Stack[i]
		whole := s.Data
		if n := uint64(base-s.Base) + 16; base >= s.Base && n < uint64(len(whole)) {
			if s.Data = slices.Clip(whole[:n]); !same() {
				s.Data = whole
			}
		}
	}
}

// contents are the pages in a file of the corpus.
func (r *Corpus) contents() map[string]bool {
	had := map[string]bool{}
	add := func(p *recorded.Pages) {
		for _, page := range p.Data {
			had[string(page)] = true
		}
	}
	for _, m := range r.Moments {
		add(&m.Memory)
	}
	for _, f := range r.Files {
		add(&f.Pages)
	}
	return had
}

// errDifferent ends results.
var errDifferent = errors.New("a walk is different")

// results walks everything once, or until a result differs from want.
func (r *Corpus) results(want []Walk) ([]Walk, error) {
	var out []Walk
	for _, m := range r.Moments {
		e, err := r.Open(m)
		if err != nil {
			return nil, err
		}
		for _, t := range m.Threads {
			for _, how := range Ways {
				w := t.walk(e, how)
				if out = append(out, w); want != nil {
					if was := &want[len(out)-1]; !w.Equal(was) || w.Error != was.Error {
						e.Close()
						return nil, errDifferent
					}
				}
			}
		}
		e.Close()
	}
	return out, nil
}
