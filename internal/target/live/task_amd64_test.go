package live

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/arch/x86/x86asm"
)

// taskCode reads the tasks' machine code in the memory of the test.
type taskCode struct {
	wrong   []string
	depth   map[uintptr]int // bytes of stack of a function and its callees
	under   []string        // the calls that led to the current function
	started uintptr         // the code that begins a task; only this code may set R14
}

// maxTaskCode bounds one function.
const maxTaskCode = 1 << 16

// TestTaskCode checks the tasks' machine code by the rules of task.go. The code calls only
// functions of package live, so neither a stack check, nor a panic, nor a write barrier, nor a
// map, nor an allocation. It does not use the goroutine, and its deepest stack stays far above
// the stack's end.
func TestTaskCode(t *testing.T) {
	c := &taskCode{depth: map[uintptr]int{}}
	if c.started = c.leadsTo(cloneCode(), taskStart); c.started == 0 {
		t.Fatal("cloneTask does not lead to taskStart")
	}
	c.follow(c.started)
	most := 0
	for _, begin := range []func(*shared){beginWatchdog, watch, beginTracer, serve} {
		most = max(most, c.follow(entry(begin)))
	}
	for _, wrong := range c.wrong {
		t.Error(wrong)
	}
	t.Logf("%d functions, with %d bytes of stack at most", len(c.depth), most)
	if len(c.depth) < 30 {
		t.Errorf("only %d functions were found", len(c.depth))
	}
	if most > taskStack/16 {
		t.Errorf("they take %d bytes of stack", most)
	}
}

// TestTaskCodeIsRead: the checks recognise forbidden code.
func TestTaskCodeIsRead(t *testing.T) {
	for what, f := range map[string]func(*shared){
		"an index out of range": func(sh *shared) { sh.line[sh.step]++ },
		"a map":                 func(sh *shared) { sh.step = breakers[sh.step] },
		"a pointer":             func(sh *shared) { sh.one = &tracee{} },
		"a large frame":         func(sh *shared) { var b [1 << 16]byte; sh.one.poke(b[:]) },
		"a call of anything":    func(sh *shared) { breaker(sh) },
	} {
		c := &taskCode{depth: map[uintptr]int{}}
		if c.follow(entry(f)); len(c.wrong) == 0 {
			t.Errorf("%s is not noticed", what)
		} else {
			t.Logf("%s: %s", what, c.wrong[0])
		}
	}
}

var (
	breakers map[uint32]uint32
	breaker  func(*shared)
)

//go:noinline
func (t *tracee) poke(b []byte) { t.tid = uintptr(b[len(b)-1]) }

const (
	thisPackage = "clrsnap/internal/target/live."
	taskStart   = "taskStart" // of this package: file-local symbols have no package
)

// cloneCode is the address of the code of cloneTask.
func cloneCode() uintptr {
	f := cloneTask
	return **(**uintptr)(unsafe.Pointer(&f))
}

func (c *taskCode) report(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// leadsTo finds a function by its name among the callees from an address on.
func (c *taskCode) leadsTo(begin uintptr, want string) uintptr {
	seen := map[uintptr]bool{}
	for next := []uintptr{begin}; len(next) > 0; next = next[1:] {
		if name(next[0]) == want {
			return next[0]
		}
		for _, i := range c.function(next[0]) {
			to, ok := i.leaves(next[0])
			if _, known := i.target(); ok && known && !seen[to] {
				seen[to] = true
				next = append(next, to)
			}
		}
	}
	return 0
}

// name is the name of the function at an address; "" if there is none.
func name(pc uintptr) string {
	frames := runtime.CallersFrames([]uintptr{pc + 1})
	for {
		f, more := frames.Next()
		if !more {
			return f.Function // the other frames are inlined
		}
	}
}

// instruction is a decoded instruction with its address.
type instruction struct {
	x86asm.Inst
	at uintptr
}

func (i *instruction) String() string {
	return fmt.Sprintf("%#x in %s: %s", i.at, name(i.at), x86asm.GoSyntax(i.Inst, uint64(i.at), nil))
}

// target is the destination of a call or a jump; known: the destination is in the instruction.
func (i *instruction) target() (to uintptr, known bool) {
	rel, ok := i.Args[0].(x86asm.Rel)
	return i.at + uintptr(i.Len) + uintptr(int64(rel)), ok
}

func (i *instruction) isCall() bool { return i.Op == x86asm.CALL }
func (i *instruction) isJump() bool { return strings.HasPrefix(i.Op.String(), "J") }

// leaves reports whether the instruction leads out of the function that begins at an address.
func (i *instruction) leaves(function uintptr) (to uintptr, ok bool) {
	if !i.isCall() && !i.isJump() {
		return 0, false
	}
	to, known := i.target()
	return to, !known || i.isCall() || runtime.FuncForPC(to).Entry() != function
}

// function decodes a function.
func (c *taskCode) function(begin uintptr) (out []instruction) {
	text := unsafe.Slice(*(**byte)(unsafe.Pointer(&begin)), maxTaskCode) // our program's code, which stays
	for at := 0; at < maxTaskCode; {
		pc := begin + uintptr(at)
		if f := runtime.FuncForPC(pc); f == nil || f.Entry() != begin {
			break
		}
		if text[at] == 0xcc { // between functions
			at++
			continue
		}
		i, err := x86asm.Decode(text[at:], 64)
		if err != nil {
			c.report("%s: % x at %#x: %v", name(begin), text[at:at+8], pc, err)
			break
		}
		out = append(out, instruction{i, pc})
		at += i.Len
	}
	return out
}

// follow reads a function and its callees, and returns their use of stack, in bytes.
func (c *taskCode) follow(begin uintptr) int {
	if n, ok := c.depth[begin]; ok {
		if n < 0 {
			c.report("%s calls itself: %q", name(begin), c.under)
		}
		return n
	}
	c.depth[begin] = -1
	c.under = append(c.under, name(begin))
	own, below, frame := 0, 0, 0
	for _, i := range c.function(begin) {
		c.check(begin, &i)
		frame += grows(&i)
		own = max(own, frame)
		if to, ok := i.leaves(begin); ok {
			switch _, known := i.target(); {
			case !known: // check has reported the instruction
			case strings.HasPrefix(name(to), thisPackage), to == c.started:
				below = max(below, c.follow(to))
			default:
				c.report("%v: it leads out of this package, to %s", &i, name(to))
			}
		}
	}
	const returnAddress = 8
	c.under = c.under[:len(c.under)-1]
	c.depth[begin] = own + returnAddress + below
	return c.depth[begin]
}

// grows is an instruction's use of stack in a function's prologue.
func grows(i *instruction) int {
	switch {
	case i.Op == x86asm.PUSH:
		return 8
	case i.Op == x86asm.SUB && i.Args[0] == x86asm.RSP:
		if n, ok := i.Args[1].(x86asm.Imm); ok {
			return int(n)
		}
	case i.Op == x86asm.ADD && i.Args[0] == x86asm.RSP:
		if n, ok := i.Args[1].(x86asm.Imm); ok && n < 0 { // -128 is shorter than 128
			return -int(n)
		}
	}
	return 0
}

// check reports a forbidden instruction.
func (c *taskCode) check(function uintptr, i *instruction) {
	starts := function == c.started && function != 0
	if _, known := i.target(); (i.isCall() || i.isJump()) && !known && !starts {
		c.report("%v: it is not known what is called", i)
	}
	// After a call of assembly the compiler loads R14 with the goroutine again, which is nil
	// here: see taskStart. Any use of the goroutine would be another instruction.
	loads := i.Op == x86asm.MOV && i.Args[0] == x86asm.R14 && isThreadLocal(i.Args[1])
	clears := i.Op == x86asm.XOR && isR14(i.Args[0]) && isR14(i.Args[1]) && starts
	for _, arg := range i.Args {
		if m, ok := arg.(x86asm.Mem); (ok && (isR14(m.Base) || isR14(m.Index)) || isR14(arg)) && !loads && !clears {
			c.report("%v: it uses the goroutine", i)
		}
		if isThreadLocal(arg) && !loads {
			c.report("%v: it uses what another thread has for its own", i)
		}
	}
}

func isR14(arg x86asm.Arg) bool {
	switch arg {
	case x86asm.R14, x86asm.R14L, x86asm.R14W, x86asm.R14B:
		return true
	}
	return false
}

func isThreadLocal(arg x86asm.Arg) bool {
	m, ok := arg.(x86asm.Mem)
	return ok && (m.Segment == x86asm.FS || m.Segment == x86asm.GS)
}
