package singlestep

import (
	"fmt"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"

	"golang.org/x/sys/unix"
)

// shapes names, in plain words, the shapes of the moment after an instruction:
// the leaf and its executing part, the runtime's changes to the stack, and the
// history of the stack.
func (r *runner) shapes(t *transition, tr *truth) []string {
	var s []string
	add := func(name string) {
		if name != "" {
			s = append(s, name)
		}
	}
	add(r.hijackShape(t))
	add(r.cloneShape(t))
	s = append(s, r.signalShapes(t)...)
	if r.sh.leaving {
		add("a leaf has given up its frame and has not left, " + r.leafClass())
	}
	s = append(s, r.leafShapes(t, tr)...)
	add(r.modeShape())
	add(r.exceptionShape())
	add(r.layersShape())
	return s
}

// part says which part of a function is about to execute, by the forms of its
// first and its last instructions.
func (r *runner) part(t *transition, start uint64) string {
	ip := t.after.Rip
	next := classify(r.view.code[:])
	switch {
	case ip == start:
		return "at its first instruction"
	case next.class == ret:
		return "at its ret"
	case next.shape == pops || next.shape == leaves:
		return "in its epilog, at a pop"
	case t.in.shape == pushes && t.before.Rip == start:
		return "behind its first push"
	case next.shape == pushes && ip-start < maxProlog,
		next.shape == makesRoom && ip-start < maxProlog, t.in.shape == pushes && ip-start < maxProlog:
		return "in its prolog"
	}
	return "in its body"
}

// leafPart begins the name of a very common shape.
const leafPart = "leaf: "

// maxProlog is how far from a function's start pushes belong to its prolog, in
// bytes.
const maxProlog = 48

// leafShapes are the shapes of the executing code.
func (r *runner) leafShapes(t *transition, tr *truth) []string {
	p := r.rep.coverage.ips[t.after.Rip]
	if p == nil {
		return nil
	}
	code, err := r.eng.Runtime.Code.Lookup(arch.Addr(t.after.Rip))
	switch {
	case err != nil:
		return nil
	case code.Kind.Managed():
		kind := strings.TrimPrefix(p.kind, "managed: ")
		if code.Funclet {
			kind = "funclet"
		}
		part := r.part(t, uint64(code.Start))
		kind = strings.TrimSuffix(kind, " instrumented") // the same for a walk
		out := []string{leafPart + kind + " code " + part}
		if n := activations(r, tr, code.MethodStart); code.Funclet && n > deepRecursion {
			out = append(out, "funclet of a recursive method "+part)
		}
		return out
	case strings.HasPrefix(p.kind, "native: "):
		return []string{r.nativeShape(t, p.kind)}
	}
	return []string{p.kind}
}

// deepRecursion is how many frames of one method make a recursion.
const deepRecursion = 3

func activations(r *runner, tr *truth, method arch.Addr) (n int) {
	for i := range tr.len() {
		if c, err := r.eng.Runtime.Code.Lookup(arch.Addr(tr.at(i).ip)); err == nil && c.MethodStart == method {
			n++
		}
	}
	return n
}

// nativeShape: functions in assembly one by one, and compiled functions
// together.
func (r *runner) nativeShape(t *transition, kind string) string {
	if kind == "native: PLT" {
		return "PLT entry"
	}
	_, start, ok := r.function(t.after.Rip)
	if !ok {
		return "native code without call frame information"
	}
	if name := r.oddity(); name != "" {
		return name + " " + r.part(t, start) + r.aroundCall(t)
	}
	name := r.symbol()
	for _, family := range [...]string{"longjmp", "restore_rt"} {
		if strings.Contains(name, family) {
			return name + " " + r.part(t, start)
		}
	}
	return leafPart + "compiled native code " + r.part(t, start)
}

// aroundCall says where in its body a function stands beside a call.
func (r *runner) aroundCall(t *transition) string {
	switch {
	case classify(r.view.code[:]).class == call:
		return ", before a call"
	case t.in.class == ret:
		return ", behind a call"
	}
	return ""
}

func (r *runner) symbol() string {
	at := arch.Addr(r.view.regs.Rip)
	if mod := r.eng.Modules.Find(at); mod != nil {
		if sym, _, ok := mod.Symbol(at); ok {
			return sym.Short
		}
	}
	return ""
}

// hijackShape: the runtime has put its own address in place of a return
// address. The flag in the thread's state lags behind the stack both ways.
func (r *runner) hijackShape(t *transition) string {
	flag := "flag not set"
	if r.thread.Info.Hijacked() {
		flag = "flag set"
	}
	if top := r.sh.top(); t.in.class == ret && top != nil && top.hijacked && top.slot() == t.before.Rsp {
		return "hijacked: the ret has gone to " + tripName + ", " + flag
	}
	for i := len(r.sh.frames) - 1; i >= 0; i-- {
		f := &r.sh.frames[i]
		if f.exact || f.stack != r.view.current {
			continue
		}
		ip, ok := r.view.stack.Uint64(arch.Addr(f.slot()))
		if !ok || ip == f.ip {
			continue
		}
		where := "native code executes"
		if i == len(r.sh.frames)-1 {
			where = "its callee executes"
		}
		return "hijacked: return address overwritten, " + where + ", " + flag
	}
	return ""
}

// cloneShape: the system call that makes a thread, in the old thread and in the
// new.
func (r *runner) cloneShape(t *transition) string {
	makes := func(nr uint64) bool { return nr == unix.SYS_CLONE || nr == unix.SYS_CLONE3 }
	tail := isCloneCode(r.view.code[:])
	switch next := classify(r.view.code[:]); {
	case next.class == enter && makes(t.after.Rax):
		return "thread creation: before the system call"
	case t.in.class == enter && makes(t.before.Rax):
		return "thread creation: behind the system call, in the old thread"
	case r.sh.top() == nil && tail:
		return "thread creation: behind the system call, in the new thread"
	}
	return ""
}

// isCloneCode: je, ret, xor ebp, ebp.
func isCloneCode(code []byte) bool {
	return code[0] == 0x74 && code[1] == 1 && code[2] == 0xc3 && code[3] == 0x31 && code[4] == 0xed
}

// signalShapes: a signal handler, and where it runs.
func (r *runner) signalShapes(t *transition) []string {
	if t.delivered != 0 {
		return []string{fmt.Sprintf("signal: the first instruction of the handler for signal %d", t.delivered)}
	}
	var out []string
	for i := range r.sh.frames {
		switch f := &r.sh.frames[i]; {
		case f.origin == placed:
			out = append(out,
				"signal: a fault is handled on the stack that it happened on, below a frame built by hand")
		case f.exact && f.stack == r.view.current:
			out = append(out, "signal: the interrupted frame is on the same stack")
		case f.exact:
			out = append(out, "signal: the handler runs on a stack of its own")
		}
	}
	return out
}

// modeShape: the thread's mode according to the runtime, and the leaf's kind of
// code.
func (r *runner) modeShape() string {
	info := &r.thread.Info
	if info.Address == 0 {
		return "no thread of the runtime"
	}
	mode := "preemptive"
	if info.Cooperative {
		mode = "cooperative"
	}
	kind, ok := r.eng.Runtime.Chain.Kind(r.thread.Stack, info.Frame)
	if !ok {
		return mode + " mode, no explicit Frame, " + r.leafClass()
	}
	return "newest Frame " + kind.String()
}

// leafClass: managed code, or not.
func (r *runner) leafClass() string {
	code, err := r.eng.Runtime.Code.Lookup(arch.Addr(r.view.regs.Rip))
	switch {
	case err != nil || code.Kind == codemap.None:
		return "native leaf"
	case code.Kind.Managed():
		return "managed leaf"
	}
	return "stub leaf"
}

func (r *runner) exceptionShape() string {
	switch {
	case r.thread.Info.Exception == 0:
		return ""
	case r.thread.UnwoundHigh != 0:
		return "exception in flight that has unwound frames, " + r.leafClass()
	}
	return "exception in flight, " + r.leafClass()
}

// layersShape: managed code that native code has called back, and so on.
func (r *runner) layersShape() string {
	layers, managed := 0, false
	for i := range r.got {
		if m := r.got[i].managed; m != managed {
			managed = m
			layers++
		}
	}
	const plain = 4 // native leaf, managed code, native code that called the managed code
	if layers < plain {
		return ""
	}
	return fmt.Sprintf("managed code between native code, %d changes", layers)
}
