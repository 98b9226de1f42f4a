package pe

import "clrsnap/internal/target"

// Packed is an embedded PDB that is still packed.
type Packed struct {
	bytes []byte
	size  int
}

// Packed copies the PDB inside the image that d was read from. The error is ErrNoEmbedded if it has none.
func (d *Debug) Packed(mem *target.Reader) (Packed, error) {
	if d.embedded == nil {
		return Packed{}, ErrNoEmbedded
	}
	b, err := mem.Pieces(d.embedded.at, d.embedded.packed)
	return Packed{b, d.embedded.size}, err
}

// Size is how many bytes p takes.
func (p Packed) Size() int { return len(p.bytes) }

// Unpacked is how many bytes the PDB says that it has.
func (p Packed) Unpacked() int { return p.size }

// Unpack returns the PDB.
func (p Packed) Unpack() ([]byte, error) { return Inflate(p.bytes, p.size) }
