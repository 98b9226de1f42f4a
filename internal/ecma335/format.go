package ecma335

import (
	"strconv"
	"strings"
)

// Bounds of formatting one signature. A TypeSpec inside a signature leads to
// another signature, so the decoder's own bounds are not enough.
const (
	maxFormatNodes = 16384
	maxFormatText  = 1 << 16 // bytes
)

// TypeArgs names parts that have no name in a signature: generic parameters and
// the runtime's own types. The zero value writes !0, !!0 and the handle's
// address.
type TypeArgs struct {
	// Var names generic parameter index of the method or of the type.
	Var func(isMethod bool, index uint32) string
	// Handle names a type of the running runtime (ElemInternal).
	Handle func(typeHandle uint64) string
}

// FormatSig writes t in C# syntax. A name missing in the metadata is written as
// its token in parentheses, ?(0x02000001); text beyond the bounds of this
// package as "…".
func (m *Metadata) FormatSig(t SigType, args TypeArgs, style Style) string {
	f := m.formatter(args, style)
	return f.typ(&t, 0)
}

// FormatParams writes the parameter types in parentheses: (int, ref string).
func (m *Metadata) FormatParams(s MethodSig, args TypeArgs, style Style) string {
	f := m.formatter(args, style)
	list := f.list(s.Params, 0)
	if s.Conv == CallVarArg {
		at := len(list)
		if s.Sentinel >= 0 && s.Sentinel < at {
			at = s.Sentinel
		}
		list = append(list[:at:at], append([]string{"__arglist"}, list[at:]...)...)
	}
	return "(" + strings.Join(list, ", ") + ")"
}

func (m *Metadata) formatter(args TypeArgs, style Style) *formatter {
	return &formatter{m: m, args: args, style: style, nodes: maxFormatNodes, text: maxFormatText}
}

type formatter struct {
	m           *Metadata
	args        TypeArgs
	style       Style
	nodes, text int // left
}

// spend charges s to the remaining text.
func (f *formatter) spend(s string) string {
	if f.text -= len(s); f.text < 0 {
		return "…"
	}
	return s
}

func (f *formatter) list(ts []SigType, depth int) []string {
	var out []string
	for i := range ts {
		if f.nodes <= 0 || f.text <= 0 {
			return append(out, "…")
		}
		out = append(out, f.typ(&ts[i], depth+1))
	}
	return out
}

func (f *formatter) typ(t *SigType, depth int) string {
	if f.nodes--; f.nodes < 0 || f.text <= 0 || depth > 2*maxSigDepth {
		return "…"
	}
	switch t.Kind {
	case ElemClass, ElemValueType:
		return f.named(t.Token, nil, depth)
	case ElemInternal:
		return f.handle(t.TypeHandle)
	case ElemVar, ElemMVar:
		return f.variable(t)
	case ElemGenericInst:
		return f.instance(t, depth)
	case ElemFnPtr:
		return f.fnptr(t.Fn, depth)
	case ElemPtr, ElemByRef, ElemSZArray, ElemArray, ElemPinned, ElemCModReqd, ElemCModOpt, ElemCModInternal:
		return f.wrapped(t, depth)
	}
	if s := primitive(t.Kind); s != "" {
		return s
	}
	return "?(" + strconv.Itoa(int(t.Kind)) + ")"
}

// wrapped writes types that consist of another type. Modifiers and pinning mean
// nothing to a reader and are left out.
func (f *formatter) wrapped(t *SigType, depth int) string {
	if t.Elem == nil {
		return "?"
	}
	switch t.Kind {
	case ElemPtr:
		return f.typ(t.Elem, depth+1) + "*"
	case ElemByRef:
		return "ref " + f.typ(t.Elem, depth+1)
	case ElemSZArray, ElemArray:
		return f.array(t, depth)
	}
	return f.typ(t.Elem, depth+1)
}

// array writes the ranks of an array of arrays from the outside in, like C#:
// int[][,] is an array of two-dimensional arrays.
func (f *formatter) array(t *SigType, depth int) string {
	var ranks strings.Builder
	for ; t.Elem != nil && (t.Kind == ElemSZArray || t.Kind == ElemArray); t = t.Elem {
		if depth++; depth > 2*maxSigDepth {
			return "…"
		}
		switch {
		case t.Kind == ElemSZArray:
			ranks.WriteString("[]")
		case t.Rank == 1:
			ranks.WriteString("[*]") // reflection distinguishes int[*] from int[] in the same way
		default:
			ranks.WriteString("[" + strings.Repeat(",", int(min(t.Rank, maxRank)-1)) + "]")
		}
	}
	return f.typ(t, depth) + ranks.String()
}

func (f *formatter) named(tok Token, args []string, depth int) string {
	if tok.Table() == TableTypeSpec {
		if b, err := f.m.TypeSpec(tok.RID()); err == nil {
			f.nodes -= min(len(b), maxSigNodes) // decoding costs even without a result
			if t, err := DecodeTypeSig(b); err == nil {
				return f.typ(&t, depth+1)
			}
		}
		return "?(" + tok.String() + ")"
	}
	q, err := f.m.nameOf(tok)
	if err != nil {
		return "?(" + tok.String() + ")"
	}
	for _, n := range q.Names {
		f.spend(n)
	}
	f.spend(q.Namespace)
	if f.text < 0 {
		return "…"
	}
	return q.Format(args, f.style)
}

func (f *formatter) instance(t *SigType, depth int) string {
	args := f.list(t.Args, depth)
	if t.Elem == nil {
		return "?"
	}
	if t.Elem.Kind == ElemInternal {
		return ParseTypeName(f.handle(t.Elem.TypeHandle)).Format(args, f.style)
	}
	return f.named(t.Elem.Token, args, depth)
}

func (f *formatter) variable(t *SigType) string {
	method := t.Kind == ElemMVar
	if f.args.Var != nil {
		if s := f.args.Var(method, t.Index); s != "" {
			return f.spend(s)
		}
	}
	if method { // ILASM's form, II.7.1
		return "!!" + strconv.FormatUint(uint64(t.Index), 10)
	}
	return "!" + strconv.FormatUint(uint64(t.Index), 10)
}

func (f *formatter) handle(h uint64) string {
	if f.args.Handle != nil {
		if s := f.args.Handle(h); s != "" {
			return f.spend(s)
		}
	}
	return "0x" + strconv.FormatUint(h, 16)
}

func (f *formatter) fnptr(s *MethodSig, depth int) string {
	if s == nil {
		return "?"
	}
	conv := ""
	switch s.Conv {
	case CallC:
		conv = " unmanaged[Cdecl]"
	case CallStdCall:
		conv = " unmanaged[Stdcall]"
	case CallThisCall:
		conv = " unmanaged[Thiscall]"
	case CallFastCall:
		conv = " unmanaged[Fastcall]"
	case CallUnmanaged:
		conv = " unmanaged"
	}
	list := append(f.list(s.Params, depth), f.typ(&s.Ret, depth+1))
	return "delegate*" + conv + "<" + strings.Join(list, ", ") + ">"
}

func primitive(k ElemType) string {
	switch k {
	case ElemTypedByRef:
		return "TypedReference"
	case ElemI:
		return "nint"
	case ElemU:
		return "nuint"
	case ElemObject:
		return "object"
	}
	if k >= ElemVoid && k <= ElemString {
		return [...]string{"void", "bool", "char", "sbyte", "byte", "short", "ushort", "int", "uint",
			"long", "ulong", "float", "double", "string"}[k-ElemVoid]
	}
	return ""
}
