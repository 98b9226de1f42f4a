// Package pe finds the metadata of a .NET assembly inside its PE image, and the
// data about the assembly's PDB in the image's debug directory. The image lies in
// a target's memory or in a file (File). In memory the image is either laid out
// by its sections, as a loader does it, or is a plain copy of its file: the
// runtime does both.
//
// Sources: PE/COFF specification (headers, section table, debug directory),
// ECMA-335 II.25.3.3 (CLI header), II.24.2.1 (metadata root), dotnet/runtime
// docs/design/specs/PE-COFF.md (entries of the debug directory).
package pe

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// ErrNoMetadata: there is no .NET assembly at the address.
var ErrNoMetadata = errors.New("no .NET metadata")

const (
	offNewHeader = 0x3c // in the DOS header
	peSignature  = 0x00004550
	coffSize     = 24 // signature and COFF header
	coffSections = 6
	coffOptional = 20

	optMagic64    = 0x20b
	optDirs32     = 96 // the number of directories stands before the directories
	optDirs64     = 112
	dirDebug      = 6
	dirCLR        = 14
	sectionSize   = 40
	maxSections   = 256
	cliHeaderSize = 72
	cliMetadata   = 8
	rootSignature = 0x424a5342 // BSJB

	// MaxMetadata bounds the metadata of one assembly, in bytes.
	MaxMetadata = 64 << 20
)

// Metadata returns the address and the size in bytes of the metadata of the image at base.
func Metadata(mem *target.Reader, base arch.Addr) (arch.Addr, int, error) {
	a, err := open(mem, base)
	if err != nil {
		return 0, 0, err
	}
	return a.metadata, a.size, nil
}

// assembly is a .NET image with a known layout.
type assembly struct {
	mem      *target.Reader
	base     arch.Addr
	pe       arch.Addr // "PE\0\0"
	dirs     arch.Addr // data directories
	flat     bool      // a plain copy of the file
	metadata arch.Addr
	size     int // of the metadata
}

// open finds the layout of the image at base: the layout in which the CLI header leads to
// metadata.
func open(mem *target.Reader, base arch.Addr) (*assembly, error) {
	lfanew, err := mem.Uint32(base + offNewHeader)
	if err != nil {
		return nil, err
	}
	a := &assembly{mem: mem, base: base, pe: base + arch.Addr(lfanew)}
	if sig, err := mem.Uint32(a.pe); err != nil {
		return nil, err
	} else if sig != peSignature {
		return nil, fmt.Errorf("%w: no PE header at %v", ErrNoMetadata, a.pe)
	}
	opt := a.pe + coffSize
	magic, err := mem.Uint16(opt)
	if err != nil {
		return nil, err
	}
	a.dirs = opt + optDirs32
	if magic == optMagic64 {
		a.dirs = opt + optDirs64
	}
	cli, err := mem.Uint32(a.dirs + dirCLR*8)
	if err != nil {
		return nil, err
	}
	if cli == 0 {
		return nil, fmt.Errorf("%w: the image at %v is not a .NET assembly", ErrNoMetadata, base)
	}
	for _, a.flat = range []bool{false, true} {
		header, ok := a.resolve(cli)
		if !ok {
			continue
		}
		if a.metadata, a.size, ok = metadataAt(mem, header, a.resolve); ok {
			return a, nil
		}
	}
	return nil, fmt.Errorf("%w: the CLI header of the image at %v does not lead to any", ErrNoMetadata, base)
}

// resolve returns the address of an RVA.
func (a *assembly) resolve(rva uint32) (arch.Addr, bool) {
	if a.flat {
		return flatOffset(a.mem, a.base, a.pe, rva)
	}
	return a.base + arch.Addr(rva), true
}

// metadataAt follows the CLI header to the metadata and confirms both.
func metadataAt(mem *target.Reader, header arch.Addr, resolve func(uint32) (arch.Addr, bool)) (arch.Addr, int, bool) {
	if cb, err := mem.Uint32(header); err != nil || cb != cliHeaderSize {
		return 0, 0, false
	}
	rva, err := mem.Uint32(header + cliMetadata)
	if err != nil {
		return 0, 0, false
	}
	size, err := mem.Uint32(header + cliMetadata + 4)
	if err != nil || size == 0 || size > MaxMetadata {
		return 0, 0, false
	}
	at, ok := resolve(rva)
	if !ok {
		return 0, 0, false
	}
	sig, err := mem.Uint32(at)
	return at, int(size), err == nil && sig == rootSignature
}

// flatOffset finds an RVA in a plain copy of the file, by the section table.
func flatOffset(mem *target.Reader, base, pe arch.Addr, rva uint32) (arch.Addr, bool) {
	n, err := mem.Uint16(pe + coffSections)
	if err != nil || n > maxSections {
		return 0, false
	}
	optSize, err := mem.Uint16(pe + coffOptional)
	if err != nil {
		return 0, false
	}
	table := pe + coffSize + arch.Addr(optSize)
	for i := range arch.Addr(n) {
		// VirtualSize, VirtualAddress, SizeOfRawData, PointerToRawData
		var f [4]uint32
		for k := range f {
			if f[k], err = mem.Uint32(table + i*sectionSize + 8 + 4*arch.Addr(k)); err != nil {
				return 0, false
			}
		}
		size := max(f[0], f[2])
		if rva >= f[1] && rva-f[1] < size {
			return base + arch.Addr(f[3]) + arch.Addr(rva-f[1]), true
		}
	}
	return 0, false
}

// At returns the address of the byte at an RVA of the image at base.
func At(mem *target.Reader, base arch.Addr, rva uint32) (arch.Addr, error) {
	a, err := open(mem, base)
	if err != nil {
		return 0, err
	}
	at, ok := a.resolve(rva)
	if !ok {
		return 0, fmt.Errorf("the image at %v has no RVA %#x", base, rva)
	}
	return at, nil
}
