package dedup

import "testing"

type pair struct {
	a int
	b string
}

func TestTable(t *testing.T) {
	var table Table[pair]
	add := func(key uint64, a int, b string) uint32 { return table.Add(key, &pair{a, b}) }
	one, other := add(1, 1, "one"), add(1, 2, "other")
	if one == other || add(1, 1, "one") != one || add(1, 2, "other") != other {
		t.Error("equal values with one key have several numbers, or others have the same")
	}
	elsewhere := add(2, 3, "elsewhere")
	if add(1, 1, "one") != one || add(2, 3, "elsewhere") != elsewhere {
		t.Error("a value with another key has changed numbers")
	}
	for i, want := range map[uint32]pair{one: {1, "one"}, other: {2, "other"}, elsewhere: {3, "elsewhere"}} {
		if got := *table.At(i); got != want {
			t.Errorf("value %d is %v, want %v", i, got, want)
		}
	}
}

// TestTableBounds adds many values with one key: few values are compared, and all are kept.
func TestTableBounds(t *testing.T) {
	var table Table[pair]
	for i := range 10 * sameKey {
		if n := table.Add(0, &pair{a: i}); table.At(n).a != i {
			t.Fatalf("value %d is %v", i, table.At(n))
		}
	}
	last := uint32(10*sameKey - 1)
	if n := table.Add(0, &pair{a: int(last)}); n != last {
		t.Errorf("the latest value has number %d, and again %d", last, n)
	}
	if n := table.Add(0, &pair{a: 0}); n != last+1 {
		t.Errorf("%d values were compared", 10*sameKey)
	}
}
