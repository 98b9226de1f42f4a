package recorded

import (
	"bufio"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// ErrFormat: not a recording, or a damaged recording.
var ErrFormat = errors.New("not a readable recording")

// maxFile bounds the size of a recording after decompression, in bytes.
const maxFile = 256 << 20

// Encode writes v after magic: in the gob encoding, compressed.
func Encode(w io.Writer, magic string, v any) error {
	if _, err := io.WriteString(w, magic); err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := gob.NewEncoder(z).Encode(v); err != nil {
		return err
	}
	return z.Close()
}

// Decode reads what Encode has written.
func Decode(in io.Reader, magic string, v any) error {
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(in, head); err != nil || string(head) != magic {
		return ErrFormat
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if err := gob.NewDecoder(io.LimitReader(z, maxFile)).Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	// The check sum follows the data.
	if n, err := io.Copy(io.Discard, z); err != nil || n > 0 {
		return fmt.Errorf("%w: more than a recording (%v)", ErrFormat, err)
	}
	return nil
}

// Pool has the contents of pages in a file: equal pages are kept once.
type Pool struct {
	Pages [][]byte
	index map[string]int
}

// StoredPages are Pages in a file: numbers in ascending order, and the contents: an index of the pool, or
// -1 for a blank page.
type StoredPages struct {
	Numbers []uint64
	Data    []int
}

// Store adds pages to the pool.
func (p *Pool) Store(pages *Pages) (s StoredPages) {
	if p.index == nil {
		p.index = map[string]int{}
		for i, page := range p.Pages {
			p.index[string(page)] = i
		}
	}
	for n := range pages.Data {
		s.Numbers = append(s.Numbers, n)
	}
	for n := range pages.Blank {
		s.Numbers = append(s.Numbers, n)
	}
	slices.Sort(s.Numbers)
	for _, n := range s.Numbers {
		data, ok := pages.Data[n]
		if !ok {
			s.Data = append(s.Data, -1)
			continue
		}
		i, ok := p.index[string(data)]
		if !ok {
			i = len(p.Pages)
			p.index[string(data)] = i
			p.Pages = append(p.Pages, data)
		}
		s.Data = append(s.Data, i)
	}
	return s
}

// Load is the reverse of Store.
func (p *Pool) Load(s *StoredPages) (Pages, error) {
	out := NewPages()
	if len(s.Numbers) != len(s.Data) {
		return out, fmt.Errorf("%w: %d pages have %d contents", ErrFormat, len(s.Numbers), len(s.Data))
	}
	for i, n := range s.Numbers {
		switch k := s.Data[i]; {
		case k == -1:
			out.Blank[n] = true
		case k < 0 || k >= len(p.Pages) || len(p.Pages[k]) > PageSize:
			return out, fmt.Errorf("%w: page %d is missing", ErrFormat, k)
		default:
			out.Data[n] = p.Pages[k]
		}
	}
	return out, nil
}

// StoredFile is a File in a file.
type StoredFile struct {
	File  File // without pages
	Pages StoredPages
}

// StoreFiles adds files to the pool.
func (p *Pool) StoreFiles(files []*File) (out []StoredFile) {
	for _, f := range files {
		sf := StoredFile{File: *f, Pages: p.Store(&f.Pages)}
		sf.File.Pages = Pages{}
		out = append(out, sf)
	}
	return out
}

// LoadFiles is the reverse of StoreFiles.
func (p *Pool) LoadFiles(files []StoredFile) (out []*File, err error) {
	for i := range files {
		f := files[i].File
		if f.Pages, err = p.Load(&files[i].Pages); err != nil {
			return nil, err
		}
		out = append(out, &f)
	}
	return out, nil
}

// ToFile writes a file.
func ToFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	return errors.Join(write(w), w.Flush(), f.Close())
}

// FromFile reads a file. An error begins with the name of the file.
func FromFile(name string, read func(io.Reader) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := read(bufio.NewReader(f)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
