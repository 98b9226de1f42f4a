package pdb

import (
	"cmp"
	"slices"

	"clrsnap/internal/ecma335"
)

// A Point is a sequence point: a method's code from the point's IL offset up to the next
// point's offset belongs to a piece of source text.
type Point struct {
	IL                               uint32
	Line, EndLine, Column, EndColumn uint32 // counted from 1; all 0 if hidden
	Document                         int32  // for File.Document
	Hidden                           bool   // code without source text
	// Await: a hidden point at an await. From the point on, the statement before the point waits for the
	// awaited task, and then goes on.
	Await bool
}

// Bounds of a sequence point ("Sequence Points Blob").
const (
	maxIL     = 0x20000000
	maxLine   = 0x20000000
	maxColumn = 0x10000

	hiddenLine = 0xfeefee // not a line

	maxPoints = 1 << 18 // of a method: 12 MB
)

// Lines returns the sequence points of a method by its row number, in the order of the IL
// offsets. A method may have no points.
func (f *File) Lines(method uint32) ([]Point, error) {
	d, err := f.points(method)
	if err != nil {
		return nil, err
	}
	var all []Point
	for d.more() {
		p, err := d.next()
		if err != nil {
			return nil, err
		}
		if len(all) == maxPoints {
			return nil, malformed("method %d has more than %d points", method, maxPoints)
		}
		all = append(all, p)
	}
	f.setAwaits(method, all)
	return all, nil
}

// setAwaits finds the points at which the method waits. The C# compiler puts a point behind each GetAwaiter,
// before the code that waits, goes on and gets the result; the rest of the statement follows without a point.
func (f *File) setAwaits(method uint32, points []Point) {
	a, ok, err := f.Async(method)
	if !ok || err != nil {
		return
	}
	for _, s := range a.Steps {
		next, _ := slices.BinarySearchFunc(points, s.Yield+1, func(p Point, il uint32) int {
			return cmp.Compare(p.IL, il)
		})
		inside := s.Method == method && s.Yield < s.Resume && (next == len(points) || s.Resume < points[next].IL)
		if i := next - 1; i > 0 && inside && !points[i-1].Hidden {
			points[i].Await = points[i].Hidden
		}
	}
}

// LineIn returns the point of a method's code with IL offsets from il up to next: the last visible point at il or
// before, as in the runtime's own stack traces (StackTraceSymbols.GetSourceLineInfo). exact is false if a hidden
// point, other than at an await, lies between the point and the code: a hidden point ends the code of the text, so
// that the line is only the nearest line before. exact is also false if the code of another line begins before next.
// ok is false if there is no point, or if anything in the method's points breaks the rules.
func (f *File) LineIn(method, il, next uint32) (at Point, exact, ok bool) {
	points, err := f.Lines(method)
	if err != nil {
		return Point{}, false, false
	}
	for _, p := range points {
		switch {
		case p.IL >= next:
			return at, exact, ok
		case p.IL > il:
			exact = exact && (p.Hidden || p.Line == at.Line && p.Document == at.Document)
		case p.Hidden:
			exact = exact && p.Await
		case p.Line > 0: // the format allows 0
			at, exact, ok = p, true, true
		default:
			at, exact, ok = Point{}, false, false
		}
	}
	return at, exact, ok
}

// Columns of MethodDebugInformation.
const colDocument, colPoints = 0, 1

func (f *File) points(method uint32) (*pointReader, error) {
	if !f.isMethod(method) {
		return nil, malformed("no method %d: the module has %d", method, f.methods)
	}
	d := &pointReader{documents: f.md.Rows(ecma335.TableDocument)}
	if f.md.Rows(ecma335.TableMethodDebugInformation) == 0 {
		return d, nil
	}
	at, err := f.md.Cell(ecma335.TableMethodDebugInformation, method, colPoints)
	if err != nil {
		return nil, err
	}
	b, err := f.blob(at)
	if err != nil || len(b) == 0 {
		return d, err
	}
	d.r = ecma335.NewBlobReader(b)
	document, err := f.md.Cell(ecma335.TableMethodDebugInformation, method, colDocument)
	if err != nil {
		return nil, err
	}
	return d, d.header(document)
}

// pointReader decodes the points of one method.
type pointReader struct {
	r         ecma335.BlobReader
	documents uint32

	last         Point // valid: IL offset and document
	line, column int32 // of the last visible point
	some, seen   bool  // some: there was a point; seen: a visible point
}

// header reads the row of the local signature, which is not used, and the first document if
// the table has no document because there are several.
func (d *pointReader) header(document uint32) error {
	_, err := d.r.Uint()
	if err == nil && document == 0 {
		document, err = d.r.Uint()
	}
	if err == nil {
		err = d.setDocument(document)
	}
	if err == nil && d.r.Len() == 0 {
		err = malformed("a header without sequence points")
	}
	return err
}

func (d *pointReader) setDocument(rid uint32) error {
	if rid == 0 || rid > d.documents {
		return malformed("sequence points in document %d of %d", rid, d.documents)
	}
	d.last.Document = int32(rid)
	return nil
}

func (d *pointReader) more() bool { return d.r.Len() > 0 }

// next reads a point, and a change of document before the point.
func (d *pointReader) next() (Point, error) {
	delta, err := d.r.Uint()
	for err == nil && delta == 0 && d.some {
		var rid uint32
		if rid, err = d.r.Uint(); err == nil {
			err = d.setDocument(rid)
		}
		if err == nil {
			delta, err = d.r.Uint()
		}
	}
	if err != nil {
		return Point{}, err
	}
	p := Point{IL: d.last.IL + delta, Document: d.last.Document} // both below 2^29
	if p.IL >= maxIL {
		return Point{}, malformed("a sequence point at IL offset %#x", p.IL)
	}
	if err := d.text(&p); err != nil {
		return Point{}, err
	}
	d.last, d.some = p, true
	return p, nil
}

// text reads the begin and the end of a point's text.
func (d *pointReader) text(p *Point) error {
	lines, err := d.r.Uint()
	if err != nil {
		return err
	}
	columns, err := d.integer(lines != 0)
	if err != nil {
		return err
	}
	if lines == 0 && columns == 0 {
		p.Hidden = true
		return nil
	}
	line, err := d.integer(d.seen)
	if err != nil {
		return err
	}
	column, err := d.integer(d.seen)
	if err != nil {
		return err
	}
	line, column = line+d.line, column+d.column // all below 2^30
	if !within(line, lines, maxLine) || line == hiddenLine || line+int32(lines) == hiddenLine {
		return malformed("a sequence point at line %d, of %d more", line, lines)
	}
	if column < 0 || column >= maxColumn || column+columns < 0 || column+columns >= maxColumn {
		return malformed("a sequence point from column %d to %d", column, column+columns)
	}
	p.Line, p.EndLine = uint32(line), uint32(line)+lines
	p.Column, p.EndColumn = uint32(column), uint32(column+columns)
	d.line, d.column, d.seen = line, column, true
	return nil
}

// within reports whether n, below 2^30, and n+more lie between 0 and limit.
func within(n int32, more uint32, limit int64) bool {
	return n >= 0 && int64(n)+int64(more) < limit
}

// integer reads a compressed integer below 2^29.
func (d *pointReader) integer(signed bool) (int32, error) {
	if signed {
		return d.r.Int()
	}
	v, err := d.r.Uint()
	return int32(v), err
}
