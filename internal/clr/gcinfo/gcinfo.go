// Package gcinfo decodes the header of a method's GC info, written by the JIT or the ReadyToRun compiler. The header
// has the place of the context in a frame of shared generic code; the context tells the instantiation.
//
// Sources (dotnet/runtime): docs/design/datacontracts/GCInfo.md, src/coreclr/vm/gcinfodecoder.cpp,
// src/coreclr/inc/gcinfodecoder.h (GcInfoHeaderFlags), gcinfotypes.h and gcinfo.h (GCInfoToken).
//
// A GC info is a stream of bits, the lowest bit of a byte first. A number has pieces: some bits, and a bit that tells
// whether another piece follows. The number of bits depends on the field and on the architecture.
package gcinfo

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
)

// Context is the kind of context that a frame of shared generic code keeps to know its instantiation.
type Context uint8

// The kinds of context, by their number in the header.
const (
	NoContext   Context = iota // none: the code needs no context
	MethodTable                // of the class that declares the method, or of a derived class
	MethodDesc                 // of the instantiation
	This                       // an object: the method's first argument
)

// NoRegister is the BaseRegister of a method without a frame register.
const NoRegister = 0xff

// Header is the decoded part of a GC info.
type Header struct {
	CodeLength uint32 // of the method with its funclets, in bytes
	Context    Context

	// Of a method with a Context.
	PrologSize   uint32 // bytes of code before which the context's slot has no value
	Slot         int32  // of the context, in bytes from the base of the version
	BaseRegister uint8  // the frame register; NoRegister: none
}

// Version is the version of the encoding.
type Version uint8

// The versions that differ for Decode. Up to version 3, the slot counts from the stack pointer of the caller after
// the return. From version 4 on, the slot counts from the frame register, or without a frame register from the
// frame's own stack pointer (eetwain.cpp, EECodeManager::GetExactGenericsToken).
const (
	VersionMin    Version = 2
	VersionFromSP Version = 4 // .NET 10; the header has neither a return kind nor a PSPSym any more
	VersionNewest Version = 5 // .NET 11; the header is as in 4
)

// The first major versions of ReadyToRun images with GC info of version 4, and of 5.
const (
	majorFromSP = 11
	majorNewest = 21
)

// OfImage is the version of the GC info in a ReadyToRun image (gcinfo.h,
// ReadyToRunVersionToGcInfoVersion).
func OfImage(major uint16) Version {
	switch {
	case major >= majorNewest:
		return VersionNewest
	case major >= majorFromSP:
		return VersionFromSP
	}
	return VersionMin // versions 2 and 3 do not differ
}

// Errors of Decode.
var (
	// ErrVersion: the encoding is not known.
	ErrVersion = errors.New("GC info of an unknown version")
	// ErrCorrupt: the bits are no header.
	ErrCorrupt = errors.New("no GC info")
)

// Flags of a header (gcinfodecoder.h, enum GcInfoHeaderFlags).
const (
	flagSecurityObject  = 0x2
	flagGSCookie        = 0x4
	flagPSPSym          = 0x8
	contextShift        = 4
	contextMask         = 0x3
	flagBaseRegister    = 0x40
	flagEditAndContinue = 0x100
	flagReversePInvoke  = 0x200
	flagBits            = 10
)

// Bits of the fields on AMD64 (gcinfotypes.h, AMD64GcInfoEncoding).
const (
	codeLengthBits   = 8
	prologBits       = 5
	epilogBits       = 3
	slotBits         = 6
	registerBits     = 3
	returnKindFat    = 4
	returnKindSlim   = 2
	frameRegisterXor = 5
	slotSize         = 8
)

// MaxHeader is the greatest length of a header in bytes.
const MaxHeader = 64

// Decode reads the header of a GC info from its first bytes.
func Decode(b []byte, v Version) (Header, error) {
	if v < VersionMin || v > VersionNewest {
		return Header{}, fmt.Errorf("%w: %d", ErrVersion, v)
	}
	r := bits{b: b}
	h := decode(&r, v)
	if r.bad || h.CodeLength == 0 || h.Context != NoContext && h.PrologSize > h.CodeLength {
		return Header{}, ErrCorrupt
	}
	return h, nil
}

func decode(r *bits, v Version) Header {
	h := Header{BaseRegister: NoRegister}
	kindBits := uint(0)
	if r.take(1) == 0 { // the short form has no context
		if r.take(1) != 0 {
			h.BaseRegister = arch.RBP
		}
		if v < VersionFromSP {
			kindBits = returnKindSlim
		}
		r.take(kindBits)
		h.CodeLength = r.number(codeLengthBits)
		return h
	}
	flags := r.take(flagBits)
	h.Context = Context(flags >> contextShift & contextMask)
	if v < VersionFromSP {
		kindBits = returnKindFat
	}
	r.take(kindBits)
	h.CodeLength = r.number(codeLengthBits)
	if flags&(flagGSCookie|flagSecurityObject) != 0 || h.Context != NoContext {
		h.PrologSize = r.number(prologBits) + 1
	}
	if flags&flagGSCookie != 0 {
		r.number(epilogBits)
	}
	for _, f := range [...]uint32{flagSecurityObject, flagGSCookie, flagPSPSym} {
		if flags&f != 0 {
			r.number(slotBits)
		}
	}
	if h.Context != NoContext {
		h.Slot = r.signed(slotBits) * slotSize
	}
	if flags&flagBaseRegister != 0 {
		h.BaseRegister = uint8(r.number(registerBits)&0xf ^ frameRegisterXor)
	}
	return h
}

// bits reads a stream of bits.
type bits struct {
	b   []byte
	at  uint
	bad bool // the stream was too short, or a number was too large
}

// take reads n bits, 32 at most.
func (r *bits) take(n uint) uint32 {
	v := uint32(0)
	for i := range n {
		at := r.at + i
		if at/8 >= uint(len(r.b)) {
			r.bad = true
			return 0
		}
		v |= uint32(r.b[at/8]>>(at%8)&1) << i
	}
	r.at += n
	return v
}

// number reads a number in pieces of n bits.
func (r *bits) number(n uint) uint32 {
	v, _ := r.pieces(n)
	return v
}

// signed is number, with the sign in the highest bit of the last piece.
func (r *bits) signed(n uint) int32 {
	v, width := r.pieces(n)
	if width < 32 && v>>(width-1)&1 != 0 {
		v |= ^uint32(0) << width
	}
	return int32(v)
}

func (r *bits) pieces(n uint) (v uint32, width uint) {
	for !r.bad {
		piece := r.take(n + 1)
		digits := piece & (1<<n - 1)
		if width >= 32 || uint64(digits)<<width > 0xffff_ffff {
			r.bad = true
			break
		}
		v |= digits << width
		width += n
		if piece>>n == 0 {
			return v, width
		}
	}
	return 0, n
}
