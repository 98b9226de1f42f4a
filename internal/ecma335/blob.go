package ecma335

import "encoding/binary"

// BlobReader reads the numbers in a blob one after the other. It serves readers
// of blobs that this package does not decode, for example the blobs of a
// portable PDB.
type BlobReader struct{ b []byte }

// NewBlobReader returns a BlobReader on b. The BlobReader keeps b.
func NewBlobReader(b []byte) BlobReader { return BlobReader{b} }

// Len is the number of unread bytes.
func (r *BlobReader) Len() int { return len(r.b) }

// Uint reads an unsigned compressed integer: below 2^29 (II.23.2).
func (r *BlobReader) Uint() (uint32, error) {
	v, n, err := compressed(r.b)
	r.b = r.b[n:]
	return v, err
}

// Int reads a signed compressed integer: within 2^28 of zero (II.23.2).
func (r *BlobReader) Int() (int32, error) {
	v, n, err := compressedSigned(r.b)
	r.b = r.b[n:]
	return v, err
}

// Uint32 reads four bytes.
func (r *BlobReader) Uint32() (uint32, error) {
	if len(r.b) < 4 {
		return 0, malformed("no 32-bit integer in % x", r.b)
	}
	v := binary.LittleEndian.Uint32(r.b)
	r.b = r.b[4:]
	return v, nil
}

// Byte reads one byte.
func (r *BlobReader) Byte() (byte, error) {
	if len(r.b) == 0 {
		return 0, malformed("the blob ends early")
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c, nil
}

// compressed decodes an unsigned integer (II.23.2) at the start of b and
// returns the number of decoded bytes.
func compressed(b []byte) (v uint32, used int, err error) {
	switch {
	case len(b) >= 1 && b[0]&0x80 == 0:
		return uint32(b[0]), 1, nil
	case len(b) >= 2 && b[0]&0xc0 == 0x80:
		return uint32(b[0]&0x3f)<<8 | uint32(b[1]), 2, nil
	case len(b) >= 4 && b[0]&0xe0 == 0xc0:
		return binary.BigEndian.Uint32(b) & 0x1fffffff, 4, nil
	}
	return 0, 0, malformed("no compressed integer in % x", b[:min(len(b), 4)])
}

// compressedSigned decodes a signed integer at the start of b: the sign is in the
// lowest bit, and the encoding's length says how far the sign extends (II.23.2).
func compressedSigned(b []byte) (v int32, used int, err error) {
	u, used, err := compressed(b)
	if err != nil {
		return 0, 0, err
	}
	v = int32(u >> 1)
	if u&1 != 0 {
		v -= 1 << [...]uint{1: 6, 2: 13, 4: 28}[used]
	}
	return v, used, nil
}
