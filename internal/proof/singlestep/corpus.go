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

// Corpus collects moments on purpose: the first of each shape, with the true
// frames as what a walk must give. A moment is kept only where the walk was equal
// to the truth; the others are misses.
type Corpus struct {
	mu      sync.Mutex
	seen    map[string]bool
	odd     map[string]string // functions in assembly, by module and offset
	moments int               // taken, and of these:
	common  int               // that show nothing but ordinary shapes
	kept    replay.Corpus
	errs    []error
}

// A corpus is kept in the repository, and so has bounds: in all, and for moments
// that show no more than a part of a function that occurs all the time.
const (
	maxMoments  = 120
	maxOrdinary = 44
)

// OpenCorpus returns the corpus in a file, to be added to, or an empty one where
// there is no such file. What is rare takes several runs.
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

// noteSeparator is between the shapes that a moment shows.
const noteSeparator = "; "

// sample is a moment that is not part of the corpus yet.
type sample struct {
	rec    *replay.Corpus
	thread *replay.Thread
	notes  []string
	judged bool // its truth is known, and the walk was equal to it
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

// giveUp: the moment could not be used, the next one with these shapes may.
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

// sample records the moment if it shows something new.
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
		// Nobody knows what these have to give.
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

// settle puts the truth in the place of what the walk gave.
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

// recorded is the thread as it stands, for a corpus.
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

// add reduces the samples of one thread to what their walks need and takes those
// whose truth is known.
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

// Notes lists what the moments show.
func (c *Corpus) Notes() (out []string) {
	for _, m := range c.kept.Moments {
		out = append(out, m.Note)
	}
	return out
}

// Write checks the corpus and writes it. Moments that could not be recorded, or
// that walk differently again, are errors.
func (c *Corpus) Write(name string) []error {
	errs := append(slices.Clone(c.errs), c.kept.Verify()...)
	if err := c.kept.WriteFile(name); err != nil {
		errs = append(errs, err)
	}
	return errs
}
