package record

import (
	"slices"
	"testing"

	"clrsnap/internal/naming"
)

// TestAddProved: the inlined methods of one process at a call are shown only if every process with
// that call has them.
func TestAddProved(t *testing.T) {
	pair := callPair{1, 2}
	known := map[callPair]naming.Call{pair: {Callee: 7}}
	type process struct {
		own   []int32 // nil: the process has ended, or nothing was proved
		calls map[callPair]naming.Call
	}
	for _, tt := range []struct {
		name string
		all  []process
		want []int32
	}{
		{"one", []process{{[]int32{5}, known}}, []int32{5}},
		{"the same", []process{{[]int32{5}, known}, {[]int32{5}, known}}, []int32{5}},
		{"another without the call", []process{{[]int32{5}, known}, {nil, nil}}, []int32{5}},
		{"other code", []process{{[]int32{5}, known}, {[]int32{6}, known}, {[]int32{5}, known}}, nil},
		{"one that has ended", []process{{[]int32{5}, known}, {nil, known}}, nil},
		{"one that had ended", []process{{nil, known}, {[]int32{5}, known}}, nil},
		{"ambiguous", []process{{[]int32{5}, known}, {nil, map[callPair]naming.Call{pair: {}}}}, nil},
	} {
		found := map[callPair][]int32{}
		for _, p := range tt.all {
			own := map[callPair][]int32{}
			if p.own != nil {
				own[pair] = p.own
			}
			addProved(found, own, p.calls)
		}
		if got := found[pair]; !slices.Equal(got, tt.want) {
			t.Errorf("%s: %d", tt.name, got)
		}
	}
}
