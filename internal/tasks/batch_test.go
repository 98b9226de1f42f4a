package tasks

import (
	"errors"
	"fmt"
	"testing"

	"clrsnap/internal/arch"
)

// batchTry is memory that changes at some of the looks.
type batchTry struct {
	torn    func(look int) bool
	room    int // objects that are read together at most
	looks   int
	reads   int
	most    int // objects that were read together
	single  int
	current int // of this look
}

func (m *batchTry) batch(read func(arch.Addr) (string, error)) *batch[string] {
	count := func(obj arch.Addr) (string, error) {
		m.reads++
		m.current++
		return read(obj)
	}
	return &batch[string]{
		read: count,
		once: func(read func() error) bool {
			m.looks++
			m.current = 0
			ok := read() == nil
			m.most = max(m.most, m.current)
			return ok && !m.torn(m.looks)
		},
		alone: func(read func() error) bool {
			m.single++
			return read() == nil
		},
		crowded: func() bool { return m.current >= m.room },
		size:    1,
	}
}

// TestBatch: each object is read once more by itself where the memory has changed, or where the object cannot be read,
// and the number of reads stays within twice the number of objects.
func TestBatch(t *testing.T) {
	never := func(int) bool { return false }
	bad := errors.New("not an object")
	const n = 1000
	for _, test := range []struct {
		name string
		try  batchTry
		most int
		want func(m *batchTry) bool
	}{
		{"nothing changes", batchTry{torn: never, room: n}, maxBatch, func(m *batchTry) bool { return m.looks <= 24 }},
		{"little room", batchTry{torn: never, room: 5}, 5, func(m *batchTry) bool { return m.looks <= n/5+8 }},
		{"no room", batchTry{torn: never, room: 1}, 1, func(m *batchTry) bool { return m.reads <= 2*n }},
		{"everything changes", batchTry{torn: func(int) bool { return true }, room: n}, 2,
			func(m *batchTry) bool { return m.single == n }},
		{"every third look changes", batchTry{torn: func(n int) bool { return n%3 == 0 }, room: n}, maxBatch,
			func(m *batchTry) bool { return m.single < n*2/3 }},
	} {
		var objs []arch.Addr
		for i := range n {
			objs = append(objs, arch.Addr(i))
		}
		b := test.try.batch(func(obj arch.Addr) (string, error) {
			if obj%100 == 7 {
				return "", bad
			}
			return fmt.Sprint(uint64(obj)), nil
		})
		var got []string
		for left := objs; len(left) > 0; {
			out, stands := b.some(left)
			if len(out) == 0 {
				t.Fatal(test.name, "nothing was read")
			}
			for i := range out {
				if stands[i] != (left[i]%100 != 7) {
					t.Errorf("%s: object %d stands: %v", test.name, left[i], stands[i])
				}
				got = append(got, out[i])
			}
			left = left[len(out):]
		}
		m := &test.try
		if m.most != test.most || m.reads > 2*n+maxBatch || !test.want(m) {
			t.Errorf("%s: %+v", test.name, *m)
		}
		for i := range objs {
			want := fmt.Sprint(i)
			if i%100 == 7 {
				want = ""
			}
			if got[i] != want {
				t.Errorf("%s: object %d is %q", test.name, i, got[i])
			}
		}
	}
}
