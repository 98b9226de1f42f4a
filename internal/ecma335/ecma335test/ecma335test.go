// Package ecma335test makes metadata by hand, for assemblies and portable PDBs, for the tests of metadata
// readers.
package ecma335test

import "encoding/binary"

// Tables are the rows of metadata.
type Tables struct {
	Rows   [64][]uint32 // cells of a table, row after row
	Counts [64]uint32   // rows of a table
	// HeapSizes is the header's byte of flags. All indices are 2 bytes wide nevertheless.
	HeapSizes byte
	// Wide reports whether a cell has 4 bytes; i is the number of earlier cells in the table.
	Wide func(table, i int) bool
}

// Row adds a row.
func (t *Tables) Row(table int, cells ...uint32) {
	t.Rows[table] = append(t.Rows[table], cells...)
	t.Counts[table]++
}

// Bytes returns the stream #~ (ECMA-335 II.24.2.6).
func (t *Tables) Bytes() []byte {
	le := binary.LittleEndian
	out := []byte{0, 0, 0, 0, 2, 0, t.HeapSizes, 1}
	var valid uint64
	for table, n := range t.Counts {
		if n > 0 {
			valid |= 1 << table
		}
	}
	out = le.AppendUint64(le.AppendUint64(out, valid), 0)
	for _, n := range t.Counts {
		if n > 0 {
			out = le.AppendUint32(out, n)
		}
	}
	const extraData = 0x40
	if t.HeapSizes&extraData != 0 {
		out = append(out, 0xaa, 0xbb, 0xcc, 0xdd)
	}
	for table, cells := range t.Rows {
		for i, c := range cells {
			if t.Wide != nil && t.Wide(table, i) {
				out = le.AppendUint32(out, c)
			} else {
				out = le.AppendUint16(out, uint16(c))
			}
		}
	}
	return out
}

// Versions in a metadata root (ECMA-335 II.24.2.1), padded.
const (
	Assembly = "v4.0.30319\x00\x00"
	PDB      = "PDB v1.0\x00\x00\x00\x00"
)

// Container puts streams into a metadata root.
func Container(version string, names []string, streams [][]byte) []byte {
	le := binary.LittleEndian
	out := append([]byte("BSJB\x01\x00\x01\x00\x00\x00\x00\x00\x0c\x00\x00\x00"), version...)
	out = append(out, 0, 0, byte(len(names)), 0)
	size := len(out)
	for _, n := range names {
		size += 8 + (len(n)+4)&^3
	}
	for i, n := range names {
		out = le.AppendUint32(out, uint32(size))
		out = le.AppendUint32(out, uint32(len(streams[i])))
		out = append(out, n...)
		out = append(out, make([]byte, 4-len(n)%4)...)
		size += (len(streams[i]) + 3) &^ 3
	}
	for _, s := range streams {
		out = append(out, s...)
		out = append(out, make([]byte, (4-len(s)%4)%4)...)
	}
	return out
}
