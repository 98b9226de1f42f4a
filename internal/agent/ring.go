package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"clrsnap/internal/memfd"

	"golang.org/x/sys/unix"
)

// The layout of the shared memory: a page with a struct ring_control, the rules for chains, and
// then the records (agent/protocol.h). The constants with off are offsets in struct ring_control,
// in bytes.
const (
	ringMagic   = 0x52534c43
	controlSize = 4096
	recordsAt   = controlSize + chainRulesSize
	counters    = 16 // of each kind, by type

	offMagic     = 0
	offVersion   = 4
	offCapacity  = 8
	offHead      = 64
	offTail      = 128
	offSeen      = 192
	offPublished = offSeen + 8*counters
	offDropped   = offPublished + 8*counters
	offFailed    = offDropped + 8*counters
	offReleased  = offFailed + 8*counters
	offWalking   = offReleased + 8
	offThrown    = offWalking + 8 // thread_exception and the next three fields
	offWaits     = offThrown + 32
	offMoving    = offWaits + lockWaits*waitSize // heap_moving
	offBase      = offMoving + 8                 // table_base
	offDirect    = offBase + 8                   // exception_direct
	offOwners    = offDirect + 8                 // owner_form and the next four fields
)

const (
	minRing = 1 << 12
	maxRing = 1 << 30
)

// A ring is memory to which an agent writes records, and from which our program takes records.
// The agent's process is not trusted: a record is copied before parsing, and an invalid record is
// an error.
type ring struct {
	memory  []byte // the whole mapping
	records []byte
	at      uint64 // position of the next record; positions count bytes since the beginning

	copied []byte // the record being parsed
}

// ErrCorrupt is in the chain of every error about invalid contents of the ring.
var ErrCorrupt = errors.New("the agent's memory is corrupt")

// newRing makes a ring with capacity bytes for records. The agent maps the file; its size is
// sealed, so neither side can take memory from the other.
func newRing(capacity int) (*ring, *os.File, error) {
	if capacity == 0 {
		capacity = defaultRing
	}
	if capacity < minRing || capacity > maxRing || capacity&(capacity-1) != 0 {
		return nil, nil, fmt.Errorf("a ring of %d bytes: it must be a power of two from %d to %d", capacity,
			minRing, maxRing)
	}
	fd, err := memfd.Create("clrsnap-events")
	if err != nil {
		return nil, nil, fmt.Errorf("memory for the agent's records: %w", err)
	}
	file := os.NewFile(uintptr(fd), "clrsnap-events")
	size := recordsAt + capacity
	if err = file.Truncate(int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	var memory []byte
	if err == nil {
		memory, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("memory for the agent's records: %w", err)
	}
	binary.LittleEndian.PutUint32(memory[offMagic:], ringMagic)
	binary.LittleEndian.PutUint32(memory[offVersion:], Version)
	binary.LittleEndian.PutUint64(memory[offCapacity:], uint64(capacity))
	return ringOf(memory), file, nil
}

func ringOf(memory []byte) *ring {
	return &ring{memory: memory, records: memory[recordsAt:]}
}

func (r *ring) close() error { return unix.Munmap(r.memory) }

// word is a number in the control page.
func (r *ring) word(offset int) *uint64 {
	return (*uint64)(unsafe.Pointer(&r.memory[offset]))
}

// next takes a record; nil if the ring has none.
func (r *ring) next() (*Record, error) {
	for {
		b, err := r.take()
		if err != nil || b == nil {
			return nil, err
		}
		position := r.at
		r.advance(len(b))
		if b[recordType] == byte(eventPadding) {
			continue
		}
		record, err := parseRecord(b, position)
		if err != nil {
			return nil, fmt.Errorf("%w: position %d: %w", ErrCorrupt, position, err)
		}
		return record, nil
	}
}

// take copies the next record; nil if there is none.
func (r *ring) take() ([]byte, error) {
	used := atomic.LoadUint64(r.word(offHead)) - r.at
	if used == 0 {
		return nil, nil
	}
	capacity := uint64(len(r.records))
	if used > capacity || used%recordAlignment != 0 {
		return nil, fmt.Errorf("%w: %d bytes in a ring of %d", ErrCorrupt, used, capacity)
	}
	place := r.at & (capacity - 1)
	size := uint64(atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.records[place]))))
	if size == 0 {
		return nil, nil
	}
	end := capacity - place
	if size%recordAlignment != 0 || size > used || size > end {
		return nil, fmt.Errorf("%w: %d bytes at position %d, of which %d are there", ErrCorrupt, size, r.at,
			min(used, end))
	}
	r.copied = append(r.copied[:0], r.records[place:place+size]...)
	binary.LittleEndian.PutUint32(r.copied, uint32(size)) // the size in the ring may have changed meanwhile
	if r.copied[recordType] == byte(eventPadding) && size != end {
		return nil, fmt.Errorf("%w: %d bytes of padding at position %d, %d bytes before the end", ErrCorrupt, size,
			r.at, end)
	}
	return r.copied, nil
}

// advance clears the memory of a record and gives the memory back to the agent, which relies on
// zeros.
func (r *ring) advance(size int) {
	place := r.at & uint64(len(r.records)-1)
	clear(r.records[place : place+uint64(size)])
	r.at += uint64(size)
	atomic.StoreUint64(r.word(offTail), r.at)
}

// set changes a word that threads of the agent may wait for, and wakes the threads.
func (r *ring) set(offset int, value uint64) {
	word := r.word(offset)
	atomic.StoreUint64(word, value)
	wake(word)
}

// wake wakes the agent's threads that wait for a change of word, at its low half.
func wake(word *uint64) {
	const futexWake, all = 1, 1<<31 - 1
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, all, 0, 0, 0)
}

// Counts are the numbers of events of a type since Begin.
type Counts struct {
	Seen      uint64 // events that the runtime has reported to the agent
	Published uint64
	Dropped   uint64 // chosen, but the ring was full, or too many threads had an event at once
	Failed    uint64 // of Published: the runtime could not walk the stack
}

func (r *ring) stats() (stats [EventTypes]Counts) {
	for t := range stats {
		at := func(offset int) uint64 { return atomic.LoadUint64(r.word(offset + 8*t)) }
		stats[t] = Counts{at(offSeen), at(offPublished), at(offDropped), at(offFailed)}
	}
	return stats
}

// A Wait is a thread's current wait for a lock.
type Wait struct {
	OSID   uint32 // of the thread, in the target's own PID namespace
	Since  uint64 // CLOCK_MONOTONIC, in ns
	Lock   uint64 // the lock's id
	Object uint64 // address of the locked object when the wait began
	Class  uint64 // as in an EventContention
}

// struct lock_wait: the number of waits, and offsets in bytes.
const (
	lockWaits = 64

	waitSize   = 40
	waitSince  = 8
	waitLock   = 16
	waitObject = 24
	waitClass  = 32
)

// waits appends the current waits to out. The agent may change them meanwhile.
func (r *ring) waits(out []Wait) []Wait {
	for i := range lockWaits {
		at := offWaits + i*waitSize
		since := r.word(at + waitSince)
		w := Wait{Since: atomic.LoadUint64(since)}
		if w.Since == 0 {
			continue
		}
		w.OSID = uint32(atomic.LoadUint64(r.word(at)))
		w.Lock, w.Object = atomic.LoadUint64(r.word(at+waitLock)), atomic.LoadUint64(r.word(at+waitObject))
		w.Class = atomic.LoadUint64(r.word(at + waitClass))
		if atomic.LoadUint64(since) == w.Since && w.OSID != 0 {
			out = append(out, w)
		}
	}
	return out
}
