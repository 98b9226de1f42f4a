package pe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// ErrDebugDirectory: a debug directory breaks the format's rules.
var ErrDebugDirectory = errors.New("malformed debug directory")

// An entry of the debug directory: characteristics 4, stamp 4, major and minor version 2 each,
// type 4, size 4, RVA 4, file offset 4 (PE/COFF specification, "Debug Directory").
const (
	entrySize  = 28
	maxEntries = 64 // compilers write four, crossgen2 adds two

	typeCodeView     = 2
	typeReproducible = 16
	typeEmbedded     = 17
	typeChecksum     = 19
)

// The entries' data (PE-COFF.md).
const (
	codeViewSignature = 0x53445352 // RSDS
	codeViewSize      = 24         // and the path
	maxCodeView       = codeViewSize + 4096
	portableMinor     = 0x504d // the PDB is portable

	maxChecksum = 128 // the longest has 7 and 64 bytes

	embeddedSignature = 0x4244504d // MPDB
	embeddedSize      = 8          // and the deflated PDB
	embeddedMinor     = 0x0100
	minPortable       = 0x0100 // version 1.0 of portable PDBs
)

// Debug is an image's data about its PDB.
type Debug struct {
	CodeView     []CodeView // a ReadyToRun image names the PDB of its native code, too
	Checksums    []Checksum // of several, one is of the PDB; others may be of PDBs with less in them
	Reproducible bool       // stamps are hashes, not times

	embedded *embedded
}

// CodeView names a PDB.
type CodeView struct {
	GUID     [16]byte
	Age      uint32 // 1 with portable PDBs
	Stamp    uint32
	Path     string // as the compiler wrote it; hostile
	Portable bool
}

// ID is the own id of the portable PDB.
func (c CodeView) ID() (id [20]byte) {
	copy(id[:], c.GUID[:])
	binary.LittleEndian.PutUint32(id[16:], c.Stamp)
	return id
}

// A Checksum is the hash of a PDB whose id is all zeros.
type Checksum struct {
	Algorithm string // SHA256, SHA384, SHA512; hostile
	Sum       []byte
}

// Portable is the portable PDB that belongs to the image; false: the image names no portable PDB.
func (d *Debug) Portable() (CodeView, bool) {
	for _, c := range d.CodeView {
		if c.Portable {
			return c, true
		}
	}
	return CodeView{}, false
}

// HasEmbedded reports whether the image contains its PDB.
func (d *Debug) HasEmbedded() bool { return d.embedded != nil }

// EmbeddedSize is the size in bytes that the embedded PDB claims to have; 0: there is no
// embedded PDB.
func (d *Debug) EmbeddedSize() int {
	if d.embedded == nil {
		return 0
	}
	return d.embedded.size
}

// DebugDirectory reads the debug directory of the image at base. An image without a debug directory
// has an empty Debug. Unreadable parts are an error: without its checksum, an image would match more
// PDBs.
func DebugDirectory(mem *target.Reader, base arch.Addr) (*Debug, error) {
	a, err := open(mem, base)
	if err != nil {
		return nil, err
	}
	count, err := mem.Uint32(a.dirs - 4)
	if err != nil {
		return nil, err
	}
	d := &Debug{}
	if count <= dirDebug {
		return d, nil
	}
	rva, err := mem.Uint32(a.dirs + dirDebug*8)
	if err != nil {
		return nil, err
	}
	size, err := mem.Uint32(a.dirs + dirDebug*8 + 4)
	if err != nil {
		return nil, err
	}
	if rva == 0 || size == 0 {
		return d, nil
	}
	at, ok := a.resolve(rva)
	if !ok || size%entrySize != 0 || size > maxEntries*entrySize {
		return nil, fmt.Errorf("%w: %d bytes at RVA %#x", ErrDebugDirectory, size, rva)
	}
	table, err := mem.Bytes(at, int(size))
	if err != nil {
		return nil, err
	}
	for ; len(table) > 0; table = table[entrySize:] {
		if err := a.debugEntry(d, parseEntry(table)); err != nil {
			return nil, err
		}
	}
	return d, nil
}

type entry struct {
	stamp, kind, size, rva, offset uint32
	major, minor                   uint16
}

func parseEntry(b []byte) entry {
	le := binary.LittleEndian
	return entry{
		stamp: le.Uint32(b[4:]), major: le.Uint16(b[8:]), minor: le.Uint16(b[10:]), kind: le.Uint32(b[12:]),
		size: le.Uint32(b[16:]), rva: le.Uint32(b[20:]), offset: le.Uint32(b[24:]),
	}
}

// debugEntry adds an entry to d. Kinds of entries unrelated to a PDB are left out.
func (a *assembly) debugEntry(d *Debug, e entry) (err error) {
	switch e.kind {
	case typeReproducible:
		d.Reproducible = true
	case typeCodeView:
		err = a.codeView(d, e)
	case typeChecksum:
		err = a.checksum(d, e)
	case typeEmbedded:
		err = a.embedded(d, e)
	}
	return err
}

// data reads an entry's data: at least least and at most most bytes. In an image laid out by
// its sections, data outside of the sections is not there: nil.
func (a *assembly) data(e entry, least, most uint32) ([]byte, error) {
	if e.size < least || e.size > most {
		return nil, fmt.Errorf("%w: an entry of type %d with %d bytes", ErrDebugDirectory, e.kind, e.size)
	}
	at, ok := a.place(e)
	if !ok {
		return nil, nil
	}
	return a.mem.Bytes(at, int(e.size))
}

// place is where an entry's data begins.
func (a *assembly) place(e entry) (arch.Addr, bool) {
	if a.flat {
		return a.base + arch.Addr(e.offset), true
	}
	return a.base + arch.Addr(e.rva), e.rva != 0
}

func (a *assembly) codeView(d *Debug, e entry) error {
	b, err := a.data(e, codeViewSize, maxCodeView)
	if b == nil || binary.LittleEndian.Uint32(b) != codeViewSignature {
		return err // nil: another signature stands for formats older than the format of 2000
	}
	c := CodeView{
		GUID: [16]byte(b[4:20]), Age: binary.LittleEndian.Uint32(b[20:]), Stamp: e.stamp,
		Portable: e.minor == portableMinor,
	}
	path, _, _ := bytes.Cut(b[codeViewSize:], []byte{0})
	c.Path = strings.ToValidUTF8(string(path), "\uFFFD")
	d.CodeView = append(d.CodeView, c)
	return nil
}

func (a *assembly) checksum(d *Debug, e entry) error {
	if e.major != 1 || e.minor != 0 {
		return fmt.Errorf("%w: PDB checksum of version %d.%d, not 1.0", ErrDebugDirectory, e.major, e.minor)
	}
	b, err := a.data(e, 1, maxChecksum)
	if b == nil {
		return err
	}
	name, sum, ok := bytes.Cut(b, []byte{0})
	if !ok || len(name) == 0 || len(sum) == 0 {
		return fmt.Errorf("%w: PDB checksum % x", ErrDebugDirectory, b)
	}
	d.Checksums = append(d.Checksums, Checksum{strings.ToValidUTF8(string(name), "\uFFFD"), sum})
	return nil
}
