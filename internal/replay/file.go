package replay

import (
	"io"

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
func (r *Corpus) WriteFile(name string) error { return recorded.ToFile(name, r.Write) }

// ReadFile reads a corpus from a file.
func ReadFile(name string) (r *Corpus, err error) {
	err = recorded.FromFile(name, func(in io.Reader) error {
		r, err = Read(in)
		return err
	})
	return r, err
}
