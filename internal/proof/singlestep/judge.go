package singlestep

import (
	"clrsnap/internal/walk"
)

// Verdict rates a walk.
type Verdict uint8

const (
	equal      Verdict = iota
	unsure             // equal, but the walk says that frames may be missing
	incomplete         // the walk says so, and its frames are true
	registers          // the frames are equal, a register of a frame is not
	wrong
	numVerdicts
)

var verdictNames = [numVerdicts]string{"equal", "equal, but said to be incomplete", "incomplete, and said so",
	"a register is wrong", "WRONG"}

func (v Verdict) String() string { return verdictNames[v] }

// seen is a frame that a walk reported.
type seen struct {
	ip, sp uint64
	exact  bool
	// managed: the walk took the frame for managed code.
	managed bool
	valid   [len(preserved)]bool
	saved   [len(preserved)]uint64
}

func see(f *walk.Frame, sp uint8) seen {
	s := seen{ip: uint64(f.IP()), sp: f.Context.Regs[sp], exact: f.Exact, managed: f.Kind == walk.Managed}
	for i, r := range preserved {
		s.saved[i], s.valid[i] = f.Context.Reg(r)
	}
	return s
}

// truth is the true stack of one moment, leaf first.
type truth struct {
	leaf   frame
	middle *frame  // destination of a leaf that was leaving, known later
	below  []frame // base first
	// moved reports whether a collection can have changed a reference from the
	// old value to the new, where a callee had saved the register with the
	// reference.
	moved func(old, new uint64) bool
}

func (t *truth) len() int {
	n := 1 + len(t.below)
	if t.middle != nil {
		n++
	}
	return n
}

func (t *truth) at(i int) *frame {
	if i == 0 {
		return &t.leaf
	}
	if t.middle != nil {
		if i == 1 {
			return t.middle
		}
		i--
	}
	return &t.below[len(t.below)-i]
}

func (t *truth) judge(got []seen, r walk.Result) Verdict {
	if !r.Complete {
		if len(got) == t.len() && t.same(got) {
			return unsure
		}
		if t.subsequence(got) {
			return incomplete
		}
		return wrong
	}
	switch {
	case len(got) != t.len() || !t.same(got):
		return wrong
	case !t.registers(got):
		return registers
	}
	return equal
}

func (t *truth) same(got []seen) bool {
	for i := range got {
		if f := t.at(i); got[i].ip != f.ip || got[i].sp != f.sp {
			return false
		}
	}
	return true
}

func (t *truth) subsequence(got []seen) bool {
	n := t.len()
	at := 0
	for i := range got {
		for ; at < n; at++ {
			if f := t.at(at); got[i].ip == f.ip && got[i].sp == f.sp {
				break
			}
		}
		if at == n {
			return false
		}
		at++
	}
	return true
}

// registers compares the preserved registers as far as both sides know them.
func (t *truth) registers(got []seen) bool {
	for i := range got {
		f := t.at(i)
		if !f.savedKnown {
			continue
		}
		for k := range preserved {
			if !got[i].valid[k] || got[i].saved[k] == f.saved[k] {
				continue
			}
			if t.moved == nil || !t.moved(f.saved[k], got[i].saved[k]) {
				return false
			}
			f.saved[k] = got[i].saved[k] // the new address is the truth from now on
		}
	}
	return true
}
