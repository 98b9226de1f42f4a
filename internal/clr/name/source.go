package name

import (
	"strings"

	"clrsnap/internal/ecma335"
)

// naming is the work on the name of one method with metadata.
type naming struct {
	n                    *Namer
	a                    *assembly
	def                  ecma335.MethodDef
	typeRID, methodRID   uint32
	typeArgs, methodArgs []typeText
}

// hint distinguishes async methods from iterators, whose state machines are named alike.
func (d *naming) hint(typeName string) Hint {
	if !strings.Contains(typeName, ">d") {
		return NoHint
	}
	implements := func(name string) bool {
		ok, err := d.a.md.Implements(d.typeRID, name)
		return err == nil && ok
	}
	async := implements("System.Runtime.CompilerServices.IAsyncStateMachine")
	switch {
	case async && implements("System.Collections.Generic.IAsyncEnumerator`1"):
		return AsyncIterator
	case async:
		return Async
	case implements("System.Collections.IEnumerator"):
		return Iterator
	}
	return NoHint
}

func pick(args []typeText, style ecma335.Style) []string {
	out := make([]string, len(args))
	for i := range args {
		out[i] = args[i][style]
	}
	return out
}

func (d *naming) display(f Friendly, style ecma335.Style) string {
	typeArgs, methodArgs := pick(d.typeArgs, style), pick(d.methodArgs, style)
	if k := f.MethodArity; k > 0 && k <= len(typeArgs) {
		methodArgs = append(typeArgs[len(typeArgs)-k:len(typeArgs):len(typeArgs)], methodArgs...)
		typeArgs = typeArgs[:len(typeArgs)-k]
	}
	s := ecma335.ParseTypeName(f.Type).Format(typeArgs, style)
	member := f.Method
	if style == ecma335.Short {
		member = shortMember(member)
	}
	s += "." + member
	if len(methodArgs) > 0 {
		s += "<" + strings.Join(methodArgs, ", ") + ">"
	}
	return s + f.Suffix
}

// maxOverloads bounds the search for the source of a state machine.
const maxOverloads = 1 << 14

// signature returns the parameter types of the method that the author wrote. A
// state machine has lost them; they are those of the method it was made from, if
// that has no overloads.
func (d *naming) signature(f Friendly) string {
	def := d.def
	if f.Kind == StateMachine {
		var ok bool
		if def, ok = d.source(f); !ok {
			return ""
		}
	}
	sig, err := ecma335.DecodeMethodSig(def.Signature)
	if err != nil {
		return ""
	}
	return d.a.md.FormatParams(sig, d.sigArgs(f), ecma335.Short)
}

func (d *naming) source(f Friendly) (ecma335.MethodDef, bool) {
	rid := d.typeRID
	for name := ""; name != f.Type; {
		outer, ok, err := d.a.md.EnclosingType(rid)
		if err != nil || !ok {
			return ecma335.MethodDef{}, false
		}
		rid = outer
		if name, err = d.a.md.TypeName(rid); err != nil {
			return ecma335.MethodDef{}, false
		}
	}
	t, err := d.a.md.TypeDef(rid)
	if err != nil {
		return ecma335.MethodDef{}, false
	}
	end := d.a.md.Rows(ecma335.TableMethodDef) + 1
	if next, err := d.a.md.TypeDef(rid + 1); err == nil {
		end = next.MethodList
	}
	var found ecma335.MethodDef
	n := 0
	for r := t.MethodList; r < end && r-t.MethodList < maxOverloads; r++ {
		if def, err := d.a.md.MethodDef(r); err == nil && def.Name == f.Method {
			found = def
			n++
		}
	}
	return found, n == 1
}

// sigArgs names generic parameters: by the arguments that this code was compiled
// for, else as the source does.
func (d *naming) sigArgs(f Friendly) ecma335.TypeArgs {
	typeArgs, methodArgs := pick(d.typeArgs, ecma335.Short), pick(d.methodArgs, ecma335.Short)
	if k := f.MethodArity; f.Kind == StateMachine && k > 0 && k <= len(typeArgs) {
		methodArgs, typeArgs = typeArgs[len(typeArgs)-k:], typeArgs[:len(typeArgs)-k]
	}
	params := func(t ecma335.Table, rid uint32) []string {
		p, _ := d.a.md.GenericParams(ecma335.MakeToken(t, rid))
		return p
	}
	return ecma335.TypeArgs{
		Var: func(isMethod bool, i uint32) string {
			args, owner := typeArgs, ecma335.TableTypeDef
			rid := d.typeRID
			if isMethod {
				args, owner, rid = methodArgs, ecma335.TableMethodDef, d.methodRID
			}
			if uint64(i) < uint64(len(args)) {
				return args[i]
			}
			if p := params(owner, rid); uint64(i) < uint64(len(p)) {
				return p[i]
			}
			return "?"
		},
		Handle: d.n.handleName(ecma335.Short),
	}
}
