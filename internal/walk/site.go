package walk

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/module"
	"clrsnap/internal/unwind"
)

// site is the knowledge about an instruction pointer: the owner of the code, and the step to the
// caller.
type site struct {
	kind  siteKind
	step  *unwind.Step // of managed code, and of native code with unwind information
	code  codemap.Code
	mod   *module.Module
	epoch uint32 // when unloadable code was last checked

	byCode *byCode // of native code without unwind information: nil until needed

	traits  traits
	trained bool // traits are known

	returns answer // whether a call lies before the ip
	note    uint32 // see Frame.Note
	entry   bool   // of siteTrip: the first instruction
	built   bool   // the frame was built by hand, to lead to an instruction that a signal has interrupted
}

// answer is the cached answer to a question that is expensive to answer.
type answer uint8

const (
	unknown answer = iota
	yes
	no
)

// traits decide whether a managed frame is reported. They are looked up on first use.
type traits struct {
	filter, hidden, machinery bool
	ownFP, setFP              bool // of a funclet: see ownFramePointer
}

type siteKind uint8

const (
	siteManaged siteKind = iota
	siteNative           // a native module's code
	siteStub             // known to the code map, without unwind information
	siteHelper           // of no module and not in the code map: code that the runtime copied or made
	siteTrip             // native code: the helper that hijacked returns lead to
	siteJump             // native code: about to jump to a restored context
)

func (s *site) frameKind() Kind {
	switch s.kind {
	case siteManaged:
		return Managed
	case siteStub, siteHelper:
		return Stub
	}
	return Native
}

// lookup finds the site of an ip, or nil where there is no code. A site in unloadable code is
// valid for one moment only: other code, even of the same size and with the same addresses of
// header and MethodDesc, may take its place.
func (w *Walker) lookup(ip arch.Addr, exact bool) (*site, error) {
	if ip>>userBits != 0 {
		return nil, nil
	}
	key := siteKey(uint64(ip), exact)
	if s := w.sites.get(key); s != nil && (!s.code.Collectible || s.epoch == w.epoch) {
		return s, nil
	}
	s, err := w.find(ip, exact)
	if s == nil || err != nil {
		return nil, err // never cached: code may appear at any time
	}
	s.epoch = w.epoch
	w.sites.put(key, s)
	return s, nil
}

// userBits bounds the bits of a user program's address (57 with five-level page tables).
const userBits = 57

func (w *Walker) find(ip arch.Addr, exact bool) (*site, error) {
	c, err := w.code.Lookup(ip)
	if err != nil {
		return nil, err
	}
	switch {
	case c.Kind.Managed():
		step, err := w.compile(&c, ip)
		if err != nil {
			return nil, err
		}
		if c.Funclet {
			// A funclet overwrites registers that its method does not need any more, and saves
			// none of them. Only the frame pointer is the method's.
			step.Keep &= 1 << w.arch.FP
		}
		return &site{kind: siteManaged, code: c, step: step}, nil
	case c.Kind == codemap.Stub:
		return &site{kind: siteStub, code: c}, nil
	}
	mod := w.modules.Find(ip)
	if mod == nil {
		return nil, nil
	}
	pc := ip
	if !exact {
		pc--
	}
	step, err := mod.Step(pc)
	if err != nil && !errors.Is(err, unwind.ErrNoInfo) {
		return nil, err
	}
	s := &site{kind: siteNative, mod: mod, step: step}
	w.amend(s, pc, exact)
	return s, nil
}

// isCode reports whether there is code at ip.
func (w *Walker) isCode(ip arch.Addr) bool {
	s, err := w.lookup(ip, false)
	return err == nil && s != nil
}

// isManaged reports whether ip lies in a method's code.
func (w *Walker) isManaged(ip arch.Addr) bool {
	s, err := w.lookup(ip, false)
	return err == nil && s != nil && s.kind == siteManaged
}

// isReturn reports whether ip can be a return address: there is code at ip, and a call before ip.
func (w *Walker) isReturn(ip arch.Addr) bool {
	if !w.isCode(ip) {
		return false
	}
	var code [7]byte
	at, ok := ip.Offset(-int64(len(code)))
	return ok && w.mem.ReadMemory(code[:], at) == nil && w.arch.EndsInCall(code[:])
}

// trait returns the traits of a managed frame's code.
func (w *Walker) trait(s *site, ip arch.Addr) (traits, error) {
	if s.trained {
		return s.traits, nil
	}
	filter, err := w.code.IsFilter(&s.code)
	if err != nil {
		return traits{}, err
	}
	hidden, machinery, err := w.methods.Hidden(s.code.MethodDesc)
	if err != nil {
		return traits{}, err
	}
	t := traits{filter: filter, hidden: hidden, machinery: machinery}
	if s.code.Funclet && !filter {
		if t.ownFP, t.setFP, err = w.ownFramePointer(s, ip); err != nil {
			return traits{}, err
		}
	}
	s.traits, s.trained = t, true
	return s.traits, nil
}
