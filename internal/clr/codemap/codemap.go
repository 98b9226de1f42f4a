// Package codemap finds the code of an instruction pointer. It reads the runtime's own index of code, from the
// outside.
//
// Sources (dotnet/runtime): docs/design/datacontracts/ExecutionManager.md, src/coreclr/vm/codeman.h (RangeSectionMap,
// RangeSection, HeapList, RealCodeHeader), nibblemapmacros.h, readytoruninfo.h and hash.h (HashMap).
//
// The index has three levels. The range section map, a radix tree over addresses, yields the RangeSection of an
// address. There are three kinds of section. In a ReadyToRun image, a binary search in the function table finds the
// function. In a code heap of the JIT, a nibble map leads from any address to the start of the code, and from there
// to the code header. A list of stubs only tells that an address belongs to a stub.
//
// All memory is hostile: lists are bounded, arithmetic is checked, and a failed read is an error, never a zero.
package codemap

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// Kind is the kind of code that an address lies in.
type Kind uint8

// The kinds of code. None is code outside the runtime's map: native code, or helpers that the runtime copied to its
// own memory.
const (
	None Kind = iota
	JIT
	ReadyToRun
	Stub
)

func (k Kind) String() string {
	return [...]string{"none", "JIT", "ReadyToRun", "stub"}[k&3]
}

// Managed reports whether the code is a method body or a funclet.
func (k Kind) Managed() bool { return k == JIT || k == ReadyToRun }

// Code describes the code that an address lies in.
type Code struct {
	Kind        Kind
	Funclet     bool // not the method's main body: a catch, finally, fault or filter body
	Collectible bool // can be unloaded: look the code up again at every moment
	StubKind    uint8

	// Of the entry in the function table that covers the address: a method body, a funclet, or a part of a body or
	// funclet. Zero for stubs.
	Start, End arch.Addr
	Base       arch.Addr // the base of the unwind information's RVAs
	UnwindInfo arch.Addr

	MethodStart arch.Addr // entry point of the method's body; the stub's start if known
	MethodDesc  arch.Addr // the FunctionID; zero for stubs
	header      arch.Addr // RealCodeHeader of JIT code
	image       *image    // of ReadyToRun code
}

// ErrCorrupt: the runtime's structures contradict each other. They were overwritten, are half written, or have
// another layout than assumed.
var ErrCorrupt = errors.New("the runtime's code map is inconsistent")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// Map is the code map of one runtime. A Map is not safe for concurrent use.
type Map struct {
	mem    *target.Reader
	l      layout
	linear bool // words of nibble maps are never distances
	images map[arch.Addr]*image
	known  lasting
}

type layout struct {
	TopMap arch.Addr `global:"ExecutionManagerCodeRangeMapAddress"`

	FragBegin   uint32 `clr:"RangeSectionFragment.RangeBegin"`
	FragEnd     uint32 `clr:"RangeSectionFragment.RangeEndOpen"`
	FragSection uint32 `clr:"RangeSectionFragment.RangeSection"`
	FragNext    uint32 `clr:"RangeSectionFragment.Next"`

	SecBegin  uint32 `clr:"RangeSection.RangeBegin"`
	SecEnd    uint32 `clr:"RangeSection.RangeEndOpen"`
	SecDelete uint32 `clr:"RangeSection.NextForDelete"`
	SecFlags  uint32 `clr:"RangeSection.Flags"`
	SecHeap   uint32 `clr:"RangeSection.HeapList"`
	SecR2R    uint32 `clr:"RangeSection.R2RModule"`

	HeapStart  uint32 `clr:"CodeHeapListNode.StartAddress"`
	HeapEnd    uint32 `clr:"CodeHeapListNode.EndAddress"`
	HeapBase   uint32 `clr:"CodeHeapListNode.MapBase"`
	HeapNibble uint32 `clr:"CodeHeapListNode.HeaderMap"`

	HdrMethod  uint32 `clr:"RealCodeHeader.MethodDesc"`
	HdrUnwinds uint32 `clr:"RealCodeHeader.NumUnwindInfos"`
	HdrUnwind  uint32 `clr:"RealCodeHeader.UnwindInfos"`
	HdrEH      uint32 `clr:"RealCodeHeader.EHInfo,optional"`
	HdrDebug   uint32 `clr:"RealCodeHeader.DebugInfo,optional"`
	HdrGC      uint32 `clr:"RealCodeHeader.GCInfo,optional"`

	FuncSize   uint32 `clr:"RuntimeFunction.!"`
	FuncBegin  uint32 `clr:"RuntimeFunction.BeginAddress"`
	FuncEnd    uint32 `clr:"RuntimeFunction.EndAddress"`
	FuncUnwind uint32 `clr:"RuntimeFunction.UnwindData"`

	ModR2R      uint32 `clr:"Module.ReadyToRunInfo"`
	R2RHeader   uint32 `clr:"ReadyToRunInfo.ReadyToRunHeader"`
	R2RComp     uint32 `clr:"ReadyToRunInfo.CompositeInfo"`
	R2RCount    uint32 `clr:"ReadyToRunInfo.NumRuntimeFunctions"`
	R2RFuncs    uint32 `clr:"ReadyToRunInfo.RuntimeFunctions"`
	R2RHotN     uint32 `clr:"ReadyToRunInfo.NumHotColdMap,optional"` // some builds of .NET 11 know no cold parts
	R2RHot      uint32 `clr:"ReadyToRunInfo.HotColdMap,optional"`
	R2RThunks   uint32 `clr:"ReadyToRunInfo.DelayLoadMethodCallThunks"`
	R2RMethods  uint32 `clr:"ReadyToRunInfo.EntryPointToMethodDescMap"`
	DirRVA      uint32 `clr:"ImageDataDirectory.VirtualAddress"`
	DirSize     uint32 `clr:"ImageDataDirectory.Size"`
	MapBuckets  uint32 `clr:"HashMap.Buckets"`
	BucketSize  uint32 `clr:"Bucket.!"`
	BucketKeys  uint32 `clr:"Bucket.Keys"`
	BucketVals  uint32 `clr:"Bucket.Values"`
	BucketSlots uint64 `global:"HashMapSlotsPerBucket"`
	BucketMask  uint64 `global:"HashMapValueMask"`
	StubLast    uint64 `global:"StubCodeBlockLast"`
}

// New binds a code map to the runtime that d describes.
func New(mem target.Memory, d *contract.Descriptor) (*Map, error) {
	m := &Map{
		mem: target.NewReader(mem), linear: d.Contracts["ExecutionManager"] == versionLinear,
		images: map[arch.Addr]*image{},
	}
	if err := d.Bind(&m.l); err != nil {
		return nil, err
	}
	if m.l.FuncSize < 12 || m.l.FuncSize > 64 || m.l.BucketSlots == 0 || m.l.BucketSlots > 64 || m.l.BucketSize > 4096 {
		return nil, corrupt("a RuntimeFunction of %d bytes, a hash bucket of %d slots in %d bytes",
			m.l.FuncSize, m.l.BucketSlots, m.l.BucketSize)
	}
	return m, nil
}

// Lookup finds the code at ip. Code of Kind None means that the runtime does not know the address, and is no error.
func (m *Map) Lookup(ip arch.Addr) (Code, error) {
	if c, ok := m.known.code(ip); ok {
		return c, nil
	}
	s, ok := m.known.section(ip)
	if !ok {
		var err error
		if s, ok, err = m.section(ip); err != nil || !ok {
			return Code{}, err
		}
		m.known.addSection(&s)
	}
	var c Code
	var err error
	switch {
	case s.flags&sectionInterpreter != 0:
		// Byte code of the runtime's interpreter: no CPU executes it.
	case s.r2rModule != 0:
		c, err = m.lookupR2R(&s, ip)
	case s.flags&sectionRangeList != 0:
		c = Code{Kind: Stub}
	case s.flags&sectionCodeHeap != 0:
		c, err = m.lookupJIT(&s, ip)
	}
	c.Collectible = s.flags&sectionCollectible != 0
	if err == nil {
		m.known.add(&c)
	}
	return c, err
}
