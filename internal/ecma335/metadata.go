package ecma335

import (
	"bytes"
	"encoding/binary"
)

// Limits far beyond any metadata that the runtime accepts.
const (
	maxStreams   = 64   // the format defines seven
	maxStreamLen = 32   // bytes of a stream's name, II.24.2.2
	maxName      = 4096 // bytes of a name; the runtime refuses class names above 1023
)

// Metadata is the metadata of a module. Concurrent use is safe as long as
// nobody writes to the parsed bytes.
type Metadata struct {
	strings, blobs, guids []byte // heaps, II.24.2.3 to II.24.2.5
	pdb                   []byte // #Pdb stream of a stand-alone portable PDB
	pdbAt                 int    // offset of the stream in the parsed bytes
	rows                  []byte // the whole #~ or #- stream
	tables                [numTables]table
	sorted                [len(sortedColumns)]sortedTable
}

// table is where the rows of a table lie and how they are cut.
type table struct {
	rows    uint32
	rowSize uint32
	start   uint32 // offset of row 1 in Metadata.rows
	cols    [maxColumns]field
}

type field struct{ off, width uint8 }

// Parse reads the headers of the metadata in b, which begins with the metadata
// root (II.24.2.1). b is kept, not copied.
func Parse(b []byte) (*Metadata, error) {
	m := &Metadata{}
	var minimalDelta bool
	err := eachStream(b, func(name string, at int, data []byte) {
		// The format allows each name once; among several streams of a name,
		// the last counts.
		switch name {
		case "#~", "#-":
			m.rows = data
		case "#Strings":
			m.strings = data
		case "#Blob":
			m.blobs = data
		case "#GUID":
			m.guids = data
		case "#Pdb":
			m.pdb, m.pdbAt = data, at
		case "#JTD":
			// An edit-and-continue delta; the stream is empty and only says
			// that every index is 4 bytes wide.
			minimalDelta = true
		}
	})
	if err != nil {
		return nil, err
	}
	if m.rows == nil {
		return nil, malformed("no table stream (#~ or #-)")
	}
	if err := m.layTables(minimalDelta); err != nil {
		return nil, err
	}
	return m, nil
}

// Signature is the first word of all metadata: "BSJB" (II.24.2.1).
const Signature = 0x424a5342

// eachStream walks the metadata root and the stream headers (II.24.2.1 and
// II.24.2.2).
func eachStream(b []byte, visit func(name string, at int, data []byte)) error {
	le := binary.LittleEndian
	if len(b) < 20 || le.Uint32(b) != Signature {
		return malformed("no BSJB signature at the start of %d bytes", len(b))
	}
	version := uint64(le.Uint32(b[12:]))
	if version > 255+3 || 16+version+4 > uint64(len(b)) {
		return malformed("version string of %d bytes in a root of %d", version, len(b))
	}
	p := 16 + int(version)
	n := int(le.Uint16(b[p+2:]))
	if n > maxStreams {
		return malformed("%d streams, more than %d", n, maxStreams)
	}
	p += 4
	for i := range n {
		if len(b)-p < 9 {
			return malformed("header of stream %d lies beyond the end", i)
		}
		off, size := uint64(le.Uint32(b[p:])), uint64(le.Uint32(b[p+4:]))
		name := b[p+8 : min(p+8+maxStreamLen, len(b))]
		end := bytes.IndexByte(name, 0)
		if end < 0 {
			return malformed("name of stream %d does not end within %d bytes", i, len(name))
		}
		if off+size > uint64(len(b)) {
			return malformed("stream %q at %#x+%#x lies beyond the end at %#x", name[:end], off, size, len(b))
		}
		visit(string(name[:end]), int(off), b[off:off+size:off+size])
		p += 8 + (end+1+3)&^3
		if p > len(b) {
			return malformed("header of stream %d lies beyond the end", i)
		}
	}
	return nil
}

// layTables reads the header of the table stream (II.24.2.6) and computes the
// start of each table.
func (m *Metadata) layTables(minimalDelta bool) error {
	le := binary.LittleEndian
	if len(m.rows) < 24 {
		return malformed("table stream of %d bytes", len(m.rows))
	}
	w := widths{heaps: m.rows[6], allWide: minimalDelta}
	valid := le.Uint64(m.rows[8:])
	p := uint64(24)
	for t := range 64 {
		if valid>>t&1 == 0 {
			continue
		}
		if p+4 > uint64(len(m.rows)) {
			return malformed("row counts lie beyond the end of the table stream")
		}
		n := le.Uint32(m.rows[p:])
		p += 4
		if n == 0 {
			continue
		}
		if t >= numTables || schemas[t] == nil {
			return malformed("unknown table %#x with %d rows", t, n)
		}
		if n > 0xffffff {
			return malformed("table %#x has %d rows, a token reaches %d", t, n, 0xffffff)
		}
		m.tables[t].rows, w.rows[t] = n, n
	}
	if w.heaps&0x40 != 0 { // an undocumented additional word; CoreCLR skips it as well
		p += 4
	}
	if err := w.addReferenced(m.pdb); err != nil {
		return err
	}
	return m.placeTables(&w, p)
}

func (m *Metadata) placeTables(w *widths, p uint64) error {
	for t := range m.tables {
		tab := &m.tables[t]
		for i, c := range schemas[t] {
			width := w.of(c)
			tab.cols[i] = field{uint8(tab.rowSize), width}
			tab.rowSize += uint32(width)
		}
		end := p + uint64(tab.rows)*uint64(tab.rowSize)
		if end > uint64(len(m.rows)) && tab.rows > 0 {
			return malformed("table %#x with %d rows ends at %#x, the stream at %#x", t, tab.rows, end, len(m.rows))
		}
		tab.start = uint32(p)
		p = end
	}
	return nil
}

// widths knows the width of each index (II.24.2.6).
type widths struct {
	heaps   byte // HeapSizes: bit 0 #Strings, 1 #GUID, 2 #Blob have 4-byte indices
	allWide bool
	rows    [numTables]uint32
}

// addReferenced adds the row counts of the module to which a stand-alone
// portable PDB belongs: the PDB's tables do not hold the module's rows, but
// index them (Portable PDB v1.0, #Pdb stream: 20 bytes id, 4 entry point, 8 bit
// vector, counts).
func (w *widths) addReferenced(pdb []byte) error {
	if len(pdb) == 0 {
		return nil
	}
	if len(pdb) < 32 {
		return malformed("#Pdb stream of %d bytes", len(pdb))
	}
	le := binary.LittleEndian
	valid, p := le.Uint64(pdb[24:]), 32
	for t := range 64 {
		if valid>>t&1 == 0 {
			continue
		}
		if p+4 > len(pdb) || t >= numTables {
			return malformed("#Pdb stream has no row count of table %#x", t)
		}
		if n := le.Uint32(pdb[p:]); w.rows[t] == 0 {
			w.rows[t] = n
		}
		p += 4
	}
	return nil
}

func (w *widths) of(c column) uint8 {
	switch {
	case c == u2:
		return 2
	case c == u4 || w.allWide:
		return 4
	case c <= blob:
		return w.wide(w.heaps>>(c-str)&1 != 0)
	case c >= list:
		t := c - list
		// A pointer table's number is one below the reordered table's number.
		if w.rows[t-1] > 0 {
			t--
		}
		return w.wide(w.rows[t] > 0xffff)
	case c >= coded:
		k := &codedKinds[c-coded]
		limit := uint32(1) << (16 - k.bits)
		for _, t := range k.tables {
			if t != noTable && w.rows[t] >= limit {
				return 4
			}
		}
		return 2
	}
	return w.wide(w.rows[c-ref] > 0xffff)
}

func (w *widths) wide(is bool) uint8 {
	if is {
		return 4
	}
	return 2
}
