package gcinfo

import (
	"errors"
	"testing"

	"clrsnap/internal/arch"
)

// bitWriter writes the bits that bits reads.
type bitWriter struct {
	b  []byte
	at uint
}

func (w *bitWriter) put(v uint32, n uint) {
	for i := range n {
		if w.at%8 == 0 {
			w.b = append(w.b, 0)
		}
		w.b[w.at/8] |= byte(v>>i&1) << (w.at % 8)
		w.at++
	}
}

func (w *bitWriter) number(v uint32, n uint) {
	for v>>n != 0 {
		w.put(v&(1<<n-1)|1<<n, n+1)
		v >>= n
	}
	w.put(v, n+1)
}

func (w *bitWriter) signed(v int32, n uint) {
	for v < -1<<(n-1) || v >= 1<<(n-1) {
		w.put(uint32(v)&(1<<n-1)|1<<n, n+1)
		v >>= n
	}
	w.put(uint32(v)&(1<<n-1), n+1)
}

// A sketch is a header to be encoded.
type sketch struct {
	v              Version
	flags          uint32
	context        Context
	length, prolog uint32
	slot           int32 // bytes
	register       uint8
}

func (s *sketch) encode() []byte {
	var w bitWriter
	w.put(1, 1)
	w.put(s.flags|uint32(s.context)<<contextShift, flagBits)
	if s.v < VersionFromSP {
		w.put(5, returnKindFat)
	}
	w.number(s.length, codeLengthBits)
	if s.flags&(flagGSCookie|flagSecurityObject) != 0 || s.context != NoContext {
		w.number(s.prolog-1, prologBits)
	}
	if s.flags&flagGSCookie != 0 {
		w.number(9, epilogBits)
	}
	for _, f := range []uint32{flagSecurityObject, flagGSCookie, flagPSPSym} {
		if s.flags&f != 0 {
			w.signed(-700, slotBits)
		}
	}
	if s.context != NoContext {
		w.signed(s.slot/slotSize, slotBits)
	}
	if s.flags&flagBaseRegister != 0 {
		w.number(uint32(s.register)^frameRegisterXor, registerBits)
	}
	w.number(3, 2) // the bits behind the header
	return w.b
}

func TestDecode(t *testing.T) {
	for _, s := range []sketch{
		{v: 2, context: This, length: 700, prolog: 12, slot: -48},
		{v: 3, context: MethodDesc, length: 70_000, prolog: 40, slot: -4096, flags: flagGSCookie | flagPSPSym},
		{v: 3, context: MethodTable, length: 90, prolog: 1, slot: 16, flags: flagSecurityObject},
		{v: 4, context: MethodDesc, length: 90, prolog: 33, slot: -8, flags: flagBaseRegister, register: arch.RBP},
		{v: 4, context: This, length: 90, prolog: 90, slot: 256, flags: flagBaseRegister | flagGSCookie,
			register: arch.RBX},
		{v: 4, context: MethodTable, length: 1 << 20, prolog: 5, slot: 0},
		{v: 4, length: 64, flags: flagBaseRegister | flagReversePInvoke | flagEditAndContinue, register: arch.RBP},
	} {
		want := Header{CodeLength: s.length, Context: s.context, PrologSize: s.prolog, Slot: s.slot,
			BaseRegister: NoRegister}
		if s.flags&flagBaseRegister != 0 {
			want.BaseRegister = s.register
		}
		b := s.encode()
		if got, err := Decode(b, s.v); err != nil || got != want {
			t.Errorf("%+v: %+v, %v", s, got, err)
		}
		for n := range b[:len(b)-2] {
			if got, err := Decode(b[:n], s.v); err == nil && got == want {
				break // the rest does not belong to the header
			} else if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("%d bytes of %+v: %v", n, s, err)
			}
		}
	}
}

func TestDecodeShort(t *testing.T) {
	for v := VersionMin; v <= VersionNewest; v++ {
		for register := range uint32(2) {
			var w bitWriter
			w.put(0, 1)
			w.put(register, 1)
			if v < VersionFromSP {
				w.put(1, returnKindSlim)
			}
			w.number(321, codeLengthBits)
			want := Header{CodeLength: 321, BaseRegister: NoRegister}
			if register != 0 {
				want.BaseRegister = arch.RBP
			}
			if got, err := Decode(w.b, v); err != nil || got != want {
				t.Errorf("version %d: %+v, %v, want %+v", v, got, err, want)
			}
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	s := sketch{v: 4, context: This, length: 10, prolog: 11}
	for _, tt := range []struct {
		name string
		b    []byte
		v    Version
		want error
	}{
		{"old version", s.encode(), 1, ErrVersion},
		{"new version", s.encode(), 6, ErrVersion},
		{"nothing", nil, 4, ErrCorrupt},
		{"a prolog longer than the code", s.encode(), 4, ErrCorrupt},
		{"no code", make([]byte, 8), 4, ErrCorrupt},
		{"a number without end", []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 4, ErrCorrupt},
	} {
		if h, err := Decode(tt.b, tt.v); !errors.Is(err, tt.want) {
			t.Errorf("%s: %+v, %v, want %v", tt.name, h, err, tt.want)
		}
	}
}

func TestOfImage(t *testing.T) {
	for major, want := range map[uint16]Version{9: 2, 10: 2, 11: 4, 16: 4, 20: 4, 21: 5, 26: 5} {
		if got := OfImage(major); got != want {
			t.Errorf("major version %d: GC info of version %d, want %d", major, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []sketch{
		{v: 2, context: This, length: 700, prolog: 12, slot: -48},
		{v: 4, context: MethodDesc, length: 90, prolog: 33, slot: -8, flags: flagBaseRegister, register: arch.RBP},
	} {
		f.Add(s.encode(), uint8(s.v))
	}
	f.Fuzz(func(t *testing.T, b []byte, v uint8) {
		h, err := Decode(b, Version(v))
		if err == nil && (h.CodeLength == 0 || h.Context > This || h.Slot%slotSize != 0) {
			t.Errorf("%+v", h)
		}
		if len(b) <= MaxHeader {
			return
		}
		if short, err := Decode(b[:MaxHeader], Version(v)); err == nil && short != h {
			t.Errorf("%+v, and %+v of the first %d bytes", h, short, MaxHeader)
		}
	})
}
