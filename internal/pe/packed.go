package pe

import "clrsnap/internal/target"

// Packed is an embedded PDB, still packed.
type Packed struct {
	bytes []byte
	size  int
}

// Packed copies the embedded PDB of d's image. The error is ErrNoEmbedded if the image has no embedded
// PDB.
func (d *Debug) Packed(mem *target.Reader) (Packed, error) {
	if d.embedded == nil {
		return Packed{}, ErrNoEmbedded
	}
	b, err := mem.Pieces(d.embedded.at, d.embedded.packed)
	return Packed{b, d.embedded.size}, err
}

// Size is the number of bytes in p.
func (p Packed) Size() int { return len(p.bytes) }

// Unpacked is the size in bytes that the PDB claims to have.
func (p Packed) Unpacked() int { return p.size }

// Unpack returns the PDB.
func (p Packed) Unpack() ([]byte, error) { return Inflate(p.bytes, p.size) }
