package cfi

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
)

// exprEnv has rsp 0x1008, rax 7, no r15, ip 0x4005 and the stack of addresses.
func exprEnv() *env {
	c := &arch.Context{IP: 0x4005}
	c.Set(arch.RSP, 0x1008)
	c.Set(arch.RAX, 7)
	return &env{c: c, s: addresses(), step: &slowStep{arch: arch.AMD64}, cfa: 0x1010, hasCFA: true}
}

func TestExpression(t *testing.T) {
	const minus2 = ^uint64(1)
	for _, c := range []struct {
		name string
		code []byte
		want uint64
		err  error
	}{
		{"nothing but the CFA", nil, 0x1010, nil},
		{"lit", []byte{opLit31}, 31, nil},
		{"addr", []byte{opAddr, 1, 2, 3, 4, 5, 6, 7, 8}, 0x0807060504030201, nil},
		{"const1u", []byte{opConst1u, 0xfe}, 0xfe, nil},
		{"const1s", []byte{opConst1s, 0xfe}, minus2, nil},
		{"const2u", []byte{opConst2u, 0xfe, 0xff}, 0xfffe, nil},
		{"const2s", []byte{opConst2s, 0xfe, 0xff}, minus2, nil},
		{"const4u", []byte{opConst4u, 0xfe, 0xff, 0xff, 0xff}, 0xfffffffe, nil},
		{"const4s", []byte{opConst4s, 0xfe, 0xff, 0xff, 0xff}, minus2, nil},
		{"const8u", []byte{opConst8u, 1, 0, 0, 0, 0, 0, 0, 0x80}, 0x8000000000000001, nil},
		{"const8s", []byte{opConst8s, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, minus2, nil},
		{"constu", []byte{opConstu, 0x80, 1}, 128, nil},
		{"consts", []byte{opConsts, 0x7e}, minus2, nil},
		{"breg7 (rsp): -8", []byte{opBreg0 + 7, 0x78}, 0x1000, nil},
		{"breg16 (rip): 0", []byte{opBreg0 + 16, 0}, 0x4005, nil},
		{"bregx", []byte{opBregx, 0, 1}, 8, nil},
		{"register that is not known", []byte{opBreg0 + 15, 0}, 0, unwind.ErrRegister},
		{"vector register", []byte{opBregx, 17, 0}, 0, unwind.ErrBadInfo},
		{"dup", []byte{opLit0 + 3, opDup, opMul}, 9, nil},
		{"drop", []byte{opLit0, opDrop}, 0x1010, nil},
		{"over", []byte{opLit0 + 5, opLit0, opOver}, 5, nil},
		{"pick", []byte{opLit0 + 5, opLit0, opPick, 1}, 5, nil},
		{"swap", []byte{opLit0 + 5, opLit0 + 3, opSwap, opMinus}, minus2, nil},
		{"rot", []byte{opLit0 + 1, opLit0 + 2, opLit0 + 4, opRot, opMinus}, ^uint64(0), nil}, // 4 1 2 → 1-2
		{"deref", []byte{opDeref}, 0x1010, nil},
		{"deref_size 1", []byte{opDerefSize, 1}, 0x10, nil},
		{"deref_size 2 of the second byte", []byte{opPlusUconst, 1, opDerefSize, 2}, 0x10, nil},
		{"deref_size 4 at the end of the copy", []byte{opConst2u, 0xfc, 0x10, opDerefSize, 4}, 0, nil},
		{"deref_size 1 at the end of the copy", []byte{opConst2u, 0xf9, 0x10, opDerefSize, 1}, 0x10, nil},
		{"deref_size 3", []byte{opDerefSize, 3}, 0, unwind.ErrBadInfo},
		{"deref of nothing", []byte{opLit0, opDeref}, 0, unwind.ErrStack},
		{"abs", []byte{opConsts, 0x7e, opAbs}, 2, nil},
		{"and, or, xor", []byte{opLit0 + 12, opLit0 + 10, opAnd, opLit0 + 3, opOr, opLit0 + 1, opXor}, 10, nil},
		{"div is signed", []byte{opConsts, 0x7c, opLit0 + 2, opDiv}, minus2, nil},
		{"div by zero", []byte{opLit0, opDiv}, 0, unwind.ErrBadInfo},
		{"mod", []byte{opLit0 + 17, opLit0 + 5, opMod}, 2, nil},
		{"mod by zero", []byte{opLit0, opMod}, 0, unwind.ErrBadInfo},
		{"smallest by -1", []byte{opConst8u, 0, 0, 0, 0, 0, 0, 0, 0x80, opConsts, 0x7f, opDiv}, 1 << 63, nil},
		{"minus, plus, mul", []byte{opLit0 + 9, opLit0 + 4, opMinus, opLit0 + 1, opPlus, opLit0 + 3, opMul}, 18, nil},
		{"neg, not", []byte{opLit0 + 1, opNeg, opNot}, 0, nil},
		{"shl, shr, shra", []byte{opConsts, 0x7e, opLit0 + 4, opShl, opLit0 + 1, opShra, opConstu, 60, opShr}, 15, nil},
		{"shift by 100", []byte{opLit0 + 1, opConst1u, 100, opShl}, 0, nil},
		{"comparisons are signed", []byte{opConsts, 0x7e, opLit0 + 1, opLt}, 1, nil},
		{"eq", []byte{opLit0 + 1, opLit0 + 1, opEq}, 1, nil},
		{"ge", []byte{opLit0 + 1, opLit0 + 2, opGe}, 0, nil},
		{"gt", []byte{opLit0 + 2, opLit0 + 1, opGt}, 1, nil},
		{"le", []byte{opLit0 + 1, opLit0 + 1, opLe}, 1, nil},
		{"ne", []byte{opLit0 + 1, opLit0 + 1, opNe}, 0, nil},
		{"skip", []byte{opSkip, 1, 0, opDrop, opNop}, 0x1010, nil},
		{"bra taken", []byte{opLit0 + 1, opBra, 1, 0, opDrop}, 0x1010, nil},
		{"bra not taken", []byte{opLit0 + 3, opLit0, opBra, 1, 0, opDrop}, 0x1010, nil},
		{"countdown", []byte{opLit0 + 9, opLit0 + 1, opMinus, opDup, opBra, 0xfa, 0xff}, 0, nil},
		{"loop", []byte{opSkip, 0xfd, 0xff}, 0, unwind.ErrBadInfo},
		{"skip out", []byte{opSkip, 1, 0}, 0, unwind.ErrBadInfo},
		{"skip before the start", []byte{opSkip, 0xfc, 0xff}, 0, unwind.ErrBadInfo},
		{"call_frame_cfa", []byte{opLit0, opCallFrameCFA}, 0x1010, nil},
		{"too deep", repeat(opDup, 64), 0, unwind.ErrBadInfo},
		{"too few", []byte{opDrop, opDrop}, 0, unwind.ErrBadInfo},
		{"empty in the end", []byte{opDrop}, 0, unwind.ErrBadInfo},
		{"truncated", []byte{opConst8u, 1}, 0, unwind.ErrBadInfo},
		{"DW_OP_reg0", []byte{0x50}, 0, unwind.ErrBadInfo},
	} {
		t.Run(c.name, func(t *testing.T) {
			if v, err := exprEnv().run(c.code, true); v != c.want && err == nil || err != c.err {
				t.Errorf("0x%x, %v, want 0x%x, %v", v, err, c.want, c.err)
			}
		})
	}
}

func TestCFAOfItself(t *testing.T) {
	e := exprEnv()
	e.hasCFA = false
	if _, err := e.run([]byte{opCallFrameCFA}, false); err != unwind.ErrBadInfo {
		t.Error(err)
	}
}

// TestSignalFrame restores the registers that libc's __restore_rt finds on the
// stack: a struct ucontext with the general registers at offset 40, in the
// order of Linux' struct sigcontext (arch/x86/include/uapi/asm/sigcontext.h).
func TestSignalFrame(t *testing.T) {
	_, tab := open(t, libc)
	order := []uint8{arch.R8, arch.R9, arch.R10, arch.R11, arch.R12, arch.R13, arch.R14, arch.R15,
		arch.RDI, arch.RSI, arch.RBP, arch.RBX, arch.RDX, arch.RAX, arch.RCX, arch.RSP}
	s := &target.Stack{Region: target.Region{Base: 0x1000, Data: make([]byte, 40+8*len(order)+8)}}
	for i := range order {
		s.Data[40+8*i] = byte(100 + order[i])
	}
	s.Data[40+8*16], s.Data[40+8*16+1] = 0x34, 0x12 // rip
	found := 0
	tab.indexOnce.Do(tab.buildIndex)
	for _, e := range tab.index {
		f, err := tab.parseFDE(int(e.off))
		if err != nil || !f.cie.signal {
			continue
		}
		found++
		step, err := tab.Step(f.lo + 1) // the FDE begins a byte early, for callers that subtract one
		if err != nil || !step.Signal || step.Slow == nil {
			t.Fatalf("%+v, %v", step, err)
		}
		ctx := arch.Context{IP: f.lo + 1}
		ctx.Set(arch.RSP, 0x1000)
		if err := step.Apply(&ctx, s); err != nil {
			t.Fatal(err)
		}
		if ctx.IP != 0x1234 || ctx.Valid != 0xffff {
			t.Errorf("ip %v, valid %016b", ctx.IP, ctx.Valid)
		}
		for _, r := range order {
			if ctx.Regs[r] != 100+uint64(r) {
				t.Errorf("%s: %d", arch.AMD64.RegNames[r], ctx.Regs[r])
			}
		}
	}
	if found != 1 {
		t.Errorf("%d signal frames in libc, want __restore_rt's", found)
	}
}

// TestPLT steps out of the stubs of libc's procedure linkage table. A lazy stub
// is "jmp *slot; push n; jmp first": from the end of its second instruction, at
// byte 11, the stack has a further word.
func TestPLT(t *testing.T) {
	tab, _ := open(t, libc)
	found := 0
	for pc := arch.Addr(0x20000); pc < 0x30000; pc += 16 {
		s, err := tab.Step(pc)
		if err != nil || s.Slow == nil || s.Slow.(*slowStep).cfa.kind != ruleValExpr {
			continue
		}
		found++
		for i := range arch.Addr(16) {
			s, err := tab.Step(pc + i)
			if err != nil {
				t.Fatal(err)
			}
			ctx := arch.Context{IP: pc + i + 0x7f0000000000}
			ctx.Set(arch.RSP, 0x1000)
			want := arch.Addr(0x1000)
			if i >= 11 {
				want = 0x1008
			}
			if err := s.Apply(&ctx, addresses()); err != nil || ctx.IP != want || ctx.Regs[arch.RSP] != uint64(want+8) {
				t.Errorf("%v: ip %v, rsp 0x%x, %v", pc+i, ctx.IP, ctx.Regs[arch.RSP], err)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d stubs found", found)
	}
}
