package ecma335

import (
	"slices"
	"testing"
)

func TestStateStores(t *testing.T) {
	for _, tt := range []struct {
		name string
		il   []byte
		want []StateStore
	}{
		{"nothing", nil, nil},
		{"ldarg.0; ldc.i4.0; dup; stloc.0; stfld", []byte{2, 0x16, 0x25, 0x0a, 0x7d, 1, 0, 0, 4}, []StateStore{{4, 0}}},
		{"ldc.i4.s 12; dup; stloc.s; stfld", []byte{0x1f, 12, 0x25, 0x13, 7, 0x7d, 1, 0, 0, 4}, []StateStore{{5, 12}}},
		{"ldc.i4.m1; dup; stloc.0; stfld, ldc.i4 300; dup; stloc; stfld", []byte{
			0x15, 0x25, 0x0a, 0x7d, 1, 0, 0, 4, 0x20, 44, 1, 0, 0, 0x25, 0xfe, 0x0e, 5, 0, 0x7d, 1, 0, 0, 10,
		}, []StateStore{{3, -1}, {18, 300}}},
		{"ldc.i4.1; stfld: another field", []byte{2, 0x17, 0x7d, 2, 0, 0, 4}, nil},
		{"ldc.i4.1; dup; stloc.0; pop", []byte{0x17, 0x25, 0x0a, 0x26}, nil},
		{"a number too many", []byte{0x17, 0x25, 0x18, 0x25, 0x0a, 0x7d, 1, 0, 0, 4}, []StateStore{{5, 2}}},
	} {
		got, err := StateStores(tt.il)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
	if got, err := StateStores([]byte{0x7d, 1, 0}); err == nil {
		t.Errorf("cut off: %v", got)
	}
}

// FuzzStateStores requires that stores lie in the IL, in the order of offsets.
func FuzzStateStores(f *testing.F) {
	f.Add([]byte{2, 0x16, 0x25, 0x0a, 0x7d, 1, 0, 0, 4})
	f.Add([]byte{0x20, 44, 1, 0, 0, 0x25, 0xfe, 0x0e, 5, 0, 0x7d, 1, 0, 0, 10})
	f.Fuzz(func(t *testing.T, il []byte) {
		stores, err := StateStores(il)
		if err != nil {
			return
		}
		for i, s := range stores {
			if int(s.At) >= len(il) || i > 0 && s.At <= stores[i-1].At {
				t.Fatalf("% x: %v", il, stores)
			}
		}
	})
}
