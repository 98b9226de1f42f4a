package profile

import (
	"cmp"
	"slices"

	"clrsnap/snapshot"
)

// Where the locations of a recording are in the program's source text. A recording keeps the method's row in the
// metadata of its assembly, and the IL offset. That is enough to find the line later, with the PDB that the
// assembly asks for. If the PDB was there, the recording has the line, too.
//
// Entry 0 of Recording.Assemblies, Libraries, Methods, Files and Lines stands for none. A recording without entries
// has empty tables.

// Assembly is an assembly that the recorded programs had loaded, with the identity of its PDB.
type Assembly struct {
	Name      string     // as in Function.Module
	Path      string     // of the file, as the program saw the path; empty: in memory only, or not known
	PDB       string     // the PDB's file name, without its folder
	ID        [20]byte   // of the PDB: the GUID and stamp of the assembly's debug directory; zero: not known
	Checksums []Checksum // possible checksums of the PDB; none: the assembly has none
}

// Library is a native module with recorded code, with the identity of its symbols.
type Library struct {
	Name    string // as in Function.Module
	Path    string // of the file, as the program saw the path
	BuildID []byte // of the ELF image; none: there are no symbols elsewhere
}

// MaxLibraries bounds Recording.Libraries.
const MaxLibraries = 1 << 14

// Checksum is the hash of a file.
type Checksum struct {
	Algorithm string // for example SHA256
	Sum       []byte
}

// Method is the definition of a method. All instantiations of a generic method share one definition.
type Method struct {
	Assembly    int32  // index in Recording.Assemblies
	Row         uint32 // of the table of methods in the assembly's metadata, counted from 1
	File        int32  // index in Recording.Files: the method's file; 0: not known
	First, Last int32  // the method's first and last line in File; 0: not known
}

// CallSite is an instruction of a method's IL whose code may call a managed method. All call sites of a method
// together tell the site, and so the line, of a call on a stack: the compiler does not keep an IL offset for each
// call. The line of a call in a method without call sites is not certain.
type CallSite struct {
	Method int32  // index in Recording.Methods
	IL     uint32 // offset
	Callee string // the callee's name, without its type; empty: the runtime chooses the callee
}

// MaxSites bounds Recording.Sites.
const MaxSites = 1 << 18

// Line is a line of source text.
type Line struct {
	File         int32 // index in Recording.Files
	Line, Column int32 // counted from 1; the column in UTF-16 code units, or 0 if not known
	Approximate  bool  // the code itself belongs to no line: this line is the line before
}

// SourceFile is a file of source text.
type SourceFile struct {
	Name     string    // as the compiler wrote the name: a path on the machine that built the program
	Path     string    // the path on this machine by the user's options; empty: none
	URL      string    // the address by SourceLink; empty: none
	Checksum Checksum  // of the compiled text; without a sum: not known
	Text     []Excerpt // the text around the recorded lines, in ascending order; none: the text was not there
}

// Title is the file's name for people: the path on this machine, or else the compiler's name.
func (f *SourceFile) Title() string {
	if f.Path != "" {
		return f.Path
	}
	return f.Name
}

// Excerpt is some consecutive lines of a file.
type Excerpt struct {
	First int32 // the number of the first line, counted from 1
	Lines []string
}

// Line returns the text of a line; false: the excerpts lack the line.
func (f *SourceFile) Line(line int32) (string, bool) {
	next, _ := slices.BinarySearchFunc(f.Text, int64(line)+1, func(x Excerpt, line int64) int {
		return cmp.Compare(int64(x.First), line)
	})
	if next == 0 {
		return "", false
	}
	x := &f.Text[next-1]
	if at := int64(line) - int64(x.First); at < int64(len(x.Lines)) {
		return x.Lines[at], true
	}
	return "", false
}

// SourceLine returns the line of a location; nil: not known.
func (r *Recording) SourceLine(l *Location) *snapshot.SourceLine {
	if l.Line <= 0 || int(l.Line) >= len(r.Lines) {
		return nil
	}
	line := &r.Lines[l.Line]
	f := &r.Files[line.File]
	return &snapshot.SourceLine{
		File: f.Title(), Line: int(line.Line), Column: int(line.Column), URL: f.URL, Approximate: line.Approximate,
	}
}

// WithoutLines returns a copy of r without lines, and without the data to find lines. The copy and r share data:
// neither may be changed afterwards.
func (r *Recording) WithoutLines() *Recording {
	out := *r
	out.Assemblies, out.Libraries, out.Methods, out.Sites, out.Files, out.Lines = nil, nil, nil, nil, nil, nil
	out.Locations = make([]Location, len(r.Locations))
	for i, l := range r.Locations {
		out.Locations[i] = Location{Function: l.Function, Offset: l.Offset, Tier: l.Tier, Inlined: l.Inlined}
	}
	return &out
}

// WithoutText returns a copy of r without the text of source files. The copy and r share data, as with
// WithoutLines.
func (r *Recording) WithoutText() *Recording {
	out := *r
	out.Files = slices.Clone(r.Files)
	for i := range out.Files {
		out.Files[i].Text = nil
	}
	return &out
}

// Sources adds files and lines to a recording, each once.
type Sources struct {
	r     *Recording
	files map[fileKey]int32
	lines map[Line]int32
}

// fileKey identifies a file.
type fileKey struct{ name, url, sum string }

// NewSources returns a Sources that adds to a recording.
func NewSources(r *Recording) *Sources {
	s := &Sources{r: r, files: map[fileKey]int32{}, lines: map[Line]int32{}}
	for i := range r.Files {
		s.files[keyOf(&r.Files[i])] = int32(i)
	}
	for i := range r.Lines {
		s.lines[r.Lines[i]] = int32(i)
	}
	return s
}

func keyOf(f *SourceFile) fileKey { return fileKey{f.Name, f.URL, string(f.Checksum.Sum)} }

// File adds a file, unless the recording has the file, and returns its index.
func (s *Sources) File(f SourceFile) int32 {
	if len(s.r.Files) == 0 {
		s.r.Files = append(s.r.Files, SourceFile{})
		s.files[fileKey{}] = 0
	}
	key := keyOf(&f)
	i, ok := s.files[key]
	if !ok {
		i = int32(len(s.r.Files))
		s.files[key] = i
		s.r.Files = append(s.r.Files, f)
	}
	return i
}

// Line adds a line, unless the recording has the line, and returns its index.
func (s *Sources) Line(l Line) int32 {
	if len(s.r.Lines) == 0 {
		intern(s.lines, &s.r.Lines, Line{})
	}
	return intern(s.lines, &s.r.Lines, l)
}
