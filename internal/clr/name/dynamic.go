package name

import (
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/ecma335"
)

// stubKinds say what the runtime's IL stubs are for; the key is what follows
// IL_STUB_ in their names (dllimport.cpp, ilstubcache.cpp).
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

const stubPrefix = "IL_STUB_"

// dynamic names a method without metadata: one that the program made with
// DynamicMethod or compiled from an expression, or an IL stub of the runtime.
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
	}
	sig, err := ecma335.DecodeMethodSig(d.Signature)
	if err != nil {
		return out, nil // named, if without its parameters
	}
	// Tokens in such a signature refer to the module that it was made for.
	if a, err := n.assembly(m.Module); err == nil {
		out.Signature = a.md.FormatParams(sig, ecma335.TypeArgs{Handle: n.handleName(ecma335.Short)}, ecma335.Short)
	}
	return out, nil
}

// handleName names the type handles in signatures that the runtime made.
func (n *Namer) handleName(style ecma335.Style) func(uint64) string {
	return func(h uint64) string {
		s, err := n.Type(arch.Addr(h), style)
		if err != nil {
			return "?"
		}
		return s
	}
}
