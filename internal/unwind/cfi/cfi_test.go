package cfi

import (
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
)

func TestProgram(t *testing.T) {
	const b = "rsp+8 ra:c-8"
	for _, c := range []struct {
		name string
		code []byte
		at   map[arch.Addr]string // by offset in the function
	}{
		{"push rbp; mov rbp,rsp", []byte{0x41, cfaDefCFAOffset, 16, cfaOffset | 6, 2, 0x43, cfaDefCFARegister, 6},
			map[arch.Addr]string{0: b, 1: "rsp+16 rbp:c-16 ra:c-8", 3: "rsp+16 rbp:c-16 ra:c-8",
				4: "rbp+16 rbp:c-16 ra:c-8", 0xff: "rbp+16 rbp:c-16 ra:c-8"}},
		{"advance_loc1", []byte{cfaAdvanceLoc1, 0x80, cfaDefCFAOffset, 16},
			map[arch.Addr]string{0x7f: b, 0x80: "rsp+16 ra:c-8"}},
		{"advance_loc2", []byte{cfaAdvanceLoc2, 0x80, 0, cfaDefCFAOffset, 16},
			map[arch.Addr]string{0x7f: b, 0x80: "rsp+16 ra:c-8"}},
		{"advance_loc4", []byte{cfaAdvanceLoc4, 0x80, 0, 0, 0, cfaDefCFAOffset, 16},
			map[arch.Addr]string{0x7f: b, 0x80: "rsp+16 ra:c-8"}},
		{"advance_loc8", []byte{cfaMIPSAdvanceLoc8, 0x80, 0, 0, 0, 0, 0, 0, 0, cfaDefCFAOffset, 16},
			map[arch.Addr]string{0x7f: b, 0x80: "rsp+16 ra:c-8"}},
		{"remember, restore", []byte{0x41, cfaRememberState, cfaDefCFA, 6, 32, cfaOffset | 3, 3, 0x41, cfaRestoreState},
			map[arch.Addr]string{0: b, 1: "rbp+32 rbx:c-24 ra:c-8", 2: b}},
		{"restore", []byte{cfaOffset | 3, 3, cfaOffset | 16, 2, 0x41, cfaRestore | 3, cfaRestoreExtended, 16},
			map[arch.Addr]string{0: "rsp+8 rbx:c-24 ra:c-16", 1: b}},
		{"offset_extended, _sf, GNU_negative",
			[]byte{cfaOffsetExtended, 12, 4, cfaOffsetExtendedSF, 13, 0x7e, cfaGNUNegativeOffsetExtended, 14, 3},
			map[arch.Addr]string{0: "rsp+8 r12:c-32 r13:c+16 r14:c+24 ra:c-8"}},
		{"def_cfa_sf, offset_sf", []byte{cfaDefCFASF, 6, 0x7e, 0x41, cfaDefCFAOffsetSF, 0x7c},
			map[arch.Addr]string{0: "rbp+16 ra:c-8", 1: "rbp+32 ra:c-8"}},
		{"val_offset, _sf", []byte{cfaValOffset, 3, 2, cfaValOffsetSF, 7, 0x7f},
			map[arch.Addr]string{0: "rsp+8 rbx:v-16 rsp:v+8 ra:c-8"}},
		{"undefined, same, register", []byte{cfaUndefined, 3, cfaSameValue, 0, cfaRegister, 6, 9},
			map[arch.Addr]string{0: "rsp+8 rax:s rbx:u rbp:r9 ra:c-8"}},
		{"expressions",
			[]byte{cfaDefCFAExpression, 2, opBreg0 + 7, 8, cfaExpression, 3, 1, opLit0, cfaValExpression, 12,
				1, opLit0},
			map[arch.Addr]string{0: "exp rbx:exp r12:vexp ra:c-8"}},
		{"args_size, vector register, nop", []byte{cfaGNUArgsSize, 0x90, 1, cfaOffsetExtended, 50, 1, cfaNop},
			map[arch.Addr]string{0: b}},
		{"set_loc", append([]byte{cfaSetLoc}, 0, 0, 0, 0, cfaDefCFAOffset, 16), nil}, // patched below

		{"unknown", []byte{0x3f}, map[arch.Addr]string{0: ""}},
		{"restore without remember", []byte{cfaRestoreState}, map[arch.Addr]string{0: ""}},
		{"truncated", []byte{cfaNop, cfaNop, cfaDefCFA}, map[arch.Addr]string{0: ""}},
		{"expression too long", []byte{cfaDefCFAExpression, 100, 0, 0}, map[arch.Addr]string{0: ""}},
		{"offset of an expression", []byte{cfaDefCFAExpression, 1, opLit0, cfaDefCFAOffset, 8},
			map[arch.Addr]string{0: ""}},
		{"remember for ever", repeat(cfaRememberState, 1000), map[arch.Addr]string{0: ""}},
		{"nop for ever", repeat(cfaNop, 1<<17), map[arch.Addr]string{0: ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bld := standard().fde(codeBase, codeSize, c.code...)
			if c.name == "set_loc" {
				at := bld.fdes[0] + 4 + 4 + 8 + 1 + 1
				copy(bld.bytes[at:], encode(nil, frameBase+arch.Addr(at), 0, pePCRel|peSdata4, codeBase+0x20))
				c.at = map[arch.Addr]string{0x1f: b, 0x20: "rsp+16 ra:c-8"}
			}
			tab := bld.table()
			for off, want := range c.at {
				got := ""
				var p program
				f, err := tab.find(codeBase + off)
				if err == nil {
					err = p.run(tab, f, codeBase+off)
				}
				if err == nil {
					got = describe(&p.row)
				} else if !errors.Is(err, unwind.ErrBadInfo) {
					t.Errorf("error %v", err)
				}
				if got != want {
					t.Errorf("+%v: %s, want %s (%v)", off, got, want, err)
				}
			}
		})
	}
}

func repeat(b byte, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = b
	}
	return p
}

// TestEncodings looks an address up through every encoding of pointers, in the
// frame and in the search table.
func TestEncodings(t *testing.T) {
	forms := []uint8{peAbsptr, peULEB128, peUdata2, peUdata4, peUdata8, peSigned, peSLEB128, peSdata2,
		peSdata4, peSdata8}
	for _, form := range forms {
		for _, base := range []uint8{peAbsptr, pePCRel, peDataRel, peTextRel, peFuncRel, peAligned} {
			enc := form | base
			if base == peAligned && form != 0 {
				continue
			}
			b := standard()
			b.ptrEnc, b.augData = enc, []byte{enc}
			b.fde(codeBase, codeSize, cfaDefCFAOffset, 16).fde(codeBase+codeSize, codeSize, cfaDefCFAOffset, 24)
			// In the frame only absolute and pc-relative pointers have a known
			// base, and the way back to the code is too far for some forms.
			far := form == peUdata2 || form == peUdata4 || form == peSdata2
			usable := base == peAbsptr || base == peAligned || base == pePCRel && !far
			s, err := b.table().Step(codeBase + codeSize + 1)
			if (err == nil) != usable || err == nil && s.CFAOff != 24 {
				t.Errorf("frame, encoding 0x%02x: %+v, %v", enc, s, err)
			}
		}
	}
	b := standard()
	for i := range arch.Addr(100) {
		b.fde(codeBase+i*codeSize*2, codeSize, cfaDefCFAOffset, byte(i))
	}
	for _, enc := range []uint8{peDataRel | peSdata4, peDataRel | peSdata8, peUdata4, peUdata8, peAbsptr,
		pePCRel | peSdata4, pePCRel | peSdata8, peULEB128, peSLEB128 | peDataRel, peOmit} {
		var h []byte
		if enc == peOmit {
			h = []byte{1, peOmit, peOmit, peOmit}
		} else {
			h = b.hdr(enc)
		}
		tab, err := newTable(h, b.bytes)
		if err != nil {
			t.Fatal(err)
		}
		if wantTable := fixedSize(enc) != 0 && enc != peOmit; (tab.entries == 100) != wantTable {
			t.Errorf("hdr, encoding 0x%02x: %d entries", enc, tab.entries)
		}
		for i := range arch.Addr(100) {
			lo := codeBase + i*codeSize*2
			for _, pc := range []arch.Addr{lo, lo + codeSize - 1} {
				if s, err := tab.Step(pc); err != nil || s.CFAOff != int32(i) {
					t.Errorf("hdr, encoding 0x%02x, %v: %+v, %v", enc, pc, s, err)
				}
			}
			for _, pc := range []arch.Addr{lo - 1, lo + codeSize} {
				if _, err := tab.Step(pc); !errors.Is(err, unwind.ErrNoInfo) {
					t.Errorf("hdr, encoding 0x%02x, %v: %v", enc, pc, err)
				}
			}
		}
	}
}

func TestCIE(t *testing.T) {
	const enc = pePCRel | peSdata4
	for _, c := range []struct {
		name     string
		version  uint8
		letters  string
		data     []byte
		extended bool
		signal   bool
		bad      bool
	}{
		{name: "version 1", version: 1, letters: "zR", data: []byte{enc}},
		{name: "version 3", version: 3, letters: "zR", data: []byte{enc}},
		{name: "version 4", version: 4, letters: "zR", data: []byte{enc}},
		{name: "version 2", version: 2, letters: "zR", data: []byte{enc}, bad: true},
		{name: "64-bit length", version: 1, letters: "zR", data: []byte{enc}, extended: true},
		{name: "personality and language data", version: 1, letters: "zPLR",
			data: []byte{peIndirect | enc, 1, 2, 3, 4, enc, enc}},
		{name: "aligned personality", version: 1, letters: "zPR",
			data: []byte{peAligned, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 1, 2, 3, 4, 5, 6, 7, 8, enc}},
		{name: "signal frame", version: 1, letters: "zRS", data: []byte{enc}, signal: true},
		{name: "arm64's letters", version: 1, letters: "zRBG", data: []byte{enc}},
		{name: "unknown last letter", version: 1, letters: "zRX", data: []byte{enc, 1, 2}},
		{name: "unknown letter before R", version: 1, letters: "zXR", data: []byte{enc, 1, 2}, bad: true},
		{name: "unknown letters without length", version: 1, letters: "eh", bad: true},
		{name: "too little data", version: 1, letters: "zPR", data: []byte{enc, 1}, bad: true},
		{name: "endless letters", version: 1, letters: "zRRRRRRRRRRRRRRRRRRRR", data: []byte{enc}, bad: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := standard()
			b.version, b.augmentation, b.augData, b.extended = c.version, c.letters, c.data, c.extended
			b.fde(codeBase, codeSize, cfaDefCFAOffset, 24)
			_, err := b.table().parseFDE(b.fdes[0])
			if (err != nil) != c.bad {
				t.Fatal(err)
			}
			if c.bad {
				return
			}
			s, err := b.table().Step(codeBase)
			if err != nil || s.CFAOff != 24 || s.Signal != c.signal {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

// TestStep takes steps with CFA 0x1010 on a stack of words with their own addresses.
func TestStep(t *testing.T) {
	nonVolatile := arch.AMD64.NonVolatile
	for _, c := range []struct {
		name string
		code []byte
		slow bool
		want map[uint8]uint64 // register values that differ from 0x100+r
		keep arch.RegMask     // valid afterwards
		ip   arch.Addr
	}{
		{"call", nil, false, nil, nonVolatile, 0x1008},
		{"push rbp", []byte{cfaOffset | 6, 2}, false, map[uint8]uint64{arch.RBP: 0x1000}, nonVolatile, 0x1008},
		{"saves a volatile register", []byte{cfaOffset, 2}, false, map[uint8]uint64{arch.RAX: 0x1000},
			nonVolatile | 1<<arch.RAX, 0x1008},
		{"undefined rbx, same rcx", []byte{cfaUndefined, 3, cfaSameValue, 2}, false, nil,
			nonVolatile&^(1<<arch.RBX) | 1<<arch.RCX, 0x1008},
		{"rbp in r9, return address in rdx", []byte{cfaRegister, 6, 9, cfaRegister, 16, 1}, true,
			map[uint8]uint64{arch.RBP: 0x109}, nonVolatile, 0x102},
		{"rsp in r8", []byte{cfaRegister, 7, 8}, true, map[uint8]uint64{arch.RSP: 0x108}, nonVolatile, 0x1008},
		{"rsp is lost", []byte{cfaUndefined, 7}, true, nil, nonVolatile &^ (1 << arch.RSP), 0x1008},
		{"rsp is unchanged", []byte{cfaSameValue, 7}, true, map[uint8]uint64{arch.RSP: 0x1008}, nonVolatile, 0x1008},
		{"rbx = CFA-16", []byte{cfaValOffset, 3, 2}, true, map[uint8]uint64{arch.RBX: 0x1000}, nonVolatile, 0x1008},
		{"rbx in an unknown register", []byte{cfaRegister, 3, 15}, true, nil,
			nonVolatile &^ (1<<arch.RBX | 1<<arch.R15), 0x1008},
		{"expressions see the CFA",
			[]byte{cfaExpression, 3, 2, opPlusUconst, 8, cfaValExpression, 12, 2, opPlusUconst, 8, cfaOffset | 16, 1},
			true, map[uint8]uint64{arch.RBX: 0x1018, arch.R12: 0x1018}, nonVolatile, 0x1008},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := standard().fde(codeBase, codeSize, c.code...).table().Step(codeBase)
			if err != nil {
				t.Fatal(err)
			}
			if (s.Slow != nil) != c.slow {
				t.Errorf("slow: %v", s.Slow != nil)
			}
			ctx := arch.Context{IP: codeBase, Machine: arch.MachineAMD64}
			for r := range uint8(16) {
				ctx.Set(r, 0x100+uint64(r))
			}
			ctx.Set(arch.RSP, 0x1008)
			if c.name == "rbx in an unknown register" {
				ctx.Valid &^= 1 << arch.R15
			}
			if err := s.Apply(&ctx, addresses()); err != nil {
				t.Fatal(err)
			}
			if ctx.IP != c.ip || ctx.Valid != c.keep {
				t.Errorf("ip %v, want %v; valid %016b, want %016b", ctx.IP, c.ip, ctx.Valid, c.keep)
			}
			for r := range uint8(16) {
				want, ok := c.want[r]
				if !ok {
					want = 0x100 + uint64(r)
					if r == arch.RSP {
						want = 0x1010
					}
				}
				if v, ok := ctx.Reg(r); ok && v != want {
					t.Errorf("%s: 0x%x, want 0x%x", arch.AMD64.RegNames[r], v, want)
				}
			}
		})
	}
}

// addresses is a stack at 0x1000 whose words hold their own addresses.
func addresses() *target.Stack {
	s := &target.Stack{Region: target.Region{Base: 0x1000}}
	for i := range 32 {
		for j := range 8 {
			s.Data = append(s.Data, byte((0x1000+8*i)>>(8*j)))
		}
	}
	return s
}

func TestStepErrors(t *testing.T) {
	s, err := standard().fde(codeBase, codeSize, cfaUndefined, 16).table().Step(codeBase)
	if err != nil || !s.End {
		t.Errorf("outermost frame: %+v, %v", s, err)
	}
	distant := []byte{cfaOffsetExtended, 3, 0x80, 0x80, 0x80, 0x80, 0x08}
	far, err := standard().fde(codeBase, codeSize, distant...).table().Step(codeBase)
	if err != nil || far.Slow == nil { // CFA-16 GB is no 32-bit offset
		t.Fatalf("distant slot: %+v, %v", far, err)
	}
	var ctx arch.Context
	if err := far.Apply(&ctx, addresses()); err != unwind.ErrRegister {
		t.Errorf("without rsp: %v", err)
	}
	ctx.Set(arch.RSP, 0x1008)
	if err := far.Apply(&ctx, addresses()); err != unwind.ErrStack {
		t.Errorf("distant slot: %v", err)
	}
	for name, initial := range map[string][]byte{
		"no return address": {cfaDefCFA, 7, 8}, "no CFA": {cfaOffset | 16, 1},
		"CFA in a vector register":            {cfaDefCFA, 20, 8, cfaOffset | 16, 1},
		"return address in a vector register": {cfaDefCFA, 7, 8, cfaRegister, 16, 20},
	} {
		b := standard()
		b.initial = initial
		if s, err := b.fde(codeBase, codeSize).table().Step(codeBase); !errors.Is(err, unwind.ErrBadInfo) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if _, err := newTable(nil, nil); err == nil {
		t.Error("an empty .eh_frame is accepted")
	}
}

// TestIndexBounds: without a search table, reads and memory are bounded, and an error
// names the bound as the reason for missing entries.
func TestIndexBounds(t *testing.T) {
	b := standard()
	for i := range arch.Addr(maxIndexed / 16) {
		b.fde(codeBase+i*16, 16)
	}
	last := codeBase + arch.Addr(len(b.fdes)-1)*16
	tab := b.table()
	if _, err := tab.Step(codeBase); err != nil {
		t.Error(err)
	}
	if _, err := tab.Step(last); !errors.Is(err, unwind.ErrNoInfo) || err == unwind.ErrNoInfo {
		t.Errorf("beyond what is read: %v", err)
	}
	full, left := errors.New("that is too much"), int64(1<<16)
	tab, err := New(inMemory{}, inMemory{b.bytes, frameBase}, arch.AMD64, func(n int64) error {
		if left -= n; left < 0 {
			return full
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Step(last); !errors.Is(err, unwind.ErrNoInfo) || !errors.Is(err, full) ||
		len(tab.index) > 1<<16/16 {
		t.Errorf("%d entries: %v", len(tab.index), err)
	}
}
