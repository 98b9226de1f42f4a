package pe

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// MaxEmbedded bounds an embedded PDB, packed and unpacked, in bytes.
const MaxEmbedded = 64 << 20

// ErrNoEmbedded: the image contains no PDB.
var ErrNoEmbedded = errors.New("no embedded PDB")

// embedded is where an embedded PDB lies.
type embedded struct {
	at           arch.Addr
	packed, size int
}

func (a *assembly) embedded(d *Debug, e entry) error {
	if e.major < minPortable || e.minor != embeddedMinor {
		return fmt.Errorf("%w: embedded PDB of version %#x, %#x", ErrDebugDirectory, e.major, e.minor)
	}
	if d.embedded != nil {
		return fmt.Errorf("%w: two embedded PDBs", ErrDebugDirectory)
	}
	if e.size < embeddedSize || e.size > MaxEmbedded {
		return fmt.Errorf("%w: embedded PDB in %d bytes", ErrDebugDirectory, e.size)
	}
	at, ok := a.place(e)
	if !ok {
		return nil
	}
	head, err := a.mem.Bytes(at, embeddedSize)
	if err != nil {
		return err
	}
	signature, size := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	if signature != embeddedSignature || size == 0 || size > MaxEmbedded {
		return fmt.Errorf("%w: embedded PDB that begins with % x", ErrDebugDirectory, head)
	}
	d.embedded = &embedded{at + embeddedSize, int(e.size - embeddedSize), int(size)}
	return nil
}

// Embedded unpacks the embedded PDB of d's image.
func (d *Debug) Embedded(mem *target.Reader) ([]byte, error) {
	if d.embedded == nil {
		return nil, ErrNoEmbedded
	}
	packed, err := mem.Pieces(d.embedded.at, d.embedded.packed)
	if err != nil {
		return nil, err
	}
	return Inflate(packed, d.embedded.size)
}

// Inflate unpacks deflated bytes (RFC 1951) into exactly size bytes. The allocations are bounded by
// the size of packed.
func Inflate(packed []byte, size int) ([]byte, error) {
	// Two bits can stand for at most 258 bytes: a code of one bit for the length, and a code
	// of one bit for the distance (RFC 1951, 3.2.5).
	const most = 258 * 8 / 2
	if size < 0 || size/most > len(packed) {
		return nil, fmt.Errorf("%d bytes cannot unpack to %d", len(packed), size)
	}
	r := flate.NewReader(bytes.NewReader(packed))
	out := make([]byte, size)
	if _, err := io.ReadFull(r, out); err != nil {
		return nil, fmt.Errorf("unpacking %d bytes to %d: %w", len(packed), size, err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return nil, fmt.Errorf("%d bytes do not end with the last of the %d that they unpack to", len(packed), size)
	}
	return out, nil
}
