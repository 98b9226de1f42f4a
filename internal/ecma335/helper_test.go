package ecma335

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"clrsnap/internal/ecma335/ecma335test"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// kit returns the folder that scripts/get-dotnet.sh fills.
func kit(t testing.TB) string {
	t.Helper()
	dir := testenv.InKit("")
	if _, err := os.Stat(filepath.Join(dir, "net10", "System.Private.CoreLib.dll")); err != nil {
		layer.Lacking(t, "no real metadata to test with: "+err.Error()+": run scripts/get-dotnet.sh")
	}
	return dir
}

// load returns the metadata in a managed PE file.
func load(t testing.TB, path string) []byte {
	t.Helper()
	b, err := peMetadata(path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return b
}

func peMetadata(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	// ReadyToRun images for Linux have the machine's number xored with a number
	// for the system; debug/pe does not know the combination.
	if at := binary.LittleEndian.Uint32(b[0x3c:]); uint64(at)+6 <= uint64(len(b)) {
		m := binary.LittleEndian.Uint16(b[at+4:])
		if m^0x7b79 == pe.IMAGE_FILE_MACHINE_AMD64 || m^0x7b79 == pe.IMAGE_FILE_MACHINE_ARM64 {
			binary.LittleEndian.PutUint16(b[at+4:], m^0x7b79)
		}
	}
	f, err := pe.NewFile(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	var dir pe.DataDirectory
	switch h := f.OptionalHeader.(type) {
	case *pe.OptionalHeader32:
		dir = h.DataDirectory[14] // CLI header, II.25.2.3.3
	case *pe.OptionalHeader64:
		dir = h.DataDirectory[14]
	}
	cli, err := rva(f, dir.VirtualAddress, 16)
	if err != nil {
		return nil, err
	}
	return rva(f, binary.LittleEndian.Uint32(cli[8:]), binary.LittleEndian.Uint32(cli[12:])) // II.25.3.3
}

func rva(f *pe.File, addr, size uint32) ([]byte, error) {
	for _, s := range f.Sections {
		if addr >= s.VirtualAddress && addr-s.VirtualAddress < s.Size {
			b := make([]byte, size)
			_, err := s.ReadAt(b, int64(addr-s.VirtualAddress))
			return b, err
		}
	}
	return nil, errors.New("address outside all sections")
}

// builder makes metadata by hand. All indices are 2 bytes wide.
type builder struct {
	ecma335test.Tables
	strings, blobs []byte
	streamName     string
}

func newBuilder() *builder {
	b := &builder{strings: []byte{0}, blobs: []byte{0}, streamName: "#~"}
	b.Wide = func(t, i int) bool { return schemas[t][i%len(schemas[t])] == u4 }
	return b
}

func (b *builder) str(s string) uint32 {
	i := len(b.strings)
	b.strings = append(append(b.strings, s...), 0)
	return uint32(i)
}

func (b *builder) blob(p ...byte) uint32 {
	i := len(b.blobs)
	b.blobs = append(append(b.blobs, byte(len(p))), p...)
	return uint32(i)
}

func (b *builder) row(t Table, cells ...uint32) { b.Row(int(t), cells...) }

func (b *builder) bytes() []byte {
	return container([]string{b.streamName, "#Strings", "#Blob"}, [][]byte{b.Bytes(), b.strings, b.blobs})
}

// container puts streams into a metadata root.
func container(names []string, streams [][]byte) []byte {
	return ecma335test.Container(ecma335test.Assembly, names, streams)
}
