package replay

import (
	"slices"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/target/recorded"
)

// TestFragments: memory beside the pages is readable exactly as far as recorded.
func TestFragments(t *testing.T) {
	s := source{r: &Corpus{}, m: &Moment{
		Memory: recorded.NewPages(), Fragments: []target.Region{{Base: 0x1010, Data: []byte{1, 2, 3, 4}}},
	}}
	for _, tt := range []struct {
		at   arch.Addr
		want []byte // nil: an error
		n    int
	}{
		{0x1010, []byte{1, 2, 3, 4}, 4}, {0x1011, []byte{2, 3}, 2}, {0x1013, []byte{4}, 1}, {0x1014, []byte{}, 0},
		{0x100f, nil, 2}, {0x1011, nil, 4}, {0x1000, nil, 1},
	} {
		p := make([]byte, tt.n)
		switch err := s.ReadMemory(p, tt.at); {
		case tt.want == nil && err == nil:
			t.Errorf("%d bytes at %v are %v", tt.n, tt.at, p)
		case tt.want != nil && (err != nil || !slices.Equal(p, tt.want)):
			t.Errorf("%d bytes at %v are %v, %v; want %v", tt.n, tt.at, p, err, tt.want)
		}
	}
}

// TestMerge: a file in both corpora gets the greater length.
func TestMerge(t *testing.T) {
	for _, sizes := range [][2]int64{{10, 20}, {20, 10}} {
		corpus := func(size int64) *Corpus {
			return &Corpus{Files: []*recorded.File{{
				Path: "/a", Dev: 2, Inode: 3, Size: size, Pages: recorded.NewPages(),
			}}}
		}
		r := corpus(sizes[0])
		if err := r.Merge(corpus(sizes[1])); err != nil {
			t.Fatal(err)
		}
		if len(r.Files) != 1 || r.Files[0].Size != 20 {
			t.Errorf("sizes %v: %d files, the first with %d bytes", sizes, len(r.Files), r.Files[0].Size)
		}
	}
}
