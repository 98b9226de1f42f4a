package amd64

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv/layer"
)

// The oracle knows nothing of unwind information: objdump (binutils) decodes
// the code of a real image, and an abstract interpreter follows every path
// through every function, and tracks the stack pointer, the frame pointer and
// the caller's registers. At each instruction Compile and Apply must bring back
// exactly the caller's registers.

// insn is one decoded instruction.
type insn struct {
	addr arch.Addr
	text string // mnemonic and operands, one space between
}

// disassemble decodes the executable sections, in order of address.
func (im *r2rImage) disassemble(t testing.TB) []insn {
	t.Helper()
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		layer.Lacking(t, "objdump (binutils) is not installed, with which real code is read")
	}
	var out []insn
	for _, s := range im.text {
		base := r2rBase + arch.Addr(s.VirtualAddress)
		file := t.TempDir() + "/text"
		p := make([]byte, min(s.Size, s.VirtualSize))
		if err := im.ReadMemory(p, base); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, p, 0o600); err != nil {
			t.Fatal(err)
		}
		// The bytes before the first function are data, and a decoder that
		// begins there falls out of step.
		cmd := exec.Command(objdump, "-D", "-z", "-w", "--no-show-raw-insn", "-b", "binary", "-m", "i386:x86-64",
			"-M", "intel", "--adjust-vma="+base.String(), "--start-address="+im.funcs[0].Start.String(), file)
		r, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		sc := bufio.NewScanner(r)
		for sc.Scan() {
			a, rest, ok := strings.Cut(strings.TrimSpace(sc.Text()), ":")
			v, err := strconv.ParseUint(a, 16, 64)
			if !ok || err != nil || rest == "" {
				continue
			}
			rest, _, _ = strings.Cut(rest, "#")
			out = append(out, insn{arch.Addr(v), strings.Join(strings.Fields(rest), " ")})
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// value is the interpreter's knowledge of a register.
type value struct {
	kind kind
	off  int32 // atCFA: the register holds the canonical frame address + off
}

type kind uint8

const (
	entry   kind = iota // the value on entry, the caller's
	atCFA               // a known place in the frame
	unknown             // anything
)

// state is the interpreter's knowledge before an instruction.
type state struct {
	seen bool
	sp   value
	bp   value
	tmp  value     // the last register set by a lea from rsp, for mov rsp,reg
	slot [16]int32 // where a register's caller value was pushed, relative to the CFA; 0: nowhere
}

var regNumber = func() map[string]uint8 {
	m := map[string]uint8{}
	for i, n := range arch.AMD64.RegNames {
		m[n] = uint8(i)
	}
	return m
}()

// displacement parses [reg+0x…], [reg-0x…] and [reg].
func displacement(operand, reg string) (int32, bool) {
	s, ok := strings.CutPrefix(operand, "["+reg)
	if !ok || !strings.HasSuffix(s, "]") {
		return 0, false
	}
	s = strings.TrimSuffix(s, "]")
	if s == "" {
		return 0, true
	}
	v, err := strconv.ParseInt(strings.Replace(s, "+", "", 1), 0, 33)
	return int32(v), err == nil
}

// exec applies an instruction. It returns false when control does not fall
// through, and the target of a direct jump.
func (s *state) exec(text string) (next bool, jump arch.Addr) {
	op, args, _ := strings.Cut(text, " ")
	for op == "rex.W" || op == "rex.WB" || op == "bnd" || op == "rep" || op == "repz" || op == "lock" ||
		op == "notrack" {
		op, args, _ = strings.Cut(args, " ")
	}
	dst, src, _ := strings.Cut(args, ",")
	switch {
	case op == "ret" || op == "int3" || op == "ud2" || op == "(bad)":
		return false, 0
	case op[0] == 'j' || op == "loop":
		if v, err := strconv.ParseUint(dst, 0, 64); err == nil {
			jump = arch.Addr(v)
		}
		return op != "jmp", jump
	case op == "push":
		s.push(dst)
	case op == "pop":
		s.pop(dst)
	case op == "cmp" || op == "test" || op == "call" || op == "nop":
	case dst == "rsp":
		s.setSP(op, src)
	case dst == "rbp" || dst == "ebp" || dst == "bp" || dst == "bpl":
		s.setBP(op, src)
	case op == "lea" && s.sp.kind == atCFA:
		if d, ok := displacement(src, "rsp"); ok && dst != "rsp" {
			s.tmp = value{atCFA, s.sp.off + d}
		}
	}
	return true, 0
}

func (s *state) push(reg string) {
	s.sp.off -= 8
	r, ok := regNumber[reg]
	if ok && arch.AMD64.NonVolatile.Has(r) && s.slot[r] == 0 && s.sp.kind == atCFA {
		s.slot[r] = s.sp.off
	}
}

func (s *state) pop(reg string) {
	r, ok := regNumber[reg]
	if ok && s.slot[r] != 0 && s.slot[r] == s.sp.off {
		s.slot[r] = 0
		if r == arch.RBP {
			s.bp = value{}
		}
	}
	s.sp.off += 8
}

func (s *state) setSP(op, src string) {
	imm, err := strconv.ParseUint(src, 0, 64)
	d, fromBP := displacement(src, "rbp")
	switch {
	case op == "sub" && err == nil:
		s.sp.off -= int32(imm)
	case op == "add" && err == nil:
		s.sp.off += int32(imm)
	case op == "lea" && fromBP && s.bp.kind == atCFA:
		s.sp = value{atCFA, s.bp.off + d}
	case op == "mov" && s.tmp.kind == atCFA && src != "rbp":
		s.sp = s.tmp
	default:
		s.sp = value{kind: unknown}
	}
}

func (s *state) setBP(op, src string) {
	d, fromSP := displacement(src, "rsp")
	switch {
	case op == "lea" && fromSP && s.sp.kind == atCFA:
		s.bp = value{atCFA, s.sp.off + d}
	case op == "mov" && src == "rsp" && s.sp.kind == atCFA:
		s.bp = s.sp
	default:
		s.bp = value{kind: unknown}
	}
}

// follow interprets a function and returns the state before each of its
// instructions. Code without a direct path (targets of switch tables) is
// entered with the frame as the prolog left it.
func follow(code []insn, prolog arch.Addr) []state {
	states := make([]state, len(code))
	work := []int{0}
	states[0] = state{seen: true, sp: value{atCFA, -8}}
	body := states[0]
	index := func(a arch.Addr) (int, bool) {
		return slices.BinarySearchFunc(code, a, func(i insn, a arch.Addr) int { return int(int64(i.addr - a)) })
	}
	reach := func(i int, s state) {
		if i < len(code) && !states[i].seen {
			states[i] = s
			work = append(work, i)
		}
	}
	run := func() {
		for len(work) > 0 {
			i := work[len(work)-1]
			work = work[:len(work)-1]
			s := states[i]
			if code[i].addr == prolog {
				body = s
			}
			next, jump := s.exec(code[i].text)
			if next {
				reach(i+1, s)
			}
			if j, ok := index(jump); ok {
				reach(j, s)
			}
		}
	}
	run()
	for i := range code {
		if !states[i].seen && code[i].addr > prolog {
			reach(i, body)
			run()
		}
	}
	return states
}

// Values of the caller's registers; garbage is the value of everything that the
// step must not use.
const (
	oracleCFA = 0x7ffd_0000_0000
	oracleRet = 0x1122_3344
	garbage   = 0xdead_0000_dead
	stackSize = 4 << 20
)

func entryValue(r uint8) uint64 { return 0xcafe_0000 + uint64(r) }

// checker holds the synthetic stack.
type checker struct {
	stack target.Stack
}

func newChecker() *checker {
	c := &checker{}
	c.stack.Base = oracleCFA - stackSize
	c.stack.Data = make([]byte, stackSize+4096)
	for i := 0; i < len(c.stack.Data); i += 8 {
		binary.LittleEndian.PutUint64(c.stack.Data[i:], garbage)
	}
	c.put(-8, oracleRet)
	return c
}

func (c *checker) put(off int32, v uint64) {
	binary.LittleEndian.PutUint64(c.stack.Data[int64(stackSize)+int64(off):], v)
}

// check unwinds from ip in the state s and compares.
func (c *checker) check(im *r2rImage, f Function, ip arch.Addr, s *state) error {
	step, err := Compile(im, f, ip, nil)
	if err != nil {
		return err
	}
	place := func(v value) uint64 {
		if v.kind == atCFA {
			return oracleCFA + uint64(int64(v.off))
		}
		return garbage
	}
	ctx := arch.Context{Machine: arch.MachineAMD64, Valid: arch.AMD64.NonVolatile}
	for r := uint8(0); r < 16; r++ {
		switch {
		case s.slot[r] != 0:
			c.put(s.slot[r], entryValue(r))
			defer c.put(s.slot[r], garbage)
			ctx.Regs[r] = garbage
		default:
			ctx.Regs[r] = entryValue(r)
		}
	}
	ctx.Regs[arch.RSP] = place(s.sp)
	if s.bp.kind != entry {
		ctx.Regs[arch.RBP] = place(s.bp)
	}
	if err := step.Apply(&ctx, &c.stack); err != nil {
		return fmt.Errorf("%s: %w", describe(step), err)
	}
	if sp := ctx.Regs[arch.RSP]; sp != oracleCFA || ctx.IP != oracleRet {
		return fmt.Errorf("%s: sp is %d off, ip %v", describe(step), int64(sp-oracleCFA), ctx.IP)
	}
	for r := uint8(0); r < 16; r++ {
		if v, ok := ctx.Reg(r); arch.AMD64.NonVolatile.Has(r) && r != arch.RSP && (!ok || v != entryValue(r)) {
			return fmt.Errorf("%s: %s is %#x, %v", describe(step), arch.AMD64.RegNames[r], v, ok)
		}
	}
	return nil
}

// images are ReadyToRun images, by their paths in the kit.
var images = flag.String("images", "net9/shared/Microsoft.NETCore.App/9.0.5/System.Linq.Expressions.dll,"+
	"net10/System.Private.Xml.dll", "the `files` of the kit that TestEveryInstruction looks at")

func TestEveryInstruction(t *testing.T) {
	layer.Live(t)
	for name := range strings.SplitSeq(*images, ",") {
		t.Run(name, func(t *testing.T) {
			im := loadR2R(t, kitFile(t, name))
			everyInstruction(t, im, im.disassemble(t))
		})
	}
}

func everyInstruction(t *testing.T, im *r2rImage, code []insn) {
	c := newChecker()
	var instructions, bad, dynamic, unseen int
	for _, f := range im.funcs {
		cmp := func(i insn, a arch.Addr) int { return int(int64(i.addr - a)) }
		lo, ok := slices.BinarySearchFunc(code, f.Start, cmp)
		hi, _ := slices.BinarySearchFunc(code, f.End, cmp)
		if !ok || lo == hi {
			t.Errorf("%v: no instruction begins here", f.Start)
			continue
		}
		var head [4]byte
		if err := im.ReadMemory(head[:], f.UnwindInfo); err != nil {
			t.Fatal(err)
		}
		states := follow(code[lo:hi], f.Start+arch.Addr(head[1]))
		for i := range states {
			if !states[i].seen {
				unseen++
				continue
			}
			instructions++
			if states[i].sp.kind == unknown {
				dynamic++
			}
			in := code[lo+i]
			if err := c.check(im, f, in.addr, &states[i]); err != nil {
				if bad++; bad <= 20 {
					t.Errorf("%v+%#x %q: %v", f.Start, uint64(in.addr-f.Start), in.text, err)
				}
			}
		}
	}
	t.Logf("%d functions, %d instructions, %d wrong; not reached %d, rsp not known (stack allocation) at %d",
		len(im.funcs), instructions, bad, unseen, dynamic)
	if instructions < 10000 {
		t.Errorf("only %d instructions: the image was not read", instructions)
	}
}
