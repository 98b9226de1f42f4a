package aot

import (
	"bytes"
	"encoding/binary"

	"clrsnap/internal/arch"
)

// A program that is built with StackTraceLineNumberSupport has the source lines of methods. A hash table has for each
// method the start of the code and a list: the number of sequence points, the number of the first document, and for
// each point the distance in the code and in lines from the point before. The distance 0 in the code stands for a
// change of the document. Another blob has the offsets of the documents' names, and then the names
// (src/coreclr/tools/aot/ILCompiler.Compiler/Compiler/DependencyAnalysis/StackTraceLineNumbersNode.cs,
// StackTraceDocumentsNode.cs).

// Bounds of lines.
const (
	maxPoints   = 1 << 16 // of one method
	maxDocument = 4 << 10 // bytes of a name
	maxLine     = 0xfeefee - 1
)

// lineTable has the source lines of methods.
type lineTable struct {
	points, documents []byte
	lists             map[arch.Addr]int // by the start of the code: the place in points
}

func newLineTable(points, documents []byte, t *tables) lineTable {
	l := lineTable{points: points, documents: documents, lists: map[arch.Addr]int{}}
	eachEntry(points, func(r *reader) {
		if start, ok := t.address(r.unsigned()); ok && !r.bad && len(l.lists) < maxMethods {
			l.lists[start] = r.pos
		}
	})
	return l
}

// HasLines reports whether the program has source lines.
func (n *Names) HasLines() bool { return len(n.lines.lists) > 0 }

// Line returns the source line of an address in the code of a method, by the start of the code; false: not known.
func (n *Names) Line(start, at arch.Addr) (file string, line int, ok bool) {
	pos, known := n.lines.lists[start]
	if !known || at < start {
		return "", 0, false
	}
	r := reader{b: n.lines.points, pos: pos}
	count := r.unsigned()
	next := r.signed()
	document, number, offset := int32(-1), int32(0), arch.Addr(0)
	for i := range min(count, maxPoints) {
		step := r.signed()
		if step == 0 && i > 0 {
			next, step = r.signed(), r.signed()
		}
		lines := r.signed()
		if r.bad || step < 0 {
			return "", 0, false
		}
		if offset += arch.Addr(step); start+offset > at {
			break
		}
		document, number = next, number+lines
	}
	if number <= 0 || number > maxLine {
		return "", 0, false
	}
	file, ok = n.lines.document(document)
	return file, int(number), ok
}

// document returns the name of a document.
func (l *lineTable) document(i int32) (name string, ok bool) {
	const size = 4
	if i < 0 || int64(i) >= int64(len(l.documents)/size) {
		return "", false
	}
	at := binary.LittleEndian.Uint32(l.documents[size*i:])
	if uint64(at) >= uint64(len(l.documents)) {
		return "", false
	}
	text, _, ended := bytes.Cut(l.documents[at:], []byte{0})
	if !ended || len(text) == 0 || len(text) > maxDocument {
		return "", false
	}
	return string(text), true
}
