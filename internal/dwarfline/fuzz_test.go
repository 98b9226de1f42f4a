package dwarfline

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/elfx"
	"clrsnap/internal/testenv"
)

// sections are those of a file that is made for a test.
type sections map[string][]byte

func (s sections) open(name string) (io.ReaderAt, int64, error) {
	b, ok := s[name]
	if !ok || len(b) == 0 {
		return nil, 0, elfx.ErrNotFound
	}
	return bytes.NewReader(b), int64(len(b)), nil
}

var names = []string{".debug_line", ".debug_line_str", ".debug_str", ".debug_info", ".debug_abbrev"}

// stored returns the sections of the files in testdata.
func stored(t testing.TB) map[string]sections {
	t.Helper()
	files, err := filepath.Glob("testdata/*.debug")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	out := map[string]sections{}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		image, err := elfx.New(f)
		if err != nil {
			t.Fatal(err)
		}
		s := sections{}
		for _, name := range names {
			if r, size, err := image.DebugSection(name, 1<<20); err == nil {
				s[name], _ = io.ReadAll(io.NewSectionReader(r, 0, size))
			}
		}
		out[filepath.Base(file)] = s
		f.Close()
	}
	return out
}

func free(int64) error { return nil }

// TestStored: the lines of the functions in testdata, as readelf --debug-dump=decodedline has them.
func TestStored(t *testing.T) {
	for file, s := range stored(t) {
		table := New(s.open, free)
		lines := map[int]bool{}
		for a := arch.Addr(0x1000); a < 0x1400; a++ {
			l, err := table.Lookup(a)
			if errors.Is(err, ErrNone) {
				continue
			}
			if err != nil || l.File != "/build/shop.c" {
				t.Fatalf("%s: %#x: %+v, %v", file, uint64(a), l, err)
			}
			lines[l.Line] = true
		}
		for _, want := range []int{2, 3, 4} {
			if !lines[want] {
				t.Errorf("%s: no code of line %d; of %v", file, want, lines)
			}
		}
	}
}

// TestRefused: what a file may not make us keep, or lacks, has no line.
func TestRefused(t *testing.T) {
	s := stored(t)["v5.debug"]
	full := errors.New("no room")
	_, err := New(s.open, func(int64) error { return full }).Lookup(0x1100)
	if !errors.Is(err, full) || !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	if _, err := New(sections{}.open, free).Lookup(0x1100); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	for _, lacks := range names[1:2] {
		less := sections{}
		for name, b := range s {
			if name != lacks {
				less[name] = b
			}
		}
		found := false
		table := New(less.open, free)
		for a := arch.Addr(0x1000); a < 0x1400; a++ {
			l, err := table.Lookup(a)
			found = found || err == nil && l.File != ""
		}
		if found {
			t.Errorf("there is a line without %s", lacks)
		}
	}
}

func FuzzTable(f *testing.F) {
	for _, s := range stored(f) {
		f.Add(s[names[0]], s[names[1]], s[names[2]], s[names[3]], s[names[4]])
	}
	f.Fuzz(func(t *testing.T, line, lineStr, str, info, abbrev []byte) {
		all := [][]byte{line, lineStr, str, info, abbrev}
		s, size := sections{}, 0
		for i, b := range all {
			s[names[i]] = b
			size += len(b)
		}
		if size > 1<<14 {
			return
		}
		// A unit takes 10 bytes, and buffers to read it 5 KB.
		testenv.Allocates(t, size, 2000, 1<<18, func() {
			table := New(s.open, free)
			_, _ = table.Lookup(0x1100)
			for i := range min(len(table.indexed), 16) {
				q := &table.indexed[i]
				for _, a := range []arch.Addr{q.lo, q.hi - 1, q.hi, q.lo + (q.hi-q.lo)/2} {
					l, err := table.Lookup(a)
					if err == nil && (l.Line < 1 || len(l.File) > 4*maxName || l.File == "") {
						t.Errorf("%+v", l)
					}
				}
			}
		})
	})
}
