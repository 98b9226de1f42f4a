package thread

import (
	"encoding/binary"
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// TraceFrame is a call that an exception has left, as recorded in the exception object.
type TraceFrame struct {
	// IP is an address in the instruction that the exception came through: in the call, or the beginning of the
	// faulting instruction. 0: no instruction of the method was reached.
	IP     arch.Addr
	SP     arch.Addr
	Method arch.Addr // the MethodDesc
	// EndsTrace: the frames up to this frame are of an earlier throw. From here on the exception was thrown again, as
	// by await and ExceptionDispatchInfo.Throw.
	EndsTrace bool
	// Resumed: the method awaited the frames before (.NET 11). IP is the address of the method's suspension point,
	// where the method would have been resumed.
	Resumed bool
}

// Trace is the stack trace of an exception.
type Trace struct {
	Frames []TraceFrame // the frame of the first throw comes first; at most MaxTrace
	More   int          // frames after these
}

// MaxTrace bounds the kept frames of a trace. The deepest recursion has some 100,000 frames.
const MaxTrace = 1000

// Flags of a StackTraceElement (src/coreclr/vm/clrex.h, StackTraceElementFlags). For a call, the runtime keeps the
// return address less one, and sets traceAdjusted. Without traceAdjusted, the address is the address of a faulting
// instruction (src/coreclr/vm/excep.cpp, StackTraceInfo::AppendElement).
const (
	traceForeign   = 0x1
	traceAdjusted  = 0x2
	traceKeepAlive = 0x4 // .NET 9 and later: an object in the array of references keeps the method alive
	traceResumed   = 0x8 // .NET 11
	traceFlags     = traceForeign | traceAdjusted | traceKeepAlive | traceResumed
)

// traceLayout leads to the stack trace of an exception object. The object refers to an array of bytes. Since .NET 9
// the object may instead refer to an array of references, with the array of bytes as the first element. The bytes are
// a header and elements; not all elements are in use (src/coreclr/vm/object.h, StackTraceArray; object.cpp,
// ExceptionObject::GetStackTraceParts).
type traceLayout struct {
	HeaderSize  uint32 `clr:"StackTraceArrayHeader.!,optional"`
	HeaderCount uint32 `clr:"StackTraceArrayHeader.Size,optional"` // 32 bits: .NET 8 has 64, the upper half 0
	ElementSize uint32 `clr:"StackTraceElement.!,optional"`
	IP          uint32 `clr:"StackTraceElement.IP|StackTraceElement.Ip,optional"`
	SP          uint32 `clr:"StackTraceElement.SP,optional"` // missing in some descriptors of .NET 11
	Method      uint32 `clr:"StackTraceElement.pFunc|StackTraceElement.MethodDesc,optional"`
	Flags       uint32 `clr:"StackTraceElement.Flags,optional"`

	ArrayHeader uint32 `clr:"Array.!,optional"`
	ArrayLength uint32 `clr:"Array.m_NumComponents,optional"`
	TypeFlags   uint32 `clr:"MethodTable.MTFlags,optional"`

	Text   uint32 `clr:"Exception._stackTraceString,optional"`
	Remote uint32 `clr:"Exception._remoteStackTraceString,optional"`
}

// known reports whether all offsets that lead to a trace are known.
func (l *traceLayout) known() bool {
	for _, off := range []uint32{
		l.HeaderCount, l.IP, l.Method, l.Flags, l.ArrayHeader, l.ArrayLength, l.TypeFlags,
	} {
		if off > maxOffset {
			return false
		}
	}
	return l.HeaderSize <= maxOffset && l.ElementSize <= maxOffset && l.HeaderCount+4 <= l.HeaderSize &&
		max(l.IP, l.Method)+8 <= l.ElementSize && l.Flags+4 <= l.ElementSize
}

const maxOffset = 1 << 12

// ErrTrace: the stack trace of an exception object cannot be understood.
var ErrTrace = errors.New("the exception's stack trace is inconsistent")

func badTrace(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTrace, fmt.Sprintf(format, args...))
}

var errTraceUnknown = errors.New("the form of this runtime's stack traces is not known: update clrsnap")

// ReadTrace reads the stack trace of an exception object. The trace is empty if the exception has not been thrown.
func (s *Store) ReadTrace(obj arch.Addr) (Trace, error) {
	if s.thrown.Trace == contract.Absent || !s.trace.known() {
		return Trace{}, errTraceUnknown
	}
	array, err := s.mem.Pointer(obj + arch.Addr(s.thrown.Trace))
	if err != nil || array == 0 {
		return Trace{}, err
	}
	size, n, err := s.array(array)
	if err == nil && size == referenceSize && n > 0 {
		if array, err = s.mem.Pointer(array + arch.Addr(s.trace.ArrayHeader)); err == nil {
			size, n, err = s.array(array)
		}
	}
	if err != nil {
		return Trace{}, err
	}
	if size != 1 {
		return Trace{}, badTrace("an array with elements of %d bytes", size)
	}
	return s.readElements(array+arch.Addr(s.trace.ArrayHeader), n)
}

// readElements reads the header and the elements in n bytes at an address.
func (s *Store) readElements(at arch.Addr, n uint32) (Trace, error) {
	l := &s.trace
	if n < l.HeaderSize {
		return Trace{}, badTrace("%d bytes", n)
	}
	count, err := s.mem.Uint32(at + arch.Addr(l.HeaderCount))
	if err != nil {
		return Trace{}, err
	}
	if room := (n - l.HeaderSize) / l.ElementSize; count > room {
		return Trace{}, badTrace("%d frames in the place of %d", count, room)
	}
	kept := min(count, MaxTrace)
	b, err := s.mem.Bytes(at+arch.Addr(l.HeaderSize), int(kept*l.ElementSize))
	if err != nil {
		return Trace{}, err
	}
	frames, err := l.decode(b)
	return Trace{Frames: frames, More: int(count - kept)}, err
}

func (l *traceLayout) decode(b []byte) ([]TraceFrame, error) {
	frames := make([]TraceFrame, len(b)/int(l.ElementSize))
	for i := range frames {
		e := b[i*int(l.ElementSize):][:l.ElementSize]
		flags := binary.LittleEndian.Uint32(e[l.Flags:])
		f := TraceFrame{
			IP:        arch.Addr(binary.LittleEndian.Uint64(e[l.IP:])),
			Method:    arch.Addr(binary.LittleEndian.Uint64(e[l.Method:])),
			EndsTrace: flags&traceForeign != 0,
			Resumed:   flags&traceResumed != 0,
		}
		if flags&^traceFlags != 0 || f.Method == 0 || f.IP == 0 && flags&traceAdjusted != 0 {
			return nil, badTrace("frame %d has flags %#x, method %v and address %v", i, flags, f.Method, f.IP)
		}
		if l.SP != contract.Absent && l.SP+8 <= l.ElementSize && !f.Resumed {
			f.SP = arch.Addr(binary.LittleEndian.Uint64(e[l.SP:]))
		}
		frames[i] = f
	}
	return frames, nil
}

// endsTrace, among the addresses of a native AOT program, ends the trace of an earlier throw
// (System.Private.CoreLib, Exception.NativeAot.cs, EdiSeparator).
const endsTrace = 1

// FramesOf returns the frames of an exception object of a native AOT program, by the addresses that the object has:
// return addresses, or the address of a faulting instruction.
func FramesOf(addresses []byte) (frames []TraceFrame) {
	for ; len(addresses) >= 8; addresses = addresses[8:] {
		ip, last := arch.Addr(binary.LittleEndian.Uint64(addresses)), len(frames)-1
		switch {
		case ip != endsTrace:
			frames = append(frames, TraceFrame{IP: ip})
		case last >= 0:
			frames[last].EndsTrace = true
		}
	}
	return frames
}

// referenceSize is the size of an object reference, in bytes.
const referenceSize = 8

// array reads the head of an array: the size of an element in bytes, and the number of elements. If the highest bit
// of MTFlags is set, the low half of MTFlags is the size (src/coreclr/vm/methodtable.h).
func (s *Store) array(obj arch.Addr) (size, n uint32, err error) {
	const hasSize, sizeMask = 1 << 31, 0xffff
	mt, err := s.mem.Uint64(obj)
	if err != nil {
		return 0, 0, err
	}
	flags, err := s.mem.Uint32(arch.Addr(mt&^s.l.Untag) + arch.Addr(s.trace.TypeFlags))
	if err != nil {
		return 0, 0, err
	}
	if flags&hasSize == 0 {
		return 0, 0, badTrace("the object at %v is no array", obj)
	}
	n, err = s.mem.Uint32(obj + arch.Addr(s.trace.ArrayLength))
	return flags & sizeMask, n, err
}

// References reads the elements of an array of references, at most most of them, and returns their number in all.
func (s *Store) References(array arch.Addr, most int) (refs []arch.Addr, all int, err error) {
	if !s.trace.known() {
		return nil, 0, errTraceUnknown
	}
	size, n, err := s.array(array)
	if err != nil {
		return nil, 0, err
	}
	if size != referenceSize {
		return nil, 0, badTrace("references of %d bytes", size)
	}
	b, err := s.mem.Bytes(array+arch.Addr(s.trace.ArrayHeader), int(min(n, uint32(most)))*referenceSize)
	if err != nil {
		return nil, 0, err
	}
	for ; len(b) > 0; b = b[referenceSize:] {
		refs = append(refs, arch.Addr(binary.LittleEndian.Uint64(b)))
	}
	return refs, int(n), nil
}
