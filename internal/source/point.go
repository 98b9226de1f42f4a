package source

import "clrsnap/internal/pdb"

// Point is a place in a document of a PDB.
type Point struct {
	Document     int32 // for Assembly.Document
	Line, Column int   // counted from 1
	Approximate  bool  // the code itself belongs to no line: this is the line before
}

// Point is LineIn without the names.
func (a *Assembly) Point(method, il, next uint32) (Point, error) {
	at, exact, ok := a.file.LineIn(method, il, next)
	if !ok {
		return Point{}, none("the method has none in its PDB")
	}
	return a.pointOf(at, exact)
}

func (a *Assembly) pointOf(at pdb.Point, exact bool) (Point, error) {
	if at.Line == 0 {
		return Point{}, none("the method has none in its PDB")
	}
	return Point{
		Document: at.Document, Line: int(at.Line), Column: int(at.Column), Approximate: !exact || a.unproved,
	}, nil
}

// Extent returns the first and the last line of a method in the document with the beginning of its
// code. Without lines document is 0.
func (a *Assembly) Extent(method uint32) (document int32, first, last int) {
	points, err := a.file.Lines(method)
	if err != nil {
		return 0, 0, 0
	}
	for _, p := range points {
		if p.Hidden || document != 0 && p.Document != document {
			continue
		}
		if document == 0 {
			document, first = p.Document, int(p.Line)
		}
		first, last = min(first, int(p.Line)), max(last, int(p.EndLine))
	}
	return document, first, last
}

// Document is a source file.
type Document struct {
	Name      string // as the compiler wrote it
	URL       string // the document's address according to SourceLink; empty: none
	Algorithm string // of Sum, for example SHA256; empty: there is none
	Sum       []byte // hash of the text
}

// Document returns one of the documents of Point.
func (a *Assembly) Document(i int32) (Document, error) {
	full, err := a.file.Document(i)
	if err != nil {
		return Document{}, none("%v", err)
	}
	d := Document{Name: full.Name}
	d.Algorithm, d.Sum = full.Checksum()
	if a.link != nil {
		d.URL, _ = a.link.URL(full.Name)
	}
	return d, nil
}

// TextSize returns how many bytes Text unpacks for a document, by the PDB's word; 0: the PDB does not contain the
// text.
func (a *Assembly) TextSize(i int32) int { return a.file.SourceSize(i) }

// Text returns the text of a document if the PDB contains it.
func (a *Assembly) Text(i int32) ([]byte, bool) {
	b, ok, err := a.file.Source(i)
	return b, ok && err == nil
}
