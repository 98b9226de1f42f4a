package method

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
)

// Tier says how a piece of code was compiled.
type Tier string

// The tiers, named as the runtime's own diagnostics name them where they do.
const (
	TierUnknown    Tier = ""
	Tier0          Tier = "tier-0"
	Tier0Instr     Tier = "tier-0 instrumented"
	Tier1          Tier = "tier-1"
	Tier1Instr     Tier = "tier-1 instrumented"
	TierOSR        Tier = "OSR"
	TierOptimized  Tier = "optimized" // compiled once, with full optimisation
	TierMinOpts    Tier = "minopts"   // compiled once, without any: a debug build
	TierReadyToRun Tier = "ReadyToRun"
	TierDynamic    Tier = "dynamic"
	TierILStub     Tier = "IL stub"
)

// nodeTier is NativeCodeVersionNode::m_optTier (codeversion.h): the field after
// the node's own 32-bit id, which follows the pointer to the next node. The
// data descriptor of .NET 10 does not name it; it is only believed where the
// fields around it lie as they do there.
const (
	nodeTier      = 36
	nodeTierNext  = 24
	nodeTierFlags = 52
	nodeTierILVer = 16

	maxVersions = 1 << 10
)

// tiers by number (codeversion.h, enum NativeCodeVersion::OptimizationTier).
var tiers = [...]Tier{Tier0, Tier1, TierOSR, TierOptimized, Tier0Instr, Tier1Instr}

// Tier returns how the code of m that begins at c.MethodStart was compiled.
func (r *Reader) Tier(m *Method, c *codemap.Code) (Tier, error) {
	if c.Kind == codemap.ReadyToRun {
		return TierReadyToRun, nil
	}
	if m.Class == Dynamic {
		d, err := r.mem.Uint32(m.Desc + arch.Addr(r.l.DynFlags))
		if err != nil {
			return TierUnknown, err
		}
		if d&flagLCG == 0 {
			return TierILStub, nil
		}
		return TierDynamic, nil
	}
	node, err := r.firstVersion(m)
	if err != nil {
		return TierUnknown, err
	}
	for n := 0; node != 0 && n < maxVersions; n++ {
		code, err := r.mem.Pointer(node + arch.Addr(r.l.NodeCode))
		if err != nil {
			return TierUnknown, err
		}
		if code == c.MethodStart {
			return r.nodeTier(node)
		}
		if node, err = r.mem.Pointer(node + arch.Addr(r.l.NodeNext)); err != nil {
			return TierUnknown, err
		}
	}
	// No node: the default version. It starts at the lowest tier if the method
	// takes part in tiering at all. (A few such methods the JIT optimises at once,
	// those marked UnmanagedCallersOnly for example; nothing that the descriptor
	// of .NET 10 names tells them.)
	if m.flags3&flagTiered != 0 {
		return Tier0, nil
	}
	flags, err := r.mem.Uint32(m.Module + arch.Addr(r.l.ModFlags))
	if err != nil {
		return TierUnknown, err
	}
	if flags&moduleOptimizes == 0 {
		return TierMinOpts, nil
	}
	return TierOptimized, nil
}

// moduleOptimizes is set in Module.Flags unless the assembly asks for code
// without optimisation (ceeload.h, DEBUGGER_INFO_SHIFT_PRIV; cordebuginfo.h,
// DACF_ALLOW_JIT_OPTS).
const moduleOptimizes = 0x800

func (r *Reader) firstVersion(m *Method) (arch.Addr, error) {
	data, err := r.mem.Pointer(m.Desc + arch.Addr(r.l.CodeData))
	if err != nil || data == 0 {
		return 0, err
	}
	state, err := r.mem.Pointer(data + arch.Addr(r.l.Versioning))
	if err != nil || state == 0 {
		return 0, err
	}
	return r.mem.Pointer(state + arch.Addr(r.l.FirstNode))
}

func (r *Reader) nodeTier(node arch.Addr) (Tier, error) {
	if r.l.NodeNext != nodeTierNext || r.l.NodeFlags != nodeTierFlags || r.l.NodeILVer != nodeTierILVer {
		return TierUnknown, nil
	}
	t, err := r.mem.Uint32(node + nodeTier)
	if err != nil || int(t) >= len(tiers) {
		return TierUnknown, err
	}
	return tiers[t], nil
}
