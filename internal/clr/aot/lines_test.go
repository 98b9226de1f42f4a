package aot

import (
	"encoding/binary"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/testenv"
)

// signed encodes a signed number as the compiler does.
func signed(v int32) []byte {
	for more := range uint(4) {
		bits := 7 * (more + 1)
		if v >= -1<<(bits-1) && v < 1<<(bits-1) {
			b := binary.LittleEndian.AppendUint64(nil, uint64(uint32(v)&(1<<bits-1))<<(more+1)|uint64(1<<more-1))
			return b[:more+1]
		}
	}
	return binary.LittleEndian.AppendUint32([]byte{0x0f}, uint32(v))
}

// lineBlobs are the blobs of one method with its code at 0x2000. list has signed numbers.
func lineBlobs(count uint32, list ...int32) (points, documents []byte, t *tables) {
	const fixupsAt arch.Addr = 0x20000
	points = table(0, count)
	for _, v := range list {
		points = append(points, signed(v)...)
	}
	names := "/a.cs\x00/b.cs\x00"
	documents = binary.LittleEndian.AppendUint32(nil, 8)
	documents = binary.LittleEndian.AppendUint32(documents, 8+uint32(len(names))/2)
	start := int64(0x2000) - int64(fixupsAt)
	fixups := binary.LittleEndian.AppendUint32(nil, uint32(start))
	return points, append(documents, names...), &tables{fixups: fixups, fixupsAt: fixupsAt}
}

// TestLines finds the lines of instructions. A method goes on in another document.
func TestLines(t *testing.T) {
	n := &Names{}
	if n.HasLines() {
		t.Error("lines out of nothing")
	}
	n.lines = newLineTable(lineBlobs(4, 0, 0, 10, 5, 1, 0, 1, 3, -4, 10, 200))
	if !n.HasLines() {
		t.Fatal("there are no lines")
	}
	for at, want := range map[arch.Addr]struct {
		file string
		line int
	}{
		0x2000: {"/a.cs", 10}, 0x2004: {"/a.cs", 10}, 0x2005: {"/a.cs", 11}, 0x2007: {"/a.cs", 11},
		0x2008: {"/b.cs", 7}, 0x2011: {"/b.cs", 7}, 0x2012: {"/b.cs", 207}, 0x9000: {"/b.cs", 207}, 0x1fff: {},
	} {
		file, line, ok := n.Line(0x2000, at)
		if file != want.file || line != want.line || ok != (want.file != "") {
			t.Errorf("%v is at %s:%d, %v; not %+v", at, file, line, ok, want)
		}
	}
	if file, line, ok := n.Line(0x2001, 0x2001); ok {
		t.Errorf("no method starts there, but %s:%d", file, line)
	}
}

// TestHostileLines: wrong lists give no line.
func TestHostileLines(t *testing.T) {
	for what, make := range map[string]func() (points, documents []byte, t *tables){
		"an unknown document":     func() ([]byte, []byte, *tables) { return lineBlobs(1, 2, 0, 10) },
		"a document before":       func() ([]byte, []byte, *tables) { return lineBlobs(1, -1, 0, 10) },
		"code before the start":   func() ([]byte, []byte, *tables) { return lineBlobs(1, 0, -1, 10) },
		"a line before the first": func() ([]byte, []byte, *tables) { return lineBlobs(1, 0, 0, -1) },
		"no line":                 func() ([]byte, []byte, *tables) { return lineBlobs(1, 0, 0, maxLine+1) },
		"a short list":            func() ([]byte, []byte, *tables) { return lineBlobs(3, 0, 0, 10, 1) },
		"no points":               func() ([]byte, []byte, *tables) { return lineBlobs(0, 0, 0, 10) },
		"documents without an end": func() ([]byte, []byte, *tables) {
			points, documents, t := lineBlobs(1, 1, 0, 10)
			return points, documents[:len(documents)-1], t
		},
		"a document far away": func() ([]byte, []byte, *tables) {
			points, documents, t := lineBlobs(1, 1, 0, 10)
			documents[4+1] = 1
			return points, documents, t
		},
	} {
		n := &Names{lines: newLineTable(make())}
		if file, line, ok := n.Line(0x2000, 0x2010); ok {
			t.Errorf("%s is %s:%d", what, file, line)
		}
	}
}

// FuzzLines looks for lines in arbitrary blobs.
func FuzzLines(f *testing.F) {
	points, documents, t := lineBlobs(4, 0, 0, 10, 5, 1, 0, 1, 3, -4, 10, 200)
	f.Add(points, documents, t.fixups)
	f.Fuzz(func(t *testing.T, points, documents, fixups []byte) {
		const besides = 1 << 20
		testenv.Allocates(t, len(points)+len(documents), 200, besides, func() {
			n := &Names{lines: newLineTable(points, documents, &tables{fixups: fixups, fixupsAt: 0x20000})}
			for start := range n.lines.lists {
				file, line, ok := n.Line(start, start+10)
				if ok && (line <= 0 || file == "" || len(file) > maxDocument) {
					t.Errorf("%q:%d", file, line)
				}
			}
		})
	})
}
