package heap

import (
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// A thread allocates from a piece of memory of its own, its allocation context, without asking the collector. Objects
// lie in it up to where the thread is; the rest is zero.
//
// Sources (dotnet/runtime): src/coreclr/gc/gcinterface.h (gc_alloc_context), vm/threads.h (Thread.m_alloc_context in
// .NET 8, RuntimeThreadLocals), gc/gc.cpp (fix_allocation_context, adjust_limit_clr).
type context struct {
	owner       arch.Addr // the Thread object
	next, limit arch.Addr // where the next object goes, and where the last one ends at most
	given       uint64    // bytes that the thread has been given in its life
	large       uint64    // bytes of large and of pinned objects, likewise
}

// The words of a gc_alloc_context, in bytes from its first (gcinterface.h).
const (
	contextLimit = 8
	contextBytes = 16
	contextLarge = 24
	contextLen   = 32

	contextGap = minSize // behind the limit, kept free for an object that fills what is left
	maxContext = 1 << 30
)

type contextLayout struct {
	Direct  uint32 `clr:"Thread.AllocContext,optional"` // .NET 8
	Locals  uint32 `clr:"Thread.RuntimeThreadLocals,optional"`
	Outer   uint32 `clr:"RuntimeThreadLocals.AllocContext,optional"`
	Inner   uint32 `clr:"EEAllocContext.GCAllocationContext,optional"` // .NET 10
	Pointer uint32 `clr:"GCAllocContext.Pointer,optional"`
	Limit   uint32 `clr:"GCAllocContext.Limit,optional"`
}

// known reports whether it is known where a thread's allocation context is.
func (l *contextLayout) known() bool {
	if l.Pointer == contract.Absent || l.Limit != l.Pointer+contextLimit {
		return false
	}
	return l.Direct != contract.Absent || l.Locals != contract.Absent && l.Outer != contract.Absent
}

// read reads the allocation context of a thread; false: it has none, or its memory makes no sense.
func (l *contextLayout) read(mem *target.Reader, thread arch.Addr) (context, bool) {
	at := thread + arch.Addr(l.Direct)
	if l.Direct == contract.Absent {
		locals, err := mem.Pointer(thread + arch.Addr(l.Locals))
		if err != nil || locals == 0 {
			return context{}, false
		}
		at = locals + arch.Addr(l.Outer)
		if l.Inner != contract.Absent {
			at += arch.Addr(l.Inner)
		}
	}
	var b [contextLen]byte
	if mem.ReadMemory(b[:], at+arch.Addr(l.Pointer)) != nil {
		return context{}, false
	}
	word := func(off int) uint64 { return binary.LittleEndian.Uint64(b[off:]) }
	c := context{
		owner: thread, next: arch.Addr(word(0)), limit: arch.Addr(word(contextLimit)),
		given: word(contextBytes), large: word(contextLarge),
	}
	sane := c.next <= c.limit && c.limit-c.next < maxContext && c.next%8 == 0 && c.limit < maxAddress
	return c, sane
}

// contexts returns the allocation contexts of some threads, by address. Threads that have none are left out, unless
// they were given memory before: then it is 0 where the next object goes.
func (l *contextLayout) contexts(mem *target.Reader, threads []arch.Addr) []context {
	var out []context
	for _, t := range threads {
		if c, ok := l.read(mem, t); ok && (c.next != 0 || c.given != 0 || c.large != 0) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b context) int {
		switch {
		case a.next < b.next:
			return -1
		case a.next > b.next:
			return 1
		}
		return 0
	})
	return out
}
