package dwarfline

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/elfx"
	"clrsnap/internal/pace"
	"clrsnap/internal/testenv"
)

// sections are the sections of a file made for a test.
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

// TestStored: the lines of the functions in testdata, as in readelf --debug-dump=decodedline.
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

// TestRefused: data without consent to keep them, and missing data, have no line.
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

// TestEffort: all reads and all work are counted, whoever causes them; and the allowance comes
// back.
func TestEffort(t *testing.T) {
	s := stored(t)["v5.debug"]
	table := New(s.open, free)
	table.effort = pace.NewAllowance(1<<20, 0)
	before, at := table.effort.Left(), arch.Addr(0x1000)
	for _, err := table.Lookup(at); err != nil; _, err = table.Lookup(at) {
		if at++; at == 0x1400 {
			t.Fatal(err)
		}
	}
	if spent := before - table.effort.Left(); spent < 100 || spent > 64<<10 {
		t.Errorf("%d bytes for a lookup", spent)
	}
	table.effort = pace.NewAllowance(10, 0)
	if _, err := table.Lookup(at); !errors.Is(err, errEffort) {
		t.Errorf("with nothing left: %v", err)
	}

	// Units that share abbreviations and use the last abbreviation.
	abbrevs := bytes.Repeat([]byte{1, 0x11, 0, 0x03, 0x08, 0, 0}, maxAbbrevs-1)
	abbrevs = append(abbrevs, 2, 0x11, 0, 0x10, 0x17, 0x1b, 0x08, 0, 0)
	unit := []byte{12, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, 2, 0, 0, 0, 0}
	table = New(sections{".debug_info": bytes.Repeat(unit, maxUnits/4), ".debug_abbrev": abbrevs}.open, free)
	table.effort = pace.NewAllowance(1<<20, 0)
	table.readUnits()
	if left := table.effort.Left(); left > 1<<10 {
		t.Errorf("%d bytes are left: abbreviations do not count", left)
	}

	// Files whose names take no bytes.
	formats := append([]byte{255}, bytes.Repeat([]byte{0x7f, formFlagPresent}, 255)...)
	list := append(formats, 0xff, 0xff, 0x03)
	table = New(sections{}.open, free)
	table.effort = pace.NewAllowance(80<<20, 0)
	for n := range 10 {
		r := table.reader(bytes.NewReader(list), 0, int64(len(list)), 512)
		if _, err := r.entries(table, new(uint64)); errors.Is(err, errEffort) {
			if n < 4 {
				t.Errorf("%d lists are too much", n)
			}
			break
		} else if n > 5 { // each has 2^16 times 255 values
			t.Fatalf("list %d: %v", n, err)
		}
	}

	// Many operations of one unit that set addresses before the address.
	table = New(sections{}.open, free)
	table.read = true
	for i := range arch.Addr(2 * maxLooked) {
		table.starts = append(table.starts, start{1 + i, 0})
	}
	table.sequences[0] = nil
	if _, err := table.Lookup(1 << 30); !errors.Is(err, ErrNone) ||
		!strings.Contains(err.Error(), "too many functions") {
		t.Error(err)
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
		// A unit takes 10 bytes, and its read buffers 5 KB.
		testenv.Allocates(t, size, 2000, 1<<18, func() {
			table := New(s.open, free)
			_, _ = table.Lookup(0x1100)
			for i := range min(len(table.starts), 16) {
				list, _ := table.sequencesOf(table.starts[i].unit)
				if len(list) == 0 {
					continue
				}
				q := &list[0]
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
