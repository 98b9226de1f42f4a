// Package pdb reads portable PDBs, and finds the source line for an IL offset of a method.
// It does not look for PDB files; Match checks whether a PDB belongs to an assembly.
//
// Sources: Portable PDB v1.0 (dotnet/runtime docs/design/specs/PortablePdb-Metadata.md),
// for the stepping information of async methods Roslyn's MetadataWriter.PortablePdb.cs, for
// Source Link dotnet/designs accepted/2020/diagnostics/source-link.md.
//
// A PDB comes from a file that anybody can have written, or out of another process: it is
// hostile. Data that break the format's rules are an error or have no line. Rows are
// decoded on demand, and the size of the PDB or constants of the package bound the
// allocations of each accessor. Texts are UTF-8, but may contain anything else: clean them
// before a terminal sees them.
//
// Known gaps: Windows PDBs; the deltas of a hot reload, which are refused; names of locals.
package pdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"clrsnap/internal/ecma335"
	"clrsnap/internal/pace"
)

// MaxSize bounds a PDB, in bytes.
const MaxSize = 64 << 20

// Errors that this package's errors wrap.
var (
	// ErrMalformed is a PDB that breaks the format's rules.
	ErrMalformed = errors.New("malformed portable PDB")
	// ErrNotPortable is a file that is no portable PDB.
	ErrNotPortable = errors.New("not a portable PDB")
)

var errDecoded = fmt.Errorf("more than %d bytes of the PDB were decoded in a short time", maxDecoded)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// File is a portable PDB. Concurrent use is safe as long as nobody writes to the parsed bytes.
type File struct {
	raw     []byte
	md      *ecma335.Metadata
	id      [20]byte
	methods uint32          // of the module
	decode  *pace.Allowance // bytes

	once sync.Once
	index
}

// The #Pdb stream: 20 bytes id, 4 entry point, 8 for the bit vector of tables with rows in
// the module, 4 for each of these tables.
const (
	idSize         = 20
	referencedAt   = 24
	referencedRows = 32
)

const maxRow = 0xffffff // of a token

// maxBlob bounds the decoded bytes of a method. The longest methods have some thousand points of five
// bytes.
const maxBlob = 1 << 20

// Bounds of the decoded bytes of a PDB, at once and over time: all methods can share one long blob.
const (
	maxDecoded       = 256 << 20
	decodedPerSecond = 4 << 20
)

// Parse reads the headers of a PDB. b is kept, not copied.
func Parse(b []byte) (*File, error) {
	if err := portable(b); err != nil {
		return nil, err
	}
	if len(b) > MaxSize {
		return nil, fmt.Errorf("a portable PDB of %d bytes, more than %d", len(b), MaxSize)
	}
	md, err := ecma335.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	f := &File{raw: b, md: md, decode: pace.NewAllowance(maxDecoded, decodedPerSecond)}
	stream := md.PDBStream()
	if len(stream) < referencedRows {
		return nil, fmt.Errorf("%w: no #Pdb stream", ErrNotPortable)
	}
	copy(f.id[:], stream)
	if f.methods, err = referenced(stream, ecma335.TableMethodDef); err != nil {
		return nil, err
	}
	for t := range ecma335.TableDocument { // the delta of a hot reload has some, too
		if n := md.Rows(t); n > 0 {
			return nil, malformed("%d rows of the module's table %#x", n, uint8(t))
		}
	}
	// Rows of other methods would show other methods' lines.
	if n := md.Rows(ecma335.TableMethodDebugInformation); n != 0 && n != f.methods {
		return nil, malformed("debug information of %d methods in a module of %d", n, f.methods)
	}
	return f, nil
}

// windowsSignature begins a Windows PDB (LLVM, docs/PDB/MsfFile.rst).
const windowsSignature = "Microsoft C/C++ MSF 7.00\r\n"

// portable tells portable PDBs from other files by their first bytes.
func portable(b []byte) error {
	if len(b) >= 4 && binary.LittleEndian.Uint32(b) == ecma335.Signature {
		return nil
	}
	if bytes.HasPrefix(b, []byte(windowsSignature)) {
		return fmt.Errorf("%w but a Windows PDB: only portable ones are read", ErrNotPortable)
	}
	return fmt.Errorf("%w: it does not begin with BSJB", ErrNotPortable)
}

// referenced is the number of the module's rows in a table.
func referenced(stream []byte, table ecma335.Table) (uint32, error) {
	valid := binary.LittleEndian.Uint64(stream[referencedAt:])
	if valid>>table&1 == 0 {
		return 0, nil
	}
	at := referencedRows
	for t := range table {
		at += 4 * int(valid>>t&1)
	}
	if at+4 > len(stream) {
		return 0, malformed("a #Pdb stream of %d bytes", len(stream))
	}
	n := binary.LittleEndian.Uint32(stream[at:])
	if n > maxRow {
		return 0, malformed("%d rows in table %#x of the module", n, uint8(table))
	}
	return n, nil
}

// ID is the PDB's id, equal to the id of the assembly's CodeView entry (pe.CodeView.ID).
func (f *File) ID() [20]byte { return f.id }

// Size is the size of the unpacked PDB in bytes.
func (f *File) Size() int { return len(f.raw) }

// Methods is the number of methods that the PDB's module defines. A module with another
// number has another PDB.
func (f *File) Methods() uint32 { return f.methods }

// index serves lookups by method or document, and is made at the first lookup. A key
// claimed by two rows leads to no row: row or blob 0.
type index struct {
	kickoffs, moveNexts map[uint32]uint32 // by MoveNext, by kickoff method
	asyncs, sources     map[uint32]uint32 // blobs by method, by document
	sourceLink          uint32            // blob
	sourceLinks         int
}

// Kinds of custom debug information.
var (
	kindSourceLink = guid("CC110556-A091-4D38-9FEC-25AB9A351A6A")
	kindSource     = guid("0E8A571B-6926-466E-B4AD-8AB04611F5FE")
	kindAsync      = guid("54FD2AC5-E925-401A-9C2A-F94F171072F8")
)

// Columns of the two indexed tables.
const (
	colMoveNext, colKickoff       = 0, 1
	colParent, colKind, colCustom = 0, 1, 2
)

func (f *File) indexed() *index {
	f.once.Do(func() {
		f.index = index{
			kickoffs: map[uint32]uint32{}, moveNexts: map[uint32]uint32{},
			asyncs: map[uint32]uint32{}, sources: map[uint32]uint32{},
		}
		for rid := range f.md.Rows(ecma335.TableStateMachineMethod) {
			f.stateMachine(rid + 1)
		}
		for rid := range f.md.Rows(ecma335.TableCustomDebugInformation) {
			f.custom(rid + 1)
		}
	})
	return &f.index
}

func (f *File) stateMachine(rid uint32) {
	moveNext, err := f.md.Cell(ecma335.TableStateMachineMethod, rid, colMoveNext)
	if err != nil || !f.isMethod(moveNext) {
		return
	}
	kickoff, err := f.md.Cell(ecma335.TableStateMachineMethod, rid, colKickoff)
	if err != nil || !f.isMethod(kickoff) {
		return
	}
	put(f.kickoffs, moveNext, kickoff)
	put(f.moveNexts, kickoff, moveNext)
}

func (f *File) custom(rid uint32) {
	at, err := f.md.Cell(ecma335.TableCustomDebugInformation, rid, colKind)
	if err != nil {
		return
	}
	kind, err := f.md.GUID(at)
	if err != nil || kind != kindSourceLink && kind != kindSource && kind != kindAsync {
		return
	}
	parent, err := f.md.Token(ecma335.TableCustomDebugInformation, rid, colParent)
	if err != nil {
		return
	}
	value, err := f.md.Cell(ecma335.TableCustomDebugInformation, rid, colCustom)
	if err != nil {
		return
	}
	switch table := parent.Table(); {
	case kind == kindAsync && table == ecma335.TableMethodDef && f.isMethod(parent.RID()):
		put(f.asyncs, parent.RID(), value)
	case kind == kindSource && table == ecma335.TableDocument && f.isDocument(parent.RID()):
		put(f.sources, parent.RID(), value)
	case kind == kindSourceLink && table == ecma335.TableModule:
		f.sourceLink = value
		f.sourceLinks++
	}
}

// put notes that key leads to value; a key with two different values leads to nothing.
func put(m map[uint32]uint32, key, value uint32) {
	if old, ok := m[key]; ok && old != value {
		value = 0
	}
	m[key] = value
}

// blob returns a blob that its reader decodes from beginning to end.
func (f *File) blob(at uint32) ([]byte, error) {
	b, err := f.md.Blob(at)
	if len(b) > maxBlob {
		return nil, malformed("a blob of %d bytes", len(b))
	}
	if !f.decode.Take(int64(len(b))) {
		return nil, errDecoded
	}
	return b, err
}

func (f *File) isMethod(rid uint32) bool { return rid >= 1 && rid <= f.methods }
func (f *File) isDocument(rid uint32) bool {
	return rid >= 1 && rid <= f.md.Rows(ecma335.TableDocument)
}
