package heapwalk

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"unicode/utf16"

	"clrsnap/internal/clr/heap"
	"clrsnap/snapshot"
)

// Bounds of the counted texts.
const (
	mostTexts   = 1 << 18
	longestText = 200 // UTF-16 units shown
)

// stringCounts counts strings by text. Only the first 64 KB of a text count.
type stringCounts struct {
	seed  maphash.Seed
	texts map[uint64]*snapshot.HeapString
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
		s.seed, s.texts = maphash.MakeSeed(), map[uint64]*snapshot.HeapString{}
	}
	n := min(2*uint64(binary.LittleEndian.Uint32(o.Data[stringLength:])), uint64(len(o.Data)-stringChars))
	chars := o.Data[stringChars : stringChars+n]
	key := maphash.Bytes(s.seed, o.Data[stringLength:stringChars+n])
	t := s.texts[key]
	if t == nil {
		if len(s.texts) >= mostTexts {
			s.forget()
		}
		t = &snapshot.HeapString{Text: textOf(chars), Cut: len(chars) > 2*longestText}
		s.texts[key] = t
	}
	t.Add(snapshot.HeapAmount{Count: 1, Bytes: o.Size})
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
func (s *stringCounts) list(most int) []snapshot.HeapString {
	var out []snapshot.HeapString
	for _, t := range s.texts {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b snapshot.HeapString) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Text, b.Text))
	})
	return out[:min(len(out), most)]
}
