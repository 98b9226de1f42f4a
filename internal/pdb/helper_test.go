package pdb

import (
	"encoding/binary"
	stdhex "encoding/hex"
	"os"
	"strings"
	"testing"

	"clrsnap/internal/ecma335"
	"clrsnap/internal/ecma335/ecma335test"
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
	ecma335test.Tables
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

func (b *builder) row(t ecma335.Table, cells ...uint16) {
	var wide []uint32
	for _, c := range cells {
		wide = append(wide, uint32(c))
	}
	b.Row(int(t), wide...)
}

// document adds a document with a name without a separator.
func (b *builder) document(name string) {
	part := b.blob([]byte(name))
	b.row(ecma335.TableDocument, b.blob([]byte{0, 0x80 | byte(part>>8), byte(part)}), 0, 0, 0)
}

// method adds debug information of a further method.
func (b *builder) method(document uint16, points []byte) {
	b.methods++
	b.row(ecma335.TableMethodDebugInformation, document, b.blob(points))
}

// custom adds debug information of a kind; tag is a tag of
// HasCustomDebugInformation.
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
	pdb = le.AppendUint32(b.id[:len(b.id):len(b.id)], 0)
	pdb = le.AppendUint32(le.AppendUint64(pdb, 1<<ecma335.TableMethodDef), b.methods)
	return pdb, b.Bytes()
}

// container puts streams into a metadata root.
func container(names []string, streams [][]byte) []byte {
	return ecma335test.Container(ecma335test.PDB, names, streams)
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
