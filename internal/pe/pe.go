// Package pe finds the metadata of a .NET assembly inside its PE image as it
// lies in a target's memory. The image is either laid out by its sections, as a
// loader does it, or is a plain copy of its file: the runtime does both.
//
// Sources: PE/COFF specification (headers, section table), ECMA-335 II.25.3.3
// (CLI header), II.24.2.1 (metadata root).
package pe

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// ErrNoMetadata: there is no .NET assembly where one was looked for.
var ErrNoMetadata = errors.New("no .NET metadata")

const (
	offNewHeader = 0x3c // in the DOS header
	peSignature  = 0x00004550
	coffSize     = 24 // signature and COFF header
	coffSections = 6
	coffOptional = 20

	optMagic64    = 0x20b
	optDirs32     = 96
	optDirs64     = 112
	dirCLR        = 14
	sectionSize   = 40
	maxSections   = 256
	cliHeaderSize = 72
	cliMetadata   = 8
	rootSignature = 0x424a5342 // BSJB

	// MaxMetadata bounds the metadata of one assembly, in bytes.
	MaxMetadata = 64 << 20
)

// Metadata returns where the metadata of the image at base lies, and its size
// in bytes.
func Metadata(mem *target.Reader, base arch.Addr) (arch.Addr, int, error) {
	lfanew, err := mem.Uint32(base + offNewHeader)
	if err != nil {
		return 0, 0, err
	}
	pe := base + arch.Addr(lfanew)
	if sig, err := mem.Uint32(pe); err != nil {
		return 0, 0, err
	} else if sig != peSignature {
		return 0, 0, fmt.Errorf("%w: no PE header at %v", ErrNoMetadata, pe)
	}
	opt := pe + coffSize
	magic, err := mem.Uint16(opt)
	if err != nil {
		return 0, 0, err
	}
	dirs := opt + optDirs32
	if magic == optMagic64 {
		dirs = opt + optDirs64
	}
	cli, err := mem.Uint32(dirs + dirCLR*8)
	if err != nil {
		return 0, 0, err
	}
	if cli == 0 {
		return 0, 0, fmt.Errorf("%w: the image at %v is not a .NET assembly", ErrNoMetadata, base)
	}
	loaded := func(rva uint32) (arch.Addr, bool) { return base + arch.Addr(rva), true }
	if at, n, ok := metadataAt(mem, base+arch.Addr(cli), loaded); ok {
		return at, n, nil
	}
	flat := func(rva uint32) (arch.Addr, bool) { return flatOffset(mem, base, pe, rva) }
	if header, ok := flat(cli); ok {
		if at, n, ok := metadataAt(mem, header, flat); ok {
			return at, n, nil
		}
	}
	return 0, 0, fmt.Errorf("%w: the CLI header of the image at %v does not lead to any", ErrNoMetadata, base)
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
