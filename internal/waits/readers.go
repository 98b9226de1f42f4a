package waits

import (
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/target"
)

// A ReaderWriterLockSlim counts its readers, but does not know the readers. Each thread has a list
// of the locks that the thread reads, in a thread-static field (System.Private.CoreLib:
// ReaderWriterLockSlim.t_rwc, a ReaderWriterCount for each lock; a number identifies the lock). The
// descriptors of some versions do not say where the statics of a thread are, but the statics can be
// recognised:
//
// From .NET 9 on a Thread refers to a ThreadLocalData. The ThreadLocalData refers back to the
// Thread, and to an array. Elements of the array are arrays with the static references of a class
// (src/coreclr/vm/threadstatics.h). In .NET 8 a Thread refers to a table. The first word of the
// table is the first of some buckets. Each bucket has the length of an array of static references
// and a handle of the array (src/coreclr/vm/threadstatics.h and appdomain.hpp there,
// ThreadStaticHandleBucket).
const (
	localArray  = 8
	localThread = 24
	localLen    = 32

	bucketNext   = 0
	bucketSize   = 8
	bucketHandle = 16
	bucketLen    = 24

	threadLen    = 4096 // bytes of a Thread that are searched
	maxBuckets   = 16
	maxStatics   = 1 << 14
	maxOfOne     = 256     // static references of one class
	maxReadLocks = 256     // of one thread
	maxSearches  = 512     // threads searched for one lock before the statics are found in any thread
	maxLooked    = 1 << 16 // references examined for one thread
)

const (
	countClass = "System.Threading.ReaderWriterCount"
	references = "object[]"
)

// readCounts finds a thread's first ReaderWriterCount; 0: none is found. read: all static fields of
// the thread were examined, so the thread certainly has no other list.
func (r *Reader) readCounts(thread arch.Addr) (first arch.Addr, read bool) {
	r.looked = 0
	if r.Managed.Threads.Ahead() {
		return r.countAhead(thread), false
	}
	if at, ok := r.Managed.Threads.LocalDataAt(); ok {
		r.localAt = int(at)
	}
	if r.localAt > 0 {
		p, err := target.NewReader(r.Managed.Seen).Pointer(thread + arch.Addr(r.localAt))
		if err != nil || p == 0 {
			return 0, err == nil // the thread has no thread-static fields yet
		}
		return r.countIn(thread, p)
	}
	head := make([]byte, threadLen)
	for len(head) >= 512 && r.Managed.Seen.ReadMemory(head, thread) != nil {
		head = head[:len(head)/2]
	}
	if r.searches++; r.searches > maxSearches {
		return 0, false
	}
	link, statics := r.Managed.Threads.LinkOffset(), []int(nil)
	for at := 0; at+8 <= len(head); at += 8 {
		if at == link {
			continue // leads into another Thread
		}
		found, read := r.countIn(thread, arch.Addr(binary.LittleEndian.Uint64(head[at:])))
		if found != 0 {
			r.localAt = at
			return found, true
		}
		if read {
			statics = append(statics, at)
		}
	}
	if len(statics) != 1 {
		return 0, false
	}
	r.localAt = statics[0] // the only word that leads to statics, though the thread reads no lock
	return 0, true
}

// countAhead finds the ReaderWriterCount of a thread of a native AOT program; 0: none is found. There is no other
// static field with such an object.
func (r *Reader) countAhead(thread arch.Addr) arch.Addr {
	for _, obj := range r.Managed.ThreadObjects(thread) {
		if c, err := r.Managed.Objects.Class(obj); err == nil && c.Is(coreLib, countClass) {
			return obj
		}
	}
	return 0
}

// countIn finds the ReaderWriterCount behind a word of the thread.
func (r *Reader) countIn(thread, p arch.Addr) (first arch.Addr, read bool) {
	if p%8 != 0 || p < 1<<16 || p>>47 != 0 {
		return 0, false
	}
	var b [localLen]byte
	if r.Managed.Seen.ReadMemory(b[:], p) != nil {
		return 0, false
	}
	if arch.Addr(binary.LittleEndian.Uint64(b[localThread:])) == thread {
		array := arch.Addr(binary.LittleEndian.Uint64(b[localArray:]))
		if array == 0 {
			return 0, true
		}
		return r.countOf(array, true)
	}
	return r.countInBuckets(arch.Addr(binary.LittleEndian.Uint64(b[:])))
}

// countInBuckets finds the ReaderWriterCount in the statics of a thread of .NET 8.
func (r *Reader) countInBuckets(bucket arch.Addr) (first arch.Addr, read bool) {
	for range maxBuckets {
		var b [bucketLen]byte
		if bucket%8 != 0 || bucket < 1<<16 || bucket>>47 != 0 || r.Managed.Seen.ReadMemory(b[:], bucket) != nil {
			return 0, false
		}
		size := binary.LittleEndian.Uint32(b[bucketSize:]) // the four bytes behind are padding
		handle := arch.Addr(binary.LittleEndian.Uint64(b[bucketHandle:]))
		if size == 0 || size > maxStatics || handle%8 != 0 || handle < 1<<16 || handle>>47 != 0 {
			return 0, false
		}
		var obj [8]byte
		if r.Managed.Seen.ReadMemory(obj[:], handle) != nil {
			return 0, false
		}
		array := arch.Addr(binary.LittleEndian.Uint64(obj[:]))
		if r.looked += int(size); r.looked > maxLooked {
			return 0, false
		}
		if refs, err := r.Managed.Objects.References(array, maxStatics); err != nil || len(refs) != int(size) {
			return 0, false
		}
		found, whole := r.countOf(array, false)
		if found != 0 || !whole {
			return found, whole
		}
		if bucket = arch.Addr(binary.LittleEndian.Uint64(b[bucketNext:])); bucket == 0 {
			return 0, true
		}
	}
	return 0, false
}

// countOf finds a ReaderWriterCount in an array of references or, if nested, in the arrays among
// the references. read: the array could be read as a whole, or has a ReaderWriterCount.
func (r *Reader) countOf(array arch.Addr, nested bool) (first arch.Addr, read bool) {
	objects := r.Managed.Objects
	if c, err := objects.Class(array); err != nil || c.Display != references {
		return 0, false
	}
	most := maxStatics
	if !nested {
		most = maxOfOne
	}
	refs, err := objects.References(array, most)
	if err != nil {
		return 0, false
	}
	read = true
	for _, ref := range refs {
		if r.looked++; r.looked > maxLooked {
			return 0, false
		}
		if ref == 0 {
			continue
		}
		c, err := objects.Class(ref)
		switch {
		case err != nil:
			read = false
		case c.Is(coreLib, countClass):
			return ref, true
		case nested && c.Display == references:
			found, whole := r.countOf(ref, false)
			if found != 0 {
				return found, true
			}
			read = read && whole
		}
	}
	return 0, read
}

// LockNumber returns the number of a ReaderWriterLockSlim in the lists of the lock's readers.
func (r *Reader) LockNumber(obj arch.Addr) (uint64, bool) {
	r.searches = 0
	rw, ok := r.lockState(obj)
	return rw.id, ok
}

// ReadLocks returns the numbers of the ReaderWriterLockSlims that a thread holds to read. thread is
// the address of the Thread object. all: the thread certainly holds no others.
func (r *Reader) ReadLocks(thread arch.Addr) (ids []uint64, all bool) {
	stands := r.steadily(func() (err error) {
		ids, all, err = r.readLocks(thread)
		return err
	}, nil, primitive{})
	if !stands {
		return nil, false
	}
	return ids, all
}

func (r *Reader) readLocks(thread arch.Addr) (ids []uint64, all bool, err error) {
	objects := r.Managed.Objects
	at, all := r.readCounts(thread)
	for n := 0; at != 0; n++ {
		if n == maxReadLocks {
			return ids, false, nil
		}
		class, err := objects.Class(at)
		if err != nil || !class.Is(coreLib, countClass) {
			return nil, false, err
		}
		id, err := objects.Pointer(at, class, "lockID")
		if err != nil {
			return nil, false, err
		}
		often, err := objects.Uint32(at, class, "readercount")
		if err != nil {
			return nil, false, err
		}
		if int32(often) > 0 {
			ids = append(ids, uint64(id))
		}
		if at, err = objects.Pointer(at, class, "next"); err != nil {
			return nil, false, err
		}
	}
	return ids, all, nil
}

// ReadByEnded reports whether a ReaderWriterLockSlim is certainly read by a thread that has ended
// without leaving the lock. There must be a thread that waits to write. The lock counts its
// readers, and living readers have the lock in their lists (ReaderWriterLockSlim.cs: the thread
// that may upgrade counts, but has the lock in no list). Nobody enters a lock to read while a
// thread waits to write. So the number of readers only becomes smaller. If the number is the same
// before and after the lists are read, nobody has left in between.
func (r *Reader) ReadByEnded(obj arch.Addr, id uint64) bool {
	before, ok := r.lockState(obj)
	if !ok || before.id != id || before.readers == 0 {
		return false
	}
	list, err := r.Managed.Threads.List()
	if err != nil {
		return false
	}
	living := 0
	if before.upgrader != 0 {
		living++
	}
	for i := range list {
		if !list[i].Alive() {
			continue
		}
		ids, all := r.ReadLocks(list[i].Address)
		if !all {
			return false
		}
		if slices.Contains(ids, id) {
			living++
		}
	}
	after, ok := r.lockState(obj)
	return ok && after == before && living < before.readers
}

// lockState reads a ReaderWriterLockSlim; false: obj is no ReaderWriterLockSlim, or changes.
func (r *Reader) lockState(obj arch.Addr) (rw readerWriter, ok bool) {
	ok = r.steadily(func() error {
		class, err := r.Managed.Objects.Class(obj)
		if err != nil {
			return err
		}
		if !class.Is(coreLib, readerWriterClass) {
			return lock.ErrChanging
		}
		rw, err = r.readerWriter(found{obj, class})
		return err
	}, nil, primitive{})
	return rw, ok
}
