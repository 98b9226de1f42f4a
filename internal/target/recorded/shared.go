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
			for _, n := range p.Numbers {
				page := p.Pages.Data[n]
				if page == nil || seen[string(page)] {
					continue
				}
				seen[string(page)] = true
				if times[string(page)]++; times[string(page)] == 2 {
					order = append(order, page)
				}
			}
		}
	}
	return &Shared{Name: name, Pages: order}
}

// NumberedPages are some of Pages.
type NumberedPages struct {
	Pages   *Pages
	Numbers []uint64 // in ascending order
}

// OfFiles are the recorded pages of files, and of memory with unwritten bytes of files.
func (m *Moment) OfFiles() (out []NumberedPages) {
	of := NumberedPages{Pages: &m.Memory}
	for i := range m.Mapped {
		if in := &m.Mapped[i]; in.IsFile() && in.Perm&target.PermWrite == 0 {
			for n := uint64(in.Start) / PageSize; n < uint64(in.End)/PageSize; n++ {
				if m.Memory.Data[n] != nil {
					of.Numbers = append(of.Numbers, n)
				}
			}
		}
	}
	out = append(out, of)
	for _, f := range m.Files {
		out = append(out, NumberedPages{&f.Pages, slices.Sorted(maps.Keys(f.Pages.Data))})
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

// Reduce blanks as many of the numbered pages as possible, as long as same reports that results have not changed.
// Groups of least pages or fewer are not divided.
func (p NumberedPages) Reduce(least int, same func() bool) {
	if len(p.Numbers) == 0 {
		return
	}
	kept := make([][]byte, len(p.Numbers))
	for i, n := range p.Numbers {
		kept[i] = p.Pages.Data[n]
		delete(p.Pages.Data, n)
		p.Pages.Blank[n] = true
	}
	if same() {
		return
	}
	for i, n := range p.Numbers {
		p.Pages.Data[n] = kept[i]
		delete(p.Pages.Blank, n)
	}
	if half := len(p.Numbers) / 2; half > 0 && len(p.Numbers) > least {
		NumberedPages{p.Pages, p.Numbers[:half]}.Reduce(least, same)
		NumberedPages{p.Pages, p.Numbers[half:]}.Reduce(least, same)
	}
}
