package walk

import (
	"encoding/binary"

	"clrsnap/internal/arch"
	"clrsnap/internal/unwind"
)

// unhijack puts the true return address in place of the one that step has just
// read, if the runtime has replaced that by the address of its own code, so that
// the thread comes to a stop when its method returns (threadsuspend.cpp,
// Thread::HijackThread). The Thread object keeps the true address and, in the
// word after it, the address of its slot. The data descriptor does not name these
// fields, so the slot is looked for.
func (u *unwinding) unhijack(step *unwind.Step) {
	cfa, ok := u.ctx.Reg(u.w.arch.SP)
	if !ok || u.w.isManaged(u.ctx.IP) {
		return
	}
	slot := cfa + uint64(int64(step.IPOff))
	head := u.t.Head
	for off := 8; off+8 <= len(head); off += 8 {
		if binary.LittleEndian.Uint64(head[off:]) != slot {
			continue
		}
		if ip := arch.Addr(binary.LittleEndian.Uint64(head[off-8:])); u.w.isManaged(ip) {
			u.ctx.IP = ip
			return
		}
	}
}
