package ecma335

import (
	"encoding/binary"
	"slices"
)

// ActionKind is the kind of an Action.
type ActionKind uint8

// The kinds of action.
const (
	Calling   ActionKind = iota // the method Member, with Arguments
	Creating                    // an object, with the constructor Member and Arguments
	Storing                     // Value into the field Member of Object; nil: a static field
	Setting                     // Value, as the local variable Variable
	Returning                   // Value
	Binding                     // the method Member to a delegate
	Losing                      // Value, of a field: goes where it can no longer be told from other values
)

// An Action is an instruction with its operands.
type Action struct {
	Kind      ActionKind
	At        uint32 // offset in the IL, without prefixes
	Member    *Member
	Arguments []*Value // the object of an instance method first
	Object    *Value
	Value     *Value
	Variable  int32
	Stands    bool  // with Setting: from then on the variable stands for Value
	Type      Token // of a call with a constrained. prefix: the type; RID 0: no prefix
}

// Bounds of the evaluated methods.
const (
	maxEvaluated = 1 << 18 // bytes of IL
	maxDeep      = 1 << 8  // values on the stack
	maxForward   = 1 << 12 // targets of branches with values on the stack
	maxCompared  = 1 << 16 // compared values, where paths join
)

// Evaluate returns the actions of a method's IL in the order of their offsets: for most compiled code the order of the
// source. Evaluate goes through the instructions once, in sequence. A value that depends on the path, for example the
// value of a?b:c, is unknown, and so is the value of a variable set several times.
func (m *Metadata) Evaluate(il []byte) ([]Action, error) {
	if len(il) > maxEvaluated {
		return nil, malformed("a method of %d bytes of IL is not evaluated", len(il))
	}
	e := evaluation{
		m: m, il: il, members: map[Token]*Member{}, forward: map[int][]*Value{}, variables: map[int32]*Value{},
		lost: map[*Value]bool{}, live: true,
	}
	var err error
	if e.stores, err = storesOf(il); err != nil {
		return nil, err
	}
	for at := 0; at < len(il); {
		op, operand, next, err := instruction(il, at)
		if err != nil {
			return nil, err
		}
		e.arrive(at)
		if err := e.step(at, op, operand, next); err != nil {
			return nil, err
		}
		if e.compared > maxCompared {
			return nil, malformed("a method whose ways join too often is not evaluated")
		}
		if !isPrefix(op) {
			e.constrained = 0
		}
		at = next
	}
	return e.actions, nil
}

// evaluation is one call of Evaluate.
type evaluation struct {
	m           *Metadata
	il          []byte
	stack       []*Value
	live        bool // the previous instruction can reach this instruction
	constrained Token
	members     map[Token]*Member
	forward     map[int][]*Value // the stack at branch targets
	variables   map[int32]*Value // of local variables
	stores      map[int32]int    // how often each variable is set; arguments as their complements
	lost        map[*Value]bool
	compared    int // compared values, where paths join
	actions     []Action
}

// Instructions with an argument's or a variable's number (III.3).
const (
	opLdarg0, opLdarg3     Opcode = 0x02, 0x05
	opLdloc0, opLdloc3     Opcode = 0x06, 0x09
	opLdargShort, opLdarg  Opcode = 0x0e, 0xfe09
	opLdargaShort, opLdrga Opcode = 0x0f, 0xfe0a
	opStargShort, opStarg  Opcode = 0x10, 0xfe0b
	opLdlocShort, opLdloc  Opcode = 0x11, 0xfe0c
	opLdlocaShort, opLdlca Opcode = 0x12, 0xfe0d
)

// variable returns the number of the argument or variable that an instruction names. In the short forms, the number
// is in the instruction itself.
func variable(il []byte, op Opcode, operand int) int32 {
	switch {
	case op >= opLdarg0 && op <= opLdarg3:
		return int32(op - opLdarg0)
	case op >= opLdloc0 && op <= opLdloc3:
		return int32(op - opLdloc0)
	case op >= opStloc0 && op <= opStloc3:
		return int32(op - opStloc0)
	case op < opPrefix:
		return int32(il[operand])
	}
	return int32(binary.LittleEndian.Uint16(il[operand:]))
}

// storesOf counts how often variables are set. A variable whose address is taken may be set at any time.
func storesOf(il []byte) (map[int32]int, error) {
	out := map[int32]int{}
	for at := 0; at < len(il); {
		op, operand, next, err := instruction(il, at)
		if err != nil {
			return nil, err
		}
		switch {
		case op >= opStloc0 && op <= opStloc3, op == opStlocShort, op == opStloc:
			out[variable(il, op, operand)]++
		case op == opLdlocaShort, op == opLdlca:
			out[variable(il, op, operand)] += 2
		case op == opStargShort, op == opStarg, op == opLdargaShort, op == opLdrga:
			out[^variable(il, op, operand)]++
		}
		at = next
	}
	return out, nil
}

// arrive joins the stacks of all branches to an instruction.
func (e *evaluation) arrive(at int) {
	from, ok := e.forward[at]
	switch {
	case !ok:
	case !e.live:
		e.stack = append(e.stack[:0], from...)
	default:
		for i := range e.stack {
			if i >= len(from) || !e.equal(e.stack[i], from[i]) {
				e.lose(at, e.stack[i])
				e.stack[i] = unknown
			}
		}
		for i := range from {
			if i >= len(e.stack) || e.stack[i] == unknown {
				e.lose(at, from[i])
			}
		}
	}
	e.live = true
}

func (e *evaluation) push(v *Value) {
	if len(e.stack) < maxDeep {
		e.stack = append(e.stack, v)
	}
}

// pop takes a value from the stack. An exception handler begins with a value that no instruction has put there.
func (e *evaluation) pop() *Value {
	n := len(e.stack)
	if n == 0 {
		return unknown
	}
	v := e.stack[n-1]
	e.stack = e.stack[:n-1]
	return v
}

// token returns the four-byte token operand of an instruction.
func (e *evaluation) token(operand int) Token {
	return Token(binary.LittleEndian.Uint32(e.il[operand:]))
}

func (e *evaluation) member(t Token) (*Member, error) {
	if f, ok := e.members[t]; ok {
		return f, nil
	}
	f, err := e.m.Member(t)
	if err == nil {
		e.members[t] = f
	}
	return f, err
}

// Other instructions that matter for values, by their numbers (VI.C.2).
const (
	opPop               Opcode = 0x26
	opRet               Opcode = 0x2a
	opBrShort, opBr     Opcode = 0x2b, 0x38
	opBrfalseShort      Opcode = 0x2c
	opBltUnShort        Opcode = 0x37
	opBrfalse           Opcode = 0x39
	opBltUn             Opcode = 0x44
	opCeq, opCltUn      Opcode = 0xfe01, 0xfe05
	opLeave, opLeaveSh  Opcode = 0xdd, 0xde
	opThrow, opRethrow  Opcode = 0x7a, 0xfe1a
	opEndFinally        Opcode = 0xdc
	opCastclass         Opcode = 0x74
	opIsinst            Opcode = 0x75
	opUnboxAny          Opcode = 0xa5
	opLdfld, opLdflda   Opcode = 0x7b, 0x7c
	opLdsfld, opLdsflda Opcode = 0x7e, 0x7f
	opStsfld            Opcode = 0x80
)

// step does one instruction.
func (e *evaluation) step(at int, op Opcode, operand, next int) error {
	if n, ok := constant(e.il, op, operand); ok {
		e.push(&Value{Kind: Constant, Number: n})
		return nil
	}
	switch op {
	case OpCall, OpCallvirt, OpNewobj, OpCalli, OpLdftn, OpLdvirtftn:
		return e.call(at, op, e.token(operand))
	case opLdfld, opLdflda, opLdsfld, opLdsflda, opStfld, opStsfld:
		return e.field(at, op, e.token(operand))
	case opDup:
		v := e.pop()
		e.push(v)
		e.push(v)
	case opCastclass, opIsinst, opUnboxAny: // the same object
	case opRet:
		e.actions = append(e.actions, Action{Kind: Returning, At: uint32(at), Value: e.pop()})
		e.leave()
	case opThrow, opRethrow, opEndFinally, OpJmp:
		e.leave()
	case opLeave, opLeaveSh:
		e.stack = e.stack[:0]
		e.branch(at, op, operand, next)
		e.leave()
	case prefixConstr:
		e.constrained = e.token(operand)
	default:
		if e.variable(at, op, operand) {
			return nil
		}
		e.plain(at, op)
		e.branch(at, op, operand, next)
		if op == opBr || op == opBrShort {
			e.leave()
		}
	}
	return nil
}

// leave notes that the next instruction is not reached from here.
func (e *evaluation) leave() { e.live, e.stack = false, e.stack[:0] }

// branch notes the stack at the target of a branch forward.
func (e *evaluation) branch(at int, op Opcode, operand, next int) {
	to := next
	switch {
	case op >= opBrShort && op <= opBltUnShort || op == opLeaveSh:
		to += int(int8(e.il[operand]))
	case op >= opBr && op <= opBltUn || op == opLeave:
		to += int(int32(binary.LittleEndian.Uint32(e.il[operand:])))
	default:
		return
	}
	if to <= next && len(e.stack) == 0 || len(e.forward) >= maxForward {
		return
	}
	from, ok := e.forward[to]
	if !ok {
		e.forward[to] = slices.Clone(e.stack)
		return
	}
	for i := range from {
		if i >= len(e.stack) || !e.equal(from[i], e.stack[i]) {
			e.lose(at, from[i])
			from[i] = unknown
		}
	}
	for i := range e.stack {
		if i >= len(from) || from[i] == unknown {
			e.lose(at, e.stack[i])
		}
	}
}

// equal reports whether values are equal where paths join. The number of comparisons is bounded.
func (e *evaluation) equal(a, b *Value) bool {
	if a == b {
		return true
	}
	e.compared++
	return a.String() == b.String()
}

// lose notes that a value goes where it can no longer be told from other values.
func (e *evaluation) lose(at int, v *Value) {
	if (v.Kind == FieldOf || v.Kind == StaticField) && !e.lost[v] {
		e.lost[v] = true
		e.actions = append(e.actions, Action{Kind: Losing, At: uint32(at), Value: v})
	}
}

// variable does the instructions for arguments and variables.
func (e *evaluation) variable(at int, op Opcode, operand int) bool {
	switch {
	case op >= opLdarg0 && op <= opLdarg3, op == opLdargShort, op == opLdarg, op == opLdargaShort, op == opLdrga:
		n := variable(e.il, op, operand)
		if e.stores[^n] > 0 {
			e.push(unknown)
			return true
		}
		e.push(&Value{Kind: Argument, Number: n})
	case op >= opLdloc0 && op <= opLdloc3, op == opLdlocShort, op == opLdloc, op == opLdlocaShort, op == opLdlca:
		n := variable(e.il, op, operand)
		if v := e.variables[n]; v != nil {
			e.push(v)
			return true
		}
		e.push(&Value{Kind: Local, Number: n})
	case op >= opStloc0 && op <= opStloc3, op == opStlocShort, op == opStloc:
		e.set(at, variable(e.il, op, operand), e.pop())
	case op == opStargShort, op == opStarg:
		e.lose(at, e.pop())
	default:
		return false
	}
	return true
}

// set notes a variable's new value. A variable that is set once stands for the value, if the value lasts.
func (e *evaluation) set(at int, n int32, v *Value) {
	stands := e.stores[n] == 1 && v.Lasts()
	e.actions = append(e.actions, Action{Kind: Setting, At: uint32(at), Variable: n, Value: v, Stands: stands})
	if stands {
		e.variables[n] = v
	}
}

// field does the instructions for fields.
func (e *evaluation) field(at int, op Opcode, t Token) error {
	f, err := e.member(t)
	if err != nil {
		return err
	}
	switch op {
	case opLdfld, opLdflda:
		e.push(child(e.pop(), FieldOf, f, 0))
	case opLdsfld, opLdsflda:
		e.push(child(nil, StaticField, f, 0))
	case opStfld:
		v := e.pop()
		e.actions = append(e.actions, Action{Kind: Storing, At: uint32(at), Member: f, Object: e.pop(), Value: v})
	case opStsfld:
		e.actions = append(e.actions, Action{Kind: Storing, At: uint32(at), Member: f, Value: e.pop()})
	}
	return nil
}

// call does the instructions with a method's token.
func (e *evaluation) call(at int, op Opcode, t Token) error {
	f, err := e.member(t)
	if err != nil {
		return err
	}
	a := Action{Kind: Calling, At: uint32(at), Member: f, Type: e.constrained}
	switch op {
	case OpLdftn, OpLdvirtftn:
		if op == OpLdvirtftn {
			e.pop()
		}
		a.Kind = Binding
		e.actions = append(e.actions, a)
		e.push(unknown)
		return nil
	case OpCalli:
		e.pop() // the function
	case OpNewobj:
		a.Kind = Creating
	}
	n := f.Arguments
	if f.This && op != OpNewobj {
		n++
	}
	if n > maxDeep {
		return malformed("a call with %d arguments", n)
	}
	a.Arguments = make([]*Value, n)
	for i := range slices.Backward(a.Arguments) {
		a.Arguments[i] = e.pop()
	}
	e.actions = append(e.actions, a)
	if op == OpNewobj || !f.Void {
		var of *Value
		if n > 0 {
			of = a.Arguments[0]
		}
		e.push(child(of, Result, f, int32(at)))
	}
	return nil
}

// plain does an instruction for which only the numbers of taken and given values matter.
func (e *evaluation) plain(at int, op Opcode) {
	effect := effects[op]
	for range effect.takes {
		if v := e.pop(); !onlyLooksAt(op) {
			e.lose(at, v)
		}
	}
	for range effect.gives {
		e.push(unknown)
	}
}

// onlyLooksAt reports whether an instruction only drops values, compares values or branches.
func onlyLooksAt(op Opcode) bool {
	return op == opPop || op >= opBrfalseShort && op <= opBltUnShort || op >= opBrfalse && op <= opSwitch ||
		op >= opCeq && op <= opCltUn
}

// effect is how many values an instruction takes from the stack and puts there.
type effect struct{ takes, gives int }

// effects are the effects of all instructions without own code above (VI.C.2, opcode.def). An instruction not listed
// has no effect.
var effects = func() map[Opcode]effect {
	out := map[Opcode]effect{}
	for e, spans := range map[effect][]struct{ first, last Opcode }{
		{0, 1}: {{0x14, 0x14}, {0x21, 0x23}, {0x72, 0x72}, {0xd0, 0xd0}, {0xfe00, 0xfe00}, {0xfe1c, 0xfe1c}},
		{1, 0}: {{0x26, 0x26}, {0x2c, 0x2d}, {0x39, 0x3a}, {0x45, 0x45}, {0xfe11, 0xfe11}, {0xfe15, 0xfe15}},
		{1, 1}: {
			{0x46, 0x50}, {0x65, 0x6e}, {0x71, 0x71}, {0x76, 0x76}, {0x79, 0x79}, {0x82, 0x8e}, {0xb3, 0xba},
			{0xc2, 0xc6}, {0xd1, 0xd5}, {0xe0, 0xe0}, {0xfe0f, 0xfe0f}, {0xfe1d, 0xfe1d},
		},
		{2, 0}: {{0x2e, 0x37}, {0x3b, 0x44}, {0x51, 0x57}, {0x70, 0x70}, {0x81, 0x81}, {0xdf, 0xdf}},
		{2, 1}: {{0x58, 0x64}, {0x8f, 0x9a}, {0xa3, 0xa3}, {0xd6, 0xdb}, {0xfe01, 0xfe05}},
		{3, 0}: {{0x9b, 0xa2}, {0xa4, 0xa4}, {0xfe17, 0xfe18}},
	} {
		for _, s := range spans {
			for op := s.first; op <= s.last; op++ {
				out[op] = e
			}
		}
	}
	return out
}()
