package iter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// This file reads the kernel's description of its types (BTF, Documentation/bpf/btf.rst of the
// kernel). Of some 150,000 types we want a handful: a general reader takes 15 times as long.

// typesFile is the kernel's file with the description.
const typesFile = "/sys/kernel/btf/vmlinux"

// types is a description: the types, and their names.
type types struct {
	data, names []byte
	marks       []uint32 // offsets of each marked type: of the types with ids 0, perMark, 2 * perMark and so on
	n           uint32   // types, with type 0, which takes no bytes
}

// perMark is how many types have one mark. To find a type is to go over half as many types.
const perMark = 64

// Kinds of types (include/uapi/linux/btf.h). The comment says what follows each type's three
// words.
const (
	kindInt      = 1  // 1 word
	kindPointer  = 2  // nothing
	kindArray    = 3  // 3 words
	kindStruct   = 4  // 3 words for each member
	kindUnion    = 5  // likewise
	kindEnum     = 6  // 2 words for each value
	kindForward  = 7  // nothing
	kindTypedef  = 8  // nothing
	kindVolatile = 9  // nothing
	kindConst    = 10 // nothing
	kindRestrict = 11 // nothing
	kindFunc     = 12 // nothing
	kindProto    = 13 // 2 words for each parameter
	kindVar      = 14 // 1 word
	kindSection  = 15 // 3 words for each variable
	kindFloat    = 16 // nothing
	kindDeclTag  = 17 // 1 word
	kindTypeTag  = 18 // nothing
	kindEnum64   = 19 // 3 words for each value

	typeWords = 3
)

// fixedWords and eachWords count the following words, by kind: per type, and per member.
var (
	fixedWords = [kindEnum64 + 1]int{kindInt: 1, kindArray: 3, kindVar: 1, kindDeclTag: 1}
	eachWords  = [kindEnum64 + 1]int{
		kindStruct: 3, kindUnion: 3, kindEnum: 2, kindProto: 2, kindSection: 3, kindEnum64: 3,
	}
)

var (
	errTypes   = errors.New("the kernel's description of its types is not understood")
	errNoTypes = errors.New("the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)")
)

// withKernelTypes calls f with the kernel's description. The description is gone afterwards.
func withKernelTypes(f func(*types) error, find ...wanted) error {
	file, err := os.Open(typesFile)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoTypes, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoTypes, err)
	}
	if info.Size() <= 0 || info.Size() > maxTypes {
		return errTypes
	}
	data, n, err := mapTypes(file, int(info.Size()))
	if err != nil {
		return fmt.Errorf("memory for the kernel's types: %w", err)
	}
	defer func() { _ = unix.Munmap(data) }()
	t, err := parseTypes(data[:n], find...)
	if err != nil {
		return err
	}
	return f(t)
}

// mapTypes maps the n bytes of the description, which are several megabytes and wanted for a
// millisecond only. Before Linux 6.16 the file cannot be mapped, and is read.
func mapTypes(file *os.File, size int) (data []byte, n int, err error) {
	if data, err = unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_PRIVATE); err == nil {
		return data, size, nil
	}
	data, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	for err == nil && n < len(data) {
		got, err := file.Read(data[n:])
		if got <= 0 || err != nil {
			break // parseTypes checks the part that was read
		}
		n += got
	}
	return data, n, err
}

// maxTypes bounds the description.
const maxTypes = 256 << 20

// parseTypes checks the description, and finds types by kind and name.
func parseTypes(data []byte, find ...wanted) (*types, error) {
	const magic, headerSize = 0xeb9f, 24
	le := binary.LittleEndian
	if len(data) < headerSize || le.Uint16(data) != magic {
		return nil, errTypes
	}
	part := func(at int) ([]byte, bool) { // from the end of the header on
		begin, size := uint64(le.Uint32(data[4:]))+uint64(le.Uint32(data[at:])), uint64(le.Uint32(data[at+4:]))
		if begin+size > uint64(len(data)) {
			return nil, false
		}
		return data[begin : begin+size], true
	}
	list, ok := part(8)
	names, okNames := part(16)
	if !ok || !okNames {
		return nil, errTypes
	}
	const usual = 40 // bytes of a type
	t := &types{data: list, names: names, n: 1, marks: make([]uint32, 1, len(list)/usual/perMark+1)}
	called := make([]uint32, len(find)) // equal names are the same string of the description
	for i := range find {
		called[i] = uint32(bytes.Index(names, []byte("\x00"+find[i].name+"\x00")) + 1)
	}
	for at := 0; at < len(list); t.n++ {
		if len(list)-at < typeWords*4 {
			return nil, errTypes
		}
		info := le.Uint32(list[at+4:])
		kind, count := info>>24&0x1f, int(info&0xffff)
		if kind == 0 || int(kind) >= len(fixedWords) {
			return nil, errTypes
		}
		if t.n%perMark == 0 {
			t.marks = append(t.marks, uint32(at))
		}
		if name := le.Uint32(list[at:]); kind == kindStruct || kind == kindFunc {
			for i := range called {
				if name == called[i] && name > 0 && kind == find[i].kind && *find[i].id == 0 {
					*find[i].id = t.n
				}
			}
		}
		at += sizeOfType(kind, count)
		if at > len(list) {
			return nil, errTypes
		}
	}
	return t, nil
}

// sizeOfType is the size of a type in bytes, with the words that follow.
func sizeOfType(kind uint32, count int) int {
	return 4 * (typeWords + fixedWords[kind] + count*eachWords[kind])
}

// typ is a type: its three words, and the words that follow.
type typ struct {
	name, info, size uint32 // some kinds have the id of another type instead of a size
	rest             []byte
}

func (t typ) kind() uint32 { return t.info >> 24 & 0x1f }

func (t *types) get(id uint32) (out typ, ok bool) {
	if id == 0 || id >= t.n {
		return out, false
	}
	le, b := binary.LittleEndian, t.data[t.marks[id/perMark]:]
	for i := max(id/perMark*perMark, 1); ; i++ {
		out = typ{name: le.Uint32(b), info: le.Uint32(b[4:]), size: le.Uint32(b[8:])}
		n := sizeOfType(out.kind(), int(out.info&0xffff))
		if i == id {
			out.rest = b[typeWords*4 : n]
			return out, true
		}
		b = b[n:]
	}
}

// underlying is the type behind typedefs and qualifiers.
func (t *types) underlying(id uint32) (typ, bool) {
	for range 32 {
		x, ok := t.get(id)
		if !ok {
			return typ{}, false
		}
		switch x.kind() {
		case kindTypedef, kindVolatile, kindConst, kindRestrict, kindTypeTag:
			id = x.size
		default:
			return x, true
		}
	}
	return typ{}, false
}

// named reports whether the name at an offset equals name.
func (t *types) named(offset uint32, name string) bool {
	if uint64(offset)+uint64(len(name)) >= uint64(len(t.names)) {
		return false
	}
	b := t.names[offset:]
	return string(b[:len(name)]) == name && b[len(name)] == 0
}

// wanted is a structure or a function that is to be found.
type wanted struct {
	name string
	kind uint32
	id   *uint32 // where to put the type's id
}

// member finds a member of a structure by its path, also inside unnamed structures: kernels with
// a randomised layout have unnamed structures.
func (t *types) member(of typ, path string) (member, bool) { return t.memberWithin(of, path, 0) }

func (t *types) memberWithin(of typ, path string, depth int) (member, bool) {
	const deepest = 8
	if depth > deepest || of.kind() != kindStruct && of.kind() != kindUnion {
		return member{}, false
	}
	name, rest, nested := strings.Cut(path, ".")
	le := binary.LittleEndian
	for b := of.rest; len(b) >= 12; b = b[12:] {
		bits := le.Uint32(b[8:])
		if of.info>>31 != 0 {
			bits &= 0xff_ffff // above that is the size of a bit field
		}
		at := int32(bits / 8)
		called := le.Uint32(b)
		switch inner, _ := t.underlying(le.Uint32(b[4:])); {
		case t.named(called, name) && nested:
			found, ok := t.memberWithin(inner, rest, depth+1)
			found.at += at
			return found, ok
		case t.named(called, name):
			size, ok := sizeOf(inner)
			return member{at, size}, ok
		case t.named(called, "") && inner.kind() == kindStruct:
			if found, ok := t.memberWithin(inner, path, depth+1); ok {
				found.at += at
				return found, true
			}
		}
	}
	return member{}, false
}

// sizeOf is the size of a number or a pointer that the program reads. The program reads no array
// as a whole.
func sizeOf(x typ) (size asm.Size, ok bool) {
	switch {
	case x.kind() == kindPointer, x.kind() == kindInt && x.size == 8:
		return asm.DWord, true
	case x.kind() == kindInt && x.size == 4:
		return asm.Word, true
	}
	return 0, x.kind() == kindArray
}
