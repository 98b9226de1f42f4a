package module

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path"

	"clrsnap/internal/arch"
	"clrsnap/internal/dwarfline"
	"clrsnap/internal/elfx"
	"clrsnap/internal/symbol"
	"clrsnap/internal/target"
)

// Files finds the symbols of native modules without a process, by their build ids. Files is not safe for concurrent
// use. Reads and memory are bounded.
type Files struct {
	find func(path string) []target.File
	set  *Set // for its budget
	open []*File
}

// File has the symbols of one build of a module. Addresses are link-time addresses: see Module.Offset.
type File struct {
	m     *Module // of a process; nil: the other fields count
	img   *image
	set   *Set
	lines *dwarfline.Table
}

// ErrNoFile: no file has the symbols.
var ErrNoFile = errors.New("no file has its symbols")

// NewFiles returns Files for some folders: find opens files by a path below the folders; nil: there are no folders.
// lines bounds the line table of a file, in bytes.
func NewFiles(find func(path string) []target.File, lines int64) *Files {
	s := &Set{budget: elfx.NewBudget()}
	s.Debug(Debugging{Lines: lines})
	return &Files{find: find, set: s}
}

// Find looks for the debug file of a module, and for the module itself. If there is neither, the error wraps
// ErrNoFile. name is the module's file name, and can be hostile.
func (f *Files) Find(name string, id []byte) (*File, error) {
	if len(id) < 2 || f.find == nil {
		return nil, fmt.Errorf("%w: no build id, or no folder", ErrNoFile)
	}
	names := []string{path.Join(".build-id", hex.EncodeToString(id[:1]), hex.EncodeToString(id[1:])+".debug"),
		hex.EncodeToString(id) + ".debug"}
	if name == path.Base(name) && name != "." && name != ".." && name != "/" {
		names = append(names, name+".dbg", name+".debug", name)
	}
	why := fmt.Errorf("%w: in no folder", ErrNoFile)
	for _, name := range names {
		files := f.find(name)
		for i, file := range files {
			found, err := f.Use(file, id)
			if err != nil {
				why = fmt.Errorf("%w: %s: %w", ErrNoFile, name, err)
				continue
			}
			for _, other := range files[i+1:] {
				other.Close()
			}
			return found, nil
		}
	}
	return nil, why
}

// Use takes a file that may have the symbols, and closes the file now or with Close.
func (f *Files) Use(file target.File, id []byte) (*File, error) {
	var d debug
	if err := f.set.accept(&d, file, id, false, 0); err != nil {
		file.Close()
		return nil, err
	}
	out := &File{img: d.img, set: f.set}
	f.open = append(f.open, out)
	return out, nil
}

// Close closes the files.
func (f *Files) Close() {
	for _, file := range f.open {
		file.img.close()
	}
	f.open = nil
}

// File returns the present symbols of the module.
func (m *Module) File() *File { return &File{m: m} }

// Symbol returns the function at an address and the offset in it.
func (f *File) Symbol(addr arch.Addr) (fn *symbol.Func, offset uint64, ok bool) {
	if f.m != nil {
		return f.m.Symbol(addr + f.m.bias)
	}
	return f.img.syms.Lookup(addr)
}

// Line is Module.Line.
func (f *File) Line(addr arch.Addr) (dwarfline.Line, error) {
	if f.m != nil {
		return f.m.Line(addr + f.m.bias)
	}
	if f.lines == nil {
		f.lines = f.set.lineTable(f.img.elf)
	}
	return f.lines.Lookup(addr)
}

// BuildID returns the build id of the module's image; nil: there is none, or it cannot be read.
func (m *Module) BuildID() []byte {
	if m.load() != nil {
		return nil
	}
	id, err := m.img.elf.BuildID()
	if err != nil {
		return nil
	}
	return id
}
