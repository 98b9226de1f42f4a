// Package source finds the source lines of a target's managed code. It looks for the portable PDB of
// each assembly, and rejects PDBs of other builds.
//
// A PDB is looked for inside the assembly; in the runtime's memory, for an assembly loaded from memory
// with its PDB; in folders that the user names; beside the assembly as the target sees it, under the
// assembly's name and under the name that the compiler wrote, without its folder; and, in a
// single-file program, in its bundle and beside the bundle. The PDB must have the id in the assembly,
// and the checksum if the assembly has a checksum.
package source

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/bundle"
	"clrsnap/internal/foreign"
	"clrsnap/internal/pace"
	"clrsnap/internal/pdb"
	"clrsnap/internal/pe"
	"clrsnap/internal/target"
	"clrsnap/symbols"
)

// Target is where the assemblies are.
type Target interface {
	target.Memory
	// OpenFile opens a regular file by its path in the target.
	OpenFile(path string) (target.File, error)
	// File is the path of a module's file, or of the single-file program around the module; "": the module
	// was loaded from memory. known is false if the answer may come too early: ask again later.
	File(m *Module) (path string, known bool)
	// SymbolStream is where the runtime keeps the symbols of an assembly that was loaded with its symbols
	// from memory, and their size in bytes; 0: there are none.
	SymbolStream(module arch.Addr) (at arch.Addr, size uint32)
	// Unproved reports whether the image of a module may differ from the image that the runtime has
	// loaded.
	Unproved(module arch.Addr) bool
	// Bundle opens the target's single-file program. The error is fs.ErrNotExist if there is none.
	Bundle() (f target.File, path string, err error)
}

// Module is a loaded assembly.
type Module struct {
	Assembly string    // its simple name
	Address  arch.Addr // of the runtime's Module
	Image    arch.Addr // where the assembly was loaded
	Passing  bool      // the assembly can be unloaded, so that another assembly may be at Image the next time
}

// Line is a place in a source file.
type Line struct {
	File        string // as the compiler wrote it: a path on the build machine; or as mapped by a Root
	Line        int    // counted from 1
	Column      int    // counted from 1, in UTF-16 code units
	URL         string // the file's address according to SourceLink; empty: none
	Approximate bool   // the code itself belongs to no line, or to one of several: this is the first line before
}

// ErrNone: there is no line. An error that wraps ErrNone says why, in words that can follow "no line:
// ".
var ErrNone = errors.New("no line")

func none(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNone, fmt.Sprintf(format, args...))
}

// Finder finds the lines of one target. A Finder is not safe for concurrent use.
type Finder struct {
	target Target
	mem    *target.Reader
	dirs   []string
	remote bool                    // missing PDBs may be fetched
	pdbs   map[arch.Addr]*Assembly // by the address of the image
	room   int                     // bytes of further PDBs to keep
	unread *pace.Allowance         // bytes of files
	lacked int64                   // bytes of the last file refused by unread
	roots  Roots

	held, packed int // files and bytes of Later

	bundled bool           // the bundle has been looked for
	bundle  *bundle.Bundle // nil: there is none
	host    string         // the path of the single-file program
	close   func() error   // of the program's file; nil: the file is not open
}

// Assembly is an assembly with its PDB.
type Assembly struct {
	id    [20]byte // of the PDB, according to the assembly
	file  *pdb.File
	link  *pdb.SourceLink
	err   error        // why there is no file
	size  int          // of the file, in bytes
	soon  bool         // the file of the assembly was not known: ask again
	lacks int64        // bytes that must be allowed before asking again makes sense; 0: never
	want  *symbols.Key // what to ask a server for, before the server was asked; nil: nothing
	debug *pe.Debug    // the debug directory for want

	unproved bool // the assembly may be another build, and so all its lines are approximate

	roots     Roots
	documents map[int32]document
}

// document is a source file.
type document struct{ name, url string }

// Bounds of reading and keeping.
const (
	maxPDBs       = 96 << 20  // bytes of all kept PDBs
	maxRead       = 512 << 20 // bytes of all PDBs read at once, including other builds
	readPerSecond = 8 << 20   // and over time
	maxAssemblies = 1 << 14
)

func newUnread() *pace.Allowance { return pace.NewAllowance(maxRead, readPerSecond) }

// New returns a Finder that also looks into some folders of this machine. The roots say the files of
// its lines, as far as they can. remote says that missing PDBs may be fetched: see Fetch.
func New(t Target, dirs []string, roots Roots, remote bool) *Finder {
	return &Finder{
		target: t, mem: target.NewReader(t), dirs: dirs, roots: roots, remote: remote,
		pdbs: map[arch.Addr]*Assembly{}, room: maxPDBs, unread: newUnread(),
	}
}

// Line returns the line of the IL offset il in a method, by its row number. Without a line the error wraps
// ErrNone.
func (a *Assembly) Line(method, il uint32) (Line, error) { return a.LineIn(method, il, il+1) }

// LineIn is Line for code of the IL from il up to next. The line is approximate if the code can be of
// several lines.
func (a *Assembly) LineIn(method, il, next uint32) (Line, error) {
	if a.file == nil {
		return Line{}, a.err
	}
	at, exact, ok := a.file.LineIn(method, il, next)
	if !ok {
		return Line{}, none("the method has none in its PDB")
	}
	return a.line(at, exact)
}

func (a *Assembly) line(at pdb.Point, exact bool) (Line, error) {
	if at.Line == 0 {
		return Line{}, none("the method has none in its PDB")
	}
	d, err := a.document(at.Document)
	if err != nil {
		return Line{}, none("%v", err)
	}
	return Line{
		File: d.name, URL: d.url, Line: int(at.Line), Column: int(at.Column), Approximate: !exact || a.unproved,
	}, nil
}

func (a *Assembly) document(i int32) (document, error) {
	if d, ok := a.documents[i]; ok {
		return d, nil
	}
	full, err := a.file.Document(i)
	if err != nil {
		return document{}, err
	}
	algorithm, sum := full.Checksum()
	d := document{name: cmp.Or(a.roots.Path(full.Name, algorithm, sum), full.Name)}
	if a.link != nil {
		d.url, _ = a.link.URL(full.Name)
	}
	a.documents[i] = d
	return d, nil
}

// Close closes the open files. The lines of found PDBs can still be read.
func (f *Finder) Close() error {
	if f.close == nil {
		return nil
	}
	err := f.close()
	f.bundle, f.close = nil, nil
	return err
}

// Assembly returns the assembly of a module, if its PDB can be found; else the error wraps ErrNone.
func (f *Finder) Assembly(m *Module) (*Assembly, error) {
	a := f.pdbs[m.Image]
	again := a != nil && a.err != nil && a.lacks > 0 && f.unread.Left() >= a.lacks
	switch {
	case a == nil || again:
	case a.soon:
		if _, known := f.target.File(m); !known {
			return a, a.err
		}
	case !m.Passing:
		return a, a.err
	}
	d, err := pe.DebugDirectory(f.mem, m.Image)
	if err != nil {
		return nil, none("%v", err)
	}
	view, ok := d.Portable()
	if a != nil && !a.soon && !again && ok && a.id == view.ID() {
		return a, a.err
	}
	if a != nil {
		f.room += a.size
	}
	if len(f.pdbs) >= maxAssemblies {
		clear(f.pdbs)
		f.room = maxPDBs
	}
	a = &Assembly{
		id: view.ID(), roots: f.roots, documents: map[int32]document{}, unproved: f.target.Unproved(m.Address),
	}
	f.pdbs[m.Image] = a
	f.lacked = 0
	a.err = f.load(a, d, m)
	a.lacks = f.lacked
	return a, a.err
}

// load finds the PDB for a debug directory.
func (f *Finder) load(a *Assembly, d *pe.Debug, m *Module) error {
	var why error
	if d.HasEmbedded() {
		if why = f.embedded(a, d); why == nil {
			return nil
		}
	}
	view, ok := d.Portable()
	if !ok {
		return cmp.Or(why, none("the assembly was built without a portable PDB"))
	}
	name := fileName(view.Path)
	if name == "" {
		return cmp.Or(why, none("the assembly does not name its PDB"))
	}
	for _, read := range f.places(a, name, m) {
		b, err := read()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = f.match(a, d, b)
		}
		if err == nil {
			a.soon = false
			return nil
		}
		why = cmp.Or(why, fmt.Errorf("%w: %s: %w", ErrNone, name, err))
	}
	if f.remote {
		a.want, a.debug = key(name, &view, d), d
	}
	return cmp.Or(why, none("%s was not found beside the assembly", name))
}

func (f *Finder) embedded(a *Assembly, d *pe.Debug) error {
	if size := int64(d.EmbeddedSize()); !f.unread.Take(size) {
		f.lacked = size
		return none("%v", errUnread)
	}
	file, err := pdb.Embedded(d, f.mem)
	if err != nil {
		return none("%v", err)
	}
	return f.keep(a, file)
}

// places are functions that read candidates for the PDB.
func (f *Finder) places(a *Assembly, name string, m *Module) []func() ([]byte, error) {
	of, known := f.target.File(m)
	a.soon = !known
	out := []func() ([]byte, error){func() ([]byte, error) { return f.stream(m) }}
	for _, open := range f.files(name, of) {
		if open == nil {
			out = append(out, func() ([]byte, error) { return f.inBundle(name) })
		} else {
			out = append(out, func() ([]byte, error) { return f.read(open()) })
		}
	}
	return out
}

// files are functions that open candidates for a PDB, by its name and by the file of its assembly, if
// there is a file: in the folders, beside the assembly, and beside the bundle. nil stands for the file
// in the bundle.
func (f *Finder) files(name, of string) []func() (target.File, error) {
	var out []func() (target.File, error)
	for _, dir := range f.dirs {
		out = append(out, func() (target.File, error) { return foreign.Open(path.Join(dir, name)) })
	}
	beside := func(file, name string) {
		out = append(out, func() (target.File, error) { return f.target.OpenFile(path.Join(path.Dir(file), name)) })
	}
	if of != "" {
		beside(of, name)
		if own := strings.TrimSuffix(path.Base(of), path.Ext(of)) + ".pdb"; own != name {
			beside(of, own)
		}
	}
	if f.openBundle() {
		if out = append(out, nil); f.host != of {
			beside(f.host, name)
		}
	}
	return out
}

// stream reads the PDB of an assembly that was loaded with its PDB from memory.
func (f *Finder) stream(m *Module) ([]byte, error) {
	at, size := f.target.SymbolStream(m.Address)
	if size == 0 {
		return nil, fs.ErrNotExist
	}
	if err := f.take(int64(size)); err != nil {
		return nil, err
	}
	return f.mem.Pieces(at, int(size))
}

// openBundle opens the bundle, if the target is a single-file program.
func (f *Finder) openBundle() bool {
	if !f.bundled {
		f.bundled = true
		file, name, err := f.target.Bundle()
		if err != nil {
			return false
		}
		f.host, f.close = name, file.Close
		f.bundle, _ = bundle.Open(file) // without a bundle there may be files beside the program
	}
	return f.host != ""
}

func (f *Finder) inBundle(name string) ([]byte, error) {
	if f.bundle == nil {
		return nil, fs.ErrNotExist
	}
	file, ok, err := f.bundle.PDB(name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fs.ErrNotExist
	}
	size := file.Size()
	if err := f.take(size); err != nil {
		return nil, err
	}
	return f.bundle.Read(file, int(size))
}

// take allows a PDB of so many bytes to be read.
func (f *Finder) take(size int64) error {
	if most := min(pdb.MaxSize, f.room); size > int64(most) {
		return tooLarge(most)
	}
	if !f.unread.Take(size) {
		f.lacked = size
		return errUnread
	}
	return nil
}

func tooLarge(most int) error { return fmt.Errorf("the file has more than %d bytes", most) }

// read reads an opened file, and closes the file.
func (f *Finder) read(file target.File, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := sizeOf(file)
	if err != nil {
		return nil, err
	}
	if err := f.take(size); err != nil {
		return nil, err
	}
	b := make([]byte, size)
	_, err = io.ReadFull(io.NewSectionReader(file, 0, size), b)
	return b, err
}

// sizeOf is the size of a file in bytes.
func sizeOf(file target.File) (int64, error) {
	f, ok := file.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return 0, errors.New("a file of unknown size")
	}
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f *Finder) match(a *Assembly, d *pe.Debug, b []byte) error {
	p, err := pdb.Match(d, b)
	if err != nil {
		return err
	}
	return f.keep(a, p)
}

func (f *Finder) keep(a *Assembly, p *pdb.File) error {
	if p.Size() > f.room {
		return none("the PDB has %d bytes, more than can be kept", p.Size())
	}
	a.use(p)
	f.room -= a.size
	return nil
}

// use makes p the PDB of the assembly.
func (a *Assembly) use(p *pdb.File) {
	a.file, a.size = p, p.Size()
	a.link, _ = p.SourceLink() // without SourceLink there are no URLs
}

// fileName is the last part of a path of any system.
func fileName(p string) string {
	return p[strings.LastIndexAny(p, `/\`)+1:]
}
