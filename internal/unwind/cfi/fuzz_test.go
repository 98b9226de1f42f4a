package cfi

import (
	"encoding/binary"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
)

// FuzzTable looks addresses up in arbitrary call frame information and takes
// the steps on an arbitrary stack.
func FuzzTable(f *testing.F) {
	stack := addresses().Data
	for _, code := range [][]byte{
		{0x41, cfaDefCFAOffset, 16, cfaOffset | 6, 2, 0x43, cfaDefCFARegister, 6},
		{cfaRememberState, cfaDefCFA, 6, 32, 0x41, cfaRestoreState, cfaRestore | 6},
		{cfaDefCFAExpression, 2, opBreg0 + 7, 8, cfaExpression, 3, 1, opLit0, cfaValExpression, 12, 1, opLit0},
		{cfaAdvanceLoc4, 1, 0, 0, 0, cfaValOffset, 3, 2, cfaRegister, 16, 9, cfaUndefined, 7},
	} {
		b := standard().fde(codeBase, codeSize, code...).fde(codeBase+codeSize, codeSize, code...)
		f.Add(b.hdr(peDataRel|peSdata4), b.bytes, uint64(codeBase+5), stack)
		f.Add([]byte{}, b.bytes, uint64(codeBase+codeSize), stack)
		f.Add(b.hdr(pePCRel|peSdata8), b.bytes, uint64(codeBase+codeSize), stack)
	}
	f.Fuzz(func(t *testing.T, hdr, frame []byte, pc uint64, stack []byte) {
		testenv.Allocates(t, len(hdr)+len(frame), 50, 1<<16, func() { fuzzTable(t, hdr, frame, pc, stack) })
	})
}

func fuzzTable(t *testing.T, hdr, frame []byte, pc uint64, stack []byte) {
	tab, err := newTable(hdr, frame)
	if err != nil {
		return
	}
	for _, pc := range []arch.Addr{arch.Addr(pc), codeBase, codeBase + 5, codeBase + codeSize} {
		s, err := tab.Step(pc)
		if err != nil {
			continue
		}
		for _, r := range s.Saved {
			if r.Reg >= arch.MaxRegs {
				t.Fatalf("register %d", r.Reg)
			}
		}
		if s.CFAReg >= arch.MaxRegs || s.SP >= arch.MaxRegs {
			t.Fatalf("registers %d, %d", s.CFAReg, s.SP)
		}
		if s.End {
			continue
		}
		c := arch.Context{IP: pc, Valid: 0x7fff}
		for i := range c.Regs {
			c.Regs[i] = 0x1000 + 8*uint64(i)
		}
		_ = s.Apply(&c, &target.Stack{Region: target.Region{Base: 0x1000, Data: stack}})
	}
}

// FuzzExpression evaluates arbitrary expressions.
func FuzzExpression(f *testing.F) {
	f.Add([]byte{opBreg0 + 7, 8, opBreg0 + 16, 0, opLit0 + 15, opAnd, opLit0 + 11, opGe, opLit0 + 3, opShl, opPlus},
		uint64(5))
	f.Add([]byte{opLit0 + 9, opLit0 + 1, opMinus, opDup, opBra, 0xfa, 0xff}, uint64(0x1000))
	f.Add([]byte{opDeref, opDerefSize, 4, opSkip, 0, 0, opRot, opPick, 3}, uint64(0x1000))
	f.Add(binary.LittleEndian.AppendUint64([]byte{opConst8s}, 1<<63), uint64(1))
	f.Fuzz(func(t *testing.T, code []byte, cfa uint64) {
		testenv.Allocates(t, len(code), 10, 1<<16, func() {
			e := exprEnv()
			e.cfa = cfa
			_, _ = e.run(code, true)
			e.hasCFA = false
			_, _ = e.run(code, false)
		})
	})
}

func BenchmarkStep(b *testing.B) {
	tab, indexed := open(b, testenv.InKit("net10/dotnet"))
	indexed.buildIndex()
	var pcs []arch.Addr
	for i, e := range indexed.index {
		if i%37 == 0 {
			pcs = append(pcs, e.lo+20)
		}
	}
	b.Run("cold", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			_, _ = tab.Step(pcs[i%len(pcs)])
		}
	})
	b.Run("index", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t := Table{arch: tab.arch, frame: tab.frame, mayKeep: always}
			t.buildIndex()
		}
	})
	common := []byte{cfaDefCFAOffset, 48, cfaOffset | 6, 2, cfaOffset | 3, 3, cfaOffset | 12, 4}
	s, err := standard().fde(codeBase, codeSize, common...).table().Step(codeBase)
	if err != nil {
		b.Fatal(err)
	}
	stack := addresses()
	b.Run("warm", func(b *testing.B) {
		b.ReportAllocs()
		var c arch.Context
		for b.Loop() {
			c.Set(arch.RSP, 0x1008)
			if err := s.Apply(&c, stack); err != nil {
				b.Fatal(err)
			}
		}
	})
	expression := []byte{cfaDefCFAExpression, 11, opBreg0 + 7, 8, opBreg0 + 16, 0, opLit0 + 15,
		opAnd, opLit0 + 11, opGe, opLit0 + 3, opShl, opPlus}
	slow, err := standard().fde(codeBase, codeSize, expression...).table().Step(codeBase)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("warm, PLT expression", func(b *testing.B) {
		b.ReportAllocs()
		var c arch.Context
		for b.Loop() {
			c.Set(arch.RSP, 0x1008)
			if err := slow.Apply(&c, stack); err != nil {
				b.Fatal(err)
			}
		}
	})
}
