package singlestep

import (
	"fmt"

	"clrsnap/internal/arch"
)

// The stepped runtime has no symbols. Its functions in assembly, which make a walk
// hard, are recognised by their behaviour during stepping; from then on each part of
// a recognised function is a shape.
const (
	tripName     = "OnHijackTripThread"
	restoreName  = "a function that restores a context"
	replaceName  = "JIT_Patchpoint, replacing a method on the stack"
	unlistedName = "a function in assembly whose pushes are not in its call frame information"
)

// learn records a recognised function: the current function, or the function just
// left.
func (r *runner) learn(t *transition, before *counts) {
	now := &r.sh.count
	switch {
	case now.hijacks > before.hijacks:
		r.corpus.know(r, t.after.Rip, tripName)
	case now.leavings > before.leavings:
		r.corpus.know(r, t.before.Rip, restoreName)
	case now.replaced > before.replaced:
		r.corpus.know(r, t.before.Rip, replaceName)
	case t.in.shape == pushes && r.unlisted(t):
		r.corpus.know(r, t.before.Rip, unlistedName)
	}
}

// unlisted reports whether the function has just pushed a preserved register at
// its beginning, while its call frame information does not mention the push.
func (r *runner) unlisted(t *transition) bool {
	at := arch.Addr(t.after.Rip)
	mod := r.eng.Modules.Find(at)
	if mod == nil {
		return false
	}
	start, ok := mod.Function(at)
	if !ok || at-start > maxProlog {
		return false
	}
	first, err1 := mod.Step(start)
	st, err2 := mod.Step(at)
	const called = 8 // bytes of a return address
	if err1 != nil || err2 != nil || first.CFAOff != called || st.CFAReg != r.eng.Arch.SP {
		return false
	}
	pushed, ok := r.view.word(t.after.Rsp)
	if !ok {
		return false
	}
	for i, v := range preservedOf(t.before) {
		if v != pushed || !st.Keep.Has(preserved[i]) {
			continue
		}
		return isPush(t.code[:], preserved[i])
	}
	return false
}

// isPush reports whether code is a push of the register.
func isPush(code []byte, reg uint8) bool {
	if code[0] == 0x41 {
		return code[1] == 0x50+reg&7 && reg >= 8
	}
	return code[0] == 0x50+reg && reg < 8
}

// know remembers a function by its place in its module. The place is the same
// in every process.
func (c *Corpus) know(r *runner, ip uint64, name string) {
	key, _, ok := r.function(ip)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.odd[key] == "" {
		c.odd[key] = name
	}
}

// oddity names the executing function, if recognised.
func (r *runner) oddity() string {
	key, _, ok := r.function(r.view.regs.Rip)
	if !ok {
		return ""
	}
	r.corpus.mu.Lock()
	defer r.corpus.mu.Unlock()
	switch name := r.corpus.odd[key]; name {
	case unlistedName, restoreName:
		return fmt.Sprintf("%s (%s)", name, key)
	default:
		return name
	}
}

// function returns the module and offset of a native function as text, and its
// address.
func (r *runner) function(ip uint64) (key string, start uint64, ok bool) {
	at := arch.Addr(ip)
	mod := r.eng.Modules.Find(at)
	if mod == nil || mod.InPLT(at) {
		return "", 0, false
	}
	from, ok := mod.Function(at)
	if !ok {
		return "", 0, false
	}
	return fmt.Sprintf("%s+%#x", mod.Name, mod.Offset(from)), uint64(from), true
}
