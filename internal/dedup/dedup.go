// Package dedup keeps equal values once.
package dedup

// Table has values that differ. The zero Table is empty. It is not safe for concurrent use.
type Table[V comparable] struct {
	latest map[uint64]uint32 // by key: the value that was added last
	before []uint32          // of each value: 1 + the one with the same key that was added before it; 0: none
	values []*V
}

// sameKey bounds the values with one key that a value is compared with: what a target has in its memory could make all
// keys equal. A value that is equal to none of these is kept once more.
const sameKey = 16

// Add returns the number of a value that is equal to v, which it copies if there is none. Equal values have equal keys.
func (t *Table[V]) Add(key uint64, v *V) uint32 {
	i, ok := t.latest[key]
	before := uint32(0)
	if ok {
		before = i + 1
		for n := 0; n < sameKey; n++ {
			if *t.values[i] == *v {
				return i
			}
			if t.before[i] == 0 {
				break
			}
			i = t.before[i] - 1
		}
	}
	if t.latest == nil {
		t.latest = map[uint64]uint32{}
	}
	kept := *v
	t.values, t.before = append(t.values, &kept), append(t.before, before)
	i = uint32(len(t.values) - 1)
	t.latest[key] = i
	return i
}

// At returns a value by its number. It must not be changed.
func (t *Table[V]) At(i uint32) *V { return t.values[i] }
