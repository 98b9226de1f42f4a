package walk

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/unwind/insns"
)

// ownFramePointer reports whether a funclet sets up its method's frame pointer itself, and
// whether the frame pointer is set up in the state of s.
func (w *Walker) ownFramePointer(s *site, ip arch.Addr) (own, set bool, err error) {
	if w.arch.ReturnSlot < 0 {
		return false, false, nil
	}
	code := make([]byte, min(insns.MaxFuncletProlog, s.code.End-s.code.Start))
	if err := w.mem.ReadMemory(code, s.code.Start); err != nil {
		return false, false, err
	}
	from, own := insns.MethodFramePointer(code)
	if !own || ip < s.code.Start+arch.Addr(from) || s.step == nil {
		return own, false, nil
	}
	for _, r := range s.step.Saved {
		if r.Reg == w.arch.FP {
			return true, true, nil // pushed and not yet popped
		}
	}
	return true, false, nil
}
