package ecma335

import "encoding/binary"

// A Site is an instruction that may call a managed method.
type Site struct {
	At    uint32 // offset in the IL, without prefixes
	Token Token  // MethodDef, MemberRef or MethodSpec; 0: the runtime chooses the method
}

// Sites returns the instructions in a method's IL that can call managed code: calls, and instructions
// for which the runtime has helpers or runs static constructors.
func Sites(il []byte) ([]Site, error) {
	var out []Site
	for at := 0; at < len(il); {
		op, operand, next, err := instruction(il, at)
		if err != nil {
			return nil, err
		}
		switch {
		case op == OpCall || op == OpCallvirt || op == OpNewobj:
			out = append(out, Site{uint32(at), Token(binary.LittleEndian.Uint32(il[operand:]))})
		case op == OpCalli || mayCall(op):
			out = append(out, Site{At: uint32(at)})
		}
		at = next
	}
	return out, nil
}

// mayCall reports whether some version of the runtime has a helper in managed code for an instruction, or
// runs a static constructor there (src/coreclr/inc/jithelpers.h).
func mayCall(op Opcode) bool {
	switch op {
	case 0x74, 0x75, 0x79, 0xa5, // castclass, isinst, unbox, unbox.any
		0x7e, 0x7f, 0x80, // ldsfld, ldsflda, stsfld
		0x8c, 0x8d, // box, newarr
		0x8f, 0xa2, 0xa4, // ldelema, stelem.ref, stelem
		0x70, 0x71, 0x81, 0xfe15, 0xfe17, 0xfe18, // cpobj, ldobj, stobj, initobj, cpblk, initblk
		0x7a, 0xfe1a, // throw, rethrow
		0xd0, 0xc2, 0xc6, OpLdftn, OpLdvirtftn: // ldtoken, refanyval, mkrefany
		return true
	}
	// Conversions and divisions with checks.
	return op >= 0x82 && op <= 0x8b || op >= 0xb3 && op <= 0xba || op >= 0x5b && op <= 0x5e || op >= 0xd4 && op <= 0xdb
}

// MethodName returns the name of the method behind a MethodDef, a MemberRef or a MethodSpec.
func (m *Metadata) MethodName(t Token) (string, error) {
	if t.Table() == TableMethodSpec {
		spec, err := m.MethodSpec(t.RID())
		if err != nil {
			return "", err
		}
		t = spec.Method
	}
	if t.Table() == TableMemberRef {
		ref, err := m.MemberRef(t.RID())
		return ref.Name, err
	}
	if t.Table() != TableMethodDef {
		return "", malformed("%v is no method", t)
	}
	def, err := m.MethodDef(t.RID())
	return def.Name, err
}

// MethodRVA is the place of a method's body in the image; 0: no body.
func (m *Metadata) MethodRVA(rid uint32) (uint32, error) { return m.Cell(TableMethodDef, rid, 0) }

// TinyBody reports whether a method's body begins with a header of one byte, given the first byte
// (II.25.4.2).
func TinyBody(first byte) bool { return first&3 == 2 }
