package ecma335

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// Rows returns the number of rows in table t.
func (m *Metadata) Rows(t Table) uint32 {
	if t >= numTables {
		return 0
	}
	return m.tables[t].rows
}

// Cell returns the raw value of a column of a row: a number, a heap index, a
// row number or a coded index, as in the table's definition. Columns count from
// 0. Cell serves readers of tables without an accessor, for example the tables
// of a portable PDB.
func (m *Metadata) Cell(t Table, rid uint32, col int) (uint32, error) {
	if rid == 0 || rid > m.Rows(t) {
		return 0, noRow(t, rid, m.Rows(t))
	}
	if col < 0 || col >= len(schemas[t]) {
		return 0, malformed("table %#x has no column %d", uint8(t), col)
	}
	return m.raw(t, rid, col), nil
}

// Token is Cell for a column that names a row, of a single table or of several
// possible tables.
func (m *Metadata) Token(t Table, rid uint32, col int) (Token, error) {
	v, err := m.Cell(t, rid, col)
	if err != nil {
		return 0, err
	}
	switch c := schemas[t][col]; {
	case c >= list || c < ref:
		return 0, malformed("column %d of table %#x names no row", col, uint8(t))
	case c >= coded:
		return decodeCoded(c-coded, v)
	case v > 0xffffff:
		return 0, malformed("row %d, rows end at %d", v, 0xffffff)
	default:
		return MakeToken(Table(c-ref), v), nil
	}
}

// raw is Cell for an existing row and column: placeTables has checked that
// every row lies inside the stream.
func (m *Metadata) raw(t Table, rid uint32, col int) uint32 {
	tab := &m.tables[t]
	f := tab.cols[col]
	p := m.rows[uint64(tab.start)+uint64(rid-1)*uint64(tab.rowSize)+uint64(f.off):]
	if f.width == 2 {
		return uint32(binary.LittleEndian.Uint16(p))
	}
	return binary.LittleEndian.Uint32(p)
}

func (m *Metadata) has(t Table, rid uint32) error {
	if rid == 0 || rid > m.tables[t].rows {
		return noRow(t, rid, m.tables[t].rows)
	}
	return nil
}

func noRow(t Table, rid, rows uint32) error {
	return &rowError{t, rid, rows}
}

type rowError struct {
	table     Table
	rid, rows uint32
}

func (e *rowError) Error() string {
	return ErrNoRow.Error() + ": " + MakeToken(e.table, e.rid).String() + " of " +
		MakeToken(e.table, e.rows).String()
}

func (e *rowError) Unwrap() error { return ErrNoRow }

// String returns the string at index i of #Strings (II.24.2.3). Bytes outside
// UTF-8 become U+FFFD.
func (m *Metadata) String(i uint32) (string, error) {
	if i == 0 {
		return "", nil // the heap begins with the empty string, and may be absent
	}
	if uint64(i) >= uint64(len(m.strings)) {
		return "", malformed("string index %#x, #Strings ends at %#x", i, len(m.strings))
	}
	s := m.strings[i:]
	s = s[:min(len(s), maxName+1)]
	end := bytes.IndexByte(s, 0)
	if end < 0 {
		return "", malformed("string at %#x does not end within %d bytes", i, len(s))
	}
	return strings.ToValidUTF8(string(s[:end]), "\uFFFD"), nil
}

// reads reports whether the string at index i of #Strings is s, without a copy.
func (m *Metadata) reads(i uint32, s string) bool {
	if i == 0 || uint64(i) >= uint64(len(m.strings)) {
		return i == 0 && s == ""
	}
	rest := m.strings[i:]
	return len(rest) > len(s) && rest[len(s)] == 0 && string(rest[:len(s)]) == s
}

// Blob returns the blob at index i of #Blob (II.24.2.4), without its length.
// The result is part of the metadata.
func (m *Metadata) Blob(i uint32) ([]byte, error) {
	if i == 0 {
		return nil, nil
	}
	if uint64(i) >= uint64(len(m.blobs)) {
		return nil, malformed("blob index %#x, #Blob ends at %#x", i, len(m.blobs))
	}
	b := m.blobs[i:]
	n, used, err := compressed(b)
	if err != nil {
		return nil, err
	}
	b = b[used:]
	if uint64(n) > uint64(len(b)) {
		return nil, malformed("blob at %#x has %d bytes, #Blob %d more", i, n, len(b))
	}
	return b[:n:n], nil
}

// GUID returns entry i, counted from 1, of #GUID (II.24.2.5).
func (m *Metadata) GUID(i uint32) ([16]byte, error) {
	var g [16]byte
	if i == 0 || uint64(i)*16 > uint64(len(m.guids)) {
		return g, malformed("GUID %d of %d", i, len(m.guids)/16)
	}
	copy(g[:], m.guids[(i-1)*16:])
	return g, nil
}

// PDBStream returns the #Pdb stream; nil: no stand-alone portable PDB.
func (m *Metadata) PDBStream() []byte { return m.pdb }

// PDBStreamAt is the offset of the #Pdb stream in the parsed bytes.
func (m *Metadata) PDBStreamAt() int { return m.pdbAt }

// stringAt is String for a string column of an existing row.
func (m *Metadata) stringAt(t Table, rid uint32, col int) (string, error) {
	return m.String(m.raw(t, rid, col))
}

// run returns the rows [lo, hi) that a list column of row rid of table t owns:
// up to the start of the next row's run (II.22.37, MethodList).
func (m *Metadata) run(t Table, rid uint32, col int, target Table) (lo, hi uint32, err error) {
	n := m.listLen(target)
	lo, hi = m.raw(t, rid, col), n+1
	if rid < m.tables[t].rows {
		hi = m.raw(t, rid+1, col)
	}
	if lo == 0 || lo > hi || hi > n+1 {
		return 0, 0, malformed("%v owns rows %d to %d of the %d in table %#x", MakeToken(t, rid), lo, hi, n,
			uint8(target))
	}
	return lo, hi, nil
}

// listLen is the number of rows that a list column counts: the rows of the
// pointer table, if uncompressed metadata (#-) has a pointer table.
func (m *Metadata) listLen(target Table) uint32 {
	if n := m.tables[target-1].rows; n > 0 {
		return n
	}
	return m.tables[target].rows
}

// listed turns entry i of a run into a row of target.
func (m *Metadata) listed(target Table, i uint32) (uint32, error) {
	if m.tables[target-1].rows > 0 {
		if err := m.has(target-1, i); err != nil {
			return 0, err
		}
		i = m.raw(target-1, i, 0)
	}
	return i, m.has(target, i)
}
