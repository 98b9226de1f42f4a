package source

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"clrsnap/internal/arch"
	"clrsnap/internal/foreign"
	"clrsnap/internal/pdb"
	"clrsnap/internal/pe"
	"clrsnap/internal/target"
)

// Identity is what identifies the PDB of an assembly.
type Identity struct {
	PDB       string // its file name, without its folder
	ID        [20]byte
	Checksums []pe.Checksum // it has one of them; none: the assembly does not say
}

// Later is an assembly whose PDB will be read later, when its process may have ended. It holds what is
// needed for that: the PDB's file, open, or the PDB from inside the assembly.
type Later struct {
	Identity
	Path string // the assembly's file, as the target sees it; empty: it is in memory only

	debug  *pe.Debug
	packed *pe.Packed
	files  []target.File // that may be the PDB
	why    error         // why there is none
}

// Bounds of what all Later of one Finder hold.
const (
	maxHeldFiles  = 512
	maxHeldPacked = 64 << 20 // bytes
)

// Identity returns what identifies the PDB of the assembly whose image is at base. An assembly that was built
// without one has an error that wraps ErrNone.
func (f *Finder) Identity(base arch.Addr) (Identity, error) {
	_, id, err := f.identity(base)
	return id, err
}

func (f *Finder) identity(base arch.Addr) (*pe.Debug, Identity, error) {
	d, err := pe.DebugDirectory(f.mem, base)
	if err != nil {
		return nil, Identity{}, none("%v", err)
	}
	view, ok := d.Portable()
	if !ok && !d.HasEmbedded() {
		return nil, Identity{}, none("the assembly was built without a portable PDB")
	}
	return d, Identity{PDB: fileName(view.Path), ID: view.ID(), Checksums: d.Checksums}, nil
}

// Later looks for the PDB of the assembly whose image is at base, and holds it without reading it. The error
// is Identity's. Close releases what is held.
func (f *Finder) Later(base arch.Addr) (*Later, error) {
	d, id, err := f.identity(base)
	if err != nil {
		return nil, err
	}
	l := &Later{Identity: id, debug: d}
	if d.HasEmbedded() {
		p, err := d.Packed(f.mem)
		switch {
		case err != nil:
			l.why = none("%v", err)
		case f.packed+p.Size() > maxHeldPacked:
			l.why = none("the PDBs inside assemblies have more than %d bytes together", maxHeldPacked)
		default:
			f.packed += p.Size()
			l.packed = &p
		}
	}
	f.Locate(l, base)
	return l, nil
}

// Locate looks for the file of an assembly whose Path is not known yet, and for the PDBs beside it and in the
// folders. It reports whether there is a file: of an assembly that has just been loaded it may not be known yet.
func (f *Finder) Locate(l *Later, base arch.Addr) bool {
	if l.Path = f.target.File(base); l.Path == "" && len(l.files) > 0 || l.packed != nil {
		return l.Path != ""
	}
	l.Close()
	for _, open := range f.places(l.PDB, base) {
		if l.PDB == "" || f.held >= maxHeldFiles {
			break
		}
		file, err := open()
		if err == nil {
			l.files = append(l.files, file)
			f.held++
		} else if !errors.Is(err, fs.ErrNotExist) {
			l.why = cmp.Or(l.why, none("%v", err))
		}
	}
	return l.Path != ""
}

// Assembly reads the PDB. Without one the error wraps ErrNone.
func (l *Later) Assembly() (*Assembly, error) {
	if l.packed != nil {
		b, err := l.packed.Unpack()
		if err != nil {
			return nil, none("%v", err)
		}
		p, err := pdb.Unpacked(l.debug, b)
		if err != nil {
			return nil, none("%v", err)
		}
		return assemblyOf(p), nil
	}
	why := l.why
	for _, file := range l.files {
		p, err := readPDB(l.debug, l.PDB, file, pdb.MaxSize)
		if err == nil {
			return assemblyOf(p), nil
		}
		why = cmp.Or(why, none("%v", err))
	}
	return nil, cmp.Or(why, none("%s was not found beside the assembly", l.PDB))
}

// Close releases the files.
func (l *Later) Close() {
	for _, file := range l.files {
		file.Close()
	}
	l.files = nil
}

// Find looks for a PDB in folders of this machine, and for the assembly itself, which may have it inside. of is
// the assembly's file name. Without a PDB the error wraps ErrNone.
func Find(id Identity, of string, dirs []string) (*Assembly, error) {
	if id.ID == [20]byte{} {
		return nil, none("it is not known which PDB belongs to the assembly")
	}
	want := &pe.Debug{CodeView: []pe.CodeView{id.view()}, Checksums: id.Checksums}
	var why error
	for _, dir := range dirs {
		for _, try := range []func() (*pdb.File, error){
			func() (*pdb.File, error) { return findPDB(want, dir, id.PDB) },
			func() (*pdb.File, error) { return findEmbedded(id, dir, of) },
		} {
			p, err := try()
			if err == nil {
				return assemblyOf(p), nil
			}
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, pe.ErrNoEmbedded) {
				why = cmp.Or(why, none("%v", err))
			}
		}
	}
	return nil, cmp.Or(why, none("%s is in none of the folders", cmp.Or(id.PDB, of)))
}

// view is the entry of a debug directory that names the PDB.
func (id Identity) view() pe.CodeView {
	return pe.CodeView{
		GUID: [16]byte(id.ID[:16]), Age: 1, Path: id.PDB, Portable: true,
		Stamp: uint32(id.ID[16]) | uint32(id.ID[17])<<8 | uint32(id.ID[18])<<16 | uint32(id.ID[19])<<24,
	}
}

func findPDB(want *pe.Debug, dir, name string) (*pdb.File, error) {
	file, err := openIn(dir, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readPDB(want, name, file, pdb.MaxSize)
}

// findEmbedded reads the PDB inside an assembly, which must be the same build.
func findEmbedded(id Identity, dir, name string) (*pdb.File, error) {
	file, err := openIn(dir, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	mem := pe.File(file)
	d, err := pe.DebugDirectory(mem, 0)
	if err != nil {
		return nil, err
	}
	if view, _ := d.Portable(); view.ID() != id.ID {
		return nil, pe.ErrNoEmbedded // another build
	}
	return pdb.Embedded(d, mem)
}

// openIn opens a file in a folder. The name can be hostile.
func openIn(dir, name string) (target.File, error) {
	if name = fileName(name); name == "" || name == "." || name == ".." {
		return nil, fs.ErrNotExist
	}
	return foreign.Open(path.Join(dir, name))
}

func assemblyOf(p *pdb.File) *Assembly {
	a := &Assembly{file: p, size: p.Size(), documents: map[int32]document{}}
	a.link, _ = p.SourceLink() // without it there are no URLs
	return a
}

// readPDB reads a PDB of at most so many bytes, and makes sure that it is the one that d asks for.
func readPDB(d *pe.Debug, name string, file target.File, most int64) (*pdb.File, error) {
	b, err := io.ReadAll(io.NewSectionReader(file, 0, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes", name, most)
	}
	p, err := pdb.Match(d, b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}
