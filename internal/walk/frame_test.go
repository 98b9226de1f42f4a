package walk

import (
	"encoding/binary"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/module"
	"clrsnap/internal/target"
)

// onlyCode has code at every address, of no method.
type onlyCode struct{}

func (onlyCode) Lookup(arch.Addr) (codemap.Code, error) { return codemap.Code{Kind: codemap.Stub}, nil }
func (onlyCode) IsFilter(*codemap.Code) (bool, error)   { return false, nil }

// TestByFramePointer: a frame pointer leads to the caller's frame pointer and, behind that, to
// the return address. The step is accepted if a call lies before the return address.
func TestByFramePointer(t *testing.T) {
	const sp, fp, callersFP, back, beyond = 0x7000, 0x7020, 0x7050, 0x5000, 0x6000
	mem := clrtest.Words{}
	mem.Zero(back-8, 8)
	mem.Uint32(back-8, 0xe8<<24) // call
	mem.Zero(beyond-8, 8)
	stack := target.Stack{Region: target.Region{Base: sp, Data: make([]byte, 0x80)}}
	put := func(at, v uint64) { binary.LittleEndian.PutUint64(stack.Data[at-sp:], v) }
	step := func() (*unwinding, bool) {
		ctx := &arch.Context{IP: 0x4000, Valid: ^arch.RegMask(0)}
		ctx.Set(arch.RSP, sp)
		ctx.Set(arch.RBP, fp)
		u := &unwinding{
			w: New(Options{Arch: arch.AMD64, Memory: mem, Code: onlyCode{}}), t: &Thread{Stack: &stack}, ctx: ctx,
			exact: true,
		}
		return u, u.byFramePointer(&site{mod: &module.Module{Name: "own.so"}})
	}
	put(fp, callersFP)
	put(fp+8, back)
	put(fp+16, beyond)
	u, ok := step()
	up, _ := u.ctx.Reg(arch.RBP)
	if !ok || u.exact || u.ctx.IP != back || u.ctx.Regs[arch.RSP] != fp+16 || up != callersFP {
		t.Errorf("%v: %v, exact %v", ok, u.ctx, u.exact)
	}
	if u.gap == nil {
		t.Error("nothing says that a frame may be missing")
	}
	put(fp+8, beyond)
	if u, ok := step(); ok {
		t.Errorf("no call lies before %v", u.ctx.IP)
	}
}
