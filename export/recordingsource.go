package export

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"

	"clrsnap/profile"
)

// writeSources writes the places of the locations in the program's source text.
func writeSources(c *columnWriter, r *profile.Recording, text *stringsOf) {
	m, l := r.Methods, r.Lines
	c.table("methods")
	c.column("assembly", len(m), func(i int) int64 { return int64(m[i].Assembly) })
	c.column("row", len(m), func(i int) int64 { return int64(m[i].Row) })
	c.column("file", len(m), func(i int) int64 { return int64(m[i].File) })
	c.column("first", len(m), func(i int) int64 { return int64(m[i].First) })
	c.column("last", len(m), func(i int) int64 { return int64(m[i].Last) })
	c.end()
	writeSites(c, r.Sites, text)
	c.table("lines")
	c.column("file", len(l), func(i int) int64 { return int64(l[i].File) })
	c.column("line", len(l), func(i int) int64 { return int64(l[i].Line) })
	c.column("column", len(l), func(i int) int64 { return int64(l[i].Column) })
	c.flags("approximate", len(l), func(i int) bool { return l[i].Approximate })
	c.end()
	c.Text(",\n\"assemblies\":")
	c.List(len(r.Assemblies), func(i int) { c.Value(assemblyOut(&r.Assemblies[i])) })
	if len(r.Libraries) > 0 {
		c.Text(",\n\"libraries\":")
		c.List(len(r.Libraries), func(i int) {
			l := &r.Libraries[i]
			c.Value(fileLibrary{l.Name, l.Path, hex.EncodeToString(l.BuildID)})
		})
	}
	c.Text(",\n\"files\":")
	c.List(len(r.Files), func(i int) { c.Value(sourceOut(&r.Files[i])) })
}

// writeSites writes the call sites, if there are any. The first site of each method has its offset,
// the other sites have the distance to the site before.
func writeSites(c *columnWriter, s []profile.CallSite, text *stringsOf) {
	if len(s) == 0 {
		return
	}
	c.table("sites")
	c.column("method", len(s), func(i int) int64 { return int64(s[i].Method) })
	c.column("il", len(s), func(i int) int64 {
		if i > 0 && s[i].Method == s[i-1].Method {
			return int64(s[i].IL) - int64(s[i-1].IL)
		}
		return int64(s[i].IL)
	})
	c.column("callee", len(s), func(i int) int64 { return text.at(s[i].Callee) })
	c.end()
}

// fileAssembly is a profile.Assembly. Hashes are hexadecimal.
type fileAssembly struct {
	Name      string         `json:"name"`
	Path      string         `json:"path"`
	PDB       string         `json:"pdb"`
	ID        string         `json:"id"`
	Checksums []fileChecksum `json:"checksums"`
}

// fileLibrary is a profile.Library. The build id is hexadecimal.
type fileLibrary struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	BuildID string `json:"buildId"`
}

type fileChecksum struct {
	Algorithm string `json:"algorithm"`
	Sum       string `json:"sum"`
}

// fileSource is a profile.SourceFile.
type fileSource struct {
	Name     string        `json:"name"`
	Path     string        `json:"path"`
	URL      string        `json:"url"`
	Checksum fileChecksum  `json:"checksum"`
	Text     []fileExcerpt `json:"text"`
}

type fileExcerpt struct {
	First int32    `json:"first"`
	Lines []string `json:"lines"`
}

func assemblyOut(a *profile.Assembly) fileAssembly {
	out := fileAssembly{Name: a.Name, Path: a.Path, PDB: a.PDB, Checksums: []fileChecksum{}}
	if a.ID != [20]byte{} {
		out.ID = hex.EncodeToString(a.ID[:])
	}
	for _, c := range a.Checksums {
		out.Checksums = append(out.Checksums, checksumOut(c))
	}
	return out
}

func checksumOut(c profile.Checksum) fileChecksum {
	return fileChecksum{c.Algorithm, hex.EncodeToString(c.Sum)}
}

func sourceOut(f *profile.SourceFile) fileSource {
	out := fileSource{
		Name: f.Name, Path: f.Path, URL: f.URL, Checksum: checksumOut(f.Checksum), Text: []fileExcerpt{},
	}
	for _, x := range f.Text {
		out.Text = append(out.Text, fileExcerpt{First: x.First, Lines: append([]string{}, x.Lines...)})
	}
	return out
}

// checksum decodes a checksum; without a sum the result is the zero value.
func (c *fileChecksum) checksum() (profile.Checksum, error) {
	sum, err := hex.DecodeString(c.Sum)
	if err != nil {
		return profile.Checksum{}, fmt.Errorf("the checksum %s is not hexadecimal", clip(c.Sum))
	}
	if len(sum) == 0 {
		return profile.Checksum{Algorithm: c.Algorithm}, nil
	}
	return profile.Checksum{Algorithm: c.Algorithm, Sum: sum}, nil
}

func (d *documentReader) assemblyList() error {
	return list(d, func(f *fileAssembly) error {
		a := profile.Assembly{Name: f.Name, Path: f.Path, PDB: f.PDB}
		id, err := hex.DecodeString(f.ID)
		if err != nil || len(id) != 0 && len(id) != len(a.ID) {
			return fmt.Errorf("the id %s is not one of a PDB", clip(f.ID))
		}
		copy(a.ID[:], id)
		for i := range f.Checksums {
			c, err := f.Checksums[i].checksum()
			if err = cmp.Or(err, d.budget.takeAll(checksumCost+len(c.Sum), "checksums", c.Algorithm)); err != nil {
				return err
			}
			a.Checksums = append(a.Checksums, c)
		}
		d.r.Assemblies = append(d.r.Assemblies, a)
		return d.budget.takeAll(assemblyCost, "assemblies", f.Name, f.Path, f.PDB)
	})
}

func (d *documentReader) libraryList() error {
	return list(d, func(f *fileLibrary) error {
		id, err := hex.DecodeString(f.BuildID)
		if err != nil {
			return fmt.Errorf("the build id %s is not hexadecimal", clip(f.BuildID))
		}
		l := profile.Library{Name: f.Name, Path: f.Path}
		if len(id) > 0 {
			l.BuildID = id
		}
		d.r.Libraries = append(d.r.Libraries, l)
		return d.budget.takeAll(assemblyCost+len(id), "libraries", f.Name, f.Path)
	})
}

// sourceList reads the files. A file's text can be longer than one value may be, so the text is read
// line by line.
func (d *documentReader) sourceList() error {
	return d.s.array(func(int) error {
		var f profile.SourceFile
		err := d.s.object(func(key string) (err error) {
			switch key {
			case "name":
				f.Name, err = d.s.text()
			case "path":
				f.Path, err = d.s.text()
			case "url":
				f.URL, err = d.s.text()
			case "checksum":
				var c fileChecksum
				if err = d.s.value(&c); err == nil {
					f.Checksum, err = c.checksum()
				}
			case "text":
				err = d.s.array(func(int) error {
					x, err := d.excerpt()
					f.Text = append(f.Text, x)
					return err
				})
			default:
				err = d.s.skip()
			}
			return err
		})
		d.r.Files = append(d.r.Files, f)
		cost := sourceCost + len(f.Checksum.Sum)
		return cmp.Or(err, d.budget.takeAll(cost, "source files", f.Name, f.Path, f.URL, f.Checksum.Algorithm))
	})
}

func (d *documentReader) excerpt() (x profile.Excerpt, err error) {
	err = d.s.object(func(key string) error {
		switch key {
		case "first":
			n, err := d.s.integer()
			if err == nil && int64(int32(n)) != n {
				err = errTooLarge
			}
			x.First = int32(n)
			return err
		case "lines":
			return d.s.array(func(int) error {
				line, err := d.s.text()
				x.Lines = append(x.Lines, line)
				return cmp.Or(err, d.budget.takeAll(entryCost, "lines of source text", line))
			})
		}
		return d.s.skip()
	})
	return x, cmp.Or(err, d.budget.take(excerptCost, "pieces of source text"))
}

func (d *documentReader) methodTable() error {
	return d.table("methods", methodCost, func(t *tableReader, name string) error {
		return column(t, &d.r.Methods, func(m *profile.Method, v int32) error {
			switch name {
			case "assembly":
				m.Assembly = v
			case "row":
				if v < 0 {
					return errors.New("a row is negative")
				}
				m.Row = uint32(v)
			case "file":
				m.File = v
			case "first":
				m.First = v
			case "last":
				m.Last = v
			}
			return nil
		})
	}, "assembly", "row", "file", "first", "last")
}

func (d *documentReader) siteTable() error {
	return d.table("sites", siteCost, func(t *tableReader, name string) error {
		if name == "callee" {
			return column(t, &d.callees, func(n *int32, v int32) error { *n = v; return nil })
		}
		return column(t, &d.r.Sites, func(s *profile.CallSite, v int32) error {
			switch name {
			case "method":
				s.Method = v
			case "il":
				if v < 0 {
					return errors.New("the sites of a method are not in order")
				}
				s.IL = uint32(v)
			}
			return nil
		})
	}, "method", "il", "callee")
}

// finishSites replaces distances by offsets, and indices by strings.
func (d *documentReader) finishSites(text func(int32) string) {
	for i, n := range d.callees {
		s := &d.r.Sites[i]
		s.Callee = text(n)
		if i > 0 && s.Method == d.r.Sites[i-1].Method {
			s.IL += d.r.Sites[i-1].IL // an overflow is out of order, too
		}
	}
}

func (d *documentReader) lineTable() error {
	return d.table("lines", lineCost, func(t *tableReader, name string) error {
		if name == "approximate" {
			return d.flags(&d.approximate, "lines")
		}
		return column(t, &d.r.Lines, func(l *profile.Line, v int32) error {
			switch name {
			case "file":
				l.File = v
			case "line":
				l.Line = v
			case "column":
				l.Column = v
			}
			return nil
		})
	}, "file", "line", "column", "approximate")
}

// maxLine is the highest line number in a PDB.
const maxLine = 1<<29 - 1

// checkSources checks the tables with the places of locations in the source text.
func checkSources(r *profile.Recording) error {
	if len(r.Assemblies) > 0 && !isNone(&r.Assemblies[0]) ||
		len(r.Libraries) > 0 && !isNoLibrary(&r.Libraries[0]) ||
		len(r.Files) > 0 && !isNoFile(&r.Files[0]) ||
		len(r.Methods) > 0 && r.Methods[0] != (profile.Method{}) || len(r.Lines) > 0 && r.Lines[0] != (profile.Line{}) {
		return errors.New("the first assembly, library, method, file or line is set, although number 0 means none")
	}
	for i := range r.Methods {
		m := &r.Methods[i]
		switch {
		case !withinOrNone(m.Assembly, len(r.Assemblies)):
			return fmt.Errorf("method %d: %w", i, outOfRange("assembly", int64(m.Assembly), len(r.Assemblies)))
		case !withinOrNone(m.File, len(r.Files)):
			return fmt.Errorf("method %d: %w", i, outOfRange("file", int64(m.File), len(r.Files)))
		case m.First < 0 || m.Last < m.First || m.Last > maxLine:
			return fmt.Errorf("method %d: lines %d to %d", i, m.First, m.Last)
		}
	}
	for i := range r.Sites {
		s := &r.Sites[i]
		if s.Method <= 0 || !within(s.Method, len(r.Methods)) {
			return fmt.Errorf("site %d: %w", i, outOfRange("method", int64(s.Method), len(r.Methods)))
		}
		if i == 0 {
			continue
		}
		if b := &r.Sites[i-1]; s.Method < b.Method || s.Method == b.Method && s.IL <= b.IL {
			return fmt.Errorf("site %d: the sites are not in order", i)
		}
	}
	for i := range r.Lines {
		l := &r.Lines[i]
		switch {
		case !withinOrNone(l.File, len(r.Files)):
			return fmt.Errorf("line %d: %w", i, outOfRange("file", int64(l.File), len(r.Files)))
		case i > 0 && (l.File == 0 || l.Line < 1 || l.Line > maxLine) || l.Column < 0:
			return fmt.Errorf("line %d: there is no line %d, or no column %d", i, l.Line, l.Column)
		}
	}
	for i := range r.Locations {
		l := &r.Locations[i]
		switch {
		case !withinOrNone(l.Method, len(r.Methods)):
			return fmt.Errorf("location %d: %w", i, outOfRange("method", int64(l.Method), len(r.Methods)))
		case !withinOrNone(l.Line, len(r.Lines)):
			return fmt.Errorf("location %d: %w", i, outOfRange("line", int64(l.Line), len(r.Lines)))
		case !withinOrNone(l.Library, len(r.Libraries)):
			return fmt.Errorf("location %d: %w", i, outOfRange("library", int64(l.Library), len(r.Libraries)))
		case l.IL < -1 || l.Next < 0:
			return fmt.Errorf("location %d: there is no IL offset %d, or %d", i, l.IL, l.Next)
		}
	}
	return checkExcerpts(r)
}

func isNone(a *profile.Assembly) bool {
	return a.Name == "" && a.Path == "" && a.PDB == "" && a.ID == [20]byte{} && len(a.Checksums) == 0
}

func isNoLibrary(l *profile.Library) bool { return l.Name == "" && l.Path == "" && len(l.BuildID) == 0 }

func isNoFile(f *profile.SourceFile) bool {
	return f.Name == "" && f.Path == "" && f.URL == "" && len(f.Checksum.Sum) == 0 && len(f.Text) == 0
}

// withinOrNone reports whether i is an index of a table of n with entry 0 for none. The table can be
// empty.
func withinOrNone(i int32, n int) bool { return i == 0 || within(i, n) }

// checkExcerpts makes sure that pieces of text come one after the other.
func checkExcerpts(r *profile.Recording) error {
	for i := range r.Files {
		next := int64(1)
		for _, x := range r.Files[i].Text {
			if int64(x.First) < next {
				return fmt.Errorf("file %d: line %d of its text comes after line %d", i, x.First, next-1)
			}
			next = int64(x.First) + int64(len(x.Lines))
		}
	}
	return nil
}
