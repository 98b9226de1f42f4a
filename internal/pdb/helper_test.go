package pdb

import (
	"encoding/binary"
	stdhex "encoding/hex"
	"os"
	"strings"
	"testing"

	"clrsnap/internal/ecma335"
	"clrsnap/internal/pe"
)

func unhex(s string) []byte {
	b, err := stdhex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// builder makes a PDB by hand. All indices are 2 bytes wide.
type builder struct {
	id      [20]byte
	methods uint32 // of the module
	blobs   []byte
	guids   []byte
	rows    [64][]uint16 // cells, row after row
}

var columns = map[ecma335.Table]int{
	ecma335.TableMethodDef: 7, // one of 4 bytes
	ecma335.TableDocument:  4, ecma335.TableMethodDebugInformation: 2,
	ecma335.TableStateMachineMethod: 2, ecma335.TableCustomDebugInformation: 3,
}

func newBuilder() *builder { return &builder{blobs: []byte{0}} }

func (b *builder) blob(p []byte) uint16 {
	i := len(b.blobs)
	b.blobs = binary.BigEndian.AppendUint32(b.blobs, uint32(len(p))|0xc0000000)
	b.blobs = append(b.blobs, p...)
	return uint16(i)
}

func (b *builder) guid(g [16]byte) uint16 {
	b.guids = append(b.guids, g[:]...)
	return uint16(len(b.guids) / 16)
}

func (b *builder) row(t ecma335.Table, cells ...uint16) { b.rows[t] = append(b.rows[t], cells...) }

// document adds one with a name that has no separator.
func (b *builder) document(name string) {
	part := b.blob([]byte(name))
	b.row(ecma335.TableDocument, b.blob([]byte{0, 0x80 | byte(part>>8), byte(part)}), 0, 0, 0)
}

// method adds debug information of one more method.
func (b *builder) method(document uint16, points []byte) {
	b.methods++
	b.row(ecma335.TableMethodDebugInformation, document, b.blob(points))
}

// custom adds debug information of a kind; tag is that of HasCustomDebugInformation.
func (b *builder) custom(tag, rid uint16, kind [16]byte, value []byte) {
	b.row(ecma335.TableCustomDebugInformation, rid<<5|tag, b.guid(kind), b.blob(value))
}

const tagMethod, tagModule, tagDocument = 0, 7, 22

func (b *builder) bytes() []byte {
	pdb, tables := b.streams()
	return container([]string{"#Pdb", "#~", "#Blob", "#GUID"}, [][]byte{pdb, tables, b.blobs, b.guids})
}

func (b *builder) streams() (pdb, tables []byte) {
	le := binary.LittleEndian
	tables = []byte{0, 0, 0, 0, 2, 0, 0, 1}
	var valid uint64
	for t, cells := range b.rows {
		if len(cells) > 0 {
			valid |= 1 << t
		}
	}
	tables = le.AppendUint64(le.AppendUint64(tables, valid), 0)
	for t, cells := range b.rows {
		if len(cells) > 0 {
			tables = le.AppendUint32(tables, uint32(len(cells)/columns[ecma335.Table(t)]))
		}
	}
	for _, cells := range b.rows {
		for _, c := range cells {
			tables = le.AppendUint16(tables, c)
		}
	}
	pdb = le.AppendUint32(b.id[:len(b.id):len(b.id)], 0)
	pdb = le.AppendUint32(le.AppendUint64(pdb, 1<<ecma335.TableMethodDef), b.methods)
	return pdb, tables
}

// container puts streams into a metadata root.
func container(names []string, streams [][]byte) []byte {
	le := binary.LittleEndian
	out := append([]byte("BSJB\x01\x00\x01\x00\x00\x00\x00\x00\x0c\x00\x00\x00"), "PDB v1.0\x00\x00\x00\x00"...)
	out = append(out, 0, 0, byte(len(names)), 0)
	size := len(out)
	for _, n := range names {
		size += 8 + (len(n)+4)&^3
	}
	for i, n := range names {
		out = le.AppendUint32(out, uint32(size))
		out = le.AppendUint32(out, uint32(len(streams[i])))
		out = append(out, n...)
		out = append(out, make([]byte, 4-len(n)%4)...)
		size += (len(streams[i]) + 3) &^ 3
	}
	for _, s := range streams {
		out = append(out, s...)
		out = append(out, make([]byte, (4-len(s)%4)%4)...)
	}
	return out
}

func (b *builder) parse(t *testing.T) *File {
	t.Helper()
	f, err := Parse(b.bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// fixturePDB is the PDB inside the fixture.
func fixturePDB(t testing.TB) (*pe.Debug, []byte) {
	t.Helper()
	r, err := os.Open(fixture)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	d, err := pe.DebugDirectory(pe.File(r), 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Embedded(pe.File(r))
	if err != nil {
		t.Fatal(err)
	}
	return d, b
}
