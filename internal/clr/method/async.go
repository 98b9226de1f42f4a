package method

import "clrsnap/internal/arch"

// asyncLayout has the lengths of the parts in front of an AsyncMethodData: the MethodDesc, by its class, and the
// MethodDesc's optional slots (src/coreclr/vm/method.hpp, MethodDesc::GetAddrOfAsyncMethodData).
type asyncLayout struct {
	IL           uint32 `clr:"MethodDesc.!"`
	FCall        uint32 `clr:"FCallMethodDesc.!"`
	PInvoke      uint32 `clr:"PInvokeMethodDesc.!"`
	EEImpl       uint32 `clr:"EEImplMethodDesc.!"`
	Array        uint32 `clr:"ArrayMethodDesc.!"`
	Instantiated uint32 `clr:"InstantiatedMethodDesc.!"`

	NonVtableSlot  uint32 `clr:"NonVtableSlot.!"`
	MethodImpl     uint32 `clr:"MethodImpl.!"`
	NativeCodeSlot uint32 `clr:"NativeCodeSlot.!"`
}

// Slots of a MethodDesc, in its Flags and in the order of the flags (method.hpp, enum MethodDescFlags).
const (
	flagNonVtableSlot  = 0x8
	flagMethodImpl     = 0x10
	flagNativeCodeSlot = 0x20
)

// asyncOf reads the AsyncMethodData of a MethodDesc.
func (r *Reader) asyncOf(desc arch.Addr, flags uint16) (Async, error) {
	if flags&flagAsyncData == 0 || r.async.IL == 0 {
		return 0, nil
	}
	l := &r.async
	size, ok := map[Class]uint32{
		IL: l.IL, FCall: l.FCall, PInvoke: l.PInvoke, EEImpl: l.EEImpl, ArrayMethod: l.Array,
		Instantiated: l.Instantiated,
	}[Class(flags&classMask)]
	if !ok {
		return 0, nil
	}
	for _, s := range [...]struct {
		flag uint16
		size uint32
	}{{flagNonVtableSlot, l.NonVtableSlot}, {flagMethodImpl, l.MethodImpl}, {flagNativeCodeSlot, l.NativeCodeSlot}} {
		if flags&s.flag != 0 {
			size += s.size
		}
	}
	a, err := r.mem.Uint32(desc + arch.Addr(size) + arch.Addr(r.l.AsyncFlags))
	return Async(a), err
}
