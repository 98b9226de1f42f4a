package cfi

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"clrsnap/internal/arch"
)

// Where the tests' sections and code lie.
const (
	frameBase = arch.Addr(0x10000)
	hdrBase   = arch.Addr(0x8000)
	codeBase  = arch.Addr(0x4000)
	codeSize  = 0x100
)

// builder writes an .eh_frame of a CIE and its FDEs.
type builder struct {
	version      uint8
	augmentation string
	augData      []byte
	ptrEnc       uint8
	initial      []byte
	extended     bool // 64-bit lengths
	bytes        []byte
	fdes         []int
}

// standard is the usual start of compilers on x86-64: CFA = rsp+8, return address
// at CFA-8.
func standard() *builder {
	return &builder{version: 1, augmentation: "zR", augData: []byte{pePCRel | peSdata4}, ptrEnc: pePCRel | peSdata4,
		initial: []byte{cfaDefCFA, 7, 8, cfaOffset | 16, 1}}
}

func (b *builder) record(body []byte) {
	for len(body)%4 != 0 {
		body = append(body, cfaNop)
	}
	if b.extended {
		b.bytes = binary.LittleEndian.AppendUint32(b.bytes, 0xffffffff)
		b.bytes = binary.LittleEndian.AppendUint64(b.bytes, uint64(len(body)))
	} else {
		b.bytes = binary.LittleEndian.AppendUint32(b.bytes, uint32(len(body)))
	}
	b.bytes = append(b.bytes, body...)
}

func (b *builder) cie() {
	body := append([]byte{0, 0, 0, 0, b.version}, b.augmentation+"\x00"...)
	if b.version == 4 {
		body = append(body, 8, 0)
	}
	body = append(body, 1, 0x78, 16) // code 1, data -8, return address in column 16
	if strings.HasPrefix(b.augmentation, "z") {
		body = append(append(body, byte(len(b.augData))), b.augData...)
	}
	b.record(append(body, b.initial...))
}

func (b *builder) fde(lo arch.Addr, size uint64, code ...byte) *builder {
	if b.bytes == nil {
		b.cie()
	}
	b.fdes = append(b.fdes, len(b.bytes))
	field := len(b.bytes) + 4
	if b.extended {
		field += 8
	}
	body := binary.LittleEndian.AppendUint32(nil, uint32(field))
	body = encode(body, frameBase+arch.Addr(field+4), 0, b.ptrEnc, lo)
	body = encode(body, 0, 0, b.ptrEnc&^peSigned&peForm, arch.Addr(size))
	if strings.HasPrefix(b.augmentation, "z") {
		body = append(body, 0)
	}
	b.record(append(body, code...))
	return b
}

// encode appends v in a pointer encoding, for a place at address at.
func encode(p []byte, at, data arch.Addr, enc uint8, v arch.Addr) []byte {
	switch enc & peBase {
	case pePCRel:
		v -= at
	case peDataRel:
		v -= data
	case peAligned:
		for ; at%8 != 0; at++ {
			p = append(p, 0xaa)
		}
	}
	switch enc & peForm {
	case peULEB128:
		return binary.AppendUvarint(p, uint64(v))
	case peSLEB128:
		for n := int64(v); ; n >>= 7 {
			if c := byte(n & 0x7f); n>>6 == 0 || n>>6 == -1 {
				return append(p, c)
			} else {
				p = append(p, c|0x80)
			}
		}
	}
	return append(p, binary.LittleEndian.AppendUint64(nil, uint64(v))[:fixedSize(enc)]...)
}

// inMemory is a section with bytes in memory.
type inMemory struct {
	data []byte
	addr arch.Addr
}

func (s inMemory) Addr() arch.Addr { return s.addr }
func (s inMemory) Size() uint64    { return uint64(len(s.data)) }

func (s inMemory) Bytes(off uint64, n int) ([]byte, error) {
	if size := s.Size(); off > size || uint64(n) > size-off {
		return nil, io.ErrUnexpectedEOF
	}
	return s.data[off : off+uint64(n) : off+uint64(n)], nil
}

// newTable is New for sections in memory, without a bound on memory.
func newTable(hdr, frame []byte) (*Table, error) {
	return New(inMemory{hdr, hdrBase}, inMemory{frame, frameBase}, arch.AMD64, always)
}

func always(int64) error { return nil }

func (b *builder) table() *Table {
	t, err := newTable(nil, b.bytes)
	if err != nil {
		panic(err)
	}
	return t
}

// hdr makes an .eh_frame_hdr with a search table in the encoding enc.
func (b *builder) hdr(enc uint8) []byte {
	p := []byte{1, pePCRel | peSdata4, peUdata4, enc}
	p = encode(p, hdrBase+4, hdrBase, pePCRel|peSdata4, frameBase)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(b.fdes)))
	t := b.table()
	for _, off := range b.fdes {
		f, err := t.parseFDE(off)
		if err != nil {
			panic(err)
		}
		p = encode(p, hdrBase+arch.Addr(len(p)), hdrBase, enc, f.lo)
		p = encode(p, hdrBase+arch.Addr(len(p)), hdrBase, enc, frameBase+arch.Addr(off))
	}
	return p
}

// describe writes a row as "rsp+8 rbp:c-16 ra:c-8".
func describe(w *row) string {
	names := make([]string, 17)
	for n, c := range columns {
		names[c] = n
	}
	s := w.format(-1)
	for c := range w.regs {
		if w.regs[c].kind == ruleUnset {
			continue
		}
		n := fmt.Sprint(c)
		if c < len(names) {
			n = names[c]
		}
		s += " " + n + ":" + w.regs[c].format()
	}
	return s
}
