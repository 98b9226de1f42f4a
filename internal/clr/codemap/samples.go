package codemap

import (
	"clrsnap/internal/arch"
)

const (
	maxSampled    = 1 << 10 // range sections that Samples looks at
	maxEntries    = 1 << 16 // of the range section map, and fragments, likewise
	samplesPerMap = 4       // from one image or heap
	maxSlots      = 1 << 10 // hash buckets and nibble words looked at, likewise
)

// Sample is the start of a method.
type Sample struct {
	Kind  Kind
	Start arch.Addr
}

// Samples returns starts of methods, at most most of them: a few from each ReadyToRun image and from each code heap
// that cannot be unloaded. Samples reads the index in the opposite direction to Lookup, so that Samples and Lookup
// can be checked against each other. No samples without an error: there is no such code.
func (m *Map) Samples(most int) ([]Sample, error) {
	w := sampler{m: m, most: most, seen: map[arch.Addr]bool{}, sections: maxSampled, entries: maxEntries}
	w.visit = func(s *section) error {
		if s.flags&sectionCollectible != 0 {
			return nil
		}
		return w.section(s)
	}
	err := w.level(m.l.TopMap, levels-1)
	if err == nil && len(w.out) == 0 && w.full() {
		err = corrupt("no code in %d entries of the range section map", w.work)
	}
	return w.out, err
}

type sampler struct {
	m     *Map
	most  int
	visit func(*section) error
	seen  map[arch.Addr]bool // range sections
	work  int                // entries and fragments
	out   []Sample

	sections, entries int // bounds of seen and of work

	tolerant, lacks bool // unreadable parts are left out; some were left out
}

// failed returns the error that the caller has to return for err.
func (w *sampler) failed(err error) error {
	if err == nil || !w.tolerant {
		return err
	}
	w.lacks = true
	return nil
}

func (w *sampler) full() bool {
	return len(w.out) >= w.most || len(w.seen) >= w.sections || w.work >= w.entries
}

// level visits one array of the range section map.
func (w *sampler) level(at arch.Addr, level int) error {
	for i := range arch.Addr(1 << levelBits) {
		if w.full() {
			return nil
		}
		p, err := w.m.mem.Pointer(at + 8*i)
		if err != nil {
			return w.failed(err)
		}
		if w.work++; p&^pointerFlag == 0 {
			continue
		}
		p &^= pointerFlag
		if level > 0 {
			err = w.level(p, level-1)
		} else {
			err = w.fragments(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *sampler) fragments(p arch.Addr) error {
	for ; p != 0 && !w.full(); w.work++ {
		at, err := w.m.mem.Pointer(p + arch.Addr(w.m.l.FragSection))
		if err != nil {
			return w.failed(err)
		}
		begin, err := w.m.mem.Pointer(p + arch.Addr(w.m.l.FragBegin))
		if err != nil {
			return w.failed(err)
		}
		if !w.seen[at] {
			w.seen[at] = true
			s, ok, err := w.m.readSection(at, begin)
			if err == nil && ok {
				err = w.visit(&s)
			}
			if err = w.failed(err); err != nil {
				return err
			}
		}
		if p, err = w.m.mem.Pointer(p + arch.Addr(w.m.l.FragNext)); err != nil {
			return w.failed(err)
		}
		p &^= pointerFlag
	}
	return nil
}

func (w *sampler) section(s *section) error {
	switch {
	case s.r2rModule != 0:
		return w.image(s)
	case s.flags&sectionCodeHeap != 0:
		return w.heap(s)
	}
	return nil
}

// image takes entry points from the hash map of the methods that have been prepared to run.
func (w *sampler) image(s *section) error {
	im, err := w.m.image(s.r2rModule)
	if err != nil {
		return err
	}
	if _, _, err := w.m.r2rSection(im, r2rExceptionInfo); err != nil {
		return err
	}
	if size := uint64(s.end - s.begin); im.thunkLo > im.thunkEnd || im.thunkEnd > size {
		return corrupt("delay-load thunks at %#x to %#x of an image of %#x bytes", im.thunkLo, im.thunkEnd, size)
	}
	buckets, err := w.m.mem.Pointer(im.info + arch.Addr(w.m.l.R2RMethods) + arch.Addr(w.m.l.MapBuckets))
	if err != nil || buckets == 0 {
		return err
	}
	size, err := w.m.mem.Uint32(buckets)
	if err != nil {
		return err
	}
	if size < 2 || size > maxBuckets {
		return corrupt("a hash map of %d buckets at %v", size, buckets)
	}
	for i, n := arch.Addr(1), 0; i <= arch.Addr(min(size, maxSlots)) && n < samplesPerMap; i++ {
		key, err := w.m.mem.Pointer(buckets + arch.Addr(w.m.l.BucketSize)*i + arch.Addr(w.m.l.BucketKeys))
		if err != nil {
			return err
		}
		if key.In(s.begin, s.end) {
			w.out = append(w.out, Sample{ReadyToRun, key})
			n++
		}
	}
	return nil
}

// heap takes the starts of code blocks from the nibble map.
func (w *sampler) heap(s *section) error {
	h, err := w.m.readHeap(s.heap)
	if err != nil {
		return err
	}
	for i, n := uint64(0), 0; i < maxSlots && n < samplesPerMap && i*wordBytes < uint64(h.end-h.base); i++ {
		word, err := w.m.nibbleWord(h.nibbles, i*wordBytes)
		if err != nil {
			return err
		}
		if _, ok := w.m.nibbleDistance(word); ok {
			continue
		}
		d, ok := lastStart(word, nibblesInWord)
		if start := h.base + arch.Addr(i*wordBytes+d); ok {
			header, err := w.m.mem.Pointer(start - headerSlot)
			if err != nil {
				return err
			}
			if uint64(header) > w.m.l.StubLast {
				w.out = append(w.out, Sample{JIT, start})
				n++
			}
		}
	}
	return nil
}
