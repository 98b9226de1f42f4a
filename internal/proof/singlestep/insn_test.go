package singlestep

import (
	"encoding/hex"
	"strings"
	"testing"
)

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		asm, code string
		want      class
		length    uint8
	}{
		{"call rel32", "e8 01 02 03 04", call, 5},
		{"data16 data16 rex.W call rel32", "66 66 48 e8 01 02 03 04", call, 8},
		{"call rax", "ff d0", call, 2},
		{"call r11", "41 ff d3", call, 3},
		{"call [rip+100h]", "ff 15 00 01 00 00", call, 6},
		{"call [rax+8]", "ff 50 08", call, 3},
		{"call [rax+rcx*8+100h]", "ff 94 c8 00 01 00 00", call, 7},
		{"call [rcx*8+100h]", "ff 14 cd 00 01 00 00", call, 7},
		{"call [r12+8]", "41 ff 54 24 08", call, 5},
		{"call fs:[rax]", "64 ff 10", call, 3},
		{"ret", "c3", ret, 0},
		{"rep ret", "f3 c3", ret, 0},
		{"ret 8", "c2 08 00", ret, 0},
		{"syscall", "0f 05", enter, 0},
		{"pushfq", "9c", pushFlags, 0},
		{"popfq", "9d", popFlags, 1},
		{"popf", "66 9d", plain, 0},
		{"iretq", "48 cf", intReturn, 0},
		{"iret", "cf", plain, 0},
		{"int3", "cc", trap, 0},
		{"jmp rax", "ff e0", plain, 0},
		{"jmp [rip+100h]", "ff 25 00 01 00 00", plain, 0},
		{"push [rax]", "ff 30", plain, 0},
		{"endbr64", "f3 0f 1e fa", plain, 0},
		{"vmovdqu64 (EVEX, with e8 inside)", "62 e1 fe 48 6f e8", plain, 0},
		{"vzeroupper (VEX)", "c5 f8 77", plain, 0},
		{"mov eax, e8h", "b8 e8 00 00 00", plain, 0},
		{"prefixes and no more", "66 66 48", plain, 0},
		{"nothing", "", plain, 0},
	} {
		code, err := hex.DecodeString(strings.ReplaceAll(tt.code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got := classify(code)
		if got.class != tt.want || got.length != tt.length {
			t.Errorf("%s (%s): class %d, length %d", tt.asm, tt.code, got.class, got.length)
		}
	}
}

func FuzzClassify(f *testing.F) {
	f.Add([]byte{0x41, 0xff, 0x54, 0x24, 8})
	f.Fuzz(func(t *testing.T, code []byte) {
		if in := classify(code); in.class == call && (in.length < 2 || in.length > 24 && len(code) <= 16) {
			t.Fatalf("% x: a call of %d bytes", code, in.length)
		}
	})
}
