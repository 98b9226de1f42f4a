package ecma335

import "encoding/binary"

// Bounds of one signature. The framework's deepest signature is below 10, the
// longest has some hundred nodes.
const (
	maxSigDepth = 64
	maxSigNodes = 8192
	maxRank     = 32 // the runtime's own limit
)

// DecodeMethodSig decodes a MethodDefSig, MethodRefSig or StandAloneMethodSig
// (II.23.2.1 to II.23.2.3). Bytes behind the signature are ignored.
func DecodeMethodSig(blob []byte) (MethodSig, error) {
	d := newSigDecoder(blob)
	return d.method(0)
}

// DecodeTypeSig decodes a type, for example a TypeSpec (II.23.2.14). Bytes
// behind the type are ignored.
func DecodeTypeSig(blob []byte) (SigType, error) {
	d := newSigDecoder(blob)
	return d.typ(0)
}

// DecodeMethodSpec decodes the arguments of a generic method (II.23.2.15).
func DecodeMethodSpec(blob []byte) ([]SigType, error) {
	d := newSigDecoder(blob)
	k, err := d.byte()
	if err != nil {
		return nil, err
	}
	if k != 0x0a {
		return nil, malformed("instantiation begins with %#x, want 0xa", k)
	}
	return d.args(0)
}

// sigHeader reads the parts before the result type: the first byte, the number
// of parameters and the number of generic parameters.
func sigHeader(blob []byte) (first byte, params, generic uint32, err error) {
	d := newSigDecoder(blob)
	return d.header()
}

// ParamCount returns the number of parameters in a method's signature, without this.
func ParamCount(blob []byte) (uint32, error) {
	_, n, _, err := sigHeader(blob)
	return n, err
}

type sigDecoder struct {
	b     []byte
	nodes int // left
}

func newSigDecoder(blob []byte) *sigDecoder { return &sigDecoder{b: blob, nodes: maxSigNodes} }

func (d *sigDecoder) byte() (byte, error) {
	if len(d.b) == 0 {
		return 0, malformed("signature ends early")
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c, nil
}

func (d *sigDecoder) uint() (uint32, error) {
	v, n, err := compressed(d.b)
	if err != nil {
		return 0, err
	}
	d.b = d.b[n:]
	return v, nil
}

func (d *sigDecoder) int() (int32, error) {
	v, n, err := compressedSigned(d.b)
	if err != nil {
		return 0, err
	}
	d.b = d.b[n:]
	return v, nil
}

// count reads the number of following items. Each item takes a byte or more, so
// the number cannot exceed the remaining bytes.
func (d *sigDecoder) count(what string) (uint32, error) {
	n, err := d.uint()
	if err != nil {
		return 0, err
	}
	if uint64(n) > uint64(len(d.b)) {
		return 0, malformed("%d %s in %d bytes of signature", n, what, len(d.b))
	}
	if n > maxSigNodes {
		return 0, malformed("%d %s in one signature", n, what)
	}
	return n, nil
}

func (d *sigDecoder) header() (first byte, params, generic uint32, err error) {
	if first, err = d.byte(); err != nil {
		return
	}
	switch c := CallConv(first & 0x0f); {
	case first&0x80 != 0, c > CallVarArg && c != CallUnmanaged && c != CallNativeVarArg:
		err = malformed("%#x begins no method signature", first)
		return
	}
	if first&0x10 != 0 {
		if generic, err = d.uint(); err != nil {
			return
		}
		if generic > maxSigNodes {
			err = malformed("%d generic parameters", generic)
			return
		}
	}
	params, err = d.count("parameters")
	return
}

func (d *sigDecoder) method(depth int) (MethodSig, error) {
	s := MethodSig{Sentinel: -1}
	first, n, generic, err := d.header()
	if err != nil {
		return s, err
	}
	s.Conv = CallConv(first & 0x0f)
	s.HasThis, s.ExplicitThis = first&0x20 != 0, first&0x40 != 0
	s.GenericParamCount = generic
	if s.Ret, err = d.typ(depth + 1); err != nil {
		return s, err
	}
	for i := range int(n) {
		if len(d.b) > 0 && ElemType(d.b[0]) == ElemSentinel { // II.23.2.2
			if s.Sentinel >= 0 {
				return s, malformed("second sentinel in a signature")
			}
			s.Sentinel = i
			d.b = d.b[1:]
		}
		p, err := d.typ(depth + 1)
		if err != nil {
			return s, err
		}
		s.Params = append(s.Params, p)
	}
	return s, nil
}

func (d *sigDecoder) args(depth int) ([]SigType, error) {
	n, err := d.count("generic arguments")
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, malformed("instantiation without arguments")
	}
	var args []SigType
	for range n {
		a, err := d.typ(depth + 1)
		if err != nil {
			return nil, err
		}
		args = append(args, a)
	}
	return args, nil
}

func (d *sigDecoder) typ(depth int) (SigType, error) {
	if depth > maxSigDepth {
		return SigType{}, malformed("signature is nested more than %d deep", maxSigDepth)
	}
	if d.nodes--; d.nodes < 0 {
		return SigType{}, malformed("signature has more than %d types", maxSigNodes)
	}
	k, err := d.byte()
	if err != nil {
		return SigType{}, err
	}
	t := SigType{Kind: ElemType(k)}
	switch t.Kind {
	case ElemVoid, ElemBoolean, ElemChar, ElemI1, ElemU1, ElemI2, ElemU2, ElemI4, ElemU4, ElemI8, ElemU8,
		ElemR4, ElemR8, ElemString, ElemTypedByRef, ElemI, ElemU, ElemObject:
	case ElemValueType, ElemClass:
		t.Token, err = d.token()
	case ElemVar, ElemMVar:
		t.Index, err = d.uint()
	case ElemInternal:
		t.TypeHandle, err = d.handle()
	case ElemPtr, ElemByRef, ElemSZArray, ElemPinned:
		t.Elem, err = d.elem(depth)
	case ElemCModReqd, ElemCModOpt:
		t.Required = t.Kind == ElemCModReqd
		if t.Token, err = d.token(); err == nil {
			t.Elem, err = d.elem(depth)
		}
	case ElemCModInternal:
		err = d.internalModifier(&t, depth)
	case ElemArray:
		err = d.array(&t, depth)
	case ElemGenericInst:
		if t.Elem, err = d.genericType(depth); err == nil {
			t.Args, err = d.args(depth)
		}
	case ElemFnPtr:
		var fn MethodSig
		fn, err = d.method(depth)
		t.Fn = &fn
	default:
		err = malformed("%#x is no type", k)
	}
	if err != nil {
		return SigType{}, err
	}
	return t, nil
}

func (d *sigDecoder) elem(depth int) (*SigType, error) {
	e, err := d.typ(depth + 1)
	if err != nil {
		return nil, err
	}
	return &e, nil
}

// genericType reads the generic type of an instantiation: a class or value
// type, or in the runtime's own signatures a TypeHandle (II.23.2.12).
func (d *sigDecoder) genericType(depth int) (*SigType, error) {
	e, err := d.elem(depth)
	if err != nil {
		return nil, err
	}
	if e.Kind != ElemClass && e.Kind != ElemValueType && e.Kind != ElemInternal {
		return nil, malformed("element type %#x cannot be generic", uint8(e.Kind))
	}
	return e, nil
}

// token reads a TypeDefOrRefOrSpecEncoded (II.23.2.8).
func (d *sigDecoder) token() (Token, error) {
	v, err := d.uint()
	if err != nil {
		return 0, err
	}
	t, err := decodeCoded(typeDefOrRef, v)
	if err == nil && t.RID() == 0 {
		err = malformed("signature names row 0")
	}
	return t, err
}

// handle reads a pointer. Only 64-bit runtimes are read.
func (d *sigDecoder) handle() (uint64, error) {
	if len(d.b) < 8 {
		return 0, malformed("signature ends within a TypeHandle")
	}
	h := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return h, nil
}

// internalModifier reads whether the modifier is required, the TypeHandle and
// the modified type (CoreCLR src/coreclr/inc/sigparser.h).
func (d *sigDecoder) internalModifier(t *SigType, depth int) error {
	req, err := d.byte()
	if err != nil {
		return err
	}
	t.Required = req != 0
	if t.TypeHandle, err = d.handle(); err != nil {
		return err
	}
	t.Elem, err = d.elem(depth)
	return err
}

// array reads an element type and an ArrayShape (II.23.2.13).
func (d *sigDecoder) array(t *SigType, depth int) (err error) {
	if t.Elem, err = d.elem(depth); err != nil {
		return err
	}
	if t.Rank, err = d.uint(); err != nil {
		return err
	}
	if t.Rank == 0 || t.Rank > maxRank {
		return malformed("array of rank %d", t.Rank)
	}
	sizes, err := d.uint()
	if err != nil {
		return err
	}
	for i := range sizes {
		if i == t.Rank {
			return malformed("%d sizes in an array of rank %d", sizes, t.Rank)
		}
		v, err := d.uint()
		if err != nil {
			return err
		}
		t.Sizes = append(t.Sizes, v)
	}
	bounds, err := d.uint()
	if err != nil {
		return err
	}
	for i := range bounds {
		if i == t.Rank {
			return malformed("%d lower bounds in an array of rank %d", bounds, t.Rank)
		}
		v, err := d.int()
		if err != nil {
			return err
		}
		t.LoBounds = append(t.LoBounds, v)
	}
	return nil
}
