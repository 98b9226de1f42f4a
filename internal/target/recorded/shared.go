package recorded

import (
	"crypto/sha256"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"clrsnap/internal/target"
)

// Shared has pages that several recordings have in common, in a file of its own: the pages of a runtime's libraries.
type Shared struct {
	Name  string // of the file, without a folder
	Pages [][]byte
}

// Sum is a check sum of shared pages.
type Sum [sha256.Size]byte

// Sum is the check sum of the pages.
func (s *Shared) Sum() (sum Sum) {
	h := sha256.New()
	for _, page := range s.Pages {
		h.Write(page)
	}
	return Sum(h.Sum(nil))
}

// Share returns the pages of files and of unwritten memory of files that two moments or more have.
func Share(name string, moments []*Moment) *Shared {
	times, order := map[string]int{}, [][]byte(nil)
	for _, m := range moments {
		seen := map[string]bool{}
		for _, p := range m.OfFiles() {
			page := p.Of.Data[p.Number]
			if page == nil || seen[string(page)] {
				continue
			}
			seen[string(page)] = true
			if times[string(page)]++; times[string(page)] == 2 {
				order = append(order, page)
			}
		}
	}
	return &Shared{Name: name, Pages: order}
}

// A Page is one of some Pages.
type Page struct {
	Of     *Pages
	Number uint64
}

// OfFiles are the recorded pages of memory with unwritten bytes of files, and of files.
func (m *Moment) OfFiles() (out []Page) {
	for i := range m.Mapped {
		if in := &m.Mapped[i]; in.IsFile() && in.Perm&target.PermWrite == 0 {
			for n := uint64(in.Start) / PageSize; n < uint64(in.End)/PageSize; n++ {
				if m.Memory.Data[n] != nil {
					out = append(out, Page{&m.Memory, n})
				}
			}
		}
	}
	for _, f := range m.Files {
		for _, n := range slices.Sorted(maps.Keys(f.Pages.Data)) {
			out = append(out, Page{&f.Pages, n})
		}
	}
	return out
}

// sharedMagic begins a file with shared pages; the number is the version of the rest: the pages.
const sharedMagic = "clrsnap pages 1\n"

// WriteFile writes the pages to their file in a folder.
func (s *Shared) WriteFile(folder string) error {
	return ToFile(filepath.Join(folder, s.Name), func(w io.Writer) error { return Encode(w, sharedMagic, s.Pages) })
}

// ReadShared reads shared pages from a file.
func ReadShared(name string) (*Shared, error) {
	s := &Shared{Name: filepath.Base(name)}
	err := FromFile(name, func(in io.Reader) error { return Decode(in, sharedMagic, &s.Pages) })
	return s, err
}

// Reduce blanks as many of the pages as possible, as long as same reports that results have not changed. Groups of
// least pages or fewer are not divided.
func Reduce(pages []Page, least int, same func() bool) {
	if len(pages) == 0 {
		return
	}
	kept := make([][]byte, len(pages))
	for i, p := range pages {
		kept[i] = p.Of.Data[p.Number]
		delete(p.Of.Data, p.Number)
		p.Of.Blank[p.Number] = true
	}
	if same() {
		return
	}
	for i, p := range pages {
		p.Of.Data[p.Number] = kept[i]
		delete(p.Of.Blank, p.Number)
	}
	if half := len(pages) / 2; half > 0 && len(pages) > least {
		Reduce(pages[:half], least, same)
		Reduce(pages[half:], least, same)
	}
}
