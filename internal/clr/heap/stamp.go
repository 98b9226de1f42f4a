package heap

import (
	"hash/maphash"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Stamp stands for the collector's record, which every collection that moves objects changes. If the Stamps of two
// moments are equal, no object has been moved in between. 0: the record is not known, or objects are being moved.
type Stamp uint64

var stampSeed = maphash.MakeSeed()

func stampOf(b []byte) Stamp {
	if len(b) == 0 {
		return 0
	}
	return Stamp(maphash.Bytes(stampSeed, b))
}

// Stamp returns the present stamp.
func (r *Reader) Stamp(now target.Memory) Stamp {
	if !r.stamped(now) {
		return 0
	}
	return stampOf(r.again.stamp)
}

// oldest returns a stamp of the collector's record of the oldest generation, heap by heap: the amount of free space
// that has been given to objects, the piece of free space that is being filled, the amount of free bytes, the
// regions. All parts change when objects are moved into the generation (gc.cpp, allocate_in_older_generation) or
// within the generation (plan_phase), before the collector says that the move has ended. So the stamp is a sequence
// lock: take two stamps while nothing moves. If the stamps are equal, no object was moved within the generation or
// into the generation in between. Allocation by threads does not change the stamp. 0: not known.
func (r *Reader) oldest() Stamp {
	t, err := r.described()
	if err != nil {
		return 0
	}
	n := uint32(0)
	if t.count != 0 {
		if n, err = r.mem.Uint32(t.count); err != nil || n > maxHeaps {
			return 0
		}
	}
	var l look
	if t.addresses(r.mem, int(n), &l) != nil || t.size == 0 || t.generations <= uint64(Gen2) {
		return 0
	}
	all := make([]byte, len(l.heaps)*int(t.size))
	for i := range l.heaps {
		part := all[i*int(t.size):][:t.size]
		if r.mem.ReadMemory(part, l.heaps[i].generations+arch.Addr(Gen2)*arch.Addr(t.size)) != nil {
			return 0
		}
	}
	return stampOf(all)
}

// Begun returns the stamp of the last Begin.
func (r *Reader) Begun() Stamp { return stampOf(r.kept.stamp) }
