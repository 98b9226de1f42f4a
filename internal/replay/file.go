package replay

import (
	"bufio"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
)

// magic begins a corpus; the number is the version of the rest: a stored corpus in the gob
// encoding, compressed.
const magic = "clrsnap recording 1\n"

// ErrFormat: not a corpus, or a damaged one.
var ErrFormat = errors.New("not a readable corpus")

// maxFile bounds the size of a corpus after decompression, in bytes.
const maxFile = 256 << 20

// Write writes the corpus.
func (r *Corpus) Write(w io.Writer) error {
	if _, err := io.WriteString(w, magic); err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := gob.NewEncoder(z).Encode(r.store()); err != nil {
		return err
	}
	return z.Close()
}

// Read reads a corpus.
func Read(in io.Reader) (*Corpus, error) {
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(in, head); err != nil || string(head) != magic {
		return nil, ErrFormat
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	var s stored
	if err := gob.NewDecoder(io.LimitReader(z, maxFile)).Decode(&s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	// The check sum follows the data.
	if n, err := io.Copy(io.Discard, z); err != nil || n > 0 {
		return nil, fmt.Errorf("%w: there is more than a corpus in it (%v)", ErrFormat, err)
	}
	return s.corpus()
}

// WriteFile writes the corpus to a file.
func (r *Corpus) WriteFile(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	return errors.Join(r.Write(w), w.Flush(), f.Close())
}

// ReadFile reads a corpus from a file.
func ReadFile(name string) (*Corpus, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := Read(bufio.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}
