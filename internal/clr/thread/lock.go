package thread

import "encoding/binary"

// LockLen is the number of bytes of a lock to read.
const LockLen = 32

// LockOwner returns the holder of a lock, as the runtime's thread id; 0: there is no holder, or b is no lock. b has
// LockLen bytes of the lock.
//
// A lock is either the AwareLock of the runtime (src/coreclr/vm/syncblk.h; .NET 8 to 10), which Monitor uses, or an
// object of System.Threading.Lock (src/libraries/System.Private.CoreLib/src/System/Threading/Lock.cs; .NET 9 and
// later). An AwareLock has the state at 0, with bit 0 for held, the recursion count at 4, and the owner's OS thread
// id at 16. A Lock has the owner's OS thread id at 16, from .NET 11 on the owner's managed thread id, and the state
// at 20, again with bit 0 for held. If a caller takes one form for the other, the result is 0: the upper half of the
// OS thread id is 0 in an AwareLock, and is the state of a held lock in a Lock.
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
