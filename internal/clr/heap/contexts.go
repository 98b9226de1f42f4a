package heap

import (
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// A thread allocates from its own piece of memory, the allocation context, without a call of the collector. Objects
// fill the context up to the thread's next object; the rest is zero.
//
// Sources (dotnet/runtime): src/coreclr/gc/gcinterface.h (gc_alloc_context), vm/threads.h (Thread.m_alloc_context in
// .NET 8, RuntimeThreadLocals), gc/gc.cpp (fix_allocation_context, adjust_limit_clr).
type context struct {
	owner       arch.Addr // the Thread object
	next, limit arch.Addr // start of the next object, and greatest end of the last object
	given       uint64    // bytes that the thread has been given in its life
	large       uint64    // bytes of large and of pinned objects, likewise
}

// The words of a gc_alloc_context, in bytes from the first word (gcinterface.h).
const (
	contextLimit = 8
	contextBytes = 16
	contextLarge = 24
	contextLen   = 32

	contextGap = minSize // free space behind the limit, for an object that fills the rest
	maxContext = 1 << 30
)

type contextLayout struct {
	Direct  uint32 `clr:"Thread.AllocContext,optional"` // .NET 8, and native AOT programs
	Locals  uint32 `clr:"Thread.RuntimeThreadLocals,optional"`
	Outer   uint32 `clr:"RuntimeThreadLocals.AllocContext,optional"`
	Inner   uint32 `clr:"EEAllocContext.GCAllocationContext,optional"` // .NET 10
	Pointer uint32 `clr:"GCAllocContext.Pointer,optional"`
	Limit   uint32 `clr:"GCAllocContext.Limit,optional"`
}

// known reports whether the place of a thread's allocation context is known.
func (l *contextLayout) known() bool {
	if l.Pointer == contract.Absent || l.Limit != l.Pointer+contextLimit {
		return false
	}
	return l.Direct != contract.Absent || l.Locals != contract.Absent && l.Outer != contract.Absent
}

// read reads the allocation context of a thread; false: there is no context, or the memory makes no sense.
func (l *contextLayout) read(mem *target.Reader, thread arch.Addr) (context, bool) {
	at := thread + arch.Addr(l.Direct)
	if l.Direct == contract.Absent {
		locals, err := mem.Pointer(thread + arch.Addr(l.Locals))
		if err != nil || locals == 0 {
			return context{}, false
		}
		at = locals + arch.Addr(l.Outer)
	}
	if l.Inner != contract.Absent {
		at += arch.Addr(l.Inner)
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

// contexts returns the allocation contexts of some threads, by address. Threads without a context are left out. But
// if a thread without a context was given memory before, contexts includes the thread with next 0.
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
