package clr

import (
	"clrsnap/internal/arch"
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

	places func(mt arch.Addr) ([]uint32, error) // of Ahead
}

// InfoRange returns the memory with which lock.Store.Info tells the Lock that a thread waits for, by the address of
// the Thread. The caller must copy the memory at the same moment as the stack of the thread. false: the place of the
// memory is not known.
func (m *Managed) InfoRange(of arch.Addr) (target.Range, bool) {
	if block, ok := m.Threads.Block(of); ok {
		return m.Locks.InfoIn(block.At, block.Size, block.Low, block.High)
	}
	return m.Locks.InfoRange(m.Threads.LocalData(of), m.Threads.StringType())
}

// NeedsAhead are the contracts of the runtime of a native AOT program that are read, with the known versions. Version
// n1 is .NET 11.
var NeedsAhead = map[string][]contract.Version{"Thread": {"n1"}, "Object": {"n1"}}

// Ahead has what a native AOT program says of its own types.
type Ahead struct {
	Types object.Types // nil: not known
	// Statics lists the objects with the static fields of classes.
	Statics func() ([]arch.Addr, error)
	// Places returns the offsets of the references in objects of a class, in bytes from the start of an object.
	Places func(mt arch.Addr) ([]uint32, error)
}

// maxThreadObjects bounds the static fields of one thread in one object.
const maxThreadObjects = 1 << 16

// ThreadObjects returns the objects to which the static fields of a thread of a native AOT program refer. The fields
// have no names. Fields that cannot be read are left out.
func (m *Managed) ThreadObjects(of arch.Addr) (out []arch.Addr) {
	if m.places == nil || m.Objects == nil {
		return nil
	}
	for _, block := range m.Threads.Blocks(of) {
		class, err := m.Objects.Class(block)
		if err != nil {
			continue
		}
		places, err := m.places(class.Table)
		if err != nil {
			continue
		}
		for _, off := range places[:min(len(places), maxThreadObjects)] {
			if to, err := m.Objects.Word(block + arch.Addr(off)); err == nil && to != 0 {
				out = append(out, to)
			}
		}
	}
	return out
}

// NewAhead binds the runtime of a native AOT program to its data descriptor.
func NewAhead(mem target.Memory, d *contract.Descriptor, a Ahead) (*Managed, error) {
	if err := d.Require(NeedsAhead); err != nil {
		return nil, err
	}
	m := &Managed{Seen: target.NewEvidence(mem), places: a.Places}
	m.PAL = pal.New(m.Seen, mem)
	var err error
	if m.Threads, err = thread.NewStore(mem, d); err != nil {
		return nil, err
	}
	if m.Heap, err = heap.New(mem, d); err != nil || a.Types == nil {
		return m, err
	}
	if m.Objects, err = object.NewOf(m.Seen, d, a.Types); err != nil {
		m.Objects = nil
		return m, nil
	}
	if locks, err := lock.NewAhead(m.Seen, mem, d, m.Objects, a.Statics); err == nil {
		m.Locks = locks
	}
	return m, nil
}
