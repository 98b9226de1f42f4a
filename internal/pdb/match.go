package pdb

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"strings"

	"clrsnap/internal/pe"
	"clrsnap/internal/target"
)

// ErrMismatch: a PDB belongs to another build, or was changed.
var ErrMismatch = errors.New("the PDB does not belong to the assembly")

// Match parses a PDB and checks that it belongs to the assembly with the debug directory d: by the
// PDB's id, and by the checksum if the assembly has a checksum. b is kept, not copied.
func Match(d *pe.Debug, b []byte) (*File, error) {
	want, ok := d.Portable()
	if !ok {
		return nil, fmt.Errorf("%w: the assembly names no portable PDB", ErrMismatch)
	}
	f, err := Parse(b)
	if err != nil {
		return nil, err
	}
	if f.id != want.ID() {
		return nil, fmt.Errorf("%w: its id is %s, the assembly asks for %s", ErrMismatch, idText(f.id),
			idText(want.ID()))
	}
	if err := f.check(d.Checksums); err != nil {
		return nil, err
	}
	return f, nil
}

// Embedded returns the embedded PDB of d's assembly. The error is pe.ErrNoEmbedded if the assembly
// has no embedded PDB.
func Embedded(d *pe.Debug, mem *target.Reader) (*File, error) {
	b, err := d.Embedded(mem)
	if err != nil {
		return nil, err
	}
	return Unpacked(d, b)
}

// Unpacked is Embedded for the unpacked bytes of a PDB. b is kept, not copied.
func Unpacked(d *pe.Debug, b []byte) (*File, error) {
	if _, ok := d.Portable(); ok { // "they shall represent the same data"
		return Match(d, b)
	}
	f, err := Parse(b)
	if err != nil {
		return nil, err
	}
	if err := f.check(d.Checksums); err != nil {
		return nil, err
	}
	return f, nil
}

// algorithms are the algorithms of checksums (PE-COFF.md, and SHA1, an option of older compilers).
var algorithms = map[string]func() hash.Hash{
	"SHA1": sha1.New, "SHA256": sha256.New, "SHA384": sha512.New384, "SHA512": sha512.New,
}

// check requires that the PDB matches a checksum. Several checksums stand for several PDBs of a build.
func (f *File) check(sums []pe.Checksum) error {
	if len(sums) == 0 {
		return nil
	}
	var differ []string
	have := map[string][]byte{} // by algorithm: hashing takes time
	for _, want := range sums {
		newHash, ok := algorithms[want.Algorithm]
		if !ok {
			differ = append(differ, fmt.Sprintf("the assembly has a checksum of unknown kind %.20q", want.Algorithm))
			continue
		}
		if have[want.Algorithm] == nil {
			have[want.Algorithm] = f.hash(newHash())
		}
		if bytes.Equal(have[want.Algorithm], want.Sum) {
			return nil
		}
		differ = append(differ, fmt.Sprintf("its %s checksum is %x, the assembly asks for %x",
			want.Algorithm, have[want.Algorithm], want.Sum))
	}
	const most = 4
	return fmt.Errorf("%w: %s", ErrMismatch, strings.Join(differ[:min(len(differ), most)], "; "))
}

// SameText reports whether content has a hash, by the name of its algorithm; false for an unknown algorithm.
func SameText(content []byte, algorithm string, sum []byte) bool {
	newHash, ok := algorithms[algorithm]
	if !ok {
		return false
	}
	h := newHash()
	h.Write(content)
	return bytes.Equal(h.Sum(nil), sum)
}

// hash hashes the PDB with zeros in place of its id (PE-COFF.md, "Portable PDB Checksum").
func (f *File) hash(h hash.Hash) []byte {
	at := f.md.PDBStreamAt()
	h.Write(f.raw[:at])
	h.Write(make([]byte, idSize))
	h.Write(f.raw[at+idSize:])
	return h.Sum(nil)
}
