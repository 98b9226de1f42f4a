package ecma335

import "encoding/binary"

// A Site is an instruction whose code may call a managed method.
type Site struct {
	At    uint32 // its offset in the IL, without its prefixes
	Token Token  // MethodDef, MemberRef or MethodSpec; 0: what it calls is the runtime's choice
}

// Sites returns the places in a method's IL from which managed code can be called: calls, and what the
// runtime has helpers for or runs static constructors at.
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

// mayCall reports whether the runtime has a helper in managed code for an instruction in some version, or
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
	// Conversions and divisions that check.
	return op >= 0x82 && op <= 0x8b || op >= 0xb3 && op <= 0xba || op >= 0x5b && op <= 0x5e || op >= 0xd4 && op <= 0xdb
}

// MethodName returns the name of the method that a MethodDef, a MemberRef or a MethodSpec stands for.
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

// MethodRVA is where a method's body is in the image; 0: it has none.
func (m *Metadata) MethodRVA(rid uint32) (uint32, error) { return m.Cell(TableMethodDef, rid, 0) }

// TinyBody reports whether a method's body begins with a header of one byte, by that byte (II.25.4.2).
func TinyBody(first byte) bool { return first&3 == 2 }
