package ilmap

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
)

// Numbers of variables (cordebuginfo.h, enum ILNUM). Arguments are counted from 0, with the object of an
// instance method as the first.
const (
	ThisVariable    = 0
	ContextVariable = ^uint32(2) // TYPECTXT_ILNUM, -3: the hidden argument of shared generic code
)

// Variable is the place of a variable while the code between two offsets runs.
type Variable struct {
	Start, End uint32 // bytes from the start of the method's code: [Start, End)
	Register   uint8  // the register with the value, or with the address if OnStack
	OnStack    bool   // the variable is in memory, Offset bytes from the register's address
	Offset     int32
}

// Kinds of places of a variable (cordebuginfo.h, enum VarLocType).
const (
	inRegister = iota
	inRegisterByRef
	inFloatRegister
	onStack
	onStackByRef
	inTwoRegisters
	inRegisterAndStack
	onStackAndRegister
	onTwoStackSlots
	onFloatStack
	fixedVarArgs
)

// MAX_ILNUM, the base of variables' numbers in the encoding: -4, and -6 from .NET 11 on. .NET 11 has two more numbers
// that stand for no variable of the method (cordebuginfo.h, enum ILNUM).
const (
	firstVariable   = ^uint32(3)
	firstVariable11 = ^uint32(5)
)

// maxVariables bounds the bytes of the variables of one method.
const maxVariables = 1 << 18

// Variable returns the places of a variable of c's method, by the variable's number. Only places in one register or
// one stack slot are returned.
func (r *Reader) Variable(c *codemap.Code, number uint32) ([]Variable, error) {
	info, err := r.code.DebugInfo(c)
	if err != nil || info.At == 0 {
		return nil, err
	}
	f, err := r.formOf(&info)
	if err != nil {
		return nil, err
	}
	at, err := r.headerAt(info.At, f)
	if err != nil {
		return nil, err
	}
	h, err := r.header(at, f)
	if err != nil || h.vars == 0 {
		return nil, err
	}
	if h.size > maxBounds || h.vars > maxVariables {
		return nil, corrupt("%d bytes of variables at %v", h.vars, at)
	}
	b, err := r.mem.Bytes(at+arch.Addr(h.at)+arch.Addr(h.size), int(h.vars))
	if err != nil {
		return nil, err
	}
	return variables(b, number, f)
}

// variables picks the places of one variable from the places of all variables. From .NET 11 on, each variable's
// number comes first (debuginfostore.cpp, DoNativeVarInfo).
func variables(b []byte, number uint32, f form) ([]Variable, error) {
	r := nibbles{b: b}
	n := r.number()
	if r.bad || uint64(n) > uint64(len(b))*2 {
		return nil, corrupt("%d variables in %d bytes", n, len(b))
	}
	var out []Variable
	for range n {
		var v Variable
		var length, which uint32
		if f.fat {
			which, v.Start, length = r.number()+firstVariable11, r.number(), r.number()
		} else {
			v.Start, length, which = r.number(), r.number(), r.number()+firstVariable
		}
		kind := r.number()
		plain := r.place(kind, &v)
		if r.bad || kind > fixedVarArgs || length > ^uint32(0)-v.Start {
			return nil, corrupt("a variable in %d bytes", len(b))
		}
		if v.End = v.Start + length; plain && which == number {
			out = append(out, v)
		}
	}
	return out, nil
}

// place reads the place of a variable, and reports whether the place is one register or stack slot.
func (r *nibbles) place(kind uint32, v *Variable) (plain bool) {
	numbers := 1
	switch kind {
	case inRegister:
		reg := r.number()
		v.Register = uint8(min(reg, 0xff))
		return true
	case onStack:
		reg := r.number()
		v.Register, v.OnStack, v.Offset = uint8(min(reg, 0xff)), true, r.signed()
		return true
	case onStackByRef, inTwoRegisters, onTwoStackSlots:
		numbers = 2
	case inRegisterAndStack, onStackAndRegister:
		numbers = 3
	}
	for range numbers {
		r.number()
	}
	return false
}

// signed reads a number with the sign in the lowest bit.
func (r *nibbles) signed() int32 {
	v := r.number()
	if v&1 != 0 {
		return -int32(v >> 1)
	}
	return int32(v >> 1)
}
