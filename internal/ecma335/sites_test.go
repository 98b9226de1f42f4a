package ecma335

import (
	"reflect"
	"testing"
)

func TestSites(t *testing.T) {
	for _, tt := range []struct {
		name string
		il   []byte
		want []Site
	}{
		{"nothing", nil, nil},
		{"ldc.i4.1; call; add; ret", []byte{0x17, 0x28, 7, 0, 0, 6, 0x58, 0x2a}, []Site{{1, 0x06000007}}},
		{"constrained. callvirt", []byte{0xfe, 0x16, 2, 0, 0, 2, 0x6f, 9, 0, 0, 10, 0x2a}, []Site{{6, 0x0a000009}}},
		{"newobj; ldsfld; stsfld; calli", []byte{
			0x73, 1, 0, 0, 6, 0x7e, 1, 0, 0, 4, 0x80, 2, 0, 0, 4, 0x29, 1, 0, 0, 0x11,
		}, []Site{{0, 0x06000001}, {5, 0}, {10, 0}, {15, 0}}},
		{"switch of two; box", []byte{0x45, 2, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x8c, 1, 0, 0, 1}, []Site{{13, 0}}},
	} {
		got, err := Sites(tt.il)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
	for _, il := range [][]byte{{0x28, 1, 2}, {0xfe}, {0x24}, {0x45, 0xff, 0xff, 0xff, 0xff}, {0x45, 2, 0, 0, 0, 1}} {
		if got, err := Sites(il); err == nil {
			t.Errorf("% x: %v", il, got)
		}
	}
}

// FuzzSites requires that sites lie in the IL, in the order of offsets.
func FuzzSites(f *testing.F) {
	f.Add([]byte{0x17, 0x28, 7, 0, 0, 6, 0x58, 0x2a})
	f.Add([]byte{0x45, 2, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x8c, 1, 0, 0, 1})
	f.Fuzz(func(t *testing.T, il []byte) {
		sites, err := Sites(il)
		if err != nil {
			return
		}
		for i, s := range sites {
			if int(s.At) >= len(il) || i > 0 && s.At <= sites[i-1].At {
				t.Fatalf("% x: %v", il, sites)
			}
		}
	})
}
