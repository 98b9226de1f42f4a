package insns

import "testing"

func TestThirdArgument(t *testing.T) {
	for _, tt := range []struct {
		asm, code string
		want      uint32
		ok        bool
	}{
		{"mov rsi,[rip+…]; mov rdi,rcx; mov rcx,rbx; mov edx,28h; call [rip+…]",
			"48 8b 35 4a dc 02 00 48 8b f9 48 8b cb ba 28 00 00 00 ff 15 39 c5 02 00 ba 01 00 00 00", 0x28, true},
		{"mov rsi,[rip+…]; mov rdi,rcx; call [rip+…]", "48 8b 35 cb df 02 00 48 8b f9 ff 15 d2 c8 02 00", 0, false},
		{"mov edx,28h; mov rdx,rbx; call", "ba 28 00 00 00 48 8b d3 e8 00 00 00 00", 0, false},
		{"mov rdx,rbx; mov edx,28h; call", "48 8b d3 ba 28 00 00 00 e8 00 00 00 00", 0x28, true},
		{"mov r10d,28h; call", "41 ba 28 00 00 00 e8 00 00 00 00", 0, false},
		{"mov edx,28h; jmp", "ba 28 00 00 00 eb 10 e8 00 00 00 00", 0, false},
		{"mov edx,28h; ret", "ba 28 00 00 00 c3 e8 00 00 00 00", 0, false},
		{"mov edx,28h and no more", "ba 28 00 00 00", 0, false},
		{"an instruction that is cut off", "ba 28 00", 0, false},
		{"nothing", "", 0, false},
	} {
		if v, ok := ThirdArgument(unhex(t, tt.code)); ok != tt.ok || ok && v != tt.want {
			t.Errorf("%s: %#x, %v", tt.asm, v, ok)
		}
	}
}
