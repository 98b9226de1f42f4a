package heapwalk

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"unicode/utf16"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/profile"
)

// visit sees the wanted objects of a region.
func (h *heapWalk) visit(r *heap.Region, objects []heap.Object) {
	for i := range objects {
		o := &objects[i]
		if o.Table.Addr == h.text && h.o.MaxStrings > 0 {
			h.strings.count(o)
		}
		if h.o.Type != nil {
			h.instance(r, o)
		}
	}
}

// instance keeps an object that is among the largest.
func (h *heapWalk) instance(r *heap.Region, o *heap.Object) {
	class := h.Known(o.Table.Addr)
	if !h.isChosen(o.Table.Addr) { // a string, wanted for the text
		return
	}
	h.matching.Add(profile.HeapAmount{Count: 1, Bytes: o.Size})
	h.instances = append(h.instances, profile.HeapInstance{
		Address: uint64(o.Addr), Type: class.Display, Bytes: o.Size, Generation: profile.Generation(r.Generation),
	})
	if len(h.instances) >= 2*h.maxInstances()+1000 {
		h.trim()
	}
}

func (h *heapWalk) isChosen(mt arch.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.chosen[mt]
}

func (h *heapWalk) maxInstances() int { return cmp.Or(h.o.MaxInstances, 1000) }

// trim keeps the largest instances.
func (h *heapWalk) trim() {
	slices.SortFunc(h.instances, func(a, b profile.HeapInstance) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Address, b.Address))
	})
	h.instances = h.instances[:min(len(h.instances), h.maxInstances())]
}

// describe adds what the instances stand for. The texts of strings are shown only on request.
func (h *heapWalk) describe() {
	for i := range h.instances {
		x := &h.instances[i]
		at := arch.Addr(x.Address)
		class, err := h.p.Managed.Objects.Class(at)
		if err == nil && class.Display == x.Type && class.Table != stringType(h.p) {
			x.Of = meaning(h.p, at, class)
		}
	}
}

// Bounds of the counted texts.
const (
	mostTexts   = 1 << 18
	longestText = 200 // UTF-16 units shown
)

// stringCounts counts strings by text. Only the first 64 KB of a text count.
type stringCounts struct {
	seed  maphash.Seed
	texts map[uint64]*profile.HeapString
}

// The layout of a string (object.h, StringObject): the number of UTF-16 units, then the units.
const (
	stringLength = 8
	stringChars  = 12
)

func (s *stringCounts) count(o *heap.Object) {
	if len(o.Data) < stringChars {
		return
	}
	if s.texts == nil {
		s.seed, s.texts = maphash.MakeSeed(), map[uint64]*profile.HeapString{}
	}
	n := min(2*uint64(binary.LittleEndian.Uint32(o.Data[stringLength:])), uint64(len(o.Data)-stringChars))
	chars := o.Data[stringChars : stringChars+n]
	key := maphash.Bytes(s.seed, o.Data[stringLength:stringChars+n])
	t := s.texts[key]
	if t == nil {
		if len(s.texts) >= mostTexts {
			s.forget()
		}
		t = &profile.HeapString{Text: textOf(chars), Cut: len(chars) > 2*longestText}
		s.texts[key] = t
	}
	t.Add(profile.HeapAmount{Count: 1, Bytes: o.Size})
}

// textOf returns the beginning of a string's text.
func textOf(chars []byte) string {
	u := make([]uint16, min(len(chars)/2, longestText))
	for i := range u {
		u[i] = binary.LittleEndian.Uint16(chars[2*i:])
	}
	return string(utf16.Decode(u))
}

// forget drops the texts with the fewest bytes, to make room.
func (s *stringCounts) forget() {
	sizes := make([]uint64, 0, len(s.texts))
	for _, t := range s.texts {
		sizes = append(sizes, t.Bytes)
	}
	slices.Sort(sizes)
	least := sizes[len(sizes)/2]
	for key, t := range s.texts {
		if t.Bytes <= least {
			delete(s.texts, key)
		}
	}
}

// list returns the texts with the most bytes.
func (s *stringCounts) list(most int) []profile.HeapString {
	var out []profile.HeapString
	for _, t := range s.texts {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b profile.HeapString) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Text, b.Text))
	})
	return out[:min(len(out), most)]
}
