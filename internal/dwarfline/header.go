package dwarfline

import (
	"path"
	"strings"
)

// header is the beginning of a line table (6.2.4).
type header struct {
	offset  int64 // of the unit
	program int64 // offset of the program
	end     int64 // of the unit
	names   int64 // offset of the directories and files
	version uint16
	wide    bool

	minInst, maxOps byte
	lineBase        int8
	lineRange       byte
	opcodeBase      byte
	lengths         [255]byte // operands of the standard opcodes
}

// readHeader reads the header at an offset into h. Even with an error, h.end may be set: where the unit ends.
func (t *Table) readHeader(h *header, at int64) error {
	*h = header{offset: at}
	r := t.readerIn(t.head[:], t.line, at, t.size)
	n, err := r.length()
	if err != nil {
		return err
	}
	if n > uint64(t.size-r.pos()) {
		return malformed("a line table of %d bytes", n)
	}
	h.end, h.wide = r.pos()+int64(n), r.wide
	r.limit(h.end)
	version, err := r.fixed(2)
	if err != nil {
		return err
	}
	if h.version = uint16(version); h.version < 2 || h.version > 5 {
		return malformed("a line table of version %d", version)
	}
	if h.version >= 5 {
		if _, err := r.fixed(2); err != nil { // sizes of addresses and of segment selectors
			return err
		}
	}
	length, err := r.offset()
	if err != nil {
		return err
	}
	if length > uint64(h.end-r.pos()) {
		return malformed("a header of %d bytes", length)
	}
	h.program = r.pos() + int64(length)
	return h.parameters(r)
}

func (h *header) parameters(r *reader) error {
	fields := []*byte{&h.minInst}
	h.maxOps = 1
	if h.version >= 4 {
		fields = append(fields, &h.maxOps)
	}
	var isStmt, base byte
	for _, f := range append(fields, &isStmt, &base, &h.lineRange, &h.opcodeBase) {
		b, err := r.ReadByte()
		if err != nil {
			return err
		}
		*f = b
	}
	h.lineBase = int8(base)
	if h.lineRange == 0 || h.opcodeBase == 0 {
		return malformed("a line range of %d, opcodes from %d on", h.lineRange, h.opcodeBase)
	}
	for i := range h.opcodeBase - 1 {
		b, err := r.ReadByte()
		if err != nil {
			return err
		}
		h.lengths[i] = b
	}
	h.names = r.pos()
	if h.names > h.program {
		return malformed("a header that is longer than it says")
	}
	return nil
}

// fileName returns the path of a file, by its number.
func (h *header) fileName(t *Table, number uint64) (string, error) {
	r := t.reader(t.line, h.names, h.program, 512)
	r.wide = h.wide
	if h.version >= 5 {
		return h.fileName5(t, r, number)
	}
	var dirs []string
	bytes := 0
	for {
		dir, err := r.text()
		if err != nil {
			return "", err
		}
		if dir == "" {
			break
		}
		dirs = append(dirs, dir)
		if bytes += len(dir); len(dirs) > maxFiles || bytes > maxNames {
			return "", malformed("%d directories", len(dirs))
		}
	}
	for i := uint64(1); i <= maxFiles; i++ {
		name, err := r.text()
		if err != nil {
			return "", err
		}
		if name == "" {
			break
		}
		var v [3]uint64 // number of the directory, time, size
		for k := range v {
			if v[k], err = r.uleb(); err != nil {
				return "", err
			}
		}
		if i != number {
			continue
		}
		dir := ""
		if v[0] > uint64(len(dirs)) {
			return "", malformed("directory %d of %d", v[0], len(dirs))
		}
		if v[0] > 0 {
			dir = dirs[v[0]-1]
		}
		if !path.IsAbs(dir) && !path.IsAbs(name) {
			dir = path.Join(t.compDir(uint64(h.offset)), dir)
		}
		return joined(dir, name), nil
	}
	return "", malformed("no file %d", number)
}

// joined is the path of a file in a directory.
func joined(dir, name string) string {
	if !path.IsAbs(name) {
		name = path.Join(dir, name)
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}

// Content types of the entries of version 5 (7.22).
const (
	contentPath, contentDirectory = 1, 2
)

// format is how a property of a file or directory is stored.
type format struct{ content, form uint64 }

// entry is a file or a directory.
type entry struct {
	name string
	dir  uint64
}

func (h *header) fileName5(t *Table, r *reader, number uint64) (string, error) {
	dirs, err := r.entries(t, nil)
	if err != nil {
		return "", err
	}
	files, err := r.entries(t, &number)
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", malformed("no file %d", number)
	}
	file := files[0]
	if file.dir >= uint64(len(dirs)) {
		return "", malformed("directory %d of %d", file.dir, len(dirs))
	}
	dir := dirs[file.dir].name
	if !path.IsAbs(dir) {
		dir = path.Join(dirs[0].name, dir)
	}
	return joined(dir, file.name), nil
}

// entries reads a list of files or directories of version 5; only the entry number *only, unless only is nil.
func (r *reader) entries(t *Table, only *uint64) (out []entry, err error) {
	formats, err := r.formats()
	if err != nil {
		return nil, err
	}
	count, err := r.uleb()
	if err != nil {
		return nil, err
	}
	if count > maxFiles || count > 0 && len(formats) == 0 {
		return nil, malformed("%d files", count)
	}
	if !t.effort.Take(int64(count) * int64(len(formats)+1)) { // a value may take no bytes
		return nil, errEffort
	}
	bytes := 0
	for i := range count {
		wanted := only == nil || i == *only
		e, err := r.entry(t, formats, wanted)
		if err != nil {
			return nil, err
		}
		if wanted {
			out = append(out, e)
			if bytes += len(e.name); bytes > maxNames {
				return nil, malformed("names of more than %d bytes", maxNames)
			}
		}
	}
	return out, nil
}

func (r *reader) formats() ([]format, error) {
	n, err := r.ReadByte()
	if err != nil {
		return nil, err
	}
	out := make([]format, n)
	for i := range out {
		if out[i].content, err = r.uleb(); err != nil {
			return nil, err
		}
		if out[i].form, err = r.uleb(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// entry reads an entry; the name only if wanted.
func (r *reader) entry(t *Table, formats []format, wanted bool) (e entry, err error) {
	for _, f := range formats {
		v, err := r.value(f.form, 0)
		if err != nil {
			return e, err
		}
		switch {
		case f.content == contentPath && wanted:
			if e.name, err = t.text(&v); err != nil {
				return e, err
			}
		case f.content == contentDirectory:
			e.dir = v.number
		}
	}
	return e, nil
}
