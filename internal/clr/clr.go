// Package clr bundles the readers of one runtime from its sub-packages: code map, threads, methods and their names.
package clr

import (
	"errors"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/generics"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/ilmap"
	"clrsnap/internal/clr/inlining"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/pal"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// Needs are the contracts that this package and its sub-packages read, with the known versions. The versions of .NET
// 11 begin with a c, and count from 1 again: the ExecutionManager c1 of .NET 11 is version 2 of .NET 10. The c2 of
// EcmaMetadata and of StackWalk come after .NET 11. Both change parts outside the reach of clr: metadata under edit
// and continue, and the value classes that a GCFrame protects.
var Needs = map[string][]contract.Version{
	"ExecutionManager":  {"1", "2", "c1"},
	"Thread":            {"1", "c1"},
	"StackWalk":         {"1", "c1", "c2"},
	"RuntimeTypeSystem": {"0", "1", "c1"},
	"Loader":            {"0", "1", "c1"},
	"EcmaMetadata":      {"1", "c1", "c2"},
	"CodeVersions":      {"0", "1", "c1"},
	"Exception":         {"0", "1", "c1"},
	"Object":            {"1", "c1"},
}

// optional are the contracts that a walk of a runtime does not need, and the information that is missing without
// them. The packages that read the contracts know the versions.
var optional = []struct {
	name    string
	without string
	known   []contract.Version
}{
	{ilmap.Contract, "source lines and inlined methods", ilmap.Versions},
	{generics.Contract, "type arguments of generic methods", generics.Versions},
	{lock.Contract, "locks and what threads wait for", lock.Versions},
}

// Unknown is a contract with an unknown version in a runtime.
type Unknown struct {
	Contract string
	Without  string // the information that is missing because of the version
	Err      error  // names the version
}

func (u *Unknown) Error() string { return "without " + u.Without + ": " + u.Err.Error() }

// Unknown lists the unknown contracts of the runtime.
func (r *Runtime) Unknown() []Unknown {
	out := slices.Clone(r.unknown)
	var version *contract.UnknownVersionError
	if errors.As(r.Heap.Strange(), &version) {
		out = append(out, Unknown{version.Contract, "the heap, tasks and requests", version})
	}
	return out
}

// Runtime has the readers of one runtime. A Runtime is not safe for concurrent use.
type Runtime struct {
	Managed

	Code    *codemap.Map
	Chain   *thread.Chain
	Types   *types.System
	Methods *method.Reader
	Names   *name.Namer
	IL      *ilmap.Reader
	Inlined *inlining.Reader
	Generic *generics.Reader

	mem     *target.Reader
	meaning meaningLayout
	unknown []Unknown
}

// New binds a runtime to its data descriptor. If the runtime is unknown, the error names the missing part, or the
// contract with the unknown version.
func New(mem target.Memory, d *contract.Descriptor, a *arch.Arch) (*Runtime, error) {
	if err := d.Require(Needs); err != nil {
		return nil, err
	}
	r := Runtime{mem: target.NewReader(mem)}
	for _, c := range optional {
		if err := d.Allow(c.name, c.known...); err != nil {
			r.unknown = append(r.unknown, Unknown{c.name, c.without, err})
		}
	}
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
	if r.IL, err = ilmap.New(mem, d, r.Code); err != nil {
		return nil, err
	}
	if r.Inlined, err = inlining.New(mem, d, r.Code, r.Methods, r.Names); err != nil {
		return nil, err
	}
	if r.Generic, err = generics.New(mem, d, r.Code, r.Types, r.Methods, r.Names); err != nil {
		return nil, err
	}
	r.Methods.Attributes = r.Names.Attributes
	if err := d.Bind(&r.meaning); err != nil {
		return nil, err
	}
	if err := r.bindHeap(mem, d); err != nil {
		return nil, err
	}
	return &r, nil
}

// bindHeap binds the readers of the managed heap. A runtime with unknown locks can still be walked.
func (r *Runtime) bindHeap(mem target.Memory, d *contract.Descriptor) error {
	r.Seen = target.NewEvidence(mem)
	r.PAL = pal.New(r.Seen, mem)
	var err error
	if r.Heap, err = heap.New(mem, d); err != nil {
		return err
	}
	if r.Objects, err = object.New(r.Seen, d, r.Types, r.Names); err != nil {
		return err
	}
	r.Locks, err = lock.New(r.Seen, mem, d, r.Objects)
	_, lacks := errors.AsType[*contract.MissingError](err)
	if _, unknown := errors.AsType[*contract.UnknownVersionError](err); lacks || unknown {
		r.Locks, err = nil, nil
	}
	return err
}

// Begin starts a new moment: data that can change while the target runs is read again.
func (r *Runtime) Begin() {
	r.Names.Begin()
	r.Inlined.Begin()
}
