package amd64

import (
	"fmt"
	"math"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
)

// Function is an entry of a function table: a method body, a funclet or a
// fragment (RUNTIME_FUNCTION in src/coreclr/inc/clrnt.h).
type Function struct {
	Base        arch.Addr // base of the table's relative addresses
	Start, End  arch.Addr // the code: [Start, End)
	UnwindInfo  arch.Addr
	MethodStart arch.Addr // first instruction of the method that contains the entry
}

// Compile returns the step from ip, an address inside f, to the caller.
//
// mem has the code and the unwind information. sameMethod reports whether an
// address outside [f.Start, f.End) belongs to the same method (another fragment
// or funclet); sameMethod distinguishes a tail call from a jump inside the
// method and may be nil where methods are never split.
//
// Errors wrap unwind.ErrNoInfo (unreadable information) or unwind.ErrBadInfo
// (malformed information).
func Compile(mem target.Memory, f Function, ip arch.Addr, sameMethod func(arch.Addr) bool) (*unwind.Step, error) {
	s, err := compile(mem, f, ip, sameMethod)
	if err != nil {
		return nil, fmt.Errorf("unwinding %v by the information at %v: %w", ip, f.UnwindInfo, err)
	}
	return s, nil
}

func compile(mem target.Memory, f Function, ip arch.Addr, sameMethod func(arch.Addr) bool) (*unwind.Step, error) {
	if !ip.In(f.Start, f.End) || f.UnwindInfo == 0 {
		return nil, unwind.ErrNoInfo
	}
	c := code{start: f.Start, ip: ip}
	if err := c.read(mem, f.End); err != nil {
		return nil, fmt.Errorf("%w: %w", unwind.ErrNoInfo, err)
	}
	var room [24]op
	ops, err := prologOps(mem, f, uint64(ip-f.Start), room[:0])
	if err != nil {
		return nil, err
	}
	e := epilog{code: &c, f: &f, sameMethod: sameMethod, ops: ops}
	if fr, ok := e.recognise(); ok {
		s, err := fr.step()
		if err == nil {
			s.Epilog = true
		}
		return s, err
	}
	fr := frame{base: arch.RSP}
	if err := fr.undo(ops); err != nil {
		return nil, err
	}
	return fr.step()
}

// prologOps reads the unwind codes of f, including the codes of chained
// entries, and marks the codes that the prolog has executed before offset.
func prologOps(mem target.Memory, f Function, offset uint64, ops []op) ([]op, error) {
	info := f.UnwindInfo
	for depth := 0; ; depth++ {
		if depth > maxChain {
			return nil, fmt.Errorf("%w: chained more than %d times", unwind.ErrBadInfo, maxChain)
		}
		n := len(ops)
		_, more, next, err := readInfo(mem, f.Base, info, ops)
		if err != nil {
			return nil, err
		}
		ops = more
		for i := n; i < len(ops); i++ {
			o := &ops[i]
			// A fragment runs after the whole prolog of the entry to which the
			// fragment is chained.
			o.done = depth > 0 || offset >= uint64(o.at)
		}
		if next == 0 {
			return ops, nil
		}
		info = next
	}
}

// frame is the layout of a frame, relative to the register base.
type frame struct {
	base  uint8
	sp    int64 // the stack pointer as far as the prolog has been undone
	mask  arch.RegMask
	where [16]int64 // of the registers in mask
	mach  *machFrame
}

func (fr *frame) save(reg uint8, at int64) {
	// A register that a call does not preserve means nothing to the caller.
	if arch.AMD64.NonVolatile.Has(reg) {
		fr.mask |= 1 << reg
		fr.where[reg] = at
	}
}

// undo applies the codes of a prolog backwards, latest action first.
func (fr *frame) undo(ops []op) error {
	bottom := fr.anchor(ops)
	for i := range ops {
		o := &ops[i]
		if !o.done {
			continue
		}
		switch o.what {
		case pushed:
			fr.save(o.reg, fr.sp)
			fr.sp += 8
		case allocated:
			fr.sp += o.arg
		case framed:
			if o.reg != fr.base || fr.mask.Has(o.reg) {
				return fmt.Errorf("%w: two frame registers", unwind.ErrBadInfo)
			}
			fr.sp = -o.arg
		case saved:
			fr.save(o.reg, bottom+o.arg)
		case machine:
			fr.mach = &machFrame{ip: fr.sp + o.arg}
			return nil
		}
	}
	return nil
}

// anchor chooses the base register and returns the frame's base, to which saves
// by mov are relative (EstablisherFrame in unwinder.cpp). Once the prolog has
// set a frame register, the frame register is the anchor, because rsp moves
// when the method allocates on the stack. The prolog's later pushes and
// allocations lie a known distance below.
func (fr *frame) anchor(ops []op) (bottom int64) {
	below := int64(0)
	for i := range ops {
		o := &ops[i]
		if !o.done {
			continue
		}
		switch o.what {
		case pushed:
			below += 8
		case allocated:
			below += o.arg
		case framed:
			fr.base = o.reg
			fr.sp = -o.arg - below
			return -o.arg
		case machine:
			return 0
		}
	}
	return 0
}

// step is the frame in the common form of all unwinders: relative to the
// canonical frame address, the stack pointer before the call.
func (fr *frame) step() (*unwind.Step, error) {
	if fr.mach != nil {
		return fr.machStep(), nil
	}
	cfa := fr.sp + 8 // the call pushed the return address
	if !fits(cfa) {
		return nil, fmt.Errorf("%w: a frame of %d bytes", unwind.ErrBadInfo, cfa)
	}
	s := &unwind.Step{
		CFAReg: fr.base, SP: arch.RSP,
		CFAOff: int32(cfa), IPOff: -8, Keep: arch.AMD64.NonVolatile,
	}
	if n := fr.mask.Len(); n > 0 {
		s.Saved = make([]unwind.Saved, 0, n)
	}
	for reg := uint8(0); reg < 16; reg++ {
		if !fr.mask.Has(reg) {
			continue
		}
		off := fr.where[reg] - cfa
		if !fits(off) {
			return nil, fmt.Errorf("%w: register saved %d bytes away", unwind.ErrBadInfo, off)
		}
		s.Saved = append(s.Saved, unwind.Saved{Reg: reg, Off: int32(off)})
	}
	return s, nil
}

func fits(n int64) bool { return n >= math.MinInt32 && n <= math.MaxInt32 }
