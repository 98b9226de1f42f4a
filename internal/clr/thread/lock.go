package thread

import "encoding/binary"

// LockLen is how much of a lock is read, in bytes.
const LockLen = 32

// LockOwner returns the thread that holds a lock, by the id that the runtime has for it; 0: none does, or b is no
// lock. b is LockLen bytes of the lock.
//
// A lock is the runtime's AwareLock (src/coreclr/vm/syncblk.h; .NET 8 to 10), which Monitor uses:
// its state at 0, of which bit 0 says that it is held, how often at 4, and the owner's OS thread id
// at 16. Or it is an object of System.Threading.Lock (src/libraries/System.Private.CoreLib/src/
// System/Threading/Lock.cs; .NET 9 and later): the owner's OS thread id at 16, from .NET 11 on its managed
// thread id, the state at 20, again with bit 0. Taken for the other one, each has no owner: the upper half of the OS
// thread id is 0 in the one, and is the state of a lock that is held in the other.
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
