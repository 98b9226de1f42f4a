package elfx

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"clrsnap/internal/testenv"
)

// TestBudget opens an image until the budget is used up.
func TestBudget(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	b := NewBudget()
	var images []*Image
	for len(images) < maxKept/imageCosts {
		m, err := b.Image(bytes.NewReader(self))
		if err != nil {
			if !errors.Is(err, ErrBudget) {
				t.Error(err)
			}
			break
		}
		images = append(images, m)
	}
	if len(images) < maxKept/imageCosts/2 || len(images) == maxKept/imageCosts {
		t.Errorf("%d images", len(images))
	}
	if err := images[0].Reserve(1); !errors.Is(err, ErrBudget) {
		t.Errorf("more is kept of an image: %v", err)
	}
	for _, m := range images {
		m.Close()
	}
	if b.kept != 0 {
		t.Errorf("%d bytes are not given back", b.kept)
	}
	m, err := b.Image(bytes.NewReader(self))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Reserve(maxKept - forImages - b.kept); err != nil {
		t.Error(err)
	}
	if err := m.Reserve(1); !errors.Is(err, ErrBudget) {
		t.Errorf("symbols take what other images need: %v", err)
	}
	another, err := b.Image(bytes.NewReader(self))
	if err != nil {
		t.Fatalf("another image: %v", err)
	}
	// The image takes memory only after the budget's consent.
	another.shnum = maxSections - 1
	testenv.Allocates(t, 0, 0, shdrSize*maxSections/2, another.loadSections)
	if another.sections != nil {
		t.Error("sections are kept beyond the budget")
	}
}

// TestReading reads until the allowance is used up, and again after the refill.
func TestReading(t *testing.T) {
	m, _ := open(t, libc)
	m.budget = NewBudget()
	buf := make([]byte, 1<<16)
	var last error
	read := func() (n int) {
		for n < 2*maxRead {
			if last = m.ReadMemory(buf, m.Progs[0].Vaddr); last != nil {
				break
			}
			n += len(buf)
		}
		return n
	}
	began := time.Now()
	if n := read(); n < maxRead/2 || n > maxRead+int(time.Since(began).Seconds()+1)*readPerSecond {
		t.Errorf("%d bytes were read", n)
	}
	if !errors.Is(last, ErrBudget) {
		t.Errorf("%v", last)
	}
	m.budget.filled = m.budget.filled.Add(-time.Hour)
	if n := read(); n < maxRead/2 {
		t.Errorf("after an hour %d bytes were read", n)
	}
}

// TestSection reads pieces of a section, in any order, from more pages than the
// cache keeps.
func TestSection(t *testing.T) {
	data := make([]byte, 2*numPages*pageSize+100)
	for i := range data {
		data[i] = byte(i ^ i>>8 ^ i>>16)
	}
	m := &Image{file: bytes.NewReader(data), budget: NewBudget()}
	m.Progs = []Prog{{Type: ptLoad, Vaddr: 0x1000, Filesz: uint64(len(data)), Memsz: uint64(len(data))}}
	s, err := m.sectionAt(0x1000+10, uint64(len(data)-10))
	if err != nil {
		t.Fatal(err)
	}
	rest := data[10:]
	for i := range 100_000 {
		off, n := i*7919%len(rest), i%10_000
		b, err := s.Bytes(uint64(off), n)
		if fits := n <= len(rest)-off; fits != (err == nil) || fits && !bytes.Equal(b, rest[off:off+n]) {
			t.Fatalf("%d bytes at %d: %v", n, off, err)
		}
	}
	if _, err := m.sectionAt(0x1000, uint64(len(data)+1)); !errors.Is(err, ErrUnbacked) {
		t.Errorf("a section beyond the image: %v", err)
	}
	if _, err := s.Bytes(^uint64(0), 2); err == nil {
		t.Error("bytes beyond the section")
	}
}
