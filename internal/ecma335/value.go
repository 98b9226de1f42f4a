package ecma335

import "strconv"

// ValueKind is the origin of a Value, as far as known.
type ValueKind uint8

// The kinds of value. A field's value also stands for its address.
const (
	Unknown     ValueKind = iota
	Argument              // Number is its number; 0 is this
	Local                 // a variable: Number is its number
	Constant              // Number
	FieldOf               // the field Member of Of
	StaticField           // the field Member
	// the result of a call of Member, or the object that Member creates; Of is the first argument, Number the offset
	Result
)

// A Value is an instruction's operand, as far as the IL alone tells.
type Value struct {
	Kind   ValueKind
	Number int32
	Of     *Value // nil: there is none
	Member *Member
	depth  int
}

// maxValue bounds the members that lead to a value.
const maxValue = 16

var unknown = &Value{}

// String is equal for values that are equal if nothing is set in between: "arg0.ledger.get_Gate()".
func (v *Value) String() string {
	of := ""
	if v.Of != nil {
		of = v.Of.String() + "."
	}
	switch v.Kind {
	case Argument:
		return "arg" + strconv.Itoa(int(v.Number))
	case Local:
		return "loc" + strconv.Itoa(int(v.Number))
	case Constant:
		return strconv.Itoa(int(v.Number))
	case FieldOf:
		return of + v.Member.Name
	case StaticField:
		return v.Member.Owner + "::" + v.Member.Name
	case Result:
		if v.IsProperty() {
			return of + v.Member.Owner + "::" + v.Member.Name + "()"
		}
		return of + v.Member.Name + "@" + strconv.Itoa(int(v.Number))
	}
	return "?"
}

// IsProperty reports whether a value is a property's value.
func (v *Value) IsProperty() bool {
	const get = "get_"
	return v.Kind == Result && v.Member.Arguments == 0 && len(v.Member.Name) > len(get) &&
		v.Member.Name[:len(get)] == get
}

// Lasts reports whether a value leads from an argument or a static field to an object by fields and properties only.
func (v *Value) Lasts() bool {
	for ; v != nil; v = v.Of {
		if v.Kind == Unknown || v.Kind == Local || v.Kind == Result && !v.IsProperty() {
			return false
		}
	}
	return true
}

// Substitute returns the value with first in place of its first argument; nil: the value does not begin with
// its first argument.
func (v *Value) Substitute(first *Value) *Value {
	switch {
	case v.Kind == Argument && v.Number == 0:
		return first
	case v.Kind == StaticField:
		return v
	case v.Of == nil:
		return nil
	}
	of := v.Of.Substitute(first)
	if of == nil {
		return nil
	}
	return child(of, v.Kind, v.Member, v.Number)
}

// child is a value reached from another value.
func child(of *Value, kind ValueKind, m *Member, number int32) *Value {
	if of == nil {
		return &Value{Kind: kind, Member: m, Number: number}
	}
	if of.Kind == Unknown && kind == FieldOf || of.depth >= maxValue {
		return unknown
	}
	return &Value{Kind: kind, Of: of, Member: m, Number: number, depth: of.depth + 1}
}
