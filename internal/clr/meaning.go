package clr

import (
	"fmt"
	"strconv"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/contract"
)

// meaningLayout leads from an Assembly of the runtime to its Module, and back (dotnet/runtime,
// src/coreclr/vm/assembly.hpp, ceeload.h).
type meaningLayout struct {
	Module   uint32 `clr:"Assembly.Module,optional"`
	Assembly uint32 `clr:"Module.Assembly"`
}

// coreLib is the assembly of the classes below. The names of their fields are the same from .NET 8 to 11
// (System.Private.CoreLib: RuntimeType.CoreCLR.cs, RuntimeMethodInfo.CoreCLR.cs, RuntimeAssembly.cs,
// RuntimeModule.cs, Delegate.cs).
const coreLib = "System.Private.CoreLib"

const maxMeaningText = 40 // UTF-16 units of a string

// Meaning returns the meaning of an object that stands for something else: typeof(Shop.Order), Shop.Order.Save(int),
// the text of a string, the method of a delegate. Empty: the object stands for itself, or the meaning is not known.
func (r *Runtime) Meaning(obj arch.Addr, c *object.Class) string {
	if c.Assembly == coreLib {
		switch c.Display {
		case "string":
			return TextMeaning(r.Objects, obj)
		case "System.RuntimeType":
			return r.typeMeaning(obj, c)
		case "System.Reflection.RuntimeMethodInfo", "System.Reflection.RuntimeConstructorInfo":
			return r.methodMeaning(r.word(obj, c, "m_handle"))
		case "System.Reflection.RuntimeAssembly":
			return r.assemblyMeaning(r.moduleOf(r.word(obj, c, "m_assembly")))
		case "System.Reflection.RuntimeModule":
			return r.assemblyMeaning(r.word(obj, c, "m_pData"))
		}
	}
	if c.Is(coreLib, "System.MulticastDelegate") {
		return r.delegateMeaning(obj, c)
	}
	return ""
}

// word reads a field of eight bytes; 0: the field cannot be read.
func (r *Runtime) word(obj arch.Addr, c *object.Class, field string) arch.Addr {
	v, err := r.Objects.Pointer(obj, c, field)
	if err != nil {
		return 0
	}
	return v
}

// TextMeaning returns the text of a string in quotes, or the beginning of a long text; "": unreadable.
func TextMeaning(objects *object.Reader, obj arch.Addr) string {
	text, cut, err := objects.Text(obj, maxMeaningText)
	if err != nil {
		return ""
	}
	if text = strconv.Quote(text); cut {
		text += "…"
	}
	return text
}

func (r *Runtime) typeMeaning(obj arch.Addr, c *object.Class) string {
	h := r.word(obj, c, "m_handle")
	if h == 0 {
		return ""
	}
	name, err := r.Names.Class(h)
	if err != nil {
		return ""
	}
	return "typeof(" + name.Display + ")"
}

func (r *Runtime) methodMeaning(desc arch.Addr) string {
	if desc == 0 {
		return ""
	}
	m, err := r.Methods.Read(desc)
	if err != nil {
		return ""
	}
	n, err := r.Names.Method(&m, true)
	if err != nil {
		return ""
	}
	return n.Display + n.Signature
}

// moduleOf returns the Module of an Assembly. In .NET 8 an object has a DomainAssembly; a DomainAssembly begins with
// the Assembly.
func (r *Runtime) moduleOf(assembly arch.Addr) arch.Addr {
	if r.meaning.Module == contract.Absent {
		return 0
	}
	for range 2 {
		if assembly == 0 {
			return 0
		}
		module, err := r.mem.Pointer(assembly + arch.Addr(r.meaning.Module))
		if err == nil && module != 0 {
			if back, err := r.mem.Pointer(module + arch.Addr(r.meaning.Assembly)); err == nil && back == assembly {
				return module
			}
		}
		if assembly, err = r.mem.Pointer(assembly); err != nil {
			return 0
		}
	}
	return 0
}

func (r *Runtime) assemblyMeaning(module arch.Addr) string {
	if module == 0 {
		return ""
	}
	a, err := r.Names.Assembly(module)
	if err != nil {
		return ""
	}
	return a.Name
}

// delegateMeaning names the method of a delegate, or tells how many delegates are combined.
func (r *Runtime) delegateMeaning(obj arch.Addr, c *object.Class) string {
	code, several := r.DelegateCode(obj, c)
	if several > 0 {
		return fmt.Sprintf("%d methods", several)
	}
	if code == 0 {
		return ""
	}
	desc, err := r.Inlined.MethodAt(code)
	if err != nil {
		return ""
	}
	return r.methodMeaning(desc)
}

// DelegateCode returns the address of a delegate's method, or of a stub that leads to the method; 0: not known.
// several is the number of combined delegates instead. For a static method, the code is in _methodPtrAux, and
// _methodPtr leads to a stub.
func (r *Runtime) DelegateCode(obj arch.Addr, c *object.Class) (code arch.Addr, several uint64) {
	for _, f := range [...]struct{ list, count string }{
		{"_invocationList", "_invocationCount"}, {"_helperObject", "_extraData"}, // .NET 11
	} {
		list := r.word(obj, c, f.list)
		if list == 0 {
			continue
		}
		if of, err := r.Objects.Class(list); err == nil && strings.HasSuffix(of.Display, "[]") {
			return 0, uint64(r.word(obj, c, f.count))
		}
	}
	if code = r.word(obj, c, "_methodPtrAux"); code == 0 {
		code = r.word(obj, c, "_methodPtr")
	}
	return code, 0
}
