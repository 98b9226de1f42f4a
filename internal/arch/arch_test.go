package arch

import (
	"encoding/hex"
	"strings"
	"testing"
)

func TestEndsInCall(t *testing.T) {
	for _, tt := range []struct {
		asm, code string
		want      bool
	}{
		{"call rel32", "e8 01 02 03 04", true},
		{"nop; call rel32", "90 e8 01 02 03 04", true},
		{"call rax", "ff d0", true},
		{"call r11", "41 ff d3", true},
		{"call [rax]", "ff 10", true},
		{"call [rax+8]", "ff 50 08", true},
		{"call [rax+100h]", "ff 90 00 01 00 00", true},
		{"call [rip+100h]", "ff 15 00 01 00 00", true},
		{"call [rsp]", "ff 14 24", true},
		{"call [rsp+8]", "ff 54 24 08", true},
		{"call [rax+rcx*8+100h]", "ff 94 c8 00 01 00 00", true},
		{"call [rcx*8+100h]", "ff 14 cd 00 01 00 00", true},
		{"call [r12+8]", "41 ff 54 24 08", true},
		{"jmp rel32", "e9 01 02 03 04", false},
		{"jmp rax", "ff e0", false},
		{"jmp [rip+100h]", "ff 25 00 01 00 00", false},
		{"push [rax]", "ff 30", false},
		{"inc [rax]", "ff 00", false},
		{"call far [rax]", "ff 18", false},
		{"nops", "90 90 90 90 90 90 90", false},
		{"int3", "cc cc cc cc cc cc cc", false},
		{"part of a call", "e8 01 02 03", false},
		{"call rel32; nop", "e8 01 02 03 04 90", false},
		{"nothing", "", false},
		{"ff alone", "ff", false},
	} {
		code, err := hex.DecodeString(strings.ReplaceAll(tt.code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := AMD64.EndsInCall(code); got != tt.want {
			t.Errorf("%s (%s): %v", tt.asm, tt.code, got)
		}
	}
}

func FuzzEndsInCall(f *testing.F) {
	f.Add([]byte{0xff, 0x94, 0xc8, 0, 1, 0, 0})
	f.Fuzz(func(t *testing.T, code []byte) {
		// Only the last seven bytes count.
		if tail := code[max(0, len(code)-7):]; AMD64.EndsInCall(code) != AMD64.EndsInCall(tail) {
			t.Fatalf("% x", code)
		}
	})
}

func TestAddr(t *testing.T) {
	const top = ^Addr(0)
	if a, ok := Addr(8).Add(8); a != 16 || !ok {
		t.Error(a, ok)
	}
	if _, ok := top.Add(1); ok {
		t.Error("the end of the address space was passed upwards")
	}
	if a, ok := Addr(8).Offset(-8); a != 0 || !ok {
		t.Error(a, ok)
	}
	if _, ok := Addr(8).Offset(-9); ok {
		t.Error("address 0 was passed downwards")
	}
	if _, ok := top.Offset(1); ok {
		t.Error("the end of the address space was passed upwards")
	}
	if !Addr(4).In(4, 5) || Addr(5).In(4, 5) || Addr(3).In(4, 5) {
		t.Error("In is not half open")
	}
	if s := top.String(); s != "0xffffffffffffffff" {
		t.Error(s)
	}
}

func TestContext(t *testing.T) {
	var c Context
	if _, ok := c.Reg(RBX); ok {
		t.Error("a register is known that nobody has set")
	}
	c.Set(R15, 7)
	if v, ok := c.Reg(R15); v != 7 || !ok || c.Valid.Len() != 1 || !c.Valid.Has(R15) {
		t.Errorf("%+v", c)
	}
	if _, ok := c.Reg(MaxRegs); ok {
		t.Error("a register beyond the last is known")
	}
}
