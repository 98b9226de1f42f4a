package inlining

import (
	"slices"

	"clrsnap/internal/clr/codemap"
)

// imageRecord has the methods inlined into the methods of a ReadyToRun image, by rows of the MethodDef table of the
// image's module.
type imageRecord struct {
	err     error
	pairs   int
	callees map[uint32][]uint32
	foreign map[uint32]bool // methods with inlined methods of other modules
}

// Bounds of the images that are kept.
const (
	maxImages     = 1 << 10
	maxImagePairs = 1 << 20 // of one: CoreLib has a fifth of that
	maxKeptPairs  = 1 << 22 // of all: 100 MB at most, and a tenth of that of a large program
)

// imageInlinees returns the methods inlined into a method's ReadyToRun code. The result is not known for code that
// depends on more than the image's own module: for composite images, for instantiations in another module's image,
// and for methods with inlined methods of other modules.
func (r *Reader) imageInlinees(c *codemap.Code, of Definition) ([]Definition, error) {
	im, err := r.code.Image(c)
	if err != nil {
		return nil, err
	}
	if im.Module != of.Module {
		return nil, ErrUnknown
	}
	rec, ok := r.images[im.ID]
	if !ok {
		rec = r.imageRecord(c)
		if len(r.images) >= maxImages || r.pairs+rec.pairs > maxKeptPairs {
			clear(r.images)
			r.pairs = 0
		}
		r.images[im.ID] = rec
		r.pairs += rec.pairs
	}
	if rec.err != nil {
		return nil, rec.err
	}
	if rec.foreign[of.RID] {
		return nil, ErrUnknown
	}
	out := make([]Definition, 0, len(rec.callees[of.RID]))
	for _, rid := range rec.callees[of.RID] {
		if d := (Definition{im.Module, rid}); !slices.Contains(out, d) {
			out = append(out, d)
		}
		if len(out) > maxNodes {
			return nil, ErrUnknown // graph has no room for more
		}
	}
	return out, nil
}

func (r *Reader) imageRecord(c *codemap.Code) imageRecord {
	b, cross, err := r.code.Inlining(c)
	switch {
	case err != nil:
		return imageRecord{err: err}
	case cross || b == nil:
		return imageRecord{err: ErrUnknown}
	}
	return decodeInlining(b)
}

// decodeInlining reads a hash table of inlined methods (nativeformatreader.h, NativeHashtable): a byte with the
// widths, the beginning of each bucket, and for each entry a byte of its hash and its place. An entry is a list of
// numbers: the number of numbers that follow, the inlined method, and the callers with the method inlined, each as
// the distance to the number before. The low bit of a method tells that the number of another module follows
// (inlinetracking.cpp, PersistentInlineTrackingMapR2R2::GetInliners).
func decodeInlining(b []byte) (rec imageRecord) {
	rec = imageRecord{callees: map[uint32][]uint32{}, foreign: map[uint32]bool{}}
	n := numbers{b: b}
	head := n.byte()
	const maxShift = 24
	shift, width := head>>2, head&3
	if shift > maxShift || width > 2 {
		return imageRecord{err: corrupt("a hash table of 2^%d buckets", shift)}
	}
	base := uint64(n.at)
	index := func(bucket uint64) uint64 {
		i := numbers{b: b, at: int(base + bucket<<width)}
		v := base + uint64(i.fixed(1<<width))
		n.bad = n.bad || i.bad
		return v
	}
	left := len(b)
	for bucket := range uint64(1) << shift {
		n.at = int(min(index(bucket), uint64(len(b))))
		end := index(bucket + 1)
		for uint64(n.at) < end && !n.bad {
			n.byte() // of the hash
			from := n.at
			e := numbers{b: b, at: from + int(n.signed())}
			if left -= e.entry(&rec); left < 0 || e.bad {
				return imageRecord{err: corrupt("the list of inlined methods is no list")}
			}
			if rec.pairs > maxImagePairs {
				return imageRecord{err: corrupt("more than %d methods were inlined", maxImagePairs)}
			}
		}
		if n.bad {
			return imageRecord{err: corrupt("the list of inlined methods ends early")}
		}
	}
	return rec
}

// entry reads an entry, and returns its length in bytes.
func (n *numbers) entry(rec *imageRecord) int {
	start := n.at
	left := n.unsigned()
	next := func() (v uint32, foreign bool) {
		if left == 0 {
			n.bad = true
			return 0, false
		}
		left--
		v = n.unsigned()
		if foreign = v&1 != 0; foreign {
			if left == 0 {
				n.bad = true
			}
			left--
			n.unsigned() // the module
		}
		return v >> 1, foreign
	}
	callee, foreign := next()
	inliner := uint32(0)
	for left > 0 && !n.bad && rec.pairs <= maxImagePairs {
		delta, other := next()
		inliner += delta
		rec.pairs++
		switch {
		case other: // a method of another module
		case foreign:
			rec.foreign[inliner] = true
		default:
			rec.callees[inliner] = append(rec.callees[inliner], callee)
		}
	}
	return max(n.at-start, 1)
}

// numbers reads numbers of a ReadyToRun image. The set low bits of a number's first byte give the number of bytes
// that follow.
type numbers struct {
	b   []byte
	at  int
	bad bool
}

func (n *numbers) byte() byte { return byte(n.fixed(1)) }

// fixed reads a number of so many bytes.
func (n *numbers) fixed(size int) (v uint32) {
	if n.at < 0 || n.at > len(n.b)-size {
		n.bad = true
		return 0
	}
	for i := range size {
		v |= uint32(n.b[n.at+i]) << (8 * i)
	}
	n.at += size
	return v
}

// encoded reads a number, and returns the number's length in bits, too.
func (n *numbers) encoded() (v uint32, bits int) {
	first := n.byte()
	more := 0
	for more < 4 && first&(1<<more) != 0 {
		more++
	}
	if more == 4 {
		n.bad = n.bad || first&(1<<more) != 0
		return n.fixed(4), 32
	}
	return uint32(first)>>(more+1) | n.fixed(more)<<(7-more), 7 + 7*more
}

func (n *numbers) unsigned() uint32 {
	v, _ := n.encoded()
	return v
}

func (n *numbers) signed() int32 {
	v, bits := n.encoded()
	return int32(v<<(32-bits)) >> (32 - bits)
}
