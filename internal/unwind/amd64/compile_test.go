package amd64

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
	"clrsnap/internal/unwind"
)

// image is memory of a few pieces.
type image []target.Region

func (m image) ReadMemory(p []byte, addr arch.Addr) error {
	for _, r := range m {
		if o := uint64(addr - r.Base); o <= uint64(len(r.Data)) && uint64(len(p)) <= uint64(len(r.Data))-o {
			copy(p, r.Data[o:])
			return nil
		}
	}
	return &target.ReadError{Addr: addr, Len: len(p)}
}

const (
	imageBase = arch.Addr(0x10000)
	codeRVA   = 0x1000
	infoRVA   = 0x8000
	chainRVA  = 0x8800
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "", "|", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// function lays out code, unwind information and chained information.
func function(code, info, chained []byte) (image, Function) {
	f := Function{Base: imageBase, Start: imageBase + codeRVA, UnwindInfo: imageBase + infoRVA,
		MethodStart: imageBase + codeRVA}
	f.End = f.Start + arch.Addr(len(code))
	return image{
		{Base: f.Start, Data: code},
		{Base: f.UnwindInfo, Data: info},
		{Base: imageBase + chainRVA, Data: chained},
	}, f
}

func describe(s *unwind.Step) string {
	if s.Slow != nil {
		m := s.Slow.(*machFrame)
		return fmt.Sprintf("ip=[%s%+d] sp=[%[1]s%+[3]d]", arch.AMD64.RegNames[m.base], m.ip, m.ip+machRSP)
	}
	out := fmt.Sprintf("%s%+d", arch.AMD64.RegNames[s.CFAReg], s.CFAOff)
	for _, r := range s.Saved {
		out += fmt.Sprintf(" %s@%d", arch.AMD64.RegNames[r.Reg], r.Off)
	}
	return out
}

// at is the expectation for an offset of the code.
type at struct {
	off  int
	want string
}

func TestCompile(t *testing.T) {
	for _, tt := range []struct {
		name                string
		info, code, chained string
		at                  []at
	}{
		{
			name: "push rbp; push rbx; sub rsp,28h; nop; add rsp,28h; pop rbx; pop rbp; ret",
			info: "01 06 03 00 | 06 42 02 30 01 50 00 00",
			code: "55 53 4883ec28 90 4883c428 5b 5d c3",
			at: []at{
				{0, "rsp+8"}, {1, "rsp+16 rbp@-16"}, {2, "rsp+24 rbx@-24 rbp@-16"},
				{6, "rsp+64 rbx@-24 rbp@-16"}, {7, "rsp+64 rbx@-24 rbp@-16"},
				{11, "rsp+24 rbx@-24 rbp@-16"}, {12, "rsp+16 rbp@-16"}, {13, "rsp+8"},
			},
		},
		{
			name: "push rbp; push r15; sub rsp,20h; lea rbp,[rsp+20h]; nop; lea rsp,[rbp]; pop r15; pop rbp; ret",
			info: "01 0c 04 25 | 0c 03 07 32 03 f0 01 50",
			code: "55 4157 4883ec20 488d6c2420 90 488d6500 415f 5d c3",
			at: []at{
				{7, "rsp+56 rbp@-16 r15@-24"}, {12, "rbp+24 rbp@-16 r15@-24"}, {13, "rbp+24 rbp@-16 r15@-24"},
				{17, "rsp+24 rbp@-16 r15@-24"}, {19, "rsp+16 rbp@-16"}, {20, "rsp+8"},
			},
		},
		{
			name: "SET_FPREG_LARGE: push rbp; sub rsp,1230h; lea rbp,[rsp+1230h]; nop",
			info: "01 10 06 f5 | 10 0b 23 01 00 00 08 01 46 02 01 50",
			code: "55 4881ec30120000 488dac2430120000 90 90",
			at:   []at{{8, "rsp+4672 rbp@-16"}, {15, "rsp+4672 rbp@-16"}, {16, "rbp+16 rbp@-16"}},
		},
		{
			name: "ALLOC_LARGE with 32 bits: sub rsp,100000h",
			info: "01 07 03 00 | 07 11 00 00 10 00",
			code: "4881ec00001000 90",
			at:   []at{{0, "rsp+8"}, {7, "rsp+1048584"}},
		},
		{
			name: "sub rsp,0fe0h; test [rsp],eax; nop: a stack probe",
			info: "01 0a 02 00 | 07 01 fc 01",
			code: "4881ece00f0000 850424 90",
			at:   []at{{0, "rsp+8"}, {7, "rsp+4072"}, {10, "rsp+4072"}},
		},
		{
			name: "lea r11,[rsp-20000h]; call probe; mov rsp,r11: a probe by a helper",
			info: "01 10 02 00 | 10 01 00 40",
			code: "4c8d9c240000feff e800000000 498be3 90",
			at:   []at{{8, "rsp+8"}, {13, "rsp+8"}, {16, "rsp+131080"}},
		},
		{
			name: "on-stack replacement: phantom codes at offset 0, saves by mov",
			info: "01 0c 06 00 | 0c 34 14 00 04 62 00 d2 00 c0 00 50",
			code: "4883ec38 48899c24a0000000 90 4881c4a0000000 5b 415c 5d c3",
			at: []at{
				{0, "rsp+136 rbp@-16 r12@-24"}, {4, "rsp+192 rbp@-16 r12@-24"},
				{12, "rsp+192 rbx@-32 rbp@-16 r12@-24"}, {20, "rsp+32 rbx@-32 rbp@-16 r12@-24"}, {24, "rsp+8"},
			},
		},
		{
			name: "two adjustments in an epilog: pop rbx; pop rbp; add rsp,48h; pop rbp; ret",
			info: "01 00 02 00 | 00 82 00 50",
			code: "90 5b 5d 4883c448 5d c3",
			at: []at{{0, "rsp+88 rbp@-16"}, {1, "rsp+104 rbx@-104 rbp@-16"}, {3, "rsp+88 rbp@-16"},
				{7, "rsp+16 rbp@-16"}},
		},
		{
			name: "SAVE_NONVOL_FAR, vector saves, epilog and spare codes",
			info: "02 07 0f 00 | 01 06 00 00 07 35 00 01 00 00 07 68 02 00 07 69 02 00 00 00 07 07 00 00 00 00 " +
				"07 01 00 40",
			code: "90909090909090 90",
			at:   []at{{7, "rsp+131080 rbx@-130824"}},
		},
		{
			name: "machine frame",
			info: "01 02 02 00 | 02 02 00 0a",
			code: "90 90 90",
			at:   []at{{0, "ip=[rsp+0] sp=[rsp+24]"}, {2, "ip=[rsp+8] sp=[rsp+32]"}},
		},
		{
			name: "machine frame with an error code",
			info: "01 00 01 00 | 00 1a",
			code: "90",
			at:   []at{{0, "ip=[rsp+8] sp=[rsp+32]"}},
		},
		{
			name:    "a fragment chained to push rbp; sub rsp,20h",
			info:    "21 00 00 00 | 00000000 00000000 00880000",
			chained: "01 05 02 00 | 05 32 01 50",
			code:    "90 5d c3",
			at:      []at{{0, "rsp+48 rbp@-16"}, {1, "rsp+16 rbp@-16"}, {2, "rsp+8"}},
		},
		{
			name:    "a fragment chained to a frame with a frame register",
			info:    "21 04 01 00 | 04 02 00 00 | 00000000 00000000 00880000",
			chained: "01 0a 03 25 | 0a 03 05 32 01 50",
			code:    "4883ec08 90",
			at:      []at{{0, "rbp+16 rbp@-16"}, {4, "rbp+16 rbp@-16"}},
		},
		{
			name: "push rbp; nop; pop rbp; jmp outside",
			info: "01 01 01 00 | 01 50",
			code: "55 90 5d e900100000",
			at:   []at{{1, "rsp+16 rbp@-16"}, {2, "rsp+16 rbp@-16"}, {3, "rsp+8"}},
		},
		{
			name: "push rbp; jmp outside with the frame in place",
			info: "01 01 01 00 | 01 50",
			code: "55 90 90 e900100000",
			at:   []at{{3, "rsp+16 rbp@-16"}},
		},
		{
			name: "push rbp; nop; pop rbp; jmp short outside",
			info: "01 01 01 00 | 01 50",
			code: "55 90 5d eb7e",
			at:   []at{{3, "rsp+8"}},
		},
		{
			name: "push rbp; pop rbp; jmp to the start: a recursive tail call",
			info: "01 01 01 00 | 01 50",
			code: "55 5d ebfc",
			at:   []at{{2, "rsp+8"}},
		},
		{
			name: "push rbp; pop rbp; jmp inside the method",
			info: "01 01 01 00 | 01 50",
			code: "55 5d ebfd",
			at:   []at{{2, "rsp+16 rbp@-16"}},
		},
		{
			name: "push r12; pop r12; jmp [rip]",
			info: "01 02 01 00 | 02 c0",
			code: "4154 415c ff2500000000",
			at:   []at{{2, "rsp+16 r12@-16"}, {4, "rsp+8"}},
		},
		{
			name: "push rbp; pop rbp; rex.W jmp rax",
			info: "01 01 01 00 | 01 50",
			code: "55 5d 48ffe0",
			at:   []at{{2, "rsp+8"}},
		},
		{
			name: "push rbp; pop rbp; rex.W jmp [r11]",
			info: "01 01 01 00 | 01 50",
			code: "55 5d 49ff23",
			at:   []at{{2, "rsp+8"}},
		},
		{
			name: "push rbp; jmp rax through a switch table",
			info: "01 01 01 00 | 01 50",
			code: "55 5d ffe0",
			at:   []at{{2, "rsp+16 rbp@-16"}},
		},
		{
			name: "sub rsp,8; add rsp,8; mov rax,imm64; rex.W jmp [rax]: the target is loaded after the frame has " +
				"been popped",
			info: "01 04 01 00 | 04 02",
			code: "4883ec08 4883c408 48b81122334455667788 48ff20",
			at:   []at{{4, "rsp+16"}, {8, "rsp+8"}, {18, "rsp+8"}},
		},
		{
			name: "push rbp; pop rbp; lea rax,[rip]; rex.W jmp [rax]",
			info: "01 01 01 00 | 01 50",
			code: "55 5d 488d0500000000 48ff20",
			at:   []at{{2, "rsp+8"}, {9, "rsp+8"}},
		},
		{
			name: "push rbp; bnd ret; rep ret; ret 8",
			info: "01 01 01 00 | 01 50",
			code: "55 f2c3 f3c3 c20800",
			at:   []at{{1, "rsp+8"}, {3, "rsp+8"}, {5, "rsp+8"}},
		},
		{
			name: "push rcx as an allocation; pop rcx; ret",
			info: "01 01 01 00 | 01 02",
			code: "51 59 c3",
			at:   []at{{1, "rsp+16"}, {2, "rsp+8"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mem, f := function(unhex(t, tt.code), unhex(t, tt.info), unhex(t, tt.chained))
			for _, a := range tt.at {
				s, err := Compile(mem, f, f.Start+arch.Addr(a.off), nil)
				if err != nil {
					t.Errorf("+%d: %v", a.off, err)
				} else if got := describe(s); got != a.want {
					t.Errorf("+%d: got %s, want %s", a.off, got, a.want)
				}
			}
		})
	}
}

func TestSameMethod(t *testing.T) {
	mem, f := function(unhex(t, "55 5d e900100000"), unhex(t, "01 01 01 00 | 01 50"), nil)
	ip := f.Start + 2
	same := func(a arch.Addr) bool { return a == f.End+0x1000 }
	if s, err := Compile(mem, f, ip, same); err != nil || describe(s) != "rsp+16 rbp@-16" {
		t.Errorf("a jump to another fragment of the method: %v, %v", s, err)
	}
	f.MethodStart = f.End + 0x1000 // a fragment jumps to the method's first instruction
	if s, err := Compile(mem, f, ip, same); err != nil || describe(s) != "rsp+8" {
		t.Errorf("a recursive tail call: %v, %v", s, err)
	}
}

func TestCompileErrors(t *testing.T) {
	loop := make([]byte, 16)
	loop[0] = 0x21
	binary.LittleEndian.PutUint32(loop[12:], chainRVA)
	for _, tt := range []struct {
		name, info string
		off        int
		want       error
	}{
		{"outside the function", "01 00 00 00", 4, unwind.ErrNoInfo},
		{"header not readable", "", 0, unwind.ErrNoInfo},
		{"codes not readable", "01 00 04 00 00 02", 0, unwind.ErrNoInfo},
		{"version 0", "00 00 00 00", 0, unwind.ErrBadInfo},
		{"version 3", "03 00 00 00", 0, unwind.ErrBadInfo},
		{"code 12", "01 00 01 00 00 0c", 0, unwind.ErrBadInfo},
		{"operand cut off", "01 00 01 00 00 01", 0, unwind.ErrBadInfo},
		{"second operand cut off", "01 00 02 00 00 11 00 00", 0, unwind.ErrBadInfo},
		{"push of rsp", "01 00 01 00 00 40", 0, unwind.ErrBadInfo},
		{"frame register 0", "01 00 01 00 00 03", 0, unwind.ErrBadInfo},
		{"frame register restored before it is used", "01 00 03 05 00 54 00 00 00 03", 0, unwind.ErrBadInfo},
		{"frame of 4 GB", "01 00 03 00 00 11 ff ff ff ff", 0, unwind.ErrBadInfo},
		{"register saved 4 GB away", "01 00 03 00 00 35 ff ff ff ff", 0, unwind.ErrBadInfo},
		{"chained to nothing", "21 00 00 00 00000000 00000000 00000000", 0, unwind.ErrBadInfo},
		{"chained to itself for ever", "21 00 00 00 00000000 00000000 00880000", 0, unwind.ErrBadInfo},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mem, f := function([]byte{0x90, 0x90, 0x90, 0x90}, unhex(t, tt.info), loop)
			s, err := Compile(mem, f, f.Start+arch.Addr(tt.off), nil)
			if !errors.Is(err, tt.want) {
				t.Fatalf("got %v, %v; want %v", s, err, tt.want)
			}
			if !strings.Contains(err.Error(), (f.Start + arch.Addr(tt.off)).String()) {
				t.Errorf("%v: no address", err)
			}
		})
	}
}

func TestMachineFrame(t *testing.T) {
	mem, f := function(unhex(t, "90 90"), unhex(t, "01 01 02 00 | 01 30 00 1a"), nil)
	s, err := Compile(mem, f, f.Start+1, nil)
	if err != nil {
		t.Fatal(err)
	}
	stack := make([]byte, 64)
	for i, v := range []uint64{0xb0b, 0xe44, 0x1234, 0, 0, 0x7fff0000} { // rbx, error code, rip, cs, rflags, rsp
		binary.LittleEndian.PutUint64(stack[8*i:], v)
	}
	st := target.Stack{Region: target.Region{Base: 0x5000, Data: stack}}
	c := arch.Context{Machine: arch.MachineAMD64}
	c.Set(arch.RSP, 0x5000)
	c.Set(arch.RAX, 1)
	if err := s.Apply(&c, &st); err != nil {
		t.Fatal(err)
	}
	if rbx, _ := c.Reg(arch.RBX); c.IP != 0x1234 || c.Regs[arch.RSP] != 0x7fff0000 || rbx != 0xb0b ||
		c.Valid.Has(arch.RAX) || !s.Signal {
		t.Errorf("got %+v", c)
	}
	c.Set(arch.RSP, 0x9000)
	if err := s.Apply(&c, &st); !errors.Is(err, unwind.ErrStack) {
		t.Errorf("unreadable stack: %v", err)
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(unhex(f, "01 06 03 00 06 42 02 30 01 50 00 00"), unhex(f, "55534883ec28904883c4285b5dc3"),
		unhex(f, "01000000"), uint16(11))
	f.Add(unhex(f, "01 10 06 f5 10 0b 23 01 00 00 08 01 46 02 01 50"), unhex(f, "909090"), []byte{}, uint16(0))
	f.Add(unhex(f, "21 04 01 00 04 02 00 00 0000000000000000 00880000"), unhex(f, "5d48b8112233445566778848ff20"),
		unhex(f, "01 0a 03 25 0a 03 05 32 01 50"), uint16(1))
	f.Fuzz(func(t *testing.T, info, code, chained []byte, off uint16) {
		mem, fn := function(code, info, chained)
		var s *unwind.Step
		var err error
		testenv.Allocates(t, len(info)+len(code)+len(chained), 50, 1<<16,
			func() { s, err = Compile(mem, fn, fn.Start+arch.Addr(off), nil) })
		if err != nil {
			if !errors.Is(err, unwind.ErrBadInfo) && !errors.Is(err, unwind.ErrNoInfo) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if len(s.Saved) > 16 {
			t.Fatalf("%d registers saved", len(s.Saved))
		}
		st := target.Stack{Region: target.Region{Base: 0x7000, Data: make([]byte, 0x1000)}}
		c := arch.Context{Machine: arch.MachineAMD64, Valid: arch.AMD64.NonVolatile}
		c.Regs[arch.RSP], c.Regs[arch.RBP] = 0x7100, 0x7200
		_ = s.Apply(&c, &st)
	})
}
