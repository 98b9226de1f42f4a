package inlining

import (
	"fmt"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/ecma335"
)

// readSite reads the callee of a call in IL: the method itself if the method belongs to the same module, else the
// method's name.
func readSite(md *ecma335.Metadata, module arch.Addr, c *ecma335.Call) (site, error) {
	s := site{at: c.At, op: c.Op, virtual: c.Op == ecma335.OpCallvirt || c.Constrained}
	tok := c.Token
	if tok.Table() == ecma335.TableMethodSpec {
		spec, err := md.MethodSpec(tok.RID())
		if err != nil {
			return s, err
		}
		tok = spec.Method
	}
	var sig []byte
	switch tok.Table() {
	case ecma335.TableMethodDef:
		def, err := md.MethodDef(tok.RID())
		if err != nil {
			return s, err
		}
		s.name, sig = def.Name, def.Signature
		s.virtual = s.virtual && def.IsVirtual()
		if !s.virtual {
			s.exact = Definition{module, tok.RID()}
		}
	case ecma335.TableMemberRef:
		ref, err := md.MemberRef(tok.RID())
		if err != nil {
			return s, err
		}
		s.name, sig = ref.Name, ref.Signature
	case ecma335.TableStandAloneSig: // of a function pointer
		const signature = 0 // II.22.36
		at, err := md.Cell(ecma335.TableStandAloneSig, tok.RID(), signature)
		if err != nil {
			return s, err
		}
		if sig, err = md.Blob(at); err != nil {
			return s, err
		}
		s.any = true
	default:
		return s, fmt.Errorf("%w: %v is called", ecma335.ErrMalformed, c.Token)
	}
	s.any = s.any || s.name == "Invoke"
	var err error
	s.params, err = ecma335.ParamCount(sig)
	return s, err
}

// may reports whether a call can lead directly to a method, without code of another method between. may returns true
// too often, never too seldom: for a method of another module, only the name and the number of parameters are known.
func (s *site) may(n *node) bool {
	switch {
	case s.any: // one side may count this, or the object that a delegate is bound to, as a parameter
		return n.params <= s.params+1 && s.params <= n.params+1
	case s.exact != Definition{}:
		return s.exact == n.def || s.op == ecma335.OpNewobj && isConstructor(n)
	case s.op == ecma335.OpNewobj && isConstructor(n):
		return true
	case s.params != n.params:
		return false
	case s.name == n.name:
		return true
	case !s.virtual:
		return false
	}
	return n.renamed || strings.HasSuffix(n.name, "."+s.name)
}

// isConstructor recognises the static methods that stand for the constructors of strings and
// delegates (vm/ecall.cpp; vm/comdelegate.cpp, COMDelegate::GetDelegateCtor).
func isConstructor(n *node) bool {
	switch n.owner {
	case "System.String", "System.Delegate", "System.MulticastDelegate":
		return strings.HasPrefix(n.name, "Ctor")
	}
	return false
}

// isHelper recognises the types with methods that the JIT calls on its own account: to cast, to allocate, to copy, to
// find statics, to throw (inc/jithelpers.h, DYNAMICJITHELPER; vm/corelib.h).
func isHelper(owner, method string) bool {
	switch owner {
	case "System.SpanHelpers", "System.Buffer", "System.Math", "System.Delegate", "System.MulticastDelegate",
		"System.RuntimeTypeHandle", "System.RuntimeMethodHandle", "System.RuntimeFieldHandle", "System.RuntimeType",
		"System.GC", "System.Environment", "System.ThrowHelper", "System.Runtime.RuntimeImports":
		return true
	case "System.String":
		return method == "StrCns"
	case "System.Threading.Thread":
		return strings.HasSuffix(method, "PollGC")
	case "System.Threading.Monitor":
		return strings.HasPrefix(method, "Synchronized")
	}
	return strings.HasPrefix(owner, "Internal.Runtime.") || strings.HasPrefix(owner, "System.StubHelpers.") ||
		strings.HasPrefix(owner, "System.Runtime.CompilerServices.") && strings.HasSuffix(owner, "Helpers")
}

// isReplaced recognises the types with some methods that the runtime compiles from other IL than the assembly's
// (vm/jitinterface.cpp, getILIntrinsicImplementation; tools/aot/ILCompiler.ReadyToRun/IL/ReadyToRunILProvider.cs).
func isReplaced(owner string) bool {
	switch owner {
	case "System.Activator", "System.Threading.Interlocked", "System.Threading.Volatile",
		"System.Runtime.CompilerServices.Unsafe", "System.Runtime.CompilerServices.RuntimeHelpers",
		"System.Runtime.InteropServices.MemoryMarshal", "System.Collections.Generic.Comparer`1",
		"System.Collections.Generic.EqualityComparer`1", "System.Collections.Generic.ComparerHelpers":
		return true
	}
	return strings.HasPrefix(owner, "System.Runtime.Intrinsics.")
}

// staysWithin recognises the types among these whose other IL calls nothing, or methods of the same types: the IL of
// Interlocked.CompareExchange<T>, for one, calls Interlocked.CompareExchange(ref object, object, object).
func staysWithin(owner string) bool {
	switch owner {
	case "System.Threading.Interlocked", "System.Threading.Volatile", "System.Runtime.CompilerServices.Unsafe":
		return true
	}
	return false
}
