package dwarfline

import "io"

// Attributes (7.5.4).
const (
	atStmtList = 0x10
	atCompDir  = 0x1b
)

// Types of compilation units in version 5 (7.5.1).
const (
	unitType, unitSkeleton, unitSplit, unitSplitType = 2, 4, 5, 6
)

// Bounds of a unit's first entry.
const (
	maxAttributes = 1 << 8
	maxAbbrevs    = 1 << 12 // abbreviations to look through for the entry
	dirCosts      = 64      // bytes, besides the text
)

// compDir returns the directory in which a line table's unit was compiled; "": unknown.
func (t *Table) compDir(line uint64) string {
	if t.dirs == nil {
		t.dirs = map[uint64]string{}
		t.readUnits()
	}
	return t.dirs[line]
}

// readUnits reads the first entry of each compilation unit.
func (t *Table) readUnits() {
	info, size, err := t.section(".debug_info")
	if err != nil {
		return
	}
	abbrev, abbrevSize, err := t.section(".debug_abbrev")
	if err != nil {
		return
	}
	units := 0
	for at := int64(0); at < size && units < maxUnits; units++ {
		r := t.reader(info, at, size, 512)
		n, err := r.length()
		if err != nil || n > uint64(size-r.pos()) {
			return
		}
		at = r.pos() + int64(n)
		r.limit(at)
		line, dir, err := t.unit(r, abbrev, abbrevSize)
		if err != nil || dir == "" {
			continue
		}
		if t.reserve(int64(len(dir)+dirCosts)) != nil {
			return
		}
		if old, ok := t.dirs[line]; ok && old != dir { // the units contradict each other
			dir = ""
		}
		t.dirs[line] = dir
	}
}

// unit reads the place of a compilation unit's line table, and the unit's directory.
func (t *Table) unit(r *reader, abbrev io.ReaderAt, abbrevSize int64) (line uint64, dir string, err error) {
	version, err := r.fixed(2)
	if err != nil {
		return 0, "", err
	}
	if version < 2 || version > 5 {
		return 0, "", malformed("a unit of version %d", version)
	}
	var kind, addrSize byte
	var table uint64
	if version >= 5 {
		if kind, err = r.ReadByte(); err == nil {
			addrSize, err = r.ReadByte()
		}
		if err == nil {
			table, err = r.offset()
		}
	} else if table, err = r.offset(); err == nil {
		addrSize, err = r.ReadByte()
	}
	switch {
	case err != nil:
	case kind == unitSkeleton || kind == unitSplit:
		err = r.skip(8) // the id of the other half
	case kind == unitType || kind == unitSplitType:
		_, err = r.offset()
		err2 := r.skip(8)
		if err == nil {
			err = err2
		}
	}
	if err != nil {
		return 0, "", err
	}
	code, err := r.uleb()
	if err != nil || table >= uint64(abbrevSize) {
		return 0, "", malformed("abbreviations at %#x", table)
	}
	attributes, err := abbreviation(t.reader(abbrev, int64(table), abbrevSize, 512), code)
	if err != nil {
		return 0, "", err
	}
	return t.firstEntry(r, attributes, int(addrSize))
}

func (t *Table) firstEntry(r *reader, attributes []format, addrSize int) (line uint64, dir string, err error) {
	has := false
	for _, a := range attributes {
		v, err := r.value(a.form, addrSize)
		if err != nil {
			return 0, "", err
		}
		switch a.content {
		case atStmtList:
			line, has = v.number, true
		case atCompDir:
			if dir, err = t.text(&v); err != nil {
				return 0, "", err
			}
		}
	}
	if !has {
		dir = ""
	}
	return line, dir, nil
}

// abbreviation reads the attributes, with their forms, of entries with a code.
func abbreviation(r *reader, code uint64) ([]format, error) {
	for range maxAbbrevs {
		c, err := r.uleb()
		if err != nil {
			return nil, err
		}
		if c == 0 {
			break
		}
		if _, err := r.uleb(); err != nil { // tag
			return nil, err
		}
		if _, err := r.ReadByte(); err != nil { // whether it has children
			return nil, err
		}
		out, err := r.attributes()
		if err != nil || c == code {
			return out, err
		}
	}
	return nil, malformed("no abbreviation %d", code)
}

func (r *reader) attributes() (out []format, err error) {
	for range maxAttributes {
		var f format
		if f.content, err = r.uleb(); err != nil {
			return nil, err
		}
		if f.form, err = r.uleb(); err != nil {
			return nil, err
		}
		if f.form == formImplicitConst {
			if _, err := r.sleb(); err != nil {
				return nil, err
			}
		}
		if f == (format{}) {
			return out, nil
		}
		out = append(out, f)
	}
	return nil, malformed("an entry of more than %d attributes", maxAttributes)
}
