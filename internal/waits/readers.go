package waits

import (
	"encoding/binary"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/target"
)

// A ReaderWriterLockSlim counts its readers, but does not know who they are. Each thread has a list of the locks that
// it reads, in a static field of its own (System.Private.CoreLib: ReaderWriterLockSlim.t_rwc, a ReaderWriterCount for
// each lock, which it knows by a number). Where the statics of a thread are is not in the descriptors of all versions,
// but can be recognised:
//
// From .NET 9 on a Thread refers to a ThreadLocalData, which refers back to the Thread, and to an array. Elements of
// that are arrays with the static references of a class (src/coreclr/vm/threadstatics.h). In .NET 8 a Thread refers to
// a table, whose first word is the first of some buckets. Each of these has the length of an array of static references
// and a handle of it (src/coreclr/vm/threadstatics.h and appdomain.hpp there, ThreadStaticHandleBucket).
const (
	localArray  = 8
	localThread = 24
	localLen    = 32

	bucketNext   = 0
	bucketSize   = 8
	bucketUsed   = 12
	bucketHandle = 16
	bucketLen    = 24

	threadLen    = 4096 // bytes of a Thread that are looked through
	maxBuckets   = 16
	maxStatics   = 1 << 14
	maxOfOne     = 256     // static references of one class
	maxReadLocks = 256     // of one thread
	maxSearches  = 512     // threads that are looked through for one lock before any has been found to read
	maxLooked    = 1 << 16 // references of one thread that are looked at
)

const (
	countClass = "System.Threading.ReaderWriterCount"
	references = "object[]"
)

// readCounts finds a thread's first ReaderWriterCount; 0: it has none, or none is found.
func (r *Reader) readCounts(thread arch.Addr) arch.Addr {
	r.looked = 0
	if r.localAt > 0 {
		p, err := target.NewReader(r.Runtime.Seen).Pointer(thread + arch.Addr(r.localAt))
		if err != nil {
			return 0
		}
		return r.countIn(thread, p)
	}
	head := make([]byte, threadLen)
	for len(head) >= 512 && r.Runtime.Seen.ReadMemory(head, thread) != nil {
		head = head[:len(head)/2]
	}
	if r.searches++; r.searches > maxSearches {
		return 0
	}
	link := r.Runtime.Threads.LinkOffset()
	for at := 0; at+8 <= len(head); at += 8 {
		if at == link {
			continue // leads into another Thread
		}
		if found := r.countIn(thread, arch.Addr(binary.LittleEndian.Uint64(head[at:]))); found != 0 {
			r.localAt = at
			return found
		}
	}
	return 0
}

// countIn finds the ReaderWriterCount by a word of the thread.
func (r *Reader) countIn(thread, p arch.Addr) arch.Addr {
	if p%8 != 0 || p < 1<<16 || p>>47 != 0 {
		return 0
	}
	var b [localLen]byte
	if r.Runtime.Seen.ReadMemory(b[:], p) != nil {
		return 0
	}
	if arch.Addr(binary.LittleEndian.Uint64(b[localThread:])) == thread {
		return r.countOf(arch.Addr(binary.LittleEndian.Uint64(b[localArray:])), true)
	}
	return r.countInBuckets(arch.Addr(binary.LittleEndian.Uint64(b[:])))
}

// countInBuckets finds it as .NET 8 keeps the statics of a thread.
func (r *Reader) countInBuckets(bucket arch.Addr) arch.Addr {
	for range maxBuckets {
		var b [bucketLen]byte
		if bucket%8 != 0 || bucket < 1<<16 || bucket>>47 != 0 || r.Runtime.Seen.ReadMemory(b[:], bucket) != nil {
			return 0
		}
		size, used := binary.LittleEndian.Uint32(b[bucketSize:]), binary.LittleEndian.Uint32(b[bucketUsed:])
		handle := arch.Addr(binary.LittleEndian.Uint64(b[bucketHandle:]))
		if size == 0 || size > maxStatics || used > size || handle%8 != 0 || handle < 1<<16 || handle>>47 != 0 {
			return 0
		}
		var obj [8]byte
		if r.Runtime.Seen.ReadMemory(obj[:], handle) != nil {
			return 0
		}
		array := arch.Addr(binary.LittleEndian.Uint64(obj[:]))
		if r.looked += int(size); r.looked > maxLooked {
			return 0
		}
		if refs, err := r.Runtime.Objects.References(array, maxStatics); err != nil || len(refs) != int(size) {
			return 0
		}
		if found := r.countOf(array, false); found != 0 {
			return found
		}
		bucket = arch.Addr(binary.LittleEndian.Uint64(b[bucketNext:]))
	}
	return 0
}

// countOf finds a ReaderWriterCount in an array of references, or, if nested, in the arrays that are in it.
func (r *Reader) countOf(array arch.Addr, nested bool) arch.Addr {
	objects := r.Runtime.Objects
	if c, err := objects.Class(array); err != nil || c.Display != references {
		return 0
	}
	most := maxStatics
	if !nested {
		most = maxOfOne
	}
	refs, err := objects.References(array, most)
	if err != nil {
		return 0
	}
	for _, ref := range refs {
		if r.looked++; r.looked > maxLooked {
			return 0
		}
		if ref == 0 {
			continue
		}
		c, err := objects.Class(ref)
		switch {
		case err != nil:
		case c.Is(coreLib, countClass):
			return ref
		case nested && c.Display == references:
			if found := r.countOf(ref, false); found != 0 {
				return found
			}
		}
	}
	return 0
}

// LockNumber returns the number that a ReaderWriterLockSlim has for the lists of its readers.
func (r *Reader) LockNumber(obj arch.Addr) (uint64, bool) {
	var id arch.Addr
	r.searches = 0
	stands := r.steadily(func() error {
		class, err := r.Runtime.Objects.Class(obj)
		if err != nil {
			return err
		}
		if !class.Is(coreLib, readerWriterClass) {
			return lock.ErrChanging
		}
		id, err = r.Runtime.Objects.Pointer(obj, class, "_lockID")
		return err
	}, nil, primitive{})
	return uint64(id), stands
}

// ReadLocks returns the numbers of the ReaderWriterLockSlims that a thread, whose Thread object is at an address,
// holds to read.
func (r *Reader) ReadLocks(thread arch.Addr) (ids []uint64) {
	stands := r.steadily(func() (err error) {
		ids, err = r.readLocks(thread)
		return err
	}, nil, primitive{})
	if !stands {
		return nil
	}
	return ids
}

func (r *Reader) readLocks(thread arch.Addr) (ids []uint64, err error) {
	objects := r.Runtime.Objects
	for at, n := r.readCounts(thread), 0; at != 0 && n < maxReadLocks; n++ {
		class, err := objects.Class(at)
		if err != nil || !class.Is(coreLib, countClass) {
			return nil, err
		}
		id, err := objects.Pointer(at, class, "lockID")
		if err != nil {
			return nil, err
		}
		often, err := objects.Uint32(at, class, "readercount")
		if err != nil {
			return nil, err
		}
		if int32(often) > 0 {
			ids = append(ids, uint64(id))
		}
		if at, err = objects.Pointer(at, class, "next"); err != nil {
			return nil, err
		}
	}
	return ids, nil
}
