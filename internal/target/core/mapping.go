package core

import (
	"slices"
	"sort"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

const pageSize = 4096

// floor and ceil round to pages. ceil returns its argument where the result would exceed the
// address space.
func floor[T ~uint64](a T) T { return a &^ (pageSize - 1) }
func ceil[T ~uint64](a T) T {
	if e := a + pageSize - 1; e > a {
		return floor(e)
	}
	return a
}

// A mapping is a mapping of the process, as far as the dump describes the process.
type mapping struct {
	target.Mapping
	known bool   // the permissions come from the dump, and include all permissions of the process
	image *image // the file; nil: no file to look for

	// clean are the parts that can be read from the file. Valid after image.load.
	clean []span
}

// forbidden reports whether the process itself could not access the memory (PROT_NONE). Such
// memory is not missing.
func (m *mapping) forbidden() bool { return m.known && m.Perm == 0 }

// span is start <= addr < end.
type span struct{ start, end arch.Addr }

// makeMappings combines NT_FILE and the segments.
func (c *Core) makeMappings() {
	files := c.fileMappings()
	seg := 0
	for i := range files {
		seg = c.anonymous(seg, files[i].Start)
		m := &files[i]
		for k := c.segmentFrom(m.Start); k < len(c.segments) && c.segments[k].start < m.End; k++ {
			m.Perm |= c.segments[k].perm
			m.known = c.notes.writer != writerCreatedump
		}
		c.mappings = append(c.mappings, *m)
	}
	c.anonymous(seg, ^arch.Addr(0))
	c.nameVDSO()
	c.findImages()
}

// anonymous adds the memory of the segments from index seg on, between the last mapping and
// limit, and returns the first segment that reaches beyond limit.
func (c *Core) anonymous(seg int, limit arch.Addr) int {
	for ; seg < len(c.segments) && c.segments[seg].start < limit; seg++ {
		s := &c.segments[seg]
		start, end := s.start, min(s.end, limit)
		if n := len(c.mappings); n > 0 {
			start = max(start, c.mappings[n-1].End)
		}
		if start < end {
			c.mappings = append(c.mappings,
				mapping{Mapping: target.Mapping{Start: start, End: end, Perm: s.perm}, known: true})
		}
		if s.end > limit {
			break
		}
	}
	return seg
}

// fileMappings are the mappings in NT_FILE with a path, in order and without overlap.
func (c *Core) fileMappings() []mapping {
	files := slices.Clone(c.notes.files)
	slices.SortStableFunc(files, func(a, b fileRange) int {
		switch {
		case a.start < b.start:
			return -1
		case a.start > b.start:
			return 1
		}
		return 0
	})
	var out []mapping
	for _, f := range files {
		if n := len(out); n > 0 && f.start < out[n-1].End {
			f.off += uint64(out[n-1].End - f.start)
			f.start = out[n-1].End
		}
		if f.start >= f.end || !strings.HasPrefix(f.path, "/") {
			continue
		}
		path, deleted := strings.CutSuffix(f.path, " (deleted)")
		out = append(out, mapping{
			Mapping: target.Mapping{Start: f.start, End: f.end, Offset: f.off, Path: path, Deleted: deleted},
		})
	}
	return out
}

// nameVDSO names the kernel's own library, an image without a file.
func (c *Core) nameVDSO() {
	if m := c.mapping(arch.Addr(c.auxv[auxVDSO])); m != nil && m.Path == "" && uint64(m.Start) == c.auxv[auxVDSO] {
		m.Path = "[vdso]"
	}
}

// findImages gathers the mappings of every file.
func (c *Core) findImages() {
	type key struct {
		path    string
		deleted bool
	}
	byKey := map[key]*image{}
	main := c.main()
	for i := range c.mappings {
		m := &c.mappings[i]
		if !m.IsFile() || isMemoryOnly(m.Path) {
			continue
		}
		k := key{m.Path, m.Deleted}
		im := byKey[k]
		if im == nil {
			im = &image{c: c, path: m.Path, deleted: m.Deleted}
			byKey[k] = im
			c.images = append(c.images, im)
		}
		im.main = im.main || m == main
		im.mappings = append(im.mappings, m)
		m.image = im
	}
}

// isMemoryOnly reports whether only the dump can have the memory mapped from a path. For some
// paths the kernel has made the name, and there is no file. The files below /.dotnet/shm/ have
// the current data that .NET processes share, for example the owner of a named mutex. Their mtime
// need not show a change since the dump: writing to mapped memory sets the mtime only when a page
// becomes dirty, and in some file systems never.
func isMemoryOnly(path string) bool {
	for _, p := range []string{"/memfd:", "/dev/zero", "/SYSV", "/dev/shm/", "/anon_hugepage"} {
		if strings.HasPrefix(path, p) {
			return true
		}
	}
	return strings.Contains(path, "/.dotnet/shm/")
}

// mapping returns the mapping around addr, or nil.
func (c *Core) mapping(addr arch.Addr) *mapping {
	i := sort.Search(len(c.mappings), func(i int) bool { return c.mappings[i].End > addr })
	if i < len(c.mappings) && c.mappings[i].Start <= addr {
		return &c.mappings[i]
	}
	return nil
}

// Mappings returns the dump's mappings: mappings of files, and memory that was dumped or left
// out. Two kinds have the permissions that the file asks for, too (readable, if the file does not
// say): mappings of files that gcore has not dumped, and all file mappings of createdump.
// createdump writes a library in one readable piece, code and all. The result is the same each
// time, and must not be changed.
func (c *Core) Mappings() (target.Mappings, error) {
	c.shownOnce.Do(func() {
		for i := range c.mappings {
			if m := &c.mappings[i]; !m.known {
				m.Perm |= target.PermRead
			}
		}
		for _, im := range c.images {
			im.permissions()
		}
		c.shown = make(target.Mappings, len(c.mappings))
		for i := range c.mappings {
			c.shown[i] = c.mappings[i].Mapping
		}
	})
	return c.shown, nil
}

// unwritten reports whether the process had not written to the left-out parts of a mapping
// outside images. The kernel and gdb dump a private mapping whole once a page of the mapping was
// written to; only the kernel has the permissions.
func (c *Core) unwritten(m *mapping) bool {
	switch c.notes.writer {
	case writerKernel:
		return m.known && m.Perm&target.PermWrite == 0
	case writerGCore:
		return !m.known || m.Perm&target.PermWrite == 0
	}
	return false
}
