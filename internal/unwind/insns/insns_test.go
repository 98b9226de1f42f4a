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
	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/unwind"
	"clrsnap/internal/unwind/cfi"
)

// images are the tests' sources of code: compiled by gcc and by clang, with call
// frame information. libc is the first.
func images(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3"} {
		if files, _ := filepath.Glob(pattern); len(files) > 0 {
			all = append(all, files...)
		}
	}
	if len(all) == 0 {
		layer.Lacking(t, "no libraries where Debian has them")
	}
	return all
}

// TestDecode compares all instructions of a library with objdump's decoding: the
// lengths, and the written registers among the registers that calls preserve.
func TestDecode(t *testing.T) {
	layer.Live(t)
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		layer.Lacking(t, err.Error())
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
			if strings.Contains(text, "(bad)") || incomplete.MatchString(text) ||
				bytes.HasPrefix(m[2], []byte("9b ")) || bytes.HasPrefix(m[2], []byte("8f e")) {
				continue // no instruction, pieces of an instruction, two instructions (fwait and another), AMD's XOP
			}
			code := unhex(t, string(m[2]))
			n++
			in, ok := decode(append(code, make([]byte, longest)...))
			if r, written := destination(text); !ok || in.length != len(code) || written && !in.changes().Has(r) {
				if bad++; bad <= 20 { // data can lie between instructions
					t.Logf("%s: %s: % x (%s): %d bytes, %v, changes %v", filepath.Base(file), m[1], code, text,
						in.length, ok, in.changes())
				}
			}
		}
		t.Logf("%s: %d of %d instructions are wrong", file, bad, n)
		if n < 100_000 || bad*10_000 > n {
			t.Errorf("%s: %d of %d instructions are wrong", file, bad, n)
		}
	}
}

var (
	// readers are instructions that do not write their last operand, and instructions
	// with a rule of their own in package insns.
	readers = regexp.MustCompile(`^(bnd |lock |rep[nz]* |notrack |xacquire |xrelease |data16 |cs )*` +
		`(cmp|test|bt[bwlq]? |push|pop|call|jmp|mul|imul[bwlq]? +%[a-z0-9]+$|div|idiv|nop|` +
		`v?u?comis|prefetch|bound|out|in |ptwrite|wr[fg]sbase|ltr|lldt|lmsw|ver[rw]|incssp)`)
	// names are the names of a register, by size.
	names = regexp.MustCompile(`%(?:[er]?(bx|bp)|(bl)|(bpl)|(r1[2-5])[dwb]?)$`)
)

// destination returns the register that an instruction writes, by its text, if a call
// preserves the register. It leaves out the stack pointer, and does not know the upper
// bytes of registers.
func destination(text string) (uint8, bool) {
	text, _, _ = strings.Cut(text, "#")
	text = strings.TrimSpace(text)
	m := names.FindStringSubmatch(text)
	if m == nil || readers.MatchString(text) {
		return 0, false
	}
	r, known := map[string]uint8{"bx": arch.RBX, "bl": arch.RBX, "bp": arch.RBP, "bpl": arch.RBP, "r12": arch.R12,
		"r13": arch.R13, "r14": arch.R14, "r15": arch.R15}[m[1]+m[2]+m[3]+m[4]]
	return r, known
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

// TestAgainstCFI compares the steps found from the code with the compiler's call frame
// information, at return addresses and between other instructions. Every confirmed step
// must be right.
func TestAgainstCFI(t *testing.T) {
	layer.Matrix(t)
	for _, file := range images(t) {
		c := againstCFI(t, file, 1)
		c.returns.check(t, file)
		c.others.check(t, file)
	}
}

// TestAgainstCFIQuick compares at a tenth of the places in libc: too few places to judge how many
// steps are confirmed.
func TestAgainstCFIQuick(t *testing.T) {
	c := againstCFI(t, images(t)[0], 10)
	if c.returns.Certain == 0 || c.others.Certain == 0 || c.returns.Wrong+c.others.Wrong > 0 {
		t.Errorf("at return addresses %+v, elsewhere %+v", c.returns, c.others)
	}
}

// againstCFI compares at every oneInth place of a file.
func againstCFI(t *testing.T, file string, oneIn int) *comparison {
	t.Helper()
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
	table, err := cfi.New(frames.Hdr, frames.Frame, arch.AMD64, img.Reserve)
	if err != nil {
		t.Fatal(err)
	}
	c := &comparison{t: t, img: img, table: table, oneIn: oneIn}
	c.all(textOf(t, file))
	t.Logf("%s: at return addresses %+v, elsewhere %+v", file, c.returns, c.others)
	return c
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
	t       *testing.T
	img     *elfx.Image
	table   *cfi.Table
	oneIn   int
	returns counts
	others  counts
}

// counts of instruction pointers. Certain: a single step is confirmed, and right. Wrong: a
// confirmed step, also by ConfirmsAnyEntry, is wrong. Found: the right step is found, but not
// confirmed. Other: only wrong steps are found. None: no step is found. Opened: a step is confirmed
// by ConfirmsAnyEntry.
type counts struct{ Certain, Wrong, Found, Other, None, Opened int }

func (n *counts) check(t *testing.T, file string) {
	t.Helper()
	all := n.Certain + n.Wrong + n.Found + n.Other + n.None
	if all < 100 || n.Wrong > 0 || n.Certain*100 < all*70 || n.Opened*100 < all*45 {
		t.Errorf("%s: %+v: some are wrong, or too few are certain", file, *n)
	}
}

// all compares at a part of the return addresses and at a part of the other
// instructions: one in returns and one in others. Each number is multiplied by oneIn.
func (c *comparison) all(code []byte, at arch.Addr) {
	returns, others := 89*c.oneIn, 997*c.oneIn
	n, calls := 0, 0
	for off := 0; off < len(code); {
		lo, hi, ok := c.table.Function(at + arch.Addr(off))
		if !ok || lo < at {
			off++
			continue
		}
		end := min(int(hi-at), len(code))
		entered := c.isEntry(lo)
		for off = int(lo - at); off < end && entered; {
			ip := at + arch.Addr(off)
			if n++; n%others == 0 {
				c.compare(lo, ip, true, &c.others)
			}
			in, ok := decode(code[off:])
			if !ok {
				break
			}
			off += in.length
			if calls++; in.isCall() && calls%returns == 0 {
				c.compare(lo, ip+arch.Addr(in.length), false, &c.returns)
			}
		}
		off = max(off, end)
	}
}

// isEntry reports whether a piece of code can be a function with sound information. The
// piece may also be the cold part of a function, which the compiler has put elsewhere, or
// hand-written code with incomplete information (glibc, sysdeps/x86_64/mul_1.S).
func (c *comparison) isEntry(lo arch.Addr) bool {
	code := make([]byte, longest)
	if c.img.ReadMemory(code, lo) != nil {
		return false
	}
	depth, in := int32(word), insn{}
	if in, _ = decode(code); in.op >= 0x50 && in.op <= 0x57 {
		depth += word
	}
	first, err1 := c.table.Step(lo)
	second, err2 := c.table.Step(lo + arch.Addr(in.length))
	return err1 == nil && err2 == nil && first.Slow == nil && !first.End && first.CFAReg == arch.RSP &&
		first.CFAOff == word && (second.CFAReg != arch.RSP || second.CFAOff >= depth)
}

// compare compares the steps at an instruction pointer.
func (c *comparison) compare(start, ip arch.Addr, exact bool, n *counts) {
	pc := ip
	if !exact {
		pc--
	}
	want, err := c.table.Step(pc)
	if err != nil || want.Slow != nil || want.End {
		return
	}
	got := Steps(c.img, arch.AMD64, ip)
	var certain, opened, wrong int
	found := false
	for _, g := range got {
		equal := g.CFAReg == want.CFAReg && g.CFAOff == want.CFAOff && sameSaved(g.Saved, want.Saved)
		found = found || equal
		confirmed := Confirms(c.img, arch.AMD64, start, ip, exact, g)
		opens := ConfirmsAnyEntry(c.img, arch.AMD64, ip, exact, g)
		if confirmed {
			certain++
		}
		if opens {
			opened++
		}
		if (confirmed || opens) && !equal && !Confirms(c.img, arch.AMD64, start, ip, exact, restored(want, g)) {
			wrong++
		}
	}
	if opened == 1 {
		n.Opened++
	}
	switch {
	case wrong > 0:
		if n.Wrong++; n.Wrong <= 10 {
			c.t.Logf("%v in %v: %v, want %v", ip, start, describe(got[0]), describe(want))
		}
	case certain == 1:
		n.Certain++
	case found:
		n.Found++
	case len(got) > 0:
		n.Other++
	default:
		n.None++
	}
}

// restored returns want without the registers that are already restored. The compiler does
// not always declare restored registers; g does.
func restored(want, g *unwind.Step) *unwind.Step {
	w := *want
	w.Keep |= g.Keep & arch.AMD64.NonVolatile
	w.Saved = nil
	for _, s := range want.Saved {
		if !g.Keep.Has(s.Reg) && arch.AMD64.NonVolatile.Has(s.Reg) {
			w.Saved = append(w.Saved, s)
		}
	}
	return &w
}

// sameSaved compares as sets. Of registers saved for a caller to find, only registers
// that a call preserves count.
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
		"mov r12,[rsp+8]; add rsp,10h; ret":      {"4c 8b 64 24 08 48 83 c4 10 c3", []string{"rsp+24 r12-16"}},
		"jmp over; int3; ret":                    {"eb 01 cc c3", []string{"rsp+8"}},
		"jump either way, both alike":            {"74 01 c3 c3", []string{"rsp+8"}},
		"jump either way, not alike":             {"74 01 c3 5b c3", []string{"rsp+8", "rsp+16 rbx-16"}},
		"ways that meet with different stacks":   {"74 01 5b c3", []string{"rsp+16 rbx-16", "rsp+8"}},
		"a loop":                                 {"eb fe", nil},
		"a loop that pushes":                     {"53 eb fd", nil},
		"many jumps": {strings.Repeat("58 74 02 ff e0 ", 12) + "c3",
			[]string{"rsp+16", "rsp+24", "rsp+32", "rsp+40"}},
		"xor ebp,ebp; leave; ret":               {"31 ed c9 c3", nil},
		"andn ebp,eax,ecx; leave; ret":          {"c4 e2 78 f2 e9 c9 c3", nil},
		"blsr rbp,rax; leave; ret":              {"c4 e2 d0 f3 c8 c9 c3", nil},
		"cmp rbp,rax; test ebp,ebp; leave; ret": {"48 39 c5 85 ed c9 c3", []string{"rbp+16 rbp-16"}},
		"push rbp; mov rbp,rsp; leave; ret":     {"55 48 89 e5 c9 c3", []string{"rsp+8"}},
		"push rax; pop rbx; ret":                {"50 5b c3", nil},
		"jmp rax":                               {"ff e0", []string{"rsp+8"}},
		"mov rsp,rax; ret":                      {"48 89 c4 c3", nil},
		"and rsp,-16; ret":                      {"48 83 e4 f0 c3", nil},
		"pop rbp; leave; ret":                   {"5d c9 c3", nil},
		"hlt; ret":                              {"f4 c3", nil},
		"at the end of the page":                {strings.Repeat("90 ", 4094) + "48 83", nil},
		"push rbx; pop rbx; ret":                {"53 5b c3", []string{"rsp+8"}},
		"vector; ret":                           {"c5 f8 77 c4 e2 7d 18 00 62 f1 fd 48 6f 06 c3", []string{"rsp+8"}},
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

var registerNames = map[uint8]string{arch.RSP: "rsp", arch.RBP: "rbp", arch.RBX: "rbx", arch.R12: "r12",
	arch.R13: "r13", arch.R14: "r14", arch.R15: "r15"}

func describe(s *unwind.Step) string {
	var b bytes.Buffer
	b.WriteString(registerNames[s.CFAReg] + "+" + strconv.Itoa(int(s.CFAOff)))
	for _, r := range []uint8{arch.RBX, arch.RBP, arch.R12, arch.R13, arch.R14, arch.R15} {
		for _, p := range s.Saved {
			if p.Reg == r {
				b.WriteString(" " + registerNames[r] + strconv.Itoa(int(p.Off)))
			}
		}
	}
	return b.String()
}

// FuzzSteps: following hostile code ends in time and does no harm.
func FuzzSteps(f *testing.F) {
	f.Add([]byte{0x5b, 0xc3})
	f.Add([]byte{0x74, 0xfe, 0xeb, 0xfc})
	f.Fuzz(func(t *testing.T, code []byte) {
		steps := Steps(program(code), arch.AMD64, 0x1000)
		if len(steps) > maxSteps {
			t.Fatalf("%d steps", len(steps))
		}
		for _, s := range steps {
			Confirms(program(code), arch.AMD64, 0x1000, 0x1000, true, s)
			ConfirmsAnyEntry(program(code), arch.AMD64, 0x1040, false, s)
		}
		c := arch.Context{IP: 0x1000 + arch.Addr(len(code)), Valid: arch.AMD64.NonVolatile, Machine: arch.MachineAMD64}
		for _, start := range Callees(program(code), arch.AMD64, &c) {
			JumpsAway(program(code), arch.AMD64, start)
		}
	})
}
