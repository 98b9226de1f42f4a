package inlining

import (
	"bytes"
	"encoding/binary"

	"clrsnap/internal/arch"
)

// maxJumps bounds the stubs between a call and its target.
const maxJumps = 4

// Callee returns the MethodDesc of the method that the call instruction before a return address calls; 0: not known,
// because the call is not direct, or the target code does not tell. A call of a virtual method, of an interface's
// method or of a delegate is not direct.
//
// Callee reads the present target of an indirection or a stub. The target may have changed since the call, but always
// belongs to the same method.
func (r *Reader) Callee(returns arch.Addr) (arch.Addr, error) {
	const longest = 6 // bytes
	b, err := r.mem.Bytes(returns-longest, longest)
	if err != nil {
		return 0, err
	}
	var to arch.Addr
	switch {
	case b[0] == 0xff && b[1] == 0x15: // call [rip+disp]
		if to, err = r.mem.Pointer(relative(returns, b[2:])); err != nil {
			return 0, err
		}
	case b[1] == 0xe8: // call rel
		to = relative(returns, b[2:])
	default:
		return 0, nil
	}
	return r.MethodAt(to)
}

// MethodAt returns the MethodDesc of the method that begins at an address, or that stubs at the address lead to; 0:
// not known.
func (r *Reader) MethodAt(at arch.Addr) (arch.Addr, error) {
	for range maxJumps {
		desc, next, err := r.leadsTo(at)
		if err != nil || desc != 0 || next == 0 {
			return desc, err
		}
		at = next
	}
	return 0, nil
}

// relative returns the address at the 32-bit displacement b from at.
func relative(at arch.Addr, b []byte) arch.Addr {
	return at + arch.Addr(int64(int32(binary.LittleEndian.Uint32(b))))
}

// Stubs of the runtime, up to the bytes that distinguish them (vm/amd64/thunktemplates.S, FixupPrecodeCode,
// StubPrecodeCode and CallCountingStubCode; vm/amd64/cgenamd64.cpp, emitBackToBackJump).
var (
	jumpIndirect = []byte{0xff, 0x25}                   // jmp [rip+disp]
	loadMethod   = []byte{0x4c, 0x8b, 0x15}             // mov r10, [rip+disp]
	loadCount    = []byte{0x48, 0x8b, 0x05}             // mov rax, [rip+disp]
	countDown    = []byte{0x66, 0xff, 0x08, 0x74, 0x06} // dec word [rax]; je +6
	loadTarget   = []byte{0x48, 0xb8}                   // mov rax, imm64
	jumpTarget   = []byte{0xff, 0xe0}                   // jmp rax
)

const maxStub = 24 // bytes that are enough to recognise a stub

// leadsTo returns the method of the code at an address, or else the target of the stub at the address.
func (r *Reader) leadsTo(at arch.Addr) (desc, next arch.Addr, err error) {
	c, err := r.code.Lookup(at)
	if err != nil {
		return 0, 0, err
	}
	if c.Kind.Managed() {
		if c.MethodStart != at {
			return 0, 0, nil
		}
		return c.MethodDesc, 0, nil
	}
	b, err := r.mem.Bytes(at, maxStub)
	if err != nil {
		return 0, 0, err
	}
	pointer := func(end int) (arch.Addr, error) { return r.mem.Pointer(relative(at+arch.Addr(end), b[end-4:])) }
	is := func(offset int, code []byte) bool { return bytes.HasPrefix(b[offset:], code) }
	switch {
	case is(0, jumpIndirect) && is(6, loadMethod) && is(13, jumpIndirect): // FixupPrecode
		desc, err = pointer(13)
		return desc, 0, err
	case is(0, loadMethod) && is(7, jumpIndirect): // StubPrecode
		desc, err = pointer(7)
		return desc, 0, err
	case is(0, loadCount) && is(7, countDown) && is(12, jumpIndirect): // CallCountingStub
		next, err = pointer(18)
		return 0, next, err
	case is(0, loadTarget) && is(10, jumpTarget): // a jump too far for one instruction
		return 0, arch.Addr(binary.LittleEndian.Uint64(b[2:])), nil
	}
	return 0, 0, nil
}
