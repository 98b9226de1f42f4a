package module

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"

	"clrsnap/internal/arch"
	"clrsnap/internal/dwarfline"
	"clrsnap/internal/elfx"
	"clrsnap/internal/symbol"
	"clrsnap/internal/target"
	"clrsnap/symbols"
)

// A DebugFinder opens files that may have the symbols a module was stripped of. The module package verifies the
// files.
type DebugFinder interface {
	// OpenFile opens a regular file by its path in the target.
	OpenFile(path string) (target.File, error)
	// OpenOwn opens a file on this machine, by a path below the user's folders of symbols.
	OpenOwn(path string) (files []target.File)
}

// Debugging controls the search for symbols outside the modules themselves.
type Debugging struct {
	Finder DebugFinder // nil: no search
	Lines  int64       // bytes of a file's line table to read, at most
	Remote bool        // missing symbols may be fetched: see Fetch
}

// debug has the symbols that a module was stripped of, or the module's own line table.
type debug struct {
	img   *image // nil: the module has no other file
	lines *dwarfline.Table
	want  *symbols.Key // a key for symbol servers; nil: nothing to fetch
}

// Bounds of line tables, in bytes of a file's .debug_line. A megabyte takes 20 ms to read. A user who names folders
// or servers with symbols wants all lines, however long the reading takes.
const (
	FewLines = 4 << 20
	AllLines = 256 << 20
)

// Bounds of debug files.
const (
	maxChecked     = 512 << 20 // bytes to read for a checksum
	maxDebugText   = 512 << 20 // bytes of .debug_info and of sections with names; only a little is read
	debugDirectory = "/usr/lib/debug"
)

// errNoDebug: there is no debug file.
var errNoDebug = errors.New("no debug file")

// debugging returns the module's debug, and finds it on first use.
func (m *Module) debugging() *debug {
	d := &m.img.debug
	d.once.Do(func() { m.findDebug(&d.debug) })
	return &d.debug
}

// lazyDebug is found on first use.
type lazyDebug struct {
	once sync.Once
	debug
}

// findDebug looks for the debug file in the places of distributions, .NET and users.
func (m *Module) findDebug(d *debug) {
	from := m.set.debugging.Finder
	if from == nil || m.img.file == nil {
		return
	}
	id, err := m.img.elf.BuildID()
	if err != nil {
		id = nil
	}
	link, crc, linked := m.img.elf.DebugLink()
	if linked && (path.Base(link) != link || link == "." || link == "..") {
		link, linked = "", false
	}
	for open := range m.debugFiles(from, id, link) {
		for _, f := range open() {
			if d.img == nil && m.set.accept(d, f, id, linked, crc) == nil {
				continue
			}
			f.Close()
		}
		if d.img != nil {
			return
		}
	}
	if m.set.debugging.Remote && id != nil {
		d.want = &symbols.Key{Kind: symbols.Debug, Name: m.Name, ID: id}
	}
}

// debugFiles yields functions that open possible debug files.
func (m *Module) debugFiles(from DebugFinder, id []byte, link string) func(yield func(func() []target.File) bool) {
	theirs := func(p string) func() []target.File {
		return func() []target.File {
			f, err := from.OpenFile(p)
			if err != nil {
				return nil
			}
			return []target.File{f}
		}
	}
	own := func(p string) func() []target.File { return func() []target.File { return from.OpenOwn(p) } }
	dir := path.Dir(m.Path)
	return func(yield func(func() []target.File) bool) {
		var all []func() []target.File
		if len(id) > 1 {
			name := hex.EncodeToString(id)
			below := path.Join(".build-id", name[:2], name[2:]+".debug")
			all = append(all, own(below), own(name+".debug"), theirs(path.Join(debugDirectory, below)))
		}
		all = append(all, own(m.Name+".dbg"), own(m.Name+".debug"), theirs(m.Path+".dbg"))
		if link != "" {
			all = append(all, own(link), theirs(path.Join(dir, link)), theirs(path.Join(dir, ".debug", link)),
				theirs(path.Join(debugDirectory, dir, link)))
		}
		for _, open := range all {
			if !yield(open) {
				return
			}
		}
	}
}

// accept takes a file, which d then has to close, if the module was stripped of the file's symbols. The build id
// decides or, if the module has no build id, the module's checksum of the file.
func (s *Set) accept(d *debug, f target.File, id []byte, linked bool, crc uint32) error {
	elf, err := s.budget.Image(f)
	if err != nil {
		return err
	}
	switch own, err := elf.BuildID(); {
	case id != nil && err == nil && bytes.Equal(own, id):
	case id == nil && linked:
		var sum uint32
		if sum, err = elfx.Checksum(f, maxChecked); err == nil && sum == crc {
			break
		}
		fallthrough
	default:
		elf.Close()
		return fmt.Errorf("%w: it belongs to another build", errNoDebug)
	}
	d.img = &image{file: f, elf: elf, syms: symbol.New(elf)}
	d.want = nil
	return nil
}

// strippedSymbol is Symbol for a function that the module itself does not name.
func (m *Module) strippedSymbol(vaddr arch.Addr) (f *symbol.Func, offset uint64, ok bool) {
	if m.img.syms.Complete() {
		return nil, 0, false
	}
	d := m.debugging()
	if d.img == nil {
		return nil, 0, false
	}
	return d.img.syms.Lookup(vaddr)
}

// Line returns the source line of the instruction at an address, if the module or its debug file has DWARF for the
// instruction. The error wraps dwarfline.ErrNone, or says what is wrong with the DWARF.
func (m *Module) Line(addr arch.Addr) (dwarfline.Line, error) {
	if err := m.load(); err != nil {
		return dwarfline.Line{}, fmt.Errorf("%w: %w", dwarfline.ErrNone, err)
	}
	if m.img.lines == nil {
		m.img.lines = m.set.lineTable(m.img.elf)
	}
	start := arch.Addr(0)
	if f, _, ok := m.Symbol(addr); ok {
		start = f.Start
	}
	l, err := m.img.lines.LookupIn(addr-m.bias, start)
	if !errors.Is(err, elfx.ErrNotFound) {
		return l, err
	}
	d := m.debugging()
	if d.img == nil {
		return l, err
	}
	if d.lines == nil {
		d.lines = m.set.lineTable(d.img.elf)
	}
	return d.lines.LookupIn(addr-m.bias, start)
}

// lineTable is the line table of an image.
func (s *Set) lineTable(elf *elfx.Image) *dwarfline.Table {
	most := map[string]int64{".debug_line": s.debugging.Lines}
	return dwarfline.New(func(name string) (io.ReaderAt, int64, error) {
		if n, ok := most[name]; ok {
			return elf.DebugSection(name, n)
		}
		return elf.DebugSection(name, maxDebugText)
	}, elf.Reserve)
}

// Wanted reports whether the module lacks symbols that Fetch may get.
func (m *Module) Wanted() bool {
	return m.load() == nil && m.img.file != nil && !m.img.syms.Complete() && m.debugging().want != nil
}

// Fetch gets the debug files of the Wanted modules among modules. Fetch takes as long as from takes, or until ctx
// ends; modules whose file has not come by then stay Wanted.
func (s *Set) Fetch(ctx context.Context, from symbols.Source, modules []*Module) {
	for _, m := range modules {
		if !m.Wanted() {
			continue
		}
		d := &m.img.debug
		want := d.want
		f, err := from.Open(ctx, *want)
		if err != nil && ctx.Err() != nil {
			return
		}
		d.want = nil
		if err != nil {
			continue
		}
		if s.accept(&d.debug, f, want.ID, false, 0) != nil {
			f.Close()
		}
	}
}
