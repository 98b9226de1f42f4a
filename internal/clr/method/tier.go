package method

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/contract"
)

// Tier tells how a piece of code was compiled.
type Tier string

// The tiers have the names of the runtime's own diagnostics, if there are such names.
const (
	TierUnknown    Tier = ""
	Tier0          Tier = "tier-0"
	Tier0Instr     Tier = "tier-0 instrumented"
	Tier1          Tier = "tier-1"
	Tier1Instr     Tier = "tier-1 instrumented"
	TierOSR        Tier = "OSR"
	TierOptimized  Tier = "optimized" // compiled once, with full optimisation
	TierMinOpts    Tier = "minopts"   // compiled once, without optimisation: a debug build
	TierReadyToRun Tier = "ReadyToRun"
	TierDynamic    Tier = "dynamic"
	TierILStub     Tier = "IL stub"
)

const maxVersions = 1 << 10

// tiers by number (codeversion.h, enum NativeCodeVersion::OptimizationTier).
var tiers = [...]Tier{Tier0, Tier1, TierOSR, TierOptimized, Tier0Instr, Tier1Instr}

// Tier returns the tier of the code of m that begins at c.MethodStart.
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
	// No node: the default version. .NET 11 stores the default version's tier. In other runtimes, the default version
	// starts at the lowest tier if the method takes part in tiering at all. (The JIT optimises a few such methods at
	// once, for example methods with UnmanagedCallersOnly; the descriptor of .NET 10 has no field that would tell
	// them.)
	if m.flags3&flagTiered != 0 {
		return r.firstTier(m)
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

// firstTier returns the tier of the default version of a method that takes part in
// tiering.
func (r *Reader) firstTier(m *Method) (Tier, error) {
	if r.aggressive {
		return r.aggressiveTier(m)
	}
	if r.data.FirstTier == contract.Absent {
		return Tier0, nil
	}
	data, err := r.mem.Pointer(m.Desc + arch.Addr(r.data.CodeData))
	if err != nil {
		return TierUnknown, err
	}
	if data == 0 {
		return Tier0, nil
	}
	t, err := r.mem.Uint32(data + arch.Addr(r.data.FirstTier))
	if err != nil {
		return TierUnknown, err
	}
	if int(t) >= len(tiers) {
		return Tier0, nil // the tier was not yet decided when the code was compiled
	}
	return tiers[t], nil
}

// aggressiveTier: methods that ask for aggressive optimization begin and end at tier 1
// (tieredcompilation.cpp, GetInitialOptimizationTier).
func (r *Reader) aggressiveTier(m *Method) (Tier, error) {
	if r.Attributes == nil {
		return Tier0, nil
	}
	flags, err := r.Attributes(m)
	if err != nil {
		return TierUnknown, err
	}
	if flags&aggressiveOptimization != 0 {
		return Tier1, nil
	}
	return Tier0, nil
}

// aggressiveOptimization is MethodImplAttributes.AggressiveOptimization (corhdr.h,
// miAggressiveOptimization).
const aggressiveOptimization = 0x200

func (r *Reader) nodeTier(node arch.Addr) (Tier, error) {
	if r.l.NodeTier == contract.Absent {
		return TierUnknown, nil
	}
	t, err := r.mem.Uint32(node + arch.Addr(r.l.NodeTier))
	if err != nil || int(t) >= len(tiers) {
		return TierUnknown, err
	}
	return tiers[t], nil
}
