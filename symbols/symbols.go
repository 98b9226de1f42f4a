// Package symbols gets symbols that are missing on this machine: portable PDBs and the debug files of native code, from
// symbol servers and debuginfod servers. A cache keeps the files.
//
// Nothing is fetched unless a program asks for it: a Store has only the servers that the program names. A file is
// believed only if its id is the requested id, and its checksum the assembly's checksum, if the assembly has any. The
// file is verified after the fetch, and each time that it comes out of the cache.
//
// A server learns the names and ids of the assemblies and libraries for whose symbols a Store asks.
//
// Sources: dotnet/symstore docs/specs/SSQP_Key_Conventions.md and Simple_Symbol_Query_Protocol.md, for the header
// SymbolChecksum its src/Microsoft.SymbolStore/SymbolStores/HttpSymbolStore.cs; debuginfod(8), "WEBAPI".
package symbols

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"clrsnap/internal/elfx"
	"clrsnap/internal/pdb"
	"clrsnap/internal/pe"
)

// Kind is the kind of a file.
type Kind uint8

// The kinds.
const (
	PDB        Kind = iota // a portable PDB
	Debug                  // the stripped part of a native program or library: its .symtab, and DWARF
	Executable             // a native program or library itself
)

// Key says which file a Store must find.
type Key struct {
	Kind Kind
	// Name is the file's name, without folders. Name may come from a target. A debug file needs no name.
	Name string
	// ID identifies the file. A PDB's ID has 20 bytes: the GUID in its stored form, and the PDB's stamp. The ID of
	// native code is the build id, in 1 to 64 bytes.
	ID []byte
	// Checksums belong to a PDB. The PDB must have one of the checksums, if there are any.
	Checksums []Checksum
}

// Checksum is a checksum of a PDB, with zeros in place of the PDB's id.
type Checksum struct {
	Algorithm string // SHA256, SHA384 or SHA512
	Sum       []byte
}

// File is an open file, such as an *os.File. A File is safe for concurrent use.
type File interface {
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error) // for its size
}

// Source finds symbols. A Source is safe for concurrent use.
type Source interface {
	// Open returns the file of a key. If nobody has the file, the error wraps fs.ErrNotExist; any other error says that
	// a server could not be asked, or gave a wrong answer. When ctx ends, Open ends with the error of ctx.
	Open(ctx context.Context, k Key) (File, error)
}

const (
	maxBuildID = 64
	maxName    = 255     // bytes: NAME_MAX of include/uapi/linux/limits.h
	pdbID      = 16 + 4  // bytes: GUID, stamp
	ssqpID     = 20      // bytes of a build id in a key, padded with zeros
	maxNative  = 1 << 30 // bytes of a file with native code or symbols
	noAge      = "FFFFFFFF"
)

// valid returns an error unless a key can be asked for.
func (k *Key) valid() error {
	switch {
	case k.Kind > Executable:
		return fmt.Errorf("kind %d of symbols", k.Kind)
	case k.Kind == PDB && len(k.ID) != pdbID, len(k.ID) == 0, len(k.ID) > maxBuildID:
		return fmt.Errorf("an id of %d bytes", len(k.ID))
	case k.Kind == Debug:
		return nil
	case k.Name == "" || len(k.Name) > maxName || k.Name == "." || k.Name == "..",
		strings.ContainsFunc(k.Name, func(r rune) bool { return r < ' ' || r == '/' || r == '\\' || r == 0x7f }):
		return fmt.Errorf("the name %q", k.Name)
	}
	return nil
}

// guid is how SSQP writes the GUID of a PDB.
func (k *Key) guid() string {
	id := slices.Clone(k.ID[:16])
	slices.Reverse(id[:4])
	slices.Reverse(id[4:6])
	slices.Reverse(id[6:8])
	return hex.EncodeToString(id)
}

// ssqp is the path below a symbol server: name, id and name.
func (k *Key) ssqp() [3]string {
	name := strings.ToLower(k.Name)
	native := hex.EncodeToString(append(slices.Clone(k.ID), make([]byte, max(0, ssqpID-len(k.ID)))...))
	switch k.Kind {
	case Debug:
		return [3]string{"_.debug", "elf-buildid-sym-" + native, "_.debug"}
	case Executable:
		return [3]string{name, "elf-buildid-" + native, name}
	}
	return [3]string{name, k.guid() + noAge, name}
}

// debuginfod is the path below a debuginfod server; nil: debuginfod servers have no PDBs.
func (k *Key) debuginfod() []string {
	switch k.Kind {
	case Debug:
		return []string{"buildid", hex.EncodeToString(k.ID), "debuginfo"}
	case Executable:
		return []string{"buildid", hex.EncodeToString(k.ID), "executable"}
	}
	return nil
}

// cached is the name of the file in the cache. PDBs with the same id but different checksums are different files: a
// compiler need not give each build an id of its own.
func (k *Key) cached() string {
	name := hex.EncodeToString(k.ID)
	if k.Kind == PDB && len(k.Checksums) > 0 {
		h := sha256.New()
		for _, c := range k.Checksums {
			fmt.Fprintf(h, "%d %s %d %s ", len(c.Algorithm), c.Algorithm, len(c.Sum), c.Sum)
		}
		name += "-" + hex.EncodeToString(h.Sum(nil)[:8])
	}
	return name + map[Kind]string{PDB: ".pdb", Debug: ".debug", Executable: ".elf"}[k.Kind]
}

// title names the file for people.
func (k *Key) title() string {
	if k.Name != "" {
		return k.Name
	}
	return k.cached()
}

// most is how many bytes the file may have.
func (k *Key) most() int64 {
	if k.Kind == PDB {
		return pdb.MaxSize
	}
	return maxNative
}

// errWrong: a file is not the requested file.
var errWrong = errors.New("not the requested file")

// Verify returns an error unless a file of size bytes is the file of the key.
func (k Key) Verify(file io.ReaderAt, size int64) error {
	if size > k.most() {
		return fmt.Errorf("%w: %d bytes", errWrong, size)
	}
	if k.Kind != PDB {
		image, err := elfx.New(file)
		if err != nil {
			return fmt.Errorf("%w: %w", errWrong, err)
		}
		defer image.Close()
		id, err := image.BuildID()
		if err == nil && !bytes.Equal(id, k.ID) {
			err = fmt.Errorf("the build id is %x, not %x", id, k.ID)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errWrong, err)
		}
		return nil
	}
	b, err := io.ReadAll(io.NewSectionReader(file, 0, size))
	if err == nil {
		_, err = pdb.Match(k.debug(), b)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	return nil
}

// debug is the debug directory of the PDB's assembly.
func (k *Key) debug() *pe.Debug {
	view := pe.CodeView{Portable: true}
	copy(view.GUID[:], k.ID)
	for i, b := range k.ID[16:pdbID] {
		view.Stamp |= uint32(b) << (8 * i)
	}
	d := &pe.Debug{CodeView: []pe.CodeView{view}}
	for _, c := range k.Checksums {
		d.Checksums = append(d.Checksums, pe.Checksum{Algorithm: c.Algorithm, Sum: c.Sum})
	}
	return d
}

// algorithms are the checksum algorithms that a server is told.
var algorithms = map[string]bool{"SHA256": true, "SHA384": true, "SHA512": true}

// checksumHeader is the value of the header SymbolChecksum; "": there is none.
func (k *Key) checksumHeader() string {
	var all []string
	for _, c := range k.Checksums {
		if algorithms[c.Algorithm] {
			all = append(all, c.Algorithm+":"+hex.EncodeToString(c.Sum))
		}
	}
	return strings.Join(all, ";")
}

// notFound is the error for a file that nobody has.
func notFound(k *Key) error { return fmt.Errorf("%s: %w", k.title(), fs.ErrNotExist) }
