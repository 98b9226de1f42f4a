package heap

import (
	"hash/maphash"

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

// Begun returns that of the last Begin.
func (r *Reader) Begun() Stamp { return stampOf(r.kept.stamp) }
