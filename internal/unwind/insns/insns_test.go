package insns

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/elfx"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
	"clrsnap/internal/unwind/cfi"
)

// images are what the tests read code from: compiled by gcc and by clang, with call
// frame information.
func images(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"} {
		if files, _ := filepath.Glob(pattern); len(files) > 0 {
			all = append(all, files...)
		}
	}
	if len(all) == 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: no libraries where Debian has them")
	}
	return all
}

// TestDecode compares the lengths of all instructions of a library with objdump's.
func TestDecode(t *testing.T) {
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip("SKIPPED, NOTHING WAS TESTED:", err)
	}
	line := regexp.MustCompile(`(?m)^\s*([0-9a-f]+):\t((?:[0-9a-f]{2} )+)\s*(?:\t(.*))?$`)
	incomplete := regexp.MustCompile(`^(data16|rex|cs|ds|es|ss|fs|gs|addr32|repz|repnz|lock)\b`)
	for _, file := range images(t)[:1] {
		out, err := exec.Command(objdump, "-d", "-w", "-j", ".text", file).Output()
		if err != nil {
			t.Fatal(err)
		}
		n, bad := 0, 0
		for _, m := range line.FindAllSubmatch(out, -1) {
			text := string(m[3])
			if strings.Contains(text, "(bad)") || incomplete.MatchString(text) || bytes.HasPrefix(m[2], []byte("9b ")) || bytes.HasPrefix(m[2], []byte("8f e")) {
				continue // no instruction, pieces of one, two (fwait and another one), AMD's XOP
			}
			code := unhex(t, string(m[2]))
			n++
			if in, ok := decode(append(code, make([]byte, longest)...)); !ok || in.length != len(code) {
				if bad++; bad <= 20 { // data can lie between instructions
					t.Logf("%s: %s: % x (%s): %d bytes, %v", filepath.Base(file), m[1], code, text, in.length, ok)
				}
			}
		}
		t.Logf("%s: %d of %d instructions are wrong", file, bad, n)
		if n < 100_000 || bad*10_000 > n {
			t.Errorf("%s: %d of %d instructions are wrong", file, bad, n)
		}
	}
}

func unhex(t *testing.T, s string) []byte {
	var b []byte
	for _, f := range strings.Fields(s) {
		v, err := strconv.ParseUint(f, 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, byte(v))
	}
	return b
}

// TestAgainstCFI compares, at every return address of some libraries, the first step
// that the code tells with the one that the compiler has written down.
func TestAgainstCFI(t *testing.T) {
	for _, file := range images(t) {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		img, err := elfx.New(f)
		if err != nil {
			t.Fatal(err)
		}
		frames, err := img.Frames()
		if err != nil {
			t.Fatal(err)
		}
		table, err := cfi.New(frames.Hdr, frames.HdrAddr, frames.Frame, frames.FrameAddr, arch.AMD64)
		if err != nil {
			t.Fatal(err)
		}
		c := comparison{t: t, img: img, table: table}
		c.all(textOf(t, file))
		t.Logf("%s: %+v", file, c.counts)
		if n := c.same + c.later + c.wrong + c.none; n < 5_000 || c.same*100 < n*90 || c.wrong*100 > n*2 {
			t.Errorf("%s: %+v: less than 90 %% are right, or more than 2 %% wrong", file, c.counts)
		}
	}
}

// textOf returns the section .text.
func textOf(t *testing.T, file string) (code []byte, at arch.Addr) {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := f.Section(".text")
	if code, err = s.Data(); err != nil {
		t.Fatal(err)
	}
	return code, arch.Addr(s.Addr)
}

type comparison struct {
	t     *testing.T
	img   *elfx.Image
	table *cfi.Table
	counts
}

// counts of return addresses: whose first step is right, or a later one; which have a
// wrong one only, or none; and those that cannot be compared.
type counts struct{ same, later, wrong, none, other int }

func (c *comparison) all(code []byte, at arch.Addr) {
	for off := 0; off < len(code); {
		lo, hi, ok := c.table.Function(at + arch.Addr(off))
		if !ok || lo < at {
			off++
			continue
		}
		end := min(int(hi-at), len(code))
		for off = int(lo - at); off < end; {
			in, ok := decode(code[off:])
			if !ok {
				break
			}
			off += in.length
			if isCall(&in) && off < end && returns(code[off:end]) {
				c.compare(at + arch.Addr(off))
			}
		}
		off = max(off, end)
	}
}

func isCall(in *insn) bool {
	return !in.vector && (in.op == 0xe8 || in.op == 0xff && in.reg() == 2)
}

// returns reports whether the call before code can return: if it never does, the
// compiler has put nothing behind it that leads anywhere. What follows then begins
// another piece of code, mostly after padding.
func returns(code []byte) bool {
	for len(code) > 0 {
		in, ok := decode(code)
		if !ok || in.op == 0x0f1f || isCall(&in) || in.op == 0x90 {
			return false
		}
		if in.op == 0xc3 || in.op == 0xe9 || in.op == 0xeb {
			return true
		}
		code = code[in.length:]
	}
	return false
}

// compare compares the steps of one return address.
func (c *comparison) compare(ip arch.Addr) {
	want, err := c.table.Step(ip - 1)
	if err != nil || want.Slow != nil || want.End || want.CFAReg != arch.RSP {
		c.other++
		return
	}
	got := Steps(c.img, arch.AMD64, ip)
	for i, g := range got {
		if g.CFAReg != want.CFAReg || g.CFAOff != want.CFAOff || !sameSaved(g.Saved, want.Saved) {
			continue
		}
		if i == 0 {
			c.same++
		} else {
			c.later++
		}
		return
	}
	if len(got) == 0 {
		c.none++
		return
	}
	if c.wrong++; c.wrong <= 5 {
		c.t.Logf("%v: %+v, want %+v", ip, got[0], want)
	}
}

// sameSaved compares as sets; of registers that were saved for a caller to find, only
// those that a call preserves.
func sameSaved(a, b []unwind.Saved) bool {
	m := map[unwind.Saved]bool{}
	for _, s := range a {
		m[s] = true
	}
	n := 0
	for _, s := range b {
		if arch.AMD64.NonVolatile.Has(s.Reg) {
			n++
			if !m[s] {
				return false
			}
		}
	}
	return n == len(m)
}

// program is code at address 0x1000, with hlt up to the end of the page.
type program []byte

func (p program) ReadMemory(b []byte, at arch.Addr) error {
	if at < 0x1000 || at+arch.Addr(len(b)) > 0x2000 {
		return &target.ReadError{Addr: at, Len: len(b), Err: errors.New("no code")}
	}
	for i := range b {
		b[i] = 0xf4
		if off := int(at-0x1000) + i; off < len(p) {
			b[i] = p[off]
		}
	}
	return nil
}

func TestSteps(t *testing.T) {

	for name, tt := range map[string]struct {
		code string
		want []string
	}{
		"ret":                                    {"c3", []string{"rsp+8"}},
		"add rsp,18h; ret":                       {"48 83 c4 18 c3", []string{"rsp+32"}},
		"pop rbx; pop rbp; ret":                  {"5b 5d c3", []string{"rsp+24 rbx-24 rbp-16"}},
		"leave; ret":                             {"c9 c3", []string{"rbp+16 rbp-16"}},
		"lea rsp,[rbp-8]; pop rbx; pop rbp; ret": {"48 8d 65 f8 5b 5d c3", []string{"rbp+16 rbx-24 rbp-16"}},
		"mov rbx,[rsp+8]; add rsp,10h; ret":      {"48 8b 5c 24 08 48 83 c4 10 c3", []string{"rsp+24 rbx-16"}},
		"jmp over; int3; ret":                    {"eb 01 cc c3", []string{"rsp+8"}},
		"jump either way, both alike":            {"74 01 c3 c3", []string{"rsp+8"}},
		"jump either way, not alike":             {"74 01 c3 5b c3", []string{"rsp+8", "rsp+16 rbx-16"}},
		"a loop":                                 {"eb fe", nil},
		"jmp rax":                                {"ff e0", []string{"rsp+8"}},
		"mov rsp,rax; ret":                       {"48 89 c4 c3", nil},
		"and rsp,-16; ret":                       {"48 83 e4 f0 c3", nil},
		"pop rbp; leave; ret":                    {"5d c9 c3", nil},
		"hlt; ret":                               {"f4 c3", nil},
		"at the end of the page":                 {strings.Repeat("90 ", 4094) + "48 83", nil},
		"push rbx; pop rbx; ret":                 {"53 5b c3", []string{"rsp+8"}},
		"vector; ret":                            {"c5 f8 77 c4 e2 7d 18 00 62 f1 fd 48 6f 06 c3", []string{"rsp+8"}},
	} {
		code := unhex(t, tt.code)
		var got []string
		for _, s := range Steps(program(code), arch.AMD64, 0x1000) {
			got = append(got, describe(s))
		}
		if strings.Join(got, "; ") != strings.Join(tt.want, "; ") {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}

}

var registers = map[uint8]string{arch.RSP: "rsp", arch.RBP: "rbp", arch.RBX: "rbx", arch.R12: "r12", arch.R13: "r13", arch.R14: "r14", arch.R15: "r15"}

func describe(s *unwind.Step) string {
	var b bytes.Buffer
	b.WriteString(registers[s.CFAReg] + "+" + strconv.Itoa(int(s.CFAOff)))
	for _, r := range []uint8{arch.RBX, arch.RBP, arch.R12, arch.R13, arch.R14, arch.R15} {
		for _, p := range s.Saved {
			if p.Reg == r {
				b.WriteString(" " + registers[r] + strconv.Itoa(int(p.Off)))
			}
		}
	}
	return b.String()
}

// FuzzSteps: hostile code ends in time and harms nobody.
func FuzzSteps(f *testing.F) {
	f.Add([]byte{0x5b, 0xc3})
	f.Add([]byte{0x74, 0xfe, 0xeb, 0xfc})
	f.Fuzz(func(t *testing.T, code []byte) {
		if n := len(Steps(program(code), arch.AMD64, 0x1000)); n > maxSteps*2 {
			t.Fatalf("%d steps", n)
		}
	})
}
