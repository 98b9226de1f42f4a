package name

import (
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/ecma335"
)

// stubKinds has the purposes of the runtime's IL stubs. The key is the part of a stub's name behind IL_STUB_
// (dllimport.cpp, ilstubcache.cpp).
var stubKinds = map[string]string{
	"PInvoke":                     "P/Invoke",
	"ReversePInvoke":              "reverse P/Invoke",
	"StructMarshal":               "struct marshalling",
	"Array":                       "array access",
	"MulticastDelegate_Invoke":    "multicast delegate",
	"WrapperDelegate_Invoke":      "delegate wrapper",
	"DelegateShuffleThunk":        "delegate shuffle thunk",
	"UnboxingStub":                "unboxing",
	"InstantiatingStub":           "instantiating",
	"StoreTailCallArgs":           "tail call arguments",
	"CallTailCallTarget":          "tail call",
	"VirtualStaticMethodDispatch": "virtual static dispatch",
	"DelegateInvoke_Invoke":       "delegate invoke",
}

// delegateStubs are the stubs for one type of delegate.
var delegateStubs = map[string]bool{"MulticastDelegate_Invoke": true, "WrapperDelegate_Invoke": true}

const stubPrefix = "IL_STUB_"

// PInvokeStub is the exact name of all stubs that call P/Invokes. P/Invokes with the same parameters share a stub
// (dllimport.cpp, CreateInteropILStub).
const PInvokeStub = stubPrefix + "PInvoke"

// dynamic names a method without metadata: a method that the program made with DynamicMethod or compiled from an
// expression, or an IL stub of the runtime.
func (n *Namer) dynamic(m *method.Method) (Method, error) {
	d, err := n.methods.Dynamic(m)
	if err != nil {
		return Method{}, err
	}
	out := Method{Exact: d.Name, Display: d.Name, Short: d.Name}
	if d.Name == "" {
		out.Exact, out.Display, out.Short = "?", "dynamic method", "dynamic method"
	}
	if rest, ok := strings.CutPrefix(d.Name, stubPrefix); ok && d.ILStub {
		kind := stubKinds[rest]
		if kind == "" {
			kind = rest
		}
		out.Display = "[IL stub: " + kind + "]"
		out.Short = out.Display
		if delegateStubs[rest] {
			n.delegate(m, kind, &out)
		}
	}
	sig, err := ecma335.DecodeMethodSig(d.Signature)
	if err != nil {
		return out, nil // named without parameters
	}
	// Tokens in the signature refer to the module that the method was made for.
	if a, err := n.assembly(m.Module); err == nil {
		out.Signature = a.md.FormatParams(sig, ecma335.TypeArgs{Handle: n.handleName(ecma335.Short)}, ecma335.Short)
	}
	return out, nil
}

// delegate adds the type of delegate to the name of the delegate's stub. The stub's MethodDesc is among the
// MethodDescs of the type (comdelegate.cpp, COMDelegate::GetMulticastInvoke); other stubs belong to a type outside
// metadata.
func (n *Namer) delegate(m *method.Method, kind string, out *Method) {
	t, err := n.types.Read(m.MethodTable)
	if err != nil || t.Kind != types.Class || t.RID == 0 {
		return
	}
	long, err1 := n.Type(m.MethodTable, ecma335.Full)
	short, err2 := n.Type(m.MethodTable, ecma335.Short)
	if err1 == nil && err2 == nil {
		out.Display, out.Short = "["+kind+" "+long+"]", "["+kind+" "+short+"]"
	}
}

// handleName names the type handles in the runtime's own signatures.
func (n *Namer) handleName(style ecma335.Style) func(uint64) string {
	return func(h uint64) string {
		s, err := n.Type(arch.Addr(h), style)
		if err != nil {
			return "?"
		}
		return s
	}
}
