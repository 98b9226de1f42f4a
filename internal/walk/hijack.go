package walk

import (
	"encoding/binary"

	"clrsnap/internal/arch"
	"clrsnap/internal/unwind"
)

// hijack is a return address that the runtime has replaced by the address of
// its own code, so that the thread comes to a stop when its method returns
// (threadsuspend.cpp, Thread::HijackThread). The Thread object keeps the true
// address and, in the word after it, the address of its slot. The data
// descriptor does not name these fields, so the slot is looked for.
type hijack struct {
	slot, ip arch.Addr
}

// unhijack puts the true return address in place of the one that step has just
// read, if that was the hijacked one.
func (u *unwinding) unhijack(step *unwind.Step) {
	if u.hijack == nil {
		u.hijack = &hijack{}
		*u.hijack = u.findHijack()
	}
	cfa, ok := u.ctx.Reg(u.w.arch.SP)
	if !ok || u.hijack.slot == 0 {
		return
	}
	if slot := arch.Addr(cfa) + arch.Addr(int64(step.IPOff)); slot == u.hijack.slot && !u.w.isManaged(u.ctx.IP) {
		u.ctx.IP = u.hijack.ip
	}
}

// findHijack looks for two neighbouring words in the Thread object: an address
// in managed code, and the address of a slot on the captured stack.
func (u *unwinding) findHijack() hijack {
	head := u.t.Head
	for off := 8; off+8 <= len(head); off += 8 {
		slot := arch.Addr(binary.LittleEndian.Uint64(head[off:]))
		if slot%8 != 0 || !u.t.Stack.Contains(slot) {
			continue
		}
		if ip := arch.Addr(binary.LittleEndian.Uint64(head[off-8:])); u.w.isManaged(ip) {
			return hijack{slot: slot, ip: ip}
		}
	}
	return hijack{}
}
