package ecma335

// ElemType is the first byte of a type in a signature (II.23.1.16).
type ElemType uint8

// The element types. ElemInternal and ElemCModInternal occur only in signatures
// made by the running runtime, never in a file (CoreCLR
// src/coreclr/inc/corhdr.h).
const (
	ElemVoid         ElemType = 0x01
	ElemBoolean      ElemType = 0x02
	ElemChar         ElemType = 0x03
	ElemI1           ElemType = 0x04
	ElemU1           ElemType = 0x05
	ElemI2           ElemType = 0x06
	ElemU2           ElemType = 0x07
	ElemI4           ElemType = 0x08
	ElemU4           ElemType = 0x09
	ElemI8           ElemType = 0x0a
	ElemU8           ElemType = 0x0b
	ElemR4           ElemType = 0x0c
	ElemR8           ElemType = 0x0d
	ElemString       ElemType = 0x0e
	ElemPtr          ElemType = 0x0f
	ElemByRef        ElemType = 0x10
	ElemValueType    ElemType = 0x11
	ElemClass        ElemType = 0x12
	ElemVar          ElemType = 0x13
	ElemArray        ElemType = 0x14
	ElemGenericInst  ElemType = 0x15
	ElemTypedByRef   ElemType = 0x16
	ElemI            ElemType = 0x18
	ElemU            ElemType = 0x19
	ElemFnPtr        ElemType = 0x1b
	ElemObject       ElemType = 0x1c
	ElemSZArray      ElemType = 0x1d
	ElemMVar         ElemType = 0x1e
	ElemCModReqd     ElemType = 0x1f
	ElemCModOpt      ElemType = 0x20
	ElemInternal     ElemType = 0x21
	ElemCModInternal ElemType = 0x22
	ElemSentinel     ElemType = 0x41
	ElemPinned       ElemType = 0x45
)

// SigType is a type as a signature spells it (II.23.2.12). Kind says which
// fields are set:
//
//	primitives, string, object  none
//	class, valuetype            Token
//	ptr, byref, szarray, pinned Elem
//	array                       Elem, Rank, Sizes, LoBounds
//	var, mvar                   Index
//	genericinst                 Elem (the generic type), Args
//	fnptr                       Fn
//	cmod_reqd, cmod_opt         Token (the modifier), Elem (what it modifies)
//	internal                    TypeHandle
//	cmod_internal               TypeHandle (the modifier), Required, Elem
type SigType struct {
	Kind       ElemType
	Required   bool
	Token      Token
	Index      uint32
	Rank       uint32
	TypeHandle uint64 // address of a TypeHandle in the runtime's memory
	Elem       *SigType
	Args       []SigType
	Sizes      []uint32
	LoBounds   []int32
	Fn         *MethodSig
}

// CallConv is a calling convention: the low four bits of a signature's first
// byte (II.23.2.3, II.15.3).
type CallConv uint8

// The calling conventions.
const (
	CallDefault      CallConv = 0x0
	CallC            CallConv = 0x1
	CallStdCall      CallConv = 0x2
	CallThisCall     CallConv = 0x3
	CallFastCall     CallConv = 0x4
	CallVarArg       CallConv = 0x5
	CallUnmanaged    CallConv = 0x9 // convention in modifiers of the result; later than ECMA-335
	CallNativeVarArg CallConv = 0xb // likewise
)

// MethodSig is the signature of a method (II.23.2.1).
type MethodSig struct {
	Conv              CallConv
	HasThis           bool
	ExplicitThis      bool
	GenericParamCount uint32
	Ret               SigType
	Params            []SigType
	Sentinel          int // index of the first variable argument of a call; -1: no mark
}
