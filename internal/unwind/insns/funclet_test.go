package insns

import "testing"

func TestMethodFramePointer(t *testing.T) {
	for _, tt := range []struct {
		asm, code string
		from      int // 0: the funclet does not set up the frame pointer
	}{
		{"push rbp; sub rsp,10h; mov rbp,[rdi]; mov [rsp],rbp; lea rbp,[rbp+30h]",
			"55 48 83 ec 10 48 8b 2f 48 89 2c 24 48 8d 6d 30 48 89 75 e8", 16},
		{"push rbp; push r15; push rbx; sub rsp,110h; mov rbp,[rdi+20h]; mov [rsp+20h],rbp; lea rbp,[rbp+130h]",
			"55 41 57 53 48 81 ec 10 01 00 00 48 8b 6f 20 48 89 6c 24 20 48 8d ad 30 01 00 00 90", 27},
		{"push rbp; sub rsp,8; mov rbp,[rdi+12345h]; mov [rsp+12345h],rbp; nop",
			"55 48 83 ec 08 48 8b af 45 23 01 00 48 89 ac 24 45 23 01 00 90", 20},
		{"push rbp; sub rsp,8; mov rbp,rdi", "55 48 83 ec 08 48 8b ef 90 90 90 90", 0},
		{"push rbp; sub rsp,10h; lea rdi,[rbp-8]: of .NET 10", "55 48 83 ec 10 48 8d 7d f8", 0},
		{"push rbp; mov rax,[rdi]", "55 48 8b 07", 0},
		{"push rbp and no more", "55", 0},
		{"an instruction that is cut off", "55 48 8b", 0},
		{"nothing", "", 0},
	} {
		from, own := MethodFramePointer(unhex(t, tt.code))
		if from != tt.from || own != (tt.from > 0) {
			t.Errorf("%s: %d, %v, want %d", tt.asm, from, own, tt.from)
		}
	}
}

func FuzzMethodFramePointer(f *testing.F) {
	f.Add([]byte{0x55, 0x48, 0x83, 0xec, 0x10, 0x48, 0x8b, 0x2f, 0x48, 0x89, 0x2c, 0x24, 0x48, 0x8d, 0x6d, 0x30})
	f.Fuzz(func(t *testing.T, code []byte) {
		if from, own := MethodFramePointer(code); from < 0 || from > len(code) || own && from == 0 {
			t.Fatalf("%x: %d, %v", code, from, own)
		}
	})
}
