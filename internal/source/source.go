// Package source finds the source lines of a target's managed code. It looks for the portable PDB of
// each assembly, and takes none that is another build's.
//
// A PDB is looked for inside the assembly, in folders that the user names, beside the assembly as
// the target sees it, and below the name that the compiler wrote, without its folder. Its id must be
// that of the assembly, and so must its checksum if the assembly has one.
package source

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/foreign"
	"clrsnap/internal/pdb"
	"clrsnap/internal/pe"
	"clrsnap/internal/target"
)

// Target is where the assemblies are.
type Target interface {
	target.Memory
	// OpenFile opens a regular file by the path that the target sees.
	OpenFile(path string) (target.File, error)
	// File is the path of the file that is mapped at an address; empty: none is.
	File(at arch.Addr) string
}

// Line is a place in a source file.
type Line struct {
	File        string // as the compiler wrote it: a path on the machine that built it; or as a Root maps that
	Line        int    // counted from 1
	Column      int    // likewise, in UTF-16 code units
	URL         string // where SourceLink says that the file can be had; empty: it does not
	Approximate bool   // the code belongs to no line itself: this is the one before
}

// ErrNone: there is no line. What wraps it says why, in words that can follow "no line: ".
var ErrNone = errors.New("no line")

func none(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNone, fmt.Sprintf(format, args...))
}

// Finder finds the lines of one target. It is not safe for concurrent use.
type Finder struct {
	target Target
	mem    *target.Reader
	dirs   []string
	pdbs   map[arch.Addr]*Assembly // by the address of the image
	room   int                     // bytes of PDBs that may still be read
	roots  Roots

	held, packed int // files and bytes of Later
}

// Assembly is an assembly with its PDB.
type Assembly struct {
	id   [20]byte // that the assembly asks for
	file *pdb.File
	link *pdb.SourceLink
	err  error // why there is no file
	size int   // of the file, in bytes

	roots     Roots
	documents map[int32]document
}

// document is a source file.
type document struct{ name, url string }

// Bounds of what is read and kept.
const (
	maxPDBs       = 192 << 20 // bytes of all
	maxAssemblies = 1 << 14
)

// New returns a Finder that also looks into some folders of this machine. The files of its lines are those
// that the roots say, as far as they do.
func New(t Target, dirs []string, roots Roots) *Finder {
	return &Finder{
		target: t, mem: target.NewReader(t), dirs: dirs, roots: roots,
		pdbs: map[arch.Addr]*Assembly{}, room: maxPDBs,
	}
}

// Line returns the line of the IL offset il in a method, by its row number. Without a line the error wraps
// ErrNone.
func (a *Assembly) Line(method, il uint32) (Line, error) {
	at, exact, ok := a.file.LineAt(method, il)
	if !ok {
		return Line{}, none("the method has none in its PDB")
	}
	d, err := a.document(at.Document)
	if err != nil {
		return Line{}, none("%v", err)
	}
	return Line{File: d.name, URL: d.url, Line: int(at.Line), Column: int(at.Column), Approximate: !exact}, nil
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

// Assembly returns the assembly whose image is at base, if its PDB can be found; else the error wraps
// ErrNone. passing says that the assembly can be unloaded, so that another one may be there the next time.
func (f *Finder) Assembly(base arch.Addr, passing bool) (*Assembly, error) {
	a := f.pdbs[base]
	if a != nil && !passing {
		return a, a.err
	}
	d, err := pe.DebugDirectory(f.mem, base)
	if err != nil {
		return nil, none("%v", err)
	}
	view, _ := d.Portable()
	if a != nil && a.id == view.ID() {
		return a, a.err
	}
	if a != nil {
		f.room += a.size
	}
	if len(f.pdbs) >= maxAssemblies {
		clear(f.pdbs)
		f.room = maxPDBs
	}
	a = &Assembly{id: view.ID(), roots: f.roots, documents: map[int32]document{}}
	f.pdbs[base] = a
	if a.err = f.load(a, d, base); a.err == nil {
		a.link, _ = a.file.SourceLink() // without it there are no URLs
	}
	return a, a.err
}

// load finds the PDB that a debug directory asks for.
func (f *Finder) load(a *Assembly, d *pe.Debug, base arch.Addr) error {
	if d.HasEmbedded() {
		return f.embedded(a, d)
	}
	view, ok := d.Portable()
	if !ok {
		return none("the assembly was built without a portable PDB")
	}
	name := fileName(view.Path)
	if name == "" {
		return none("the assembly does not name its PDB")
	}
	var why error
	for _, open := range f.places(name, base) {
		file, err := open()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = f.match(a, d, name, file)
			file.Close()
		}
		if err == nil {
			return nil
		}
		why = cmp.Or(why, err)
	}
	if why == nil {
		return none("%s was not found beside the assembly", name)
	}
	return none("%v", why)
}

func (f *Finder) embedded(a *Assembly, d *pe.Debug) error {
	file, err := pdb.Embedded(d, f.mem)
	if err != nil {
		return none("%v", err)
	}
	return f.keep(a, file)
}

// places are functions that open the files that may be the PDB.
func (f *Finder) places(name string, base arch.Addr) []func() (target.File, error) {
	var out []func() (target.File, error)
	for _, dir := range f.dirs {
		out = append(out, func() (target.File, error) { return foreign.Open(path.Join(dir, name)) })
	}
	of := f.target.File(base)
	if of == "" {
		return out
	}
	beside := func(name string) func() (target.File, error) {
		return func() (target.File, error) { return f.target.OpenFile(path.Join(path.Dir(of), name)) }
	}
	out = append(out, beside(name))
	if own := strings.TrimSuffix(path.Base(of), path.Ext(of)) + ".pdb"; own != name {
		out = append(out, beside(own))
	}
	return out
}

func (f *Finder) match(a *Assembly, d *pe.Debug, name string, file target.File) error {
	p, err := readPDB(d, name, file, int64(min(pdb.MaxSize, f.room)))
	if err != nil {
		return err
	}
	return f.keep(a, p)
}

func (f *Finder) keep(a *Assembly, p *pdb.File) error {
	if p.Size() > f.room {
		return none("its PDB has %d bytes, more than can be kept", p.Size())
	}
	a.file, a.size = p, p.Size()
	f.room -= a.size
	return nil
}

// fileName is the last part of a path of any system.
func fileName(p string) string {
	return p[strings.LastIndexAny(p, `/\`)+1:]
}
