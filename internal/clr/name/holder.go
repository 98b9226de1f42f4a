package name

import (
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/ecma335"
)

// Holder names a field of a class from its author's point of view: "Shop.Ledger._gate". A compiler turns a variable
// into a field if a lambda or a state machine needs the variable: Holder names such a field "variable gate of
// Shop.Ledger". The name is empty if the source has no name, or if the class belongs to shared generic code.
func (n *Namer) Holder(mt arch.Addr, field string) (name string, err error) {
	t, err := n.types.Read(mt)
	if err != nil {
		return "", err
	}
	a, err := n.assembly(t.Module)
	if err != nil {
		return "", err
	}
	full, err := a.md.TypeName(t.RID)
	if err != nil {
		return "", err
	}
	if of, ok := capturing(full); ok {
		if field = variable(field); field == "" || of == "" {
			return "", nil
		}
		return "variable " + field + " of " + ecma335.ParseTypeName(of).Format(nil, ecma335.Full) + a.mark(), nil
	}
	c, err := n.Class(mt)
	if field = property(field); err != nil || field == "" || strings.Contains(c.Display, "__Canon") {
		return "", err
	}
	return strings.TrimSuffix(c.Display, a.mark()) + "." + field + a.mark(), nil
}

// capturing returns the type, in metadata form, whose methods' variables a type has captured; false: the type is
// ordinary.
func capturing(full string) (of string, ok bool) {
	segs, ok := splitNested(full)
	if !ok {
		return "", strings.ContainsAny(full, "<>")
	}
	for i, s := range segs {
		last, _ := cutArity(s)
		_, lambda := closure(last)
		_, machine := stateMachine(last)
		if lambda || machine || strings.ContainsRune(last, '@') {
			return join(segs[:i]), true
		}
	}
	return "", false
}

// IsCapturing reports whether a compiler has made a type, by its metadata name, from a lambda or an async method.
func IsCapturing(full string) bool {
	_, is := capturing(full)
	return is
}

// Prefixes of the fields in which Visual Basic keeps variables.
const (
	basicLocal  = "$VB$Local_"
	basicResume = "$VB$ResumableLocal_"
)

// variable returns the source name of the variable in a field; "": the source has none.
func variable(field string) string {
	if rest, ok := strings.CutPrefix(field, basicLocal); ok {
		return ordinary(rest)
	}
	if rest, ok := strings.CutPrefix(field, basicResume); ok {
		rest, _, _ = strings.Cut(rest, "$")
		return ordinary(rest)
	}
	if source, rest, ok := generated(field); ok && strings.HasPrefix(rest, "5__") {
		return ordinary(source) // <gate>5__2, of a state machine
	}
	return ordinary(field)
}

// property returns the source name of a field, or of the property in front of the field; "": the source has none.
func property(field string) string {
	if source, rest, ok := generated(field); ok && (rest == "k__BackingField" || rest == "P") {
		return ordinary(source) // P: a parameter of a primary constructor
	}
	return ordinary(strings.TrimSuffix(field, "@")) // F#
}

// ordinary returns a name, unless a compiler has made up the name.
func ordinary(name string) string {
	if strings.ContainsAny(name, "<>$@") {
		return ""
	}
	return name
}

// Enclosing returns the definition of the class around a nested class: the module, and the row in the TypeDef table;
// false: the class is not nested.
func (n *Namer) Enclosing(mt arch.Addr) (module arch.Addr, rid uint32, ok bool, err error) {
	t, err := n.types.Read(mt)
	if err != nil {
		return 0, 0, false, err
	}
	a, err := n.assembly(t.Module)
	if err != nil {
		return 0, 0, false, err
	}
	rid, ok, err = a.md.EnclosingType(t.RID)
	return t.Module, rid, ok, err
}
