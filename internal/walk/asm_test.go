package walk

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/arch"
)

func code(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPush(t *testing.T) {
	for _, tt := range []struct {
		asm, code string
		reg       uint8
		n         int
	}{
		{"push rbx", "53", arch.RBX, 1},
		{"push r15", "41 57", arch.R15, 2},
		{"pop rbx", "5b", 0, 0},
		{"pop r15", "41 5f", 0, 0},
		{"rex alone", "41", 0, 0},
		{"nothing", "", 0, 0},
	} {
		reg, n, ok := push(code(t, tt.code))
		if reg != tt.reg || n != tt.n || ok != (tt.n > 0) {
			t.Errorf("%s: %d, %d, %v", tt.asm, reg, n, ok)
		}
	}
}

func TestLoads(t *testing.T) {
	ctx := arch.AMD64.ContextRegs
	for _, tt := range []struct {
		asm, code string
		reg       uint8
		want      []int
	}{
		{"mov rbx, [r10+90h]", "90 49 8b 9a 90 00 00 00", arch.RBX, []int{1}},
		{"mov rbx, [rdi+90h]", "48 8b 9f 90 00 00 00", arch.RBX, []int{0}},
		{"mov r12, [rdi+0d8h]", "4c 8b a7 d8 00 00 00", arch.R12, []int{0}},
		{"mov rsp, [r10+98h] is not r12", "49 8b a2 98 00 00 00", arch.R12, nil},
		{"mov rbx, [rdi+98h]: another register's place", "48 8b 9f 98 00 00 00", arch.RBX, nil},
		{"cut off", "48 8b 9f 90 00 00", arch.RBX, nil},
	} {
		if got := slices.Collect(loads(code(t, tt.code), tt.reg, ctx[tt.reg])); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v", tt.asm, got)
		}
	}
}

func TestJumpTo(t *testing.T) {
	// test rax, rax; je +2; pop rbp; ret; …
	c := code(t, "48 85 c0 74 02 5d c3 90")
	if at, ok := jumpTo(c, 7); at != 3 || !ok {
		t.Error(at, ok)
	}
	if at, ok := jumpTo(c, 6); ok {
		t.Error(at)
	}
	// nop; test rax, rax; jne back to the nop
	if at, ok := jumpTo(code(t, "90 48 85 c0 75 fa"), 0); at != 4 || !ok {
		t.Error(at, ok)
	}
	// mov rsi, [rsp+…]: 74 24 inside of another instruction
	if at, ok := jumpTo(append(code(t, "48 8b 74 24 08"), make([]byte, 64)...), 4+0x24); ok {
		t.Error(at)
	}
}

func TestOnlyPops(t *testing.T) {
	for text, want := range map[string]bool{"": true, "41 5c 5b 5d": true, "5b c3": false, "53": false, "41": false} {
		if got := onlyPops(code(t, text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
