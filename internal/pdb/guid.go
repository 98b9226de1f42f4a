package pdb

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// guid turns a GUID's text into its bytes: the first three numbers are little-endian.
func guid(text string) (g [16]byte) {
	b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(b) != len(g) {
		panic("no GUID: " + text)
	}
	copy(g[:], b)
	binary.LittleEndian.PutUint32(g[:], binary.BigEndian.Uint32(b))
	binary.LittleEndian.PutUint16(g[4:], binary.BigEndian.Uint16(b[4:]))
	binary.LittleEndian.PutUint16(g[6:], binary.BigEndian.Uint16(b[6:]))
	return g
}

// idText writes a PDB's id as a GUID and a stamp.
func idText(id [20]byte) string {
	le := binary.LittleEndian
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x, %08x", le.Uint32(id[:]), le.Uint16(id[4:]), le.Uint16(id[6:]),
		id[8:10], id[10:16], le.Uint32(id[16:]))
}
