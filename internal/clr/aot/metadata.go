package aot

import (
	"encoding/binary"
	"strconv"
	"strings"

	"clrsnap/internal/ecma335"
)

// kind is the kind of a metadata record: HandleType of NativeFormatReaderCommonGen.cs.
type kind uint8

// The kinds of records for names.
const (
	arraySignature              kind = 0x01
	byReferenceSignature        kind = 0x02
	stringRecord                kind = 0x1a
	functionPointerSignature    kind = 0x25
	methodTypeVariableSignature kind = 0x2c
	modifiedType                kind = 0x2d
	namespaceDefinition         kind = 0x2f
	namespaceReference          kind = 0x30
	pointerSignature            kind = 0x32
	szArraySignature            kind = 0x37
	scopeDefinition             kind = 0x38
	scopeReference              kind = 0x39
	typeDefinition              kind = 0x3a
	typeInstantiationSignature  kind = 0x3c
	typeReference               kind = 0x3d
	typeSpecification           kind = 0x3e
	typeVariableSignature       kind = 0x3f
)

const (
	metadataSignature = 0xdeaddffd
	tokenOffsetBits   = 25 // a token has the kind above the offset
	handleKindBits    = 7  // a handle within a record has the kind below the offset
)

// Bounds of the work on one name: records, records within each other, and bytes of text.
const (
	maxRecords = 2000
	maxDepth   = 24
	maxText    = 8 << 10
)

// handle is the place of a record.
type handle struct {
	kind kind
	at   uint32
}

func tokenHandle(token uint32) handle {
	return handle{kind(token >> tokenOffsetBits), token & (1<<tokenOffsetBits - 1)}
}

// reader reads a record. Once a value does not fit, bad is set and every further value is zero.
type reader struct {
	b   []byte
	pos int
	bad bool
}

func (r *reader) take(n uint32) []byte {
	if r.bad || r.pos < 0 || r.pos > len(r.b) || uint64(n) > uint64(len(r.b)-r.pos) {
		r.bad = true
		return nil
	}
	p := r.b[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return p
}

func (r *reader) u8() uint8 {
	if p := r.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (r *reader) u32() uint32 {
	if p := r.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

// number reads a number of one to five bytes, and returns its length in bits, too. The lowest bits of the first byte
// give the number of bytes that follow (NativePrimitiveDecoder.cs).
func (r *reader) number() (v uint32, bits uint) {
	first := uint32(r.u8())
	for more := uint(0); more < 4; more++ {
		if first&(1<<more) == 0 {
			v := first >> (more + 1)
			for i := range more {
				v |= uint32(r.u8()) << (7 - more + 8*i)
			}
			return v, 7 * (more + 1)
		}
	}
	if first&0x10 != 0 {
		r.bad = true
		return 0, 32
	}
	return r.u32(), 32
}

func (r *reader) unsigned() uint32 {
	v, _ := r.number()
	return v
}

func (r *reader) signed() int32 {
	v, bits := r.number()
	return int32(v<<(32-bits)) >> (32 - bits)
}

func (r *reader) handle() handle {
	v := r.unsigned()
	return handle{kind(v & (1<<handleKindBits - 1)), v >> handleKindBits}
}

// naming is the work on one name. Reads and text are bounded.
type naming struct {
	metadata      []byte
	records, text int // left
	failed        bool
	methodArgs    []string // of a generic method; nil: not known
}

func newNaming(metadata []byte) *naming {
	return &naming{metadata: metadata, records: maxRecords, text: maxText}
}

func (n *naming) fail() string {
	n.failed = true
	return ""
}

// record begins to read a record.
func (n *naming) record(at uint32, depth int) *reader {
	if n.records--; n.records < 0 || depth > maxDepth {
		n.failed = true
	}
	return &reader{b: n.metadata, pos: int(at), bad: n.failed || at == 0}
}

// string reads a string record: the length in bytes, and UTF-8.
func (n *naming) string(at uint32) string {
	r := n.record(at, 0)
	b := r.take(r.unsigned())
	if n.text -= len(b); r.bad || n.text < 0 {
		return n.fail()
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// qualified returns the metadata name of a type, such as Namespace.Outer`1+Nested, and the type's assembly.
func (n *naming) qualified(h handle, depth int) (name, assembly string) {
	r := n.record(h.at, depth)
	var inside, text uint32
	var around handle
	switch h.kind {
	case typeDefinition:
		r.unsigned() // flags
		r.handle()   // base type
		around = handle{namespaceDefinition, r.unsigned()}
		text = r.unsigned()
		r.unsigned() // size
		r.unsigned() // packing size
		inside = r.unsigned()
	case typeReference:
		around, text = r.handle(), r.unsigned()
	default:
		return n.fail(), ""
	}
	if r.bad {
		return n.fail(), ""
	}
	if inside != 0 {
		around = handle{typeDefinition, inside}
	}
	name = n.string(text)
	switch around.kind {
	case typeDefinition, typeReference:
		outer, assembly := n.qualified(around, depth+1)
		return n.join(outer, "+", name), assembly
	}
	space, assembly := n.namespace(around, depth+1)
	return n.join(space, ".", name), assembly
}

// namespace returns a namespace with the namespaces around it, and the assembly. A type that stands for a parameter
// of a generic type is in no namespace.
func (n *naming) namespace(h handle, depth int) (space, assembly string) {
	if h == (handle{}) {
		return "", ""
	}
	r := n.record(h.at, depth)
	switch h.kind {
	case scopeDefinition, scopeReference:
		r.unsigned() // flags
		at := r.unsigned()
		if r.bad {
			return n.fail(), ""
		}
		return "", n.string(at)
	case namespaceDefinition, namespaceReference:
		around, at := r.handle(), r.unsigned()
		if r.bad {
			return n.fail(), ""
		}
		outer, assembly := n.namespace(around, depth+1)
		name := ""
		if at != 0 {
			name = n.string(at) // the root's name is empty
		}
		return n.join(outer, ".", name), assembly
	}
	return n.fail(), ""
}

func (n *naming) join(outer, separator, name string) string {
	if outer == "" || name == "" {
		return outer + name
	}
	if n.text -= len(outer); n.text < 0 {
		return n.fail()
	}
	return outer + separator + name
}

// isStruct reports whether the base type of a defined type is System.ValueType.
func (n *naming) isStruct(h handle) bool {
	if h.kind != typeDefinition {
		return false
	}
	r := n.record(h.at, 0)
	r.unsigned() // flags
	base := r.handle()
	if r.bad || base.kind != typeDefinition && base.kind != typeReference {
		return false
	}
	name, _ := n.qualified(base, 0)
	return name == "System.ValueType"
}

// types returns a collection of types.
func (n *naming) types(r *reader, style ecma335.Style, depth int) []string {
	count := r.unsigned()
	if uint64(count) > uint64(len(r.b)) {
		r.bad = true
	}
	var out []string
	for ; count > 0 && !r.bad && !n.failed; count-- {
		out = append(out, n.typ(r.handle(), style, depth))
	}
	if r.bad {
		n.failed = true
	}
	return out
}

// typ returns the name of a type in C#, as package ecma335 does for types of assemblies.
func (n *naming) typ(h handle, style ecma335.Style, depth int) string {
	switch h.kind {
	case typeDefinition, typeReference:
		name, _ := n.qualified(h, depth)
		return n.spend(ecma335.ParseTypeName(name).Format(nil, style))
	}
	r := n.record(h.at, depth)
	if r.bad {
		return n.fail()
	}
	inner := func() string { return n.typ(r.handle(), style, depth+1) }
	switch h.kind {
	case typeSpecification:
		return inner()
	case typeInstantiationSignature:
		name, _ := n.qualified(r.handle(), depth+1)
		args := n.types(r, style, depth+1)
		if n.failed {
			return ""
		}
		return n.spend(ecma335.ParseTypeName(name).Format(args, style))
	case pointerSignature:
		return n.spend(inner() + "*")
	case byReferenceSignature:
		return n.spend("ref " + inner())
	case szArraySignature, arraySignature:
		return n.array(h, style, depth)
	case modifiedType:
		r.unsigned() // whether the modifier is optional
		r.handle()   // the modifier means nothing to a reader
		return inner()
	case typeVariableSignature:
		return "!" + strconv.FormatUint(uint64(r.unsigned()>>1), 10)
	case methodTypeVariableSignature:
		return n.variable(r.unsigned() >> 1)
	case functionPointerSignature:
		return "delegate*"
	}
	return n.fail()
}

// array returns the name of an array type. An array of arrays has the ranks from the outside in.
func (n *naming) array(h handle, style ecma335.Style, depth int) string {
	const maxRank = 32
	var ranks strings.Builder
	for ; h.kind == szArraySignature || h.kind == arraySignature; depth++ {
		r := n.record(h.at, depth)
		element := r.handle()
		rank := uint32(0)
		if h.kind == arraySignature {
			rank = min(r.unsigned()>>1, maxRank)
		}
		if r.bad {
			return n.fail()
		}
		switch {
		case h.kind == szArraySignature:
			ranks.WriteString("[]")
		case rank <= 1:
			ranks.WriteString("[*]")
		default:
			ranks.WriteString("[" + strings.Repeat(",", int(rank)-1) + "]")
		}
		h = element
	}
	return n.spend(n.typ(h, style, depth) + ranks.String())
}

// variable returns a type argument of a generic method, if known.
func (n *naming) variable(i uint32) string {
	if uint64(i) < uint64(len(n.methodArgs)) {
		return n.spend(ecma335.ParseTypeName(n.methodArgs[i]).Format(nil, ecma335.Short))
	}
	return "!!" + strconv.FormatUint(uint64(i), 10)
}

func (n *naming) spend(s string) string {
	if n.text -= len(s); n.text < 0 {
		return n.fail()
	}
	return s
}

// signature returns the types of a method's parameters in parentheses.
func (n *naming) signature(at uint32) string {
	r := n.record(at, 0)
	r.unsigned() // calling convention
	r.unsigned() // number of generic parameters
	r.handle()   // return type
	types := n.types(r, ecma335.Short, 1)
	if n.failed {
		return ""
	}
	return "(" + strings.Join(types, ", ") + ")"
}

// strings returns the strings in an array of strings.
func (n *naming) strings(at uint32) (out []string) {
	r := n.record(at, 0)
	for count := r.unsigned(); count > 0 && !r.bad && !n.failed; count-- {
		h := r.handle()
		if h.kind != stringRecord {
			h.at = 0
		}
		out = append(out, n.string(h.at))
	}
	if r.bad {
		n.failed = true
	}
	return out
}
