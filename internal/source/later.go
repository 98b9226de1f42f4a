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
	"clrsnap/internal/pace"
	"clrsnap/internal/pdb"
	"clrsnap/internal/pe"
	"clrsnap/internal/target"
	"clrsnap/symbols"
)

// Identity identifies the PDB of an assembly.
type Identity struct {
	PDB       string // its file name, without its folder
	ID        [20]byte
	Checksums []pe.Checksum // the PDB has one of these; none: the assembly does not say
}

// Later is an assembly whose PDB will be read later, when its process may have ended. It holds the
// means to read the PDB: the open file, or the PDB from inside the assembly.
type Later struct {
	Identity
	Path string // the assembly's file, as the target sees it; empty: the assembly is in memory only

	finder *Finder
	debug  *pe.Debug
	packed *pe.Packed
	stream []byte                   // the PDB of an assembly in memory; nil: there is none
	reads  []func() ([]byte, error) // candidates for the PDB
	files  []target.File            // the files of reads
	why    error                    // why there is no PDB
}

// Bounds for all Later of one Finder.
const (
	maxHeldFiles  = 512
	maxHeldPacked = 64 << 20 // bytes of PDBs inside assemblies, and of PDBs in memory
)

// Identity returns the identity of an assembly's PDB. An assembly built without a PDB has an error
// that wraps ErrNone.
func (f *Finder) Identity(m *Module) (Identity, error) {
	_, id, err := f.identity(m.Image)
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

// Later looks for the PDB of an assembly, and holds it without parsing it. known is false if the file
// of the assembly is not known yet: call Locate again. The error is Identity's. Close releases the
// held PDB.
func (f *Finder) Later(m *Module) (l *Later, known bool, err error) {
	d, id, err := f.identity(m.Image)
	if err != nil {
		return nil, false, err
	}
	l = &Later{Identity: id, finder: f, debug: d}
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
	return l, f.Locate(l, m), nil
}

// Locate looks for the file of an assembly, and for the PDBs in the folders and beside the file. It
// returns false if the file is not known yet.
func (f *Finder) Locate(l *Later, m *Module) (known bool) {
	l.Path, known = f.target.File(m)
	l.release()
	if l.PDB == "" {
		return known
	}
	if l.stream == nil {
		if b, err := f.stream(m); err == nil && f.packed+len(b) <= maxHeldPacked {
			f.packed += len(b)
			l.stream = b
		}
	}
	if l.stream != nil {
		l.reads = append(l.reads, func() ([]byte, error) { return l.stream, nil })
	}
	for _, open := range f.files(l.PDB, l.Path) {
		if open == nil {
			l.reads = append(l.reads, func() ([]byte, error) { return f.inBundle(l.PDB) })
		} else {
			f.hold(l, open)
		}
	}
	return known
}

// hold opens a candidate for the PDB, and keeps it open.
func (f *Finder) hold(l *Later, open func() (target.File, error)) {
	if f.held >= maxHeldFiles {
		return
	}
	file, err := open()
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		l.why = cmp.Or(l.why, none("%v", err))
		return
	}
	f.held++
	l.files = append(l.files, file)
	l.reads = append(l.reads, func() ([]byte, error) { return readAll(file, f.unread) })
}

// Assembly reads the PDB. Without one the error wraps ErrNone.
func (l *Later) Assembly() (*Assembly, error) {
	why := l.why
	if l.packed != nil {
		b, err := l.unpack()
		if err == nil {
			var p *pdb.File
			if p, err = pdb.Unpacked(l.debug, b); err == nil {
				return assemblyOf(p), nil
			}
		}
		why = cmp.Or(why, none("%v", err))
	}
	for _, read := range l.reads {
		b, err := read()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			var p *pdb.File
			if p, err = pdb.Match(l.debug, b); err == nil {
				return assemblyOf(p), nil
			}
		}
		why = cmp.Or(why, none("%s: %v", l.PDB, err))
	}
	return nil, cmp.Or(why, none("%s was not found beside the assembly", l.PDB))
}

// unpack unpacks the PDB from inside the assembly.
func (l *Later) unpack() ([]byte, error) {
	if !l.finder.unread.Take(int64(l.packed.Unpacked())) {
		return nil, errUnread
	}
	return l.packed.Unpack()
}

// Close releases the held files and PDBs.
func (l *Later) Close() {
	l.release()
	l.finder.packed -= len(l.stream)
	if l.packed != nil {
		l.finder.packed -= l.packed.Size()
	}
	l.stream, l.packed = nil, nil
}

// release closes the files.
func (l *Later) release() {
	for _, file := range l.files {
		file.Close()
	}
	l.finder.held -= len(l.files)
	l.files, l.reads = nil, nil
}

// Folders are folders of this machine with PDBs. Reading there is bounded.
type Folders struct {
	dirs   []string
	unread *pace.Allowance // bytes
}

// NewFolders returns folders; the list can be empty.
func NewFolders(dirs []string) *Folders { return &Folders{dirs, newUnread()} }

// Find looks for a PDB, and for the assembly itself, which may contain the PDB. of is the assembly's
// file name. Without a PDB the error wraps ErrNone.
func (f *Folders) Find(id Identity, of string) (*Assembly, error) {
	if id.ID == [20]byte{} {
		return nil, none("the PDB of the assembly is not known")
	}
	want := &pe.Debug{CodeView: []pe.CodeView{id.view()}, Checksums: id.Checksums}
	var why error
	for _, dir := range f.dirs {
		for _, try := range []func() (*pdb.File, error){
			func() (*pdb.File, error) { return f.findPDB(want, dir, id.PDB) },
			func() (*pdb.File, error) { return f.findEmbedded(id, dir, of) },
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

// Key identifies the PDB for a server; false: the PDB's identity is not known.
func (id *Identity) Key() (symbols.Key, bool) {
	if id.ID == [20]byte{} || id.PDB == "" {
		return symbols.Key{}, false
	}
	view := id.view()
	return *key(id.PDB, &view, &pe.Debug{Checksums: id.Checksums}), true
}

// Fetched reads a PDB from a server, and closes its file; or says that no server had the PDB. The
// error wraps ErrNone.
func (f *Folders) Fetched(id *Identity, file symbols.File, err error) (*Assembly, error) {
	if err != nil {
		return nil, none("%s: %v", id.PDB, err)
	}
	defer file.Close()
	p, err := f.readPDB(&pe.Debug{CodeView: []pe.CodeView{id.view()}, Checksums: id.Checksums}, id.PDB, file)
	if err != nil {
		return nil, none("%v", err)
	}
	return assemblyOf(p), nil
}

// view is the entry of a debug directory that names the PDB.
func (id Identity) view() pe.CodeView {
	return pe.CodeView{
		GUID: [16]byte(id.ID[:16]), Age: 1, Path: id.PDB, Portable: true,
		Stamp: uint32(id.ID[16]) | uint32(id.ID[17])<<8 | uint32(id.ID[18])<<16 | uint32(id.ID[19])<<24,
	}
}

func (f *Folders) findPDB(want *pe.Debug, dir, name string) (*pdb.File, error) {
	file, err := openIn(dir, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return f.readPDB(want, name, file)
}

// findEmbedded reads the PDB inside an assembly of the same build.
func (f *Folders) findEmbedded(id Identity, dir, name string) (*pdb.File, error) {
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
	if !f.unread.Take(int64(d.EmbeddedSize())) {
		return nil, errUnread
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
	a := &Assembly{documents: map[int32]document{}}
	a.use(p)
	return a
}

// readPDB reads a PDB, and makes sure that it is the PDB for d.
func (f *Folders) readPDB(d *pe.Debug, name string, file target.File) (*pdb.File, error) {
	b, err := readAll(file, f.unread)
	if err != nil {
		return nil, err
	}
	p, err := pdb.Match(d, b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// errUnread: no program has so many bytes of PDBs.
var errUnread = fmt.Errorf("more than %d bytes of PDBs were read for the other assemblies", maxRead)

// readAll reads a candidate for a PDB.
func readAll(file target.File, unread *pace.Allowance) ([]byte, error) {
	size, err := sizeOf(file)
	if err != nil {
		return nil, err
	}
	if size > pdb.MaxSize {
		return nil, tooLarge(pdb.MaxSize)
	}
	if !unread.Take(size) {
		return nil, errUnread
	}
	b := make([]byte, size)
	_, err = io.ReadFull(io.NewSectionReader(file, 0, size), b)
	return b, err
}
