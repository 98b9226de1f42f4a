package singlestep

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"clrsnap/internal/replay"
	"clrsnap/internal/target"
)

// Corpus collects moments on purpose: the first moment of each shape, with the
// true frames as the expected walk. The corpus keeps a moment only where the walk
// was equal to the truth; other moments are misses.
type Corpus struct {
	mu      sync.Mutex
	seen    map[string]bool
	odd     map[string]string // functions in assembly, by module and offset
	moments int               // taken in all
	common  int               // moments of ordinary shapes only
	kept    replay.Corpus
	errs    []error
}

// A corpus is kept in the repository, and so has bounds: in all, and for
// moments whose only shapes are common parts of functions.
const (
	maxMoments  = 120
	maxOrdinary = 44
)

// OpenCorpus returns the corpus in a file, to be added to, or an empty corpus
// where there is no file. Rare shapes take several runs.
func OpenCorpus(name string) (*Corpus, error) {
	c := &Corpus{seen: map[string]bool{}, odd: map[string]string{}}
	old, err := replay.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err != nil:
		return nil, err
	}
	c.kept, c.moments = *old, len(old.Moments)
	for _, m := range old.Moments {
		shapes := strings.Split(m.Note, noteSeparator)
		for _, s := range shapes {
			c.seen[s] = true
		}
		if isOrdinary(shapes) {
			c.common++
		}
	}
	return c, nil
}

// noteSeparator is between the shapes of a moment.
const noteSeparator = "; "

// sample is a moment that is not part of the corpus yet.
type sample struct {
	rec    *replay.Corpus
	thread *replay.Thread
	notes  []string
	judged bool // the truth is known, and the walk was equal to the truth
}

// fresh returns the shapes that nobody has met, and takes them.
func (c *Corpus) fresh(shapes []string) (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range shapes {
		if !c.seen[s] && c.moments < maxMoments && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	common := len(out) > 0 && isOrdinary(out)
	switch {
	case len(out) == 0 || common && c.common == maxOrdinary:
		return nil
	case common:
		c.common++
	}
	c.moments++
	for _, s := range out {
		c.seen[s] = true
	}
	return out
}

// giveUp: the moment was unusable; the next moment with these shapes may be
// usable.
func (c *Corpus) giveUp(s *sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moments--; isOrdinary(s.notes) {
		c.common--
	}
	for _, n := range s.notes {
		delete(c.seen, n)
	}
}

func isOrdinary(shapes []string) bool {
	return !slices.ContainsFunc(shapes, func(s string) bool { return !strings.HasPrefix(s, leafPart) })
}

func (c *Corpus) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// sample records a moment with a new shape.
func (r *runner) sample(t *transition, tr *truth) *sample {
	if r.corpus == nil {
		return nil
	}
	notes := r.corpus.fresh(r.shapes(t, tr))
	if len(notes) == 0 {
		return nil
	}
	s := &sample{notes: notes, thread: r.recorded()}
	// A walk moves references in the truth that a collection has moved: no more
	// walks than needed.
	confirmed := !r.sh.leaving && r.fold(tr) && r.compareFolded(tr)
	var err error
	if s.rec, err = replay.Capture(r.p, []*replay.Thread{s.thread}, strings.Join(notes, noteSeparator)); err != nil {
		r.corpus.fail(fmt.Errorf("%s: %w", notes, err))
		r.corpus.giveUp(s)
		return nil
	}
	if !confirmed {
		// The expected result of these walks is unknown.
		for _, how := range replay.Ways[1:] {
			delete(s.thread.Walks, how)
		}
	}
	r.samples = append(r.samples, s)
	if !r.sh.leaving {
		r.settle(s, tr)
	}
	return s
}

// settle replaces the walk's result by the truth.
func (r *runner) settle(s *sample, tr *truth) {
	m := Miss{truth: tr, r: r}
	want := m.want()
	if got := s.thread.Walks[replay.Unwind]; !got.Equal(&want) {
		r.corpus.fail(fmt.Errorf("%s: an engine that has cached nothing does not give the truth:\n got\n%v want\n%v",
			s.notes, &got, &want))
		return
	}
	s.thread.Walks[replay.Unwind] = want
	s.judged = true
}

// recorded is the thread in its present state, for a corpus.
func (r *runner) recorded() *replay.Thread {
	th := &replay.Thread{Name: r.name, OSID: r.tr.tid, Context: r.view.context()}
	for _, s := range append([]target.Region{r.view.stack.Region}, r.view.stack.Extra...) {
		th.Stack = append(th.Stack, target.Region{Base: s.Base, Data: slices.Clone(s.Data)})
	}
	if r.view.hasObj {
		th.Object, th.Head = r.view.object, slices.Clone(r.view.head)
	}
	return th
}

// add reduces the samples of one thread to the memory that their walks need,
// and takes the samples with a known truth.
func (c *Corpus) add(samples []*sample) {
	for _, s := range samples {
		if !s.judged {
			c.giveUp(s)
			continue
		}
		if err := c.take(s); err != nil {
			c.fail(fmt.Errorf("%s: %w", s.notes, err))
		}
	}
}

func (c *Corpus) take(s *sample) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errs := s.rec.Verify(); len(errs) > 0 {
		return fmt.Errorf("as recorded: %w", errs[0])
	}
	if err := s.rec.MinimizeBeside(&c.kept); err != nil {
		return err
	}
	if errs := s.rec.Verify(); len(errs) > 0 {
		return fmt.Errorf("reduced: %w", errs[0])
	}
	return c.kept.Merge(s.rec)
}

// Notes lists the shapes of the moments.
func (c *Corpus) Notes() (out []string) {
	for _, m := range c.kept.Moments {
		out = append(out, m.Note)
	}
	return out
}

// Write checks the corpus and writes it. A moment that could not be recorded,
// or whose second walk differs, is an error.
func (c *Corpus) Write(name string) []error {
	errs := append(slices.Clone(c.errs), c.kept.Verify()...)
	if err := c.kept.WriteFile(name); err != nil {
		errs = append(errs, err)
	}
	return errs
}
