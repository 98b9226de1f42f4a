package assemblies

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// bundleMark precedes nothing and follows the offset of the bundle's header in a single-file
// program: SHA-256 of ".net core bundle" and a newline (src/native/corehost/apphost/
// bundle_marker.cpp; the header is that of src/native/corehost/bundle/header.h).
var bundleMark = []byte{
	0x8b, 0x12, 0x02, 0xb9, 0x6a, 0x61, 0x20, 0x38, 0x72, 0x7b, 0x93, 0x02, 0x14, 0xd7, 0xa0, 0x32,
	0x13, 0xf5, 0xb9, 0xe6, 0xef, 0xae, 0x33, 0x18, 0xee, 0x3b, 0x2d, 0xce, 0x24, 0xb3, 0x6a, 0xae,
}

const (
	bundleChunk  = 1 << 20
	maxHost      = 256 << 20 // bytes of the executable that the mark is looked for in; hosts have 10 to 80 MB
	maxBundleID  = 127       // bytes: its length has one byte; the SDK writes 12
	bundleCounts = 12        // major and minor version, number of files: 4 bytes each
	bundleDeps   = 16        // offset and size of deps.json: 8 bytes each
	depsInHeader = 2         // the major version from which on the header has them
)

var errBundle = errors.New("not a single-file bundle")

// bundledDeps returns the deps.json in a single-file program.
func bundledDeps(f io.ReaderAt) ([]byte, error) {
	at, err := bundleHeader(f)
	if err != nil {
		return nil, err
	}
	var head [bundleCounts + 1 + maxBundleID + bundleDeps]byte
	n, err := f.ReadAt(head[:], at)
	if err != nil && err != io.EOF {
		return nil, err
	}
	rest := head[:n]
	if len(rest) < bundleCounts+1 || binary.LittleEndian.Uint32(rest) < depsInHeader {
		return nil, errBundle
	}
	id := int(rest[bundleCounts])
	rest = rest[bundleCounts+1:]
	if id > maxBundleID || len(rest) < id+bundleDeps {
		return nil, errBundle
	}
	offset, size := binary.LittleEndian.Uint64(rest[id:]), binary.LittleEndian.Uint64(rest[id+8:])
	if size == 0 || size > maxDeps || offset > 1<<62 {
		return nil, fmt.Errorf("%w: %d bytes of deps.json", errBundle, size)
	}
	return readFile(io.NewSectionReader(f, int64(offset), int64(size)))
}

// bundleHeader finds the header of a bundle.
func bundleHeader(f io.ReaderAt) (int64, error) {
	const before = 8 // bytes, for the offset
	keep := before + len(bundleMark) - 1
	buf := make([]byte, keep+bundleChunk)
	have := 0
	for at := int64(0); at < maxHost; {
		n, err := f.ReadAt(buf[have:], at)
		if n == 0 {
			if err == io.EOF {
				err = errBundle
			}
			return 0, err
		}
		at += int64(n)
		b := buf[:have+n]
		if i := bytes.Index(b, bundleMark); i >= before {
			header := binary.LittleEndian.Uint64(b[i-before:])
			if header == 0 || header > 1<<62 {
				return 0, errBundle // a host without a bundle has 0
			}
			return int64(header), nil
		}
		have = copy(buf, b[max(0, len(b)-keep):])
	}
	return 0, errBundle
}

// readFile reads all of a file, unless it is too large for a deps.json.
func readFile(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxDeps+1))
	if err == nil && len(text) > maxDeps {
		err = fmt.Errorf("%w: it has more than %d bytes", errDeps, maxDeps)
	}
	return text, err
}
