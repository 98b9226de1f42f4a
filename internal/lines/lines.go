// Package lines adds source lines, and the text around the lines, to recordings. A recording knows the
// places of its code: the assembly, the method and the IL offset, or the native library and the offset
// there. The assembly's PDB says the line, or the library's DWARF. The library's symbols also name its
// functions.
package lines

import (
	"context"
	"path"
	"slices"

	"clrsnap/internal/module"
	"clrsnap/internal/pe"
	"clrsnap/internal/source"
	"clrsnap/profile"
	"clrsnap/symbols"
)

type Options struct {
	Roots source.Roots // where source files are on this machine
	Text  bool         // the text around the lines, where the text can be found
	Local bool         // Text also comes from files with the compiler's name, below no root
}

// From says where symbols come from.
type From struct {
	// Assembly returns an assembly by its index in Recording.Assemblies. It is called once for each
	// assembly with locations without lines.
	Assembly func(i int32) (*source.Assembly, error)
	// Library returns the symbols of a library by its index in Recording.Libraries, and is called in the
	// same way.
	Library func(i int32) (*module.File, error)
	// Remote has symbols that are nowhere else; nil: nothing is fetched.
	Remote symbols.Source
	// Files opens a library's symbols from Remote.
	Files *module.Files
}

// Missing is an assembly without lines.
type Missing struct {
	Assembly int32 // index in Recording.Assemblies
	Why      error // wraps source.ErrNone
}

// Add adds lines to locations without lines, and names to locations in native code. Fetching takes as
// long as it needs, until ctx ends. r's tables are replaced, not changed: another recording can share
// the tables.
func Add(ctx context.Context, r *profile.Recording, from From, o Options) []Missing {
	a := newAdder(r, o)
	missing := a.assemblies(ctx, from)
	a.libraries(ctx, from)
	a.paths()
	if o.Text {
		a.texts()
	}
	return missing
}

// assemblies adds the lines of managed code.
func (a *adder) assemblies(ctx context.Context, from From) []Missing {
	var missing []Missing
	all := a.byAssembly()
	for i, w := range all {
		if len(w.locations) == 0 {
			continue
		}
		pdb, err := from.Assembly(int32(i))
		if err == nil {
			a.assembly(pdb, w.locations)
		} else if w.lines {
			missing = append(missing, Missing{int32(i), err})
		}
	}
	if from.Remote == nil {
		return missing
	}
	var keys []symbols.Key
	var asked []int // indices of missing
	for i := range missing {
		if k, ok := identity(a.r, missing[i].Assembly).Key(); ok {
			keys, asked = append(keys, k), append(asked, i)
		}
	}
	folders := source.NewFolders(nil)
	for n, got := range fetch(ctx, from.Remote, keys) {
		m := &missing[asked[n]]
		pdb, err := folders.Fetched(identity(a.r, m.Assembly), got.file, got.err)
		if m.Why = err; err == nil {
			a.assembly(pdb, all[m.Assembly].locations)
		}
	}
	return slices.DeleteFunc(missing, func(m Missing) bool { return m.Why == nil })
}

// identity identifies the PDB of an assembly.
func identity(r *profile.Recording, i int32) *source.Identity {
	a := &r.Assemblies[i]
	id := &source.Identity{PDB: a.PDB, ID: a.ID}
	for _, c := range a.Checksums {
		id.Checksums = append(id.Checksums, pe.Checksum(c))
	}
	return id
}

// Find is a From.Assembly: it looks for the PDBs in folders of this machine.
func Find(r *profile.Recording, dirs []string) func(i int32) (*source.Assembly, error) {
	folders := source.NewFolders(dirs)
	return func(i int32) (*source.Assembly, error) {
		a := &r.Assemblies[i]
		of := a.Name + ".dll"
		if a.Path != "" {
			of = path.Base(a.Path)
		}
		return folders.Find(*identity(r, i), of)
	}
}

// adder adds lines to one recording.
type adder struct {
	r        *profile.Recording
	o        Options
	sources  *profile.Sources
	hot      []int            // how many samples have a method on their stacks, by the method's index
	text     map[int32][]byte // from inside PDBs, by file; nil: the text was looked for
	kept     int              // bytes of text
	unpacked int              // likewise, also in vain
	known    map[int32]int32  // the files of the documents of one assembly
	callees  map[int32][]string

	functions map[profile.Function]int32 // nil: not made yet
}

func newAdder(r *profile.Recording, o Options) *adder {
	r.Locations, r.Methods = slices.Clone(r.Locations), slices.Clone(r.Methods)
	r.Files, r.Lines = slices.Clone(r.Files), slices.Clone(r.Lines)
	return &adder{
		r: r, o: o, sources: profile.NewSources(r), hot: samplesOf(r),
		text: map[int32][]byte{}, known: map[int32]int32{}, callees: calleesOf(r),
	}
}

// samplesOf counts the samples with a method on their stacks; a recursive method counts often.
func samplesOf(r *profile.Recording) []int {
	below := make([]int, len(r.Nodes))
	for i := range r.Samples {
		below[r.Samples[i].Node] += int(r.Samples[i].Count)
	}
	hot := make([]int, len(r.Methods))
	for n := len(r.Nodes) - 1; n > 0; n-- { // a parent comes before its children
		below[r.Nodes[n].Parent] += below[n]
		if m := r.Locations[r.Nodes[n].Location].Method; m > 0 {
			hot[m] += below[n]
		}
	}
	return hot
}

// work is the work in an assembly.
type work struct {
	locations []int32
	lines     bool // some locations have no line yet; else only the text may be missing
}

// byAssembly returns the locations without a line, or without a text, by assembly.
func (a *adder) byAssembly() []work {
	out := make([]work, len(a.r.Assemblies))
	for i := range a.r.Locations {
		l := &a.r.Locations[i]
		if l.Method <= 0 || l.Line > 0 && (!a.o.Text || len(a.r.Files[a.r.Lines[l.Line].File].Text) > 0) {
			continue
		}
		if of := a.r.Methods[l.Method].Assembly; of > 0 {
			out[of].locations = append(out[of].locations, int32(i))
			out[of].lines = out[of].lines || l.Line == 0
		}
	}
	return out
}

// assembly adds the lines of locations in an assembly.
func (a *adder) assembly(pdb *source.Assembly, locations []int32) {
	clear(a.known)
	for _, i := range locations {
		l := &a.r.Locations[i]
		a.method(pdb, l.Method)
		if l.IL < 0 {
			continue
		}
		at, err := a.point(pdb, i)
		if err != nil {
			continue
		}
		if file := a.file(pdb, at.Document, l.Method); file > 0 && l.Line == 0 {
			l.Line = a.sources.Line(profile.Line{
				File: file, Line: int32(at.Line), Column: int32(at.Column), Approximate: at.Approximate || l.Nearest,
			})
		}
	}
}

// method says where a method is.
func (a *adder) method(pdb *source.Assembly, i int32) {
	m := &a.r.Methods[i]
	if m.File > 0 {
		return
	}
	document, first, last := pdb.Extent(m.Row)
	if document == 0 {
		return
	}
	if m.File = a.file(pdb, document, i); m.File > 0 {
		m.First, m.Last = int32(first), int32(last)
	}
}

// file returns the index of a document's file; 0: there is no file. If the PDB contains the text of a
// method's file, and the text may be needed, the text is kept.
func (a *adder) file(pdb *source.Assembly, document, method int32) int32 {
	i, ok := a.known[document]
	if !ok {
		if d, err := pdb.Document(document); err == nil && d.Name != "" {
			i = a.sources.File(profile.SourceFile{
				Name: d.Name, URL: d.URL, Checksum: profile.Checksum{Algorithm: d.Algorithm, Sum: d.Sum},
			})
		}
		a.known[document] = i
	}
	if _, tried := a.text[i]; i > 0 && a.o.Text && !tried && a.hot[method] > 0 {
		a.text[i] = a.textIn(pdb, document)
	}
	return i
}

// textIn returns the text of a document inside a PDB; nil: there is none, or no room for the text.
func (a *adder) textIn(pdb texts, document int32) []byte {
	size := pdb.TextSize(document)
	if size <= 0 || size > maxTexts-a.kept || size > maxUnpacked-a.unpacked {
		return nil
	}
	a.unpacked += size
	b, ok := pdb.Text(document)
	if !ok || len(b) > maxTexts-a.kept {
		return nil
	}
	a.kept += len(b)
	return b
}

// texts are the texts inside a PDB.
type texts interface {
	TextSize(document int32) int
	Text(document int32) ([]byte, bool)
}

// Bounds of the texts from inside PDBs, in bytes.
const (
	maxTexts    = 64 << 20  // kept
	maxUnpacked = 128 << 20 // unpacked, also in vain
)

// paths says where files are on this machine.
func (a *adder) paths() {
	if len(a.o.Roots) == 0 {
		return
	}
	for i := range a.r.Files {
		f := &a.r.Files[i]
		if p := a.o.Roots.Path(f.Name, f.Checksum.Algorithm, f.Checksum.Sum); p != "" {
			f.Path = p
		}
	}
}
