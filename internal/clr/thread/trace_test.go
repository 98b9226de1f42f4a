package thread

import (
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// Places of the tests' data.
const (
	throwAt    = arch.Addr(0x50_0000)
	bytesAt    = arch.Addr(0x51_0000)
	refsAt     = arch.Addr(0x52_0000)
	bytesMT    = arch.Addr(0x53_0000)
	refsMT     = arch.Addr(0x53_0100)
	classMT    = arch.Addr(0x53_0200)
	elementLen = 32
	headerLen  = 16
)

// onEachTrace runs a test with the descriptors of all versions.
func onEachTrace(t *testing.T, test func(t *testing.T, d *contract.Descriptor)) {
	t.Helper()
	for _, name := range []string{clrtest.Net8, clrtest.Net9, clrtest.Net10, clrtest.Net11} {
		t.Run(name, func(t *testing.T) { test(t, clrtest.Descriptor(t, name)) })
	}
}

// tracedMemory has an exception object with a stack trace of so many frames, and room for capacity.
func tracedMemory(frames, capacity int) clrtest.Words {
	mem := clrtest.Words{
		bytesMT: 0x8000_0001, refsMT: 0x8000_0008, classMT: 0x0100_0000,
		throwAt: uint64(classMT), bytesAt: uint64(bytesMT), refsAt: uint64(refsMT),
	}
	mem.Zero(throwAt+8, 128)
	mem[throwAt+48] = uint64(bytesAt)
	mem[bytesAt+8] = uint64(headerLen + capacity*elementLen)
	mem[bytesAt+16] = uint64(frames)
	mem[bytesAt+24] = 0x7777 // the thread
	for i := range capacity {
		at := bytesAt + 32 + arch.Addr(i)*elementLen
		mem[at], mem[at+8], mem[at+16], mem[at+24] = 0x40_0000+uint64(i), 0x7fff_0000, 0x60_0000+8*uint64(i),
			traceAdjusted
	}
	return mem
}

func TestReadTrace(t *testing.T) { onEachTrace(t, testReadTrace) }

func testReadTrace(t *testing.T, d *contract.Descriptor) {
	mem := tracedMemory(3, 8)
	mem[bytesAt+32+24] = 0xffff_ffff_0000_0000 | traceForeign // faulted; the upper half is padding
	mem[bytesAt+64] = 0
	mem[bytesAt+64+24] = 0 // the method could not be compiled
	mem[bytesAt+96+24] = traceAdjusted | traceKeepAlive
	want := Trace{Frames: []TraceFrame{
		{IP: 0x40_0000, SP: 0x7fff_0000, Method: 0x60_0000, EndsTrace: true},
		{IP: 0, SP: 0x7fff_0000, Method: 0x60_0008},
		{IP: 0x40_0002, SP: 0x7fff_0000, Method: 0x60_0010},
	}}
	if d == clrtest.Descriptor(t, clrtest.Net11) { // the descriptor lacks the offset of the stack pointer
		for i := range want.Frames {
			want.Frames[i].SP = 0
		}
	}
	s := newStore(t, mem, d)
	if got, err := s.ReadTrace(throwAt); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	// .NET 9 and later: behind an array of references.
	mem[throwAt+48], mem[refsAt+8], mem[refsAt+16], mem[refsAt+24] = uint64(refsAt), 2, uint64(bytesAt), 0
	mem[bytesAt+16] |= 1 << 32 // objects that keep methods
	if got, err := s.ReadTrace(throwAt); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("kept alive: %+v, %v", got, err)
	}
	mem[bytesAt+32+24] |= traceResumed
	if got, err := s.ReadTrace(throwAt); err != nil || !got.Frames[0].Resumed || got.Frames[0].SP != 0 {
		t.Errorf("resumed: %+v, %v", got, err)
	}
	mem[throwAt+48] = 0
	if got, err := s.ReadTrace(throwAt); err != nil || len(got.Frames) > 0 {
		t.Errorf("not thrown: %+v, %v", got, err)
	}
}

// Of a long trace, the first frames are kept, and the others are counted.
func TestLongTrace(t *testing.T) {
	mem := tracedMemory(MaxTrace+7, MaxTrace+9)
	got, err := newStore(t, mem, clrtest.Descriptor(t, clrtest.Net10)).ReadTrace(throwAt)
	if err != nil || len(got.Frames) != MaxTrace || got.More != 7 || got.Frames[MaxTrace-1].IP != 0x40_0000+MaxTrace-1 {
		t.Errorf("%d frames and %d more, %v", len(got.Frames), got.More, err)
	}
}

func TestBadTrace(t *testing.T) {
	for name, spoil := range map[string]func(clrtest.Words){
		"more frames than there is room for": func(m clrtest.Words) { m[bytesAt+16] = 9 },
		"frames beyond 32 bits":              func(m clrtest.Words) { m[bytesAt+16] = 0xffff_ffff },
		"no header":                          func(m clrtest.Words) { m[bytesAt+8] = 15 },
		"no array":                           func(m clrtest.Words) { m[bytesMT] = 1 },
		"an array of numbers":                func(m clrtest.Words) { m[bytesMT] = 0x8000_0004 },
		"references to references": func(m clrtest.Words) {
			m[throwAt+48], m[refsAt+8], m[refsAt+16] = uint64(refsAt), 1, uint64(refsAt)
		},
		"references to none": func(m clrtest.Words) { m[throwAt+48], m[refsAt+8] = uint64(refsAt), 0 },
		"unknown flags":      func(m clrtest.Words) { m[bytesAt+32+24] = 0x10 },
		"no method":          func(m clrtest.Words) { m[bytesAt+32+16] = 0 },
		"an adjusted 0":      func(m clrtest.Words) { m[bytesAt+32] = 0 },
	} {
		mem := tracedMemory(3, 8)
		spoil(mem)
		got, err := newStore(t, mem, clrtest.Descriptor(t, clrtest.Net10)).ReadTrace(throwAt)
		if !errors.Is(err, ErrTrace) || len(got.Frames) > 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	mem := tracedMemory(3, 8)
	delete(mem, bytesAt+32+8)
	if _, err := newStore(t, mem, clrtest.Descriptor(t, clrtest.Net10)).ReadTrace(throwAt); err == nil {
		t.Error("no error, though a frame cannot be read")
	}
}

func TestReferences(t *testing.T) { onEachTrace(t, testReferences) }

func testReferences(t *testing.T, d *contract.Descriptor) {
	mem := tracedMemory(1, 1)
	mem[refsAt+8], mem[refsAt+16], mem[refsAt+24], mem[refsAt+32] = 3, 0x10, 0x20, 0x30
	s := newStore(t, mem, d)
	if got, all, err := s.References(refsAt, 8); err != nil || all != 3 ||
		!reflect.DeepEqual(got, []arch.Addr{16, 32, 48}) {
		t.Errorf("%v of %d, %v", got, all, err)
	}
	if got, all, err := s.References(refsAt, 2); err != nil || all != 3 || len(got) != 2 {
		t.Errorf("%v of %d, %v", got, all, err)
	}
	if _, _, err := s.References(bytesAt, 8); !errors.Is(err, ErrTrace) {
		t.Errorf("bytes for references: %v", err)
	}
}

// TestInFlight: InFlight returns each exception of the chain once, even if the chain leads back to itself.
func TestInFlight(t *testing.T) { onEachTrace(t, testInFlight) }

func testInFlight(t *testing.T, d *contract.Descriptor) {
	s := newStore(t, clrtest.Words{}, d)
	mem := clrtest.Words{}
	link := func(i int, obj arch.Addr, previous int) {
		at := exInfoAt + arch.Addr(i)*0x400
		mem[at+arch.Addr(s.l.ExObject)], mem[at+arch.Addr(s.l.ExPrevious)] = uint64(obj), 0
		if !s.direct {
			handle := handleAt + arch.Addr(i)*8
			mem[at+arch.Addr(s.l.ExObject)], mem[handle] = uint64(handle), uint64(obj)
		}
		if previous >= 0 {
			mem[at+arch.Addr(s.l.ExPrevious)] = uint64(exInfoAt + arch.Addr(previous)*0x400)
		}
	}
	link(0, throwAt, 1)
	link(1, throwAt, 2) // thrown again
	link(2, olderAt, -1)
	s = newStore(t, mem, d)
	th := Thread{Address: threadAt, Exception: exInfoAt}
	if got, want := s.InFlight(&th), []arch.Addr{throwAt, olderAt}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	link(2, olderAt, 0)
	if got := s.InFlight(&th); len(got) != 2 {
		t.Errorf("a cycle: %v", got)
	}
	mem[threadAt+arch.Addr(s.l.Exception)] = uint64(exInfoAt)
	if !s.StillInFlight(&th) {
		t.Error("it is still in flight")
	}
	mem[threadAt+arch.Addr(s.l.Exception)] = 0
	if s.StillInFlight(&th) {
		t.Error("nothing is in flight any more")
	}
	th.Exception = 0
	if got := s.InFlight(&th); got != nil {
		t.Errorf("nothing in flight: %v", got)
	}
}

// hostile is memory whose every page has the same bytes.
type hostile []byte

func (h hostile) ReadMemory(p []byte, addr arch.Addr) error {
	if len(h) == 0 || addr < 0x1000 || addr > 1<<47 {
		return &target.ReadError{Addr: addr, Len: len(p)}
	}
	for i := range p {
		p[i] = h[(int(addr&0xffff)+i)%len(h)]
	}
	return nil
}

// FuzzTrace reads exceptions out of hostile memory.
func FuzzTrace(f *testing.F) {
	b := make([]byte, 512)
	for i := range b {
		b[i] = byte(i)
	}
	f.Add(b, uint64(0x1000))
	self := make([]byte, 64)
	binary.LittleEndian.PutUint64(self, 0x8000_0001)
	f.Add(self, uint64(0x1000))
	refs := make([]byte, 64)
	for i := 0; i < 64; i += 8 {
		binary.LittleEndian.PutUint64(refs[i:], 0x8000_0008)
	}
	f.Add(refs, uint64(0x2008))
	f.Fuzz(func(t *testing.T, b []byte, obj uint64) {
		for _, name := range []string{clrtest.Net8, clrtest.Net10, clrtest.Net11} {
			s := newStore(t, hostile(b), clrtest.Descriptor(t, name))
			at := arch.Addr(obj)
			if got, err := s.ReadTrace(at); err != nil && len(got.Frames) > 0 || len(got.Frames) > MaxTrace ||
				got.More < 0 {
				t.Errorf("%s: %d frames and %d more, %v", name, len(got.Frames), got.More, err)
			}
			if refs, all, err := s.References(at, 64); len(refs) > 64 || err == nil && all < len(refs) {
				t.Errorf("%s: %d references of %d", name, len(refs), all)
			}
			if e, err := s.ReadException(at); err == nil && len(e.Message) > 3*maxMessage {
				t.Errorf("%s: a message of %d bytes", name, len(e.Message))
			}
			if got := s.InFlight(&Thread{Address: at, Exception: at}); len(got) > maxNested {
				t.Errorf("%s: %d in flight", name, len(got))
			}
		}
	})
}

// FuzzElements decodes the elements of a trace.
func FuzzElements(f *testing.F) {
	f.Add([]byte("0123456701234567012345670\x00\x00\x00...."))
	f.Add(make([]byte, 96))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := newStore(t, clrtest.Words{}, clrtest.Descriptor(t, clrtest.Net9)).trace
		frames, err := l.decode(b)
		if err == nil && len(frames) != len(b)/elementLen || err != nil && frames != nil {
			t.Errorf("%d frames of %d bytes, %v", len(frames), len(b), err)
		}
	})
}
