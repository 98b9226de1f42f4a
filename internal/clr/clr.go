// Package clr bundles what its sub-packages read of one runtime: its code map,
// its threads, its methods and what they are called.
package clr

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// Needs are the contracts that this package and its sub-packages read, with the
// versions whose meaning they know.
var Needs = map[string][]contract.Version{
	"ExecutionManager":  {"2"},
	"Thread":            {"1"},
	"StackWalk":         {"1"},
	"RuntimeTypeSystem": {"1"},
	"Loader":            {"1"},
	"EcmaMetadata":      {"1"},
	"CodeVersions":      {"1"},
	"Exception":         {"1"},
	"Object":            {"1"},
}

// Runtime is what can be read of one runtime. It is not safe for concurrent
// use.
type Runtime struct {
	Code    *codemap.Map
	Threads *thread.Store
	Chain   *thread.Chain
	Types   *types.System
	Methods *method.Reader
	Names   *name.Namer
}

// New binds a runtime to its data descriptor. The error of a runtime that is not
// understood names what is missing or of which version.
func New(mem target.Memory, d *contract.Descriptor, a *arch.Arch) (*Runtime, error) {
	if err := d.Require(Needs); err != nil {
		return nil, err
	}
	var r Runtime
	var err error
	if r.Code, err = codemap.New(mem, d); err != nil {
		return nil, err
	}
	if r.Threads, err = thread.NewStore(mem, d); err != nil {
		return nil, err
	}
	if r.Chain, err = thread.NewChain(d, a); err != nil {
		return nil, err
	}
	if r.Types, err = types.New(mem, d); err != nil {
		return nil, err
	}
	if r.Methods, err = method.New(mem, d, r.Types); err != nil {
		return nil, err
	}
	if r.Names, err = name.New(mem, d, r.Types, r.Methods); err != nil {
		return nil, err
	}
	return &r, nil
}

// Begin starts a new moment: what can change while the target runs is looked at
// afresh.
func (r *Runtime) Begin() { r.Names.Begin() }
