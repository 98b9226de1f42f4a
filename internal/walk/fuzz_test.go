package walk

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/contract"
	"clrsnap/internal/module"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
)

// net10 is the descriptor of .NET 10. The identifiers of Frames are small numbers, so fuzz data
// can hit them.
var net10 = sync.OnceValues(func() (*contract.Descriptor, error) {
	text, err := os.ReadFile("../contract/testdata/net10.0.12.json")
	if err != nil {
		return nil, err
	}
	pointers := make([]uint64, 24)
	for i := range pointers {
		pointers[i] = uint64(i) + 1
	}
	return contract.FromJSON(text, pointers)
})

const stackBase = arch.Addr(0x7ffd_0000_0000)

// hostile is a target whose every answer comes from fuzz data.
type hostile struct{ data []byte }

func (h *hostile) at(ip arch.Addr, salt uint64) byte {
	return h.data[(uint64(ip)*31+salt*7)%uint64(len(h.data))]
}

func (h *hostile) ReadMemory(p []byte, addr arch.Addr) error {
	if h.at(addr, 1)&7 == 7 {
		return &target.ReadError{Addr: addr, Len: len(p)}
	}
	for i := range p {
		p[i] = h.at(addr+arch.Addr(i), 2)
	}
	return nil
}

func (h *hostile) Lookup(ip arch.Addr) (codemap.Code, error) {
	b := h.at(ip, 3)
	if b == 0xee {
		return codemap.Code{}, codemap.ErrCorrupt
	}
	start := ip &^ 0xff
	return codemap.Code{
		Kind: codemap.Kind(b & 3), Funclet: b&0x30 == 0x30, Collectible: b&0x40 != 0,
		Start: start, End: start + 256, MethodStart: start - arch.Addr(b>>4&1)<<8, MethodDesc: start,
	}, nil
}

func (h *hostile) IsFilter(c *codemap.Code) (bool, error) {
	b := h.at(c.Start, 5)
	if b == 0xee {
		return false, codemap.ErrCorrupt
	}
	return b&1 != 0, nil
}

func (h *hostile) Hidden(desc arch.Addr) (hidden, machinery bool, err error) {
	b := h.at(desc, 6)
	if b == 0xee {
		return false, false, errors.New("no such method")
	}
	return b&1 != 0, b&3 == 3, nil
}

func (h *hostile) Find(arch.Addr) *module.Module { return nil }
func (h *hostile) Executable(ip arch.Addr) bool  { return h.at(ip, 7)&1 != 0 }

func (h *hostile) Compile(_ *codemap.Code, ip arch.Addr) (*unwind.Step, error) {
	b := h.at(ip, 8)
	if b == 0xee {
		return nil, unwind.ErrBadInfo
	}
	s := &unwind.Step{
		CFAReg: arch.RSP, SP: arch.RSP, Keep: arch.AMD64.NonVolatile, IPOff: -8,
		CFAOff: int32(int8(h.at(ip, 9))) * 8, End: b == 0xdd, Signal: b&0xf == 0xc,
	}
	if b&1 != 0 {
		s.CFAReg = arch.RBP
	}
	if b&2 != 0 {
		s.Saved = []unwind.Saved{{Reg: arch.RBP, Off: -16}, {Reg: h.at(ip, 10) & 15, Off: int32(int8(h.at(ip, 11)))}}
	}
	return s, nil
}

func (h *hostile) walker(t testing.TB) *Walker {
	d, err := net10()
	if err != nil {
		t.Fatal(err)
	}
	chain, err := thread.NewChain(d, arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{Arch: arch.AMD64, Memory: h, Code: h, Compile: h.Compile, Modules: h, Methods: h, Chain: chain})
}

// thread makes a thread of fuzz data: its words are registers, the head of its Thread object, and
// a stack. About half of the words on the stack point at the stack itself.
func (h *hostile) thread() *Thread {
	word := func(i int) uint64 {
		var b [8]byte
		for k := range b {
			b[k] = h.data[(i*8+k)%len(h.data)]
		}
		return binary.LittleEndian.Uint64(b[:])
	}
	n := min(len(h.data)/8+1, 512)
	onStack := func(v uint64) uint64 { return uint64(stackBase) + v%uint64(8*n+16)&^7 }
	t := &Thread{Stack: &target.Stack{}}
	t.Stack.Base = stackBase
	for i := range n {
		v := word(i)
		if v&1 == 0 {
			v = onStack(v >> 1)
		}
		t.Stack.Data = binary.LittleEndian.AppendUint64(t.Stack.Data, v)
	}
	t.Context = arch.Context{IP: arch.Addr(word(n)), Machine: arch.MachineAMD64}
	for r := range uint8(16) {
		t.Context.Set(r, onStack(word(n+1+int(r))))
	}
	w := word(n + 20)
	t.Info = thread.Thread{
		Address: arch.Addr(w & 1), Cooperative: w&2 != 0, State: uint32(w >> 2), Frame: arch.Addr(onStack(w >> 8)),
	}
	t.Head = h.data[:len(h.data)&^7]
	t.UnwoundLow, t.UnwoundHigh = arch.Addr(onStack(w>>16)), arch.Addr(onStack(w>>24))
	return t
}

// FuzzWalk: whatever a target answers, every kind of walk ends, soon, without a panic. A complete
// walk has no error; an incomplete walk has a reason.
func FuzzWalk(f *testing.F) {
	f.Add([]byte("\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x15\x16\x17\x18\x22"))
	f.Add(make([]byte, 100))
	f.Add([]byte("\xff\xd0\xff\xd0\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x05\xc1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 8 || len(data) > 4096 {
			return
		}
		h := &hostile{data}
		w, th := h.walker(t), h.thread()
		limit := len(th.Stack.Data) + 2*maxSignals + 2*maxChain
		for _, route := range []Route{ByUnwindInfo, ByFrames} {
			for _, walk := range []func(*Thread, *arch.Context, Route, func(*Frame) bool) Result{w.Unwind, w.Walk} {
				ctx, n := th.Context, 0
				r := walk(th, &ctx, route, func(fr *Frame) bool {
					n++
					w.Hidden(fr)
					w.Filter(fr)
					return n <= limit
				})
				if n > limit || r.Complete == (r.Err != nil) {
					t.Fatalf("route %d: %d frames of a stack of %d bytes: %+v", route, n, len(th.Stack.Data), r)
				}
			}
		}
		for _, mode := range []Mode{AsDocumented, AsCoreCLR} {
			ctx := th.Context
			w.DoStackSnapshot(th, &ctx, mode, func(Run) bool { return true })
		}
		if seed, ok, err := w.Seed(th); ok && err == nil {
			if on, err := w.OnStack(th, &seed); !on || err != nil {
				t.Fatalf("the seed %+v is not on the stack: %v", seed, err)
			}
		}
		if seed, ok, err := w.FrameSeed(th); ok && err == nil {
			ctx := seed
			w.UnwindFrom(th, &ctx, false, func(*Frame) bool { return true })
		}
	})
}
