// Package dedup keeps equal values once.
package dedup

// Table has different values. The zero Table is empty. A Table is not safe for concurrent use.
type Table[V comparable] struct {
	latest map[uint64]uint32 // by key: the latest value
	before []uint32          // of each value: 1 + the previous value with the same key; 0: none
	values []*V
}

// sameKey bounds the comparisons of a value with other values of its key: a target's memory could make all keys
// equal. A value that equals none of the compared values is kept once more.
const sameKey = 16

// Add returns the number of a value equal to v. If there is none, Add copies v. Equal values have equal keys.
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

// At returns a value by its number. The caller must not change the value.
func (t *Table[V]) At(i uint32) *V { return t.values[i] }
