package ilmap

import (
	"errors"
	"slices"
	"testing"
)

// suspensions are two points, at 40 and 25. The first point saves the argument 1, and the variable 2 of a method with
// two arguments; the second point saves the hidden argument of shared generic code.
var suspensions = encodeVariables(2, 3, 40<<1, 2, 15<<1|1, 1, 1+biased11, 32, 4+biased11, 40, biased11-3, 48)

const biased11 = 6

func TestSaved(t *testing.T) {
	for _, tt := range []struct {
		number int32
		native uint32
		want   []Saved
	}{
		{0, 40, []Saved{{1, 32}, {4, 40}}}, {1, 25, []Saved{{ContextVariable, 48}}},
		{0, 25, nil}, {1, 40, nil}, {2, 25, nil}, {-1, 40, nil},
	} {
		if got, err := saved(suspensions, tt.number, tt.native); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%d at %d: %v, %v, want %v", tt.number, tt.native, got, err, tt.want)
		}
	}
	for _, b := range [][]byte{nil, suspensions[:3], suspensions[:len(suspensions)-1], encodeVariables(1<<30, 1)} {
		if _, err := saved(b, 0, 40); !errors.Is(err, ErrCorrupt) {
			t.Errorf("% x: %v", b, err)
		}
	}
}

func FuzzSaved(f *testing.F) {
	f.Add(suspensions, int32(0), uint32(40))
	f.Fuzz(func(t *testing.T, b []byte, number int32, native uint32) {
		if got, err := saved(b, number, native); len(got) > 2*len(b) || err != nil && got != nil {
			t.Errorf("%v, %v", got, err)
		}
	})
}
