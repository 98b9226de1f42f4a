package profile

import (
	"cmp"
	"slices"
)

// Where the locations of a recording are in the program's source text. What was met while it was recorded
// is the method's place in its assembly and the IL offset. That is enough to find the line later, with the
// PDB that the assembly asks for. If the PDB was there, the recording has the line, too.
//
// Entry 0 of Recording.Assemblies, Libraries, Methods, Files and Lines stands for none. A recording without any has
// empty tables.

// Assembly is an assembly that the recorded programs had loaded, and what identifies its PDB.
type Assembly struct {
	Name      string     // as in Function.Module
	Path      string     // of its file, as the program saw it; empty: it was in memory only, or that is not known
	PDB       string     // the PDB's file name, without its folder
	ID        [20]byte   // of the PDB: the GUID and stamp of the assembly's debug directory; zero: not known
	Checksums []Checksum // the PDB has one of them; none: the assembly does not say
}

// Library is a native module that recorded code is in, and what identifies its symbols.
type Library struct {
	Name    string // as in Function.Module
	Path    string // of its file, as the program saw it
	BuildID []byte // of its ELF image; none: it has no symbols elsewhere
}

// MaxLibraries bounds Recording.Libraries.
const MaxLibraries = 1 << 14

// Checksum is the hash of a file.
type Checksum struct {
	Algorithm string // such as SHA256
	Sum       []byte
}

// Method is the definition of a method. All instantiations of a generic method have one.
type Method struct {
	Assembly    int32  // index in Recording.Assemblies
	Row         uint32 // of the table of methods in the assembly's metadata, counted from 1
	File        int32  // index in Recording.Files: where the method is; 0: not known
	First, Last int32  // its first and last line there; 0: not known
}

// CallSite is an instruction of a method's IL whose code may call a managed method. With all of a method it can be
// told which of them a call on a stack is, and so its line: the compiler keeps no IL offset for each. The line of a
// call in a method without any is not certain.
type CallSite struct {
	Method int32  // index in Recording.Methods
	IL     uint32 // offset
	Callee string // the name of what it calls, without its type; empty: that is the runtime's choice
}

// MaxSites bounds Recording.Sites.
const MaxSites = 1 << 18

// Line is a line of source text.
type Line struct {
	File         int32 // index in Recording.Files
	Line, Column int32 // counted from 1; the column in UTF-16 code units, or 0 if it is not known
	Approximate  bool  // the code itself belongs to no line: this is the one before
}

// SourceFile is a file of source text.
type SourceFile struct {
	Name     string    // as the compiler wrote it: a path on the machine that built the program
	Path     string    // where the user says that it is on this machine; empty: nowhere
	URL      string    // where SourceLink says that the file can be had; empty: it does not
	Checksum Checksum  // of the text that was compiled; without a sum: not known
	Text     []Excerpt // the text around the recorded lines, in ascending order; none: it was not there
}

// Title is what to call the file: where it is on this machine, or else what the compiler called it.
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

// Line returns the text of a line; false: the excerpts do not have it.
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

// SourceLine returns the line that a location is at; nil: it is not known.
func (r *Recording) SourceLine(l *Location) *SourceLine {
	if l.Line <= 0 || int(l.Line) >= len(r.Lines) {
		return nil
	}
	line := &r.Lines[l.Line]
	f := &r.Files[line.File]
	return &SourceLine{
		File: f.Title(), Line: int(line.Line), Column: int(line.Column), URL: f.URL, Approximate: line.Approximate,
	}
}

// WithoutLines returns a copy of r that has no lines, and nothing to find them with. The two share data:
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

// WithoutText returns a copy of r that has no text of source files. The two share data, as with WithoutLines.
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

// fileKey is what files differ in.
type fileKey struct{ name, url, sum string }

// NewSources returns what adds to a recording.
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

// File adds a file, unless it is there, and returns its index.
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

// Line adds a line, unless it is there, and returns its index.
func (s *Sources) Line(l Line) int32 {
	if len(s.r.Lines) == 0 {
		intern(s.lines, &s.r.Lines, Line{})
	}
	return intern(s.lines, &s.r.Lines, l)
}
