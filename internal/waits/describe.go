package waits

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/clr/object"
	"clrsnap/snapshot"
)

// describe adds the details of a wait from the fields of the awaited object. The names of fields
// here, and below, are the names in System.Private.CoreLib of .NET 8 to 11: SemaphoreSlim.cs,
// Task.cs, ReaderWriterLockSlim.cs.
func (e *explanation) describe(obj arch.Addr, class *object.Class, m *lock.Monitor) error {
	switch e.w.Kind {
	case snapshot.SemaphoreWait:
		e.w.Waiters = m.Waiting
		return e.count(obj, class)
	case snapshot.EventWait, snapshot.CountdownWait, snapshot.CollectionTake, snapshot.CollectionAdd:
		e.w.Waiters = m.Waiting
	case snapshot.TaskWait:
		return e.task(obj, class)
	}
	return nil
}

// count says how many permits a semaphore has left.
func (e *explanation) count(obj arch.Addr, class *object.Class) error {
	count, err := e.r.Managed.Objects.Uint32(obj, class, "m_currentCount")
	e.w.Detail = fmt.Sprintf("count %d", int32(count))
	return err
}

// taskStates are bits of Task.m_stateFlags (Task.cs, TaskStateFlags), with the names of
// Task.Status. The first bit that is set counts.
var taskStates = []struct {
	bit  uint32
	name string
}{
	{0x0020_0000, "Faulted"},
	{0x0040_0000, "Canceled"},
	{0x0100_0000, "RanToCompletion"},
	{0x0080_0000, "WaitingForChildrenToComplete"},
	{0x0002_0000, "Running"},
	{0x0001_0000, "WaitingToRun"},
	{0x0200_0000, "WaitingForActivation"},
}

const (
	// asyncBox is the task of an async method. The last type argument is the state machine, named
	// like the method.
	asyncBox = "AsyncStateMachineBox<"
)

// task describes an awaited task.
func (e *explanation) task(obj arch.Addr, class *object.Class) error {
	flags, err := e.r.Managed.Objects.Uint32(obj, class, "m_stateFlags")
	if err == nil {
		e.w.Detail, e.w.Method = taskState(flags), e.r.asyncMethod(class)
	}
	return err
}

// taskState is the state of a task in words.
func taskState(flags uint32) string {
	for _, s := range taskStates {
		if flags&s.bit != 0 {
			return s.name
		}
	}
	return "Created"
}

const readerWriterClass = "System.Threading.ReaderWriterLockSlim"

// readerWriter explains a wait for a ReaderWriterLockSlim.
func (e *explanation) readerWriter() error {
	f, ok := e.r.only(e.inFrames(false), func(f *found) bool {
		return f.class.Is(coreLib, readerWriterClass)
	})
	if !ok {
		return nil
	}
	rw, err := e.r.readerWriter(f)
	if err != nil {
		return err
	}
	if rw.waiters == 0 {
		return nil // nobody waits for this lock
	}
	e.w.Object, e.w.Type, e.w.Waiters, e.w.Lock = uint64(f.obj), f.class.Display, rw.waiters, rw.id
	if own := e.s.Thread.ManagedID; rw.upgrader == own && rw.readers > 0 {
		rw.readers-- // without the waiting thread
		rw.upgrader = 0
	}
	switch {
	case rw.writer != 0:
		e.w.Owner = e.r.byManagedID(rw.writer)
	case rw.upgrader != 0 && e.w.Kind != snapshot.ReadLock:
		e.w.Owner = e.r.byManagedID(rw.upgrader)
	}
	if rw.readers > 0 {
		e.w.Detail = counted(rw.readers, "reader", "readers")
	}
	return nil
}

// counted is a number with a noun.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// readerWriter is the state of a ReaderWriterLockSlim.
type readerWriter struct {
	writer, upgrader int // managed thread ids; 0: none
	readers          int // including the thread that may upgrade
	waiters          int
	id               uint64 // unique to the lock
}

// Bits of ReaderWriterLockSlim._owners.
const (
	ownersReaders = 1<<28 - 1
	ownersWriter  = 1 << 31
)

func (r *Reader) readerWriter(f found) (rw readerWriter, err error) {
	number := func(name string) int32 {
		if err != nil {
			return 0
		}
		var n uint32
		n, err = r.Managed.Objects.Uint32(f.obj, f.class, name)
		return int32(n)
	}
	owners := uint32(number("_owners"))
	rw.writer, rw.upgrader = int(max(number("_writeLockOwnerId"), 0)), int(max(number("_upgradeLockOwnerId"), 0))
	for _, name := range []string{
		"_numReadWaiters", "_numWriteWaiters", "_numUpgradeWaiters", "_numWriteUpgradeWaiters",
	} {
		rw.waiters += int(number(name))
	}
	written := owners&ownersWriter != 0
	if written != (rw.writer != 0) {
		return rw, lock.ErrChanging
	}
	if !written {
		rw.readers = int(owners & ownersReaders)
	}
	if err == nil {
		var id arch.Addr
		id, err = r.Managed.Objects.Pointer(f.obj, f.class, "_lockID")
		rw.id = uint64(id)
	}
	return rw, err
}
