// Package method reads MethodDescs, the runtime's own descriptions of methods: the metadata row, the instantiation,
// the code version.
//
// Sources (dotnet/runtime): docs/design/datacontracts/RuntimeTypeSystem.md and CodeVersions.md,
// src/coreclr/vm/method.hpp, codeversion.h.
package method

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// Class is a MethodDesc's classification (method.hpp, enum MethodClassification).
type Class uint8

// The classifications.
const (
	IL Class = iota
	FCall
	PInvoke
	EEImpl
	ArrayMethod
	Instantiated
	COMInterop
	Dynamic
)

// Method is a decoded MethodDesc.
type Method struct {
	Desc        arch.Addr // the FunctionID
	Class       Class
	MethodTable arch.Addr
	Module      arch.Addr   // of the type, and so of the method; 0 for arrays
	RID         uint32      // row in the MethodDef table; 0 without metadata
	Args        []arch.Addr // type arguments of a generic method
	Async       Async       // 0: not related to async methods, or the runtime suspends no methods
	flags3      uint16
}

// Async tells the relation of a method to async methods: the runtime can suspend the method, or the method returns a
// task (.NET 11). A method that returns a task has two MethodDescs with the same token: one for callers that want the
// task, and one for callers that the runtime suspends. The written IL is the code of one MethodDesc. The runtime
// makes the other, or compiles the same IL once more, if nothing in the IL suspends.
//
// Source (dotnet/runtime): src/coreclr/vm/method.hpp (AsyncMethodData, enum class AsyncMethodFlags).
type Async uint32

// Bits of Async.
const (
	asyncCall        Async = 0x1  // the method returns a Continuation
	asyncReturnsTask Async = 0x2  // the method returns a task, and no Continuation
	asyncVariant     Async = 0x4  // the second MethodDesc of a method that returns a task
	asyncThunk       Async = 0x10 // not the written method
)

// Thunk reports whether the runtime has made the method as a thunk: a thunk returns the task of a method that the
// runtime suspends. If the written method returns a task, the other MethodDesc has the written IL, and is no thunk.
func (a Async) Thunk() bool { return a&asyncThunk != 0 && a&asyncReturnsTask != 0 }

// Suspends reports whether only methods that the runtime suspends call the method.
func (a Async) Suspends() bool { return a&asyncCall != 0 }

// Body reports whether the method is the written IL of a method that the runtime suspends. Code that wants the task
// calls the thunk; the thunk calls the body.
func (a Async) Body() bool { return a&(asyncCall|asyncVariant|asyncThunk) == asyncCall|asyncVariant }

// HasMetadata reports whether metadata describes the method. DynamicMethods and the runtime's own IL stubs have no
// metadata; DoStackSnapshot skips both, as CoreCLR does (method.hpp, MethodDesc::IsNoMetadata).
func (m *Method) HasMetadata() bool { return m.Class != Dynamic }

// ErrCorrupt: the memory at an address cannot be a MethodDesc.
var ErrCorrupt = errors.New("not a MethodDesc")

// Bits of a MethodDesc (method.hpp).
const (
	classMask      = 0x7
	tokenMask      = 0xfff  // of Flags3AndTokenRemainder and of FlagsAndTokenRange
	flagTiered     = 0x8000 // enum_flag3_IsEligibleForTieredCompilation
	flagAsyncData  = 0x40   // mdfHasAsyncMethodData, in Flags
	instKindMask   = 0x7    // of InstantiatedMethodDesc.Flags2
	instDefinition = 0      // GenericMethodDefinition

	flagLCG = 0x4000 // DynamicMethodDesc::FlagIsLCGMethod, in ExtendedFlags
)

type layout struct {
	Flags      uint32 `clr:"MethodDesc.Flags"`
	Flags3     uint32 `clr:"MethodDesc.Flags3AndTokenRemainder"`
	ChunkIndex uint32 `clr:"MethodDesc.ChunkIndex"`
	Alignment  uint64 `global:"MethodDescAlignment"`
	TokenBits  uint64 `global:"MethodDescTokenRemainderBitCount"`

	ChunkSize  uint32 `clr:"MethodDescChunk.!"`
	ChunkTable uint32 `clr:"MethodDescChunk.MethodTable"`
	ChunkToken uint32 `clr:"MethodDescChunk.FlagsAndTokenRange"`

	InstArgs  uint32 `clr:"InstantiatedMethodDesc.PerInstInfo"`
	InstFlags uint32 `clr:"InstantiatedMethodDesc.Flags2"`
	InstCount uint32 `clr:"InstantiatedMethodDesc.NumGenericArgs"`

	AsyncFlags uint32 `clr:"AsyncMethodData.Flags,optional"` // .NET 11

	DynName  uint32 `clr:"DynamicMethodDesc.MethodName"`
	DynSig   uint32 `clr:"StoredSigMethodDesc.Sig"`
	DynSigN  uint32 `clr:"StoredSigMethodDesc.cSig"`
	DynFlags uint32 `clr:"StoredSigMethodDesc.ExtendedFlags"`

	FirstNode uint32 `clr:"MethodDescVersioningState.NativeCodeVersionNode"`
	NodeNext  uint32 `clr:"NativeCodeVersionNode.Next"`
	NodeCode  uint32 `clr:"NativeCodeVersionNode.NativeCode"`
	NodeTier  uint32 `clr:"NativeCodeVersionNode.OptimizationTier,optional"`
	ModFlags  uint32 `clr:"Module.Flags"`

	Target uint32 `clr:"PInvokeMethodDesc.Target|NDirectWriteableData.Target,optional"`
	Data   uint32 `clr:"PInvokeMethodDesc.WriteableData,optional"` // .NET 8: the structure with the target
}

// Reader reads the MethodDescs of one runtime. A Reader is not safe for concurrent use.
type Reader struct {
	mem   *target.Reader
	types *types.System
	l     layout

	data     dataLayout
	table    tableLayout
	async    asyncLayout                             // where there is AsyncFlags
	versions func(desc arch.Addr) (arch.Addr, error) // a MethodDescVersioningState; 0: there is none

	aggressive bool // methods that ask for aggressive optimization take part in tiering

	// Attributes returns a method's MethodImplAttributes, from the metadata. The tiers of .NET 8 depend on the
	// attributes; nil: not known.
	Attributes func(*Method) (uint16, error)
}

// New binds the methods of the runtime that d describes.
func New(mem target.Memory, d *contract.Descriptor, ts *types.System) (*Reader, error) {
	r := &Reader{mem: target.NewReader(mem), types: ts}
	if err := d.Bind(&r.l); err != nil {
		return nil, err
	}
	if r.l.AsyncFlags != contract.Absent {
		if err := d.Bind(&r.async); err != nil {
			return nil, err
		}
	}
	return r, r.bindVersions(d)
}

// Read decodes the MethodDesc at address desc.
func (r *Reader) Read(desc arch.Addr) (Method, error) {
	m := Method{Desc: desc}
	flags, err := r.mem.Uint16(desc + arch.Addr(r.l.Flags))
	if err != nil {
		return m, err
	}
	m.Class = Class(flags & classMask)
	chunk, err := r.chunk(desc)
	if err != nil {
		return m, err
	}
	if m.MethodTable, err = r.mem.Pointer(chunk + arch.Addr(r.l.ChunkTable)); err != nil {
		return m, err
	}
	if err := r.types.Check(m.MethodTable); err != nil {
		return m, fmt.Errorf("%w at %v: %w", ErrCorrupt, desc, err)
	}
	if m.Module, err = r.types.Module(m.MethodTable); err != nil {
		return m, err
	}
	if m.flags3, err = r.mem.Uint16(desc + arch.Addr(r.l.Flags3)); err != nil {
		return m, err
	}
	if m.Class == Dynamic {
		return m, nil
	}
	if m.Async, err = r.asyncOf(desc, flags); err != nil {
		return m, err
	}
	high, err := r.mem.Uint16(chunk + arch.Addr(r.l.ChunkToken))
	if err != nil {
		return m, err
	}
	// The token is split: the low bits are in the method, the rest in the chunk.
	low := uint32(1)<<r.l.TokenBits - 1
	m.RID = uint32(high)&tokenMask<<r.l.TokenBits | uint32(m.flags3)&low
	if m.Class == Instantiated {
		m.Args, err = r.methodArgs(desc)
	}
	return m, err
}

// chunk returns the MethodDescChunk around a MethodDesc.
func (r *Reader) chunk(desc arch.Addr) (arch.Addr, error) {
	i, err := r.mem.Uint8(desc + arch.Addr(r.l.ChunkIndex))
	if err != nil {
		return 0, err
	}
	chunk, ok := desc.Offset(-int64(r.l.ChunkSize) - int64(i)*int64(r.l.Alignment&0xff))
	if !ok {
		return 0, fmt.Errorf("%w: %v", ErrCorrupt, desc)
	}
	return chunk, nil
}

func (r *Reader) methodArgs(desc arch.Addr) ([]arch.Addr, error) {
	kind, err := r.mem.Uint16(desc + arch.Addr(r.l.InstFlags))
	if err != nil || kind&instKindMask == instDefinition {
		return nil, err
	}
	n, err := r.mem.Uint16(desc + arch.Addr(r.l.InstCount))
	if err != nil {
		return nil, err
	}
	args, err := r.mem.Pointer(desc + arch.Addr(r.l.InstArgs))
	if err != nil || args == 0 || n == 0 {
		return nil, err
	}
	return r.types.Handles(args, int(n))
}

// DynamicInfo describes a method without metadata.
type DynamicInfo struct {
	Name      string
	ILStub    bool   // made by the runtime itself, not by the program
	Signature []byte // with type handles in place of tokens
}

const (
	maxDynamicName = 1024
	maxDynamicSig  = 4096
)

// Dynamic describes a method of class Dynamic.
func (r *Reader) Dynamic(m *Method) (DynamicInfo, error) {
	var d DynamicInfo
	ext, err := r.mem.Uint32(m.Desc + arch.Addr(r.l.DynFlags))
	if err != nil {
		return d, err
	}
	d.ILStub = ext&flagLCG == 0
	name, err := r.mem.Pointer(m.Desc + arch.Addr(r.l.DynName))
	if err != nil {
		return d, err
	}
	if name != 0 {
		if d.Name, err = r.mem.CString(name, maxDynamicName); err != nil {
			return d, err
		}
	}
	sig, err := r.mem.Pointer(m.Desc + arch.Addr(r.l.DynSig))
	if err != nil {
		return d, err
	}
	n, err := r.mem.Uint32(m.Desc + arch.Addr(r.l.DynSigN))
	if err != nil || sig == 0 || n > maxDynamicSig {
		return d, err // the name is useful without the signature
	}
	d.Signature, err = r.mem.Bytes(sig, int(n))
	return d, err
}

// Target returns the address of the native function that a P/Invoke has been linked to. Until the link, Target
// returns the address of the runtime's code that links the P/Invoke. 0: not known.
func (r *Reader) Target(m *Method) (arch.Addr, error) {
	if m.Class != PInvoke || r.l.Target == contract.Absent {
		return 0, nil
	}
	at := m.Desc
	if r.l.Data != contract.Absent {
		var err error
		if at, err = r.mem.Pointer(at + arch.Addr(r.l.Data)); err != nil {
			return 0, err
		}
	}
	return r.mem.Pointer(at + arch.Addr(r.l.Target))
}
