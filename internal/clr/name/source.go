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

// hintOf distinguishes async methods from iterators: the names of their state machines look alike.
func hintOf(md *ecma335.Metadata, typeRID uint32, typeName string) Hint {
	if !strings.Contains(typeName, ">d") && !strings.ContainsAny(typeName, "$@") {
		return NoHint
	}
	implements := func(name string) bool {
		ok, err := md.Implements(typeRID, name)
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
	return f.Text(pick(d.typeArgs, style), pick(d.methodArgs, style), style)
}

// Text writes a method with the generic arguments of its type and of the method.
func (f Friendly) Text(typeArgs, methodArgs []string, style ecma335.Style) string {
	own := f.typeArgs(len(typeArgs))
	methodArgs = append(typeArgs[own:len(typeArgs):len(typeArgs)], methodArgs...)
	typeArgs = typeArgs[:own]
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

// signature returns the parameter types of the method that the author wrote. A state machine has lost the types.
// signature takes them from the source method of the state machine, if the source method can be told from its
// overloads.
func (d *naming) signature(f Friendly) string {
	def, generic := d.def, 0
	if f.Kind == StateMachine {
		var ok bool
		if def, generic, ok = d.source(); !ok {
			return ""
		}
	}
	sig, err := ecma335.DecodeMethodSig(def.Signature)
	if err != nil {
		return ""
	}
	return d.a.md.FormatParams(sig, d.sigArgs(generic), ecma335.Short)
}

// source finds the source method of a state machine: a member of the type around the machine, named in the machine's
// name. For the machine of a lambda, source is the method <Main>b__8_1 beside the machine <<Main>b__8_1>d, and not
// Main. generic is the number of the method's generic parameters; in the machine, the parameters come behind the
// parameters of the type around the machine.
func (d *naming) source() (def ecma335.MethodDef, generic int, ok bool) {
	machine, err := d.a.md.TypeDef(d.typeRID)
	if err != nil {
		return def, 0, false
	}
	segment, generic := cutArity(machine.Name)
	name, ok := stateMachine(segment)
	if !ok {
		return def, 0, false
	}
	outer, ok, err := d.a.md.EnclosingType(d.typeRID)
	if err != nil || !ok {
		return def, 0, false
	}
	def, ok, err = d.a.md.OnlyMethod(outer, name)
	return def, generic, ok && err == nil
}

// sigArgs names generic parameters: by the arguments that the code was compiled for, else by the names in the source.
// The last generic of the type's arguments belong to the method with the signature.
func (d *naming) sigArgs(generic int) ecma335.TypeArgs {
	typeArgs, methodArgs := pick(d.typeArgs, ecma335.Short), pick(d.methodArgs, ecma335.Short)
	if k := generic; k > 0 && k <= len(typeArgs) {
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
