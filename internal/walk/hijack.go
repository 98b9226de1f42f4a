package walk

import (
	"encoding/binary"

	"clrsnap/internal/arch"
)

// hijacked returns the true return address of a hijacked slot. The runtime has put the address of
// its own code into the slot, so that the thread stops when its method returns
// (threadsuspend.cpp, Thread::HijackThread). The Thread object keeps the true address and, in the
// next word, the address of the slot. The data descriptor does not name these fields, so hijacked
// searches for the address of the slot.
//
// The runtime sets the fields before it overwrites the slot, and leaves them when it restores the
// slot. The caller must make sure that the slot no longer holds the true address. The flag in the
// thread's state does not help: the runtime sets the flag after it has overwritten the slot.
func (u *unwinding) hijacked(slot uint64) (arch.Addr, bool) {
	head := u.t.Head
	for off := 8; off+8 <= len(head); off += 8 {
		if binary.LittleEndian.Uint64(head[off:]) != slot {
			continue
		}
		if ip := arch.Addr(binary.LittleEndian.Uint64(head[off-8:])); u.w.isManaged(ip) {
			return ip, true
		}
	}
	return 0, false
}

// unhijack replaces the return address that was read at the top of a managed frame by the true
// address, if no call can return to the address that was read.
func (u *unwinding) unhijack(s *site) bool {
	if !u.fromManaged || u.t.Info.Address == 0 || s != nil && u.w.canReturn(s, u.ctx.IP) {
		return false
	}
	ip, ok := u.hijacked(u.ctx.Regs[u.w.arch.SP] - 8)
	if ok {
		u.ctx.IP = ip
	}
	return ok
}

// canReturn is isReturn, computed once for a site.
func (w *Walker) canReturn(s *site, ip arch.Addr) bool {
	if s.returns == unknown {
		s.returns = no
		if w.isReturn(ip) {
			s.returns = yes
		}
	}
	return s.returns == yes
}
