package thread

import (
	"encoding/binary"

	"clrsnap/internal/arch"
)

// LockLen is how much of a lock is read, in bytes.
const LockLen = 32

// LockOwner returns the thread that holds a lock, by the OS thread id that the runtime has for
// it; 0: none does, or b is no lock. b is LockLen bytes of the lock.
//
// A lock is the runtime's AwareLock (src/coreclr/vm/syncblk.h; .NET 8 to 10), which Monitor uses:
// its state at 0, of which bit 0 says that it is held, how often at 4, and the owner's OS thread id
// at 16. Or it is an object of System.Threading.Lock (src/libraries/System.Private.CoreLib/src/
// System/Threading/Lock.cs; .NET 9 and 10): the owner's OS thread id at 16, its state at 20, again
// with bit 0. Taken for the other one, each has no owner: the upper half of the OS thread id is 0
// in the one, and is the state of a lock that is held in the other.
func LockOwner(b []byte, object bool) int {
	const held = 1
	if len(b) < LockLen {
		return 0
	}
	low, high := binary.LittleEndian.Uint32(b[16:]), binary.LittleEndian.Uint32(b[20:])
	state := high
	if !object {
		state = binary.LittleEndian.Uint32(b)
		if often := binary.LittleEndian.Uint32(b[4:]); high != 0 || often == 0 {
			return 0
		}
	}
	if state&held == 0 || int32(low) < 0 {
		return 0
	}
	return int(low)
}

// LockID returns how the runtime's events identify the System.Threading.Lock at an address, if class is
// its class: by the handle of what its threads wait with. 0: there is none. The lock's first field is
// its AutoResetEvent, whose first one is a SafeWaitHandle, whose first one is the handle
// (System.Private.CoreLib: Lock.cs, LockIdForEvents; WaitHandle.cs; SafeHandle.cs).
func (s *Store) LockID(lock, class arch.Addr) uint64 {
	const field = 8 // the first one, behind the object's class
	if table, err := s.mem.Uint64(lock); err != nil || table&^s.l.Untag != uint64(class) {
		return 0
	}
	at, err := s.mem.Pointer(lock + field)
	if err == nil {
		at, err = s.mem.Pointer(at + field)
	}
	if err != nil {
		return 0
	}
	id, err := s.mem.Uint64(at + field)
	if err != nil {
		return 0
	}
	return id
}
