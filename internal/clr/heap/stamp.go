package heap

import (
	"hash/maphash"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Stamp stands for what every collection that moves objects changes. Of two moments with equal ones, no object has been
// moved between. 0: it is not known, or objects are being moved.
type Stamp uint64

var stampSeed = maphash.MakeSeed()

func stampOf(b []byte) Stamp {
	if len(b) == 0 {
		return 0
	}
	return Stamp(maphash.Bytes(stampSeed, b))
}

// Stamp returns that of now.
func (r *Reader) Stamp(now target.Memory) Stamp {
	var l look
	if !r.Settled(now) || r.look(target.NewReader(now), &l) != nil {
		return 0
	}
	return stampOf(l.stamp)
}

// oldest returns a stamp of what the collector keeps of the oldest generation, heap by heap: how much of its free space
// has been given to objects, which piece of that is being filled, how much is free, which regions it has. All of that
// changes when objects are moved into the generation (gc.cpp, allocate_in_older_generation) or within it (plan_phase),
// before the collector says that it moves nothing any more. So it is a sequence lock: what is read between two equal
// stamps, both taken while nothing moves, has not been moved, and nothing has been moved there. Allocation by threads
// does not change it. 0: it is not known.
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

// Begun returns that of the last Begin.
func (r *Reader) Begun() Stamp { return stampOf(r.kept.stamp) }
