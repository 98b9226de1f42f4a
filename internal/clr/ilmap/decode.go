package ilmap

import "encoding/binary"

// maxEncoded is the greatest number of nibbles of an encoded 32-bit number.
const maxEncoded = 11

// nibbles reads numbers from a stream of nibbles: the low nibble of a byte first. A number has 3 bits in each nibble,
// the highest bits first; the fourth bit tells that another nibble follows (nibblestream.h).
type nibbles struct {
	b   []byte
	at  int // in nibbles
	bad bool
}

func (r *nibbles) number() uint32 {
	v := uint64(0)
	for range maxEncoded {
		if r.at/2 >= len(r.b) {
			break
		}
		n := r.b[r.at/2] >> (4 * (r.at % 2)) & 0xf
		r.at++
		v = v<<3 | uint64(n&7)
		if n&8 == 0 {
			r.bad = r.bad || v > 0xffff_ffff
			return uint32(v)
		}
	}
	r.bad = true
	return 0
}

// nextByte returns the index of the first byte behind the numbers.
func (r *nibbles) nextByte() int { return (r.at + 1) / 2 }

// header has the place of the points that fit the running code, and of the parts behind the points. Sizes are in
// bytes.
type header struct {
	at, size uint32 // of the points
	vars     uint32 // size of the variables behind the points; 0: there are none, or their place is not known
	async    uint32 // distance of the suspension points from the variables' end
	asyncs   uint32 // size of the suspension points; 0: there are none
	rich     uint32 // size of the inlined methods in front of the suspension points; 0: there are none
}

// hasInstrumented, in place of the size of the points, tells that there are two lists of points: for the running
// code, with its instrumentation, and for the code without.
const hasInstrumented = 0xffff_ffff

// readHeader reads the sizes before the points. A fat header has the sizes of the points, the variables, the points
// without instrumentation, patchpoints, inlined methods, and suspension points; the parts follow in this order
// (DebugInfo.md).
func readHeader(b []byte, f form) (h header, err error) {
	r := nibbles{b: b}
	h.size = r.number()
	switch {
	case f.fat && h.size == 0:
		h.size, h.vars = r.number(), r.number()
		between := uint64(r.number()) + uint64(r.number())
		h.rich = r.number()
		between += uint64(h.rich)
		if h.asyncs = r.number(); between > maxBetween {
			return h, corrupt("%d bytes between variables and suspension points", between)
		}
		h.async = uint32(between)
	case f.extra && f.packed != 0 && h.size == hasInstrumented:
		h.size = r.number()
		r.number()
		r.number()
	default:
		h.vars = r.number()
	}
	if r.bad {
		return h, corrupt("its header is no header")
	}
	h.at = uint32(r.nextByte())
	return h, nil
}

// maxBetween bounds the bytes between variables and suspension points.
const maxBetween = 1 << 26

// ilBias is added to an IL offset in the encoding, so that NoMapping, Prolog and Epilog are small numbers, too.
const ilBias = NoMapping - Epilog + 1

// maxPoints bounds the points of one method.
const maxPoints = 1 << 17

// decode reads a list of points.
func decode(b []byte, f form) (Map, error) {
	r := nibbles{b: b}
	n := r.number()
	if r.bad || n > maxPoints || uint64(n) > uint64(len(b))*8 {
		return nil, corrupt("%d points in %d bytes", n, len(b))
	}
	if f.packed == 0 {
		return decodeNibbles(&r, n)
	}
	w := widths{flags: f.packed, native: uint(r.number()) + 1, il: uint(r.number()) + 1}
	if r.bad || w.native > 32 || w.il > 32 {
		return nil, corrupt("points of %d and %d bits", w.native, w.il)
	}
	return decodePacked(b[r.nextByte():], n, w)
}

// Flags of a point in nibbles (cordebuginfo.h, enum SourceTypes, as of .NET 8 and 9).
const (
	sourceStackEmpty = 2
	sourceCall       = 0x10
)

func decodeNibbles(r *nibbles, n uint32) (Map, error) {
	out := make(Map, 0, min(n, uint32(len(r.b))))
	native := uint64(0)
	for range n {
		native += uint64(r.number())
		il := r.number() - ilBias
		source := r.number()
		if r.bad || native > 0xffff_ffff {
			return nil, corrupt("point %d of %d", len(out), n)
		}
		out = append(out, Point{
			Native: uint32(native), IL: il, Call: source&sourceCall != 0, StackEmpty: source&sourceStackEmpty != 0,
		})
	}
	return out, nil
}

// widths are the numbers of bits of each part of a packed point, the lowest bits first.
type widths struct{ flags, native, il uint }

// Flags of a packed point.
const (
	packedCall       = 1
	packedStackEmpty = 2
	packedAsync      = 4
)

func decodePacked(b []byte, n uint32, w widths) (Map, error) {
	if bits := uint64(n) * uint64(w.flags+w.native+w.il); bits > uint64(len(b))*8 {
		return nil, corrupt("%d points of %d bits in %d bytes", n, w.flags+w.native+w.il, len(b))
	}
	out := make(Map, 0, n)
	at, native := uint(0), uint64(0)
	take := func(bits uint) uint32 {
		v := bitsAt(b, at, bits)
		at += bits
		return v
	}
	for range n {
		flags := take(w.flags)
		native += uint64(take(w.native))
		il := take(w.il) - ilBias
		if native > 0xffff_ffff {
			return nil, corrupt("point %d of %d", len(out), n)
		}
		out = append(out, Point{
			Native: uint32(native), IL: il, Call: flags&packedCall != 0,
			StackEmpty: flags&packedStackEmpty != 0, Async: flags&packedAsync != 0,
		})
	}
	return out, nil
}

// bitsAt returns up to 32 bits of b, from a bit on.
func bitsAt(b []byte, at, bits uint) uint32 {
	var word [8]byte
	copy(word[:], b[at/8:])
	v := binary.LittleEndian.Uint64(word[:]) >> (at % 8)
	return uint32(v & (1<<bits - 1))
}
