// Package bundle reads the contents of a single-file program: its deps.json, and the bundled files.
//
// Sources (dotnet/runtime): src/native/corehost/bundle/header.h and file_entry.h, the manifest;
// src/native/corehost/apphost/bundle_marker.cpp, the mark that leads to the manifest.
//
// A bundle is the target's file, and hostile: all sizes are bounded.
package bundle

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"

	"clrsnap/internal/elfx"
	"clrsnap/internal/pe"
)

// ErrFormat: a file is not a single-file program, or its manifest breaks the rules.
var ErrFormat = errors.New("not a single-file bundle")

// mark precedes nothing and follows the offset of the manifest: SHA-256 of ".net core bundle" and a
// newline.
var mark = []byte{
	0x8b, 0x12, 0x02, 0xb9, 0x6a, 0x61, 0x20, 0x38, 0x72, 0x7b, 0x93, 0x02, 0x14, 0xd7, 0xa0, 0x32,
	0x13, 0xf5, 0xb9, 0xe6, 0xef, 0xae, 0x33, 0x18, 0xee, 0x3b, 0x2d, 0xce, 0x24, 0xb3, 0x6a, 0xae,
}

// Bounds.
const (
	chunk    = 1 << 17
	maxHost  = 256 << 20 // bytes of the executable that are searched for the mark; hosts have 10 to 80 MB
	maxID    = 127       // bytes: its length has one byte; the SDK writes 12
	maxFiles = 1 << 16
	maxName  = 4096     // bytes
	maxList  = 16 << 20 // bytes of the list of files
)

// The manifest: major and minor version, number of files (4 bytes each), the bundle's id. From
// version 2 on: offset and size of deps.json and of runtimeconfig.json, flags (8 bytes each). Then
// the files: offset, size, from version 6 on the size when packed (8 bytes each), kind (1 byte), name.
const (
	withConfig = 2
	configSize = 40
	withPacked = 6
	kindSymbol = 5
)

// Bundle is an open bundle. A Bundle keeps the file, and never closes the file.
type Bundle struct {
	file  io.ReaderAt
	deps  File
	pdbs  map[string]File // by their names, without folders
	error error           // why the list of files may be incomplete
}

// File is a file in a bundle.
type File struct {
	offset, size uint64
	packed       uint64 // bytes in the bundle; 0: the file is not packed
}

// Size is how many bytes the file has, unpacked or packed: the larger number.
func (f File) Size() int64 { return int64(min(max(f.size, f.packed), math.MaxInt64)) }

// Open reads the manifest of the bundle in a file.
func Open(f io.ReaderAt) (*Bundle, error) {
	at, err := manifest(f)
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(io.NewSectionReader(f, at, maxList))
	var counts [12]byte
	if _, err := io.ReadFull(r, counts[:]); err != nil {
		return nil, fmt.Errorf("%w: its manifest is cut off", ErrFormat)
	}
	major, files := binary.LittleEndian.Uint32(counts[:]), binary.LittleEndian.Uint32(counts[8:])
	id, err := text(r, maxID)
	if err != nil || id == "" {
		return nil, fmt.Errorf("%w: it has no id", ErrFormat)
	}
	b := &Bundle{file: f, pdbs: map[string]File{}}
	if major < withConfig {
		return nil, fmt.Errorf("%w: version %d", ErrFormat, major)
	}
	var config [configSize]byte
	if _, err := io.ReadFull(r, config[:]); err != nil {
		return nil, fmt.Errorf("%w: its manifest is cut off", ErrFormat)
	}
	b.deps = File{offset: binary.LittleEndian.Uint64(config[:]), size: binary.LittleEndian.Uint64(config[8:])}
	b.error = b.list(r, files, major >= withPacked)
	return b, nil
}

// list reads the list of files, and keeps the PDBs.
func (b *Bundle) list(r *bufio.Reader, files uint32, packed bool) error {
	if files > maxFiles {
		return fmt.Errorf("%w: %d files", ErrFormat, files)
	}
	head := make([]byte, 17, 25)
	if packed {
		head = head[:25]
	}
	for range files {
		if _, err := io.ReadFull(r, head); err != nil {
			return fmt.Errorf("%w: its list of files is cut off", ErrFormat)
		}
		name, err := text(r, maxName)
		if err != nil {
			return err
		}
		f := File{offset: binary.LittleEndian.Uint64(head), size: binary.LittleEndian.Uint64(head[8:])}
		if packed {
			f.packed = binary.LittleEndian.Uint64(head[16:])
		}
		if name = path.Base(name); head[len(head)-1] == kindSymbol || strings.HasSuffix(name, ".pdb") {
			b.pdbs[name] = f
		}
	}
	return nil
}

// Deps returns the program's deps.json, if the file has at most most bytes.
func (b *Bundle) Deps(most int) ([]byte, error) {
	if b.deps.size == 0 {
		return nil, fmt.Errorf("%w: no deps.json", ErrFormat)
	}
	return b.Read(b.deps, most)
}

// PDB returns the PDB of the given name. The error is nil if the bundle has no such PDB.
func (b *Bundle) PDB(name string) (f File, ok bool, err error) {
	if f, ok = b.pdbs[name]; ok {
		return f, true, nil
	}
	return f, false, b.error
}

// Read reads a file, if the file has at most most bytes, unpacked and packed.
func (b *Bundle) Read(f File, most int) ([]byte, error) {
	in := f.packed
	if in == 0 {
		in = f.size
	}
	if f.size > uint64(most) || in > uint64(most) || f.offset > 1<<62 {
		return nil, fmt.Errorf("%w: a file of %d bytes, %d in the bundle", ErrFormat, f.size, in)
	}
	p, err := io.ReadAll(io.NewSectionReader(b.file, int64(f.offset), int64(in)))
	switch {
	case err != nil:
		return nil, err
	case uint64(len(p)) != in:
		return nil, fmt.Errorf("%w: a file is cut off after %d of %d bytes", ErrFormat, len(p), in)
	case f.packed != 0:
		return pe.Inflate(p, int(f.size))
	}
	return p, nil
}

// text reads a text after its length. The length has seven bits a byte, the lowest first.
func text(r *bufio.Reader, most uint64) (string, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil || n > most {
		return "", fmt.Errorf("%w: a name of %d bytes", ErrFormat, n)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(r, p); err != nil {
		return "", fmt.Errorf("%w: a name is cut off", ErrFormat)
	}
	return string(p), nil
}

// manifest finds the manifest. The mark is a variable of the host, so the mark lies in the host's writable segments.
func manifest(f io.ReaderAt) (int64, error) {
	img, err := elfx.New(f)
	if err != nil {
		return search(f, 0, maxHost)
	}
	defer img.Close()
	unread := uint64(maxHost)
	for _, p := range img.Progs {
		if p.Flags&elfx.FlagWrite == 0 {
			continue
		}
		size := min(p.Filesz, unread)
		unread -= size
		if at, err := search(f, int64(p.Offset), int64(size)); !errors.Is(err, ErrFormat) {
			return at, err
		}
	}
	return 0, ErrFormat
}

// search finds the mark in size bytes of a file, and returns the offset of the manifest.
func search(f io.ReaderAt, from, size int64) (int64, error) {
	const before = 8 // bytes, for the offset
	keep := before + len(mark) - 1
	buf := make([]byte, keep+chunk)
	have := 0
	in := io.NewSectionReader(f, from, size)
	for {
		n, err := in.Read(buf[have:])
		if n == 0 {
			if err == io.EOF {
				err = ErrFormat
			}
			return 0, err
		}
		b := buf[:have+n]
		if i := bytes.Index(b, mark); i >= before {
			offset := binary.LittleEndian.Uint64(b[i-before:])
			if offset == 0 || offset > 1<<62 {
				return 0, ErrFormat // a host without a bundle has 0
			}
			return int64(offset), nil
		}
		have = copy(buf, b[max(0, len(b)-keep):])
	}
}
