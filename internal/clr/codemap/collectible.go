package codemap

import "clrsnap/internal/arch"

// Bounds of Collectible. Each collectible assembly has its own code heaps.
const (
	maxCollectible = 1 << 14 // range sections
	maxListed      = 1 << 18 // entries of the range section map, and fragments
	maxWords       = 1 << 20 // of nibble maps: 256 MB of code
)

// Collectible returns the starts of the methods with code that can be unloaded, at most most of them. The program
// goes on meanwhile, so some methods may be missing, or be gone. whole: no others are missing.
func (m *Map) Collectible(most int) (starts []arch.Addr, whole bool) {
	w := sampler{
		m: m, most: most, seen: map[arch.Addr]bool{}, sections: maxCollectible, entries: maxListed, tolerant: true,
	}
	words := 0
	w.visit = func(s *section) error {
		if s.flags&sectionCollectible == 0 || s.flags&sectionCodeHeap == 0 {
			return nil
		}
		return w.starts(s, &words)
	}
	if w.level(m.l.TopMap, levels-1) != nil || w.full() {
		w.lacks = true
	}
	for _, s := range w.out {
		starts = append(starts, s.Start)
	}
	return starts, !w.lacks
}

// starts takes all starts of code blocks from a nibble map.
func (w *sampler) starts(s *section, words *int) error {
	h, err := w.m.readHeap(s.heap)
	if err != nil {
		return err
	}
	if h.end < h.base {
		return corrupt("a code heap from %v to %v", h.base, h.end)
	}
	size := uint64(h.end - h.base)
	for at := uint64(0); at < size && !w.full(); at += wordBytes {
		if *words++; *words > maxWords {
			w.lacks = true
			return nil
		}
		word, err := w.m.nibbleWord(h.nibbles, at)
		if err != nil {
			return err
		}
		if _, ok := w.m.nibbleDistance(word); ok || word == 0 {
			continue
		}
		for slot := range uint64(nibblesInWord) {
			if n := nibbleAt(word, slot); n != 0 {
				start := h.base + arch.Addr(at+slot*bucketBytes+uint64(n-1)*4)
				w.out = append(w.out, Sample{JIT, start})
			}
		}
	}
	return nil
}
