package replay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"clrsnap/internal/target/recorded"
)

// magic begins a corpus; the number is the version of the rest: a stored corpus in the gob
// encoding, compressed.
const magic = "clrsnap recording 1\n"

// ErrFormat: not a corpus, or a damaged one.
var ErrFormat = recorded.ErrFormat

// Write writes the corpus.
func (r *Corpus) Write(w io.Writer) error { return recorded.Encode(w, magic, r.store()) }

// Read reads a corpus.
func Read(in io.Reader) (*Corpus, error) {
	var s stored
	if err := recorded.Decode(in, magic, &s); err != nil {
		return nil, err
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
