package clr

import (
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/pal"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// Managed has the readers of what all runtimes of .NET have: CoreCLR, and the runtime of native AOT programs. Code
// that needs no more than that works for both.
type Managed struct {
	Threads *thread.Store

	// Seen is the memory that Objects, Locks and PAL read.
	Seen    *target.Evidence
	Heap    *heap.Reader
	Objects *object.Reader // nil: the classes of objects are not known
	Locks   *lock.Store    // nil: the layout of the runtime's locks is not known
	PAL     *pal.Reader
}

// NeedsAhead are the contracts of the runtime of a native AOT program that are read, with the known versions. Version
// n1 is .NET 11.
var NeedsAhead = map[string][]contract.Version{"Thread": {"n1"}, "Object": {"n1"}}

// NewAhead binds the runtime of a native AOT program to its data descriptor.
func NewAhead(mem target.Memory, d *contract.Descriptor) (*Managed, error) {
	if err := d.Require(NeedsAhead); err != nil {
		return nil, err
	}
	m := &Managed{Seen: target.NewEvidence(mem)}
	m.PAL = pal.New(m.Seen, mem)
	var err error
	if m.Threads, err = thread.NewStore(mem, d); err != nil {
		return nil, err
	}
	m.Heap, err = heap.New(mem, d)
	return m, err
}
