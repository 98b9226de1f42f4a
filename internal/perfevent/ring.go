package perfevent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	minRing   = 128 << 10 // two records of the greatest size
	maxRing   = 64 << 20
	goodRing  = 8 << 20   // goodSize's largest ring
	ringTotal = 256 << 20 // goodSize's largest sum, for all rings together
	ringHolds = 250 * time.Millisecond
	maxRecord = 1 << 16
	wakeAt    = 4 // the waiter is woken when 1/wakeAt of a ring is full
)

// ring is the buffer that the kernel fills with the records of one CPU. Positions only ever grow;
// modulo the size they are places in data.
type ring struct {
	cpu  int
	fd   int
	mem  []byte // the whole mapping: a page for both sides, then data
	page *unix.PerfEventMmapPage
	data []byte
	head uint64        // the end of the kernel's writing at the latest load
	tail uint64        // begin of the next record
	size uint64        // of the next record, after next
	time time.Duration // likewise

	notes   int    // the event of the kernel's filter; -1: none
	notesID uint64 // of that event
	note    note   // the latest note
}

var errRecord = errors.New("perfevent: malformed record")

// openRings makes a ring for each CPU, all of the same size.
func (e *Events) openRings() error {
	cpus, err := onlineCPUs()
	if err != nil {
		return err
	}
	size := e.o.BufferBytes
	if size == 0 {
		size = goodSize(e.o.Period, len(cpus))
	}
	for _, cpu := range cpus {
		if _, err := e.openRing(cpu, size); err != nil {
			return err
		}
	}
	return e.mapRings(size)
}

// openRing makes the event of a ring without memory; nil if the CPU has been switched off
// meanwhile.
func (e *Events) openRing(cpu, size int) (*ring, error) {
	fd, err := unix.PerfEventOpen(ringAttr(size/wakeAt), os.Getpid(), cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err == unix.ENODEV {
		return nil, nil
	}
	if err != nil {
		return nil, e.refused(err)
	}
	r := &ring{cpu: cpu, fd: fd, notes: -1}
	e.rings = append(e.rings, r)
	if err := e.waiter.add(fd); err != nil {
		e.dropRing(r)
		return nil, err
	}
	return r, nil
}

// mapRings gives the rings their memory, which counts as locked. Every user may lock some memory
// (kernel.perf_event_mlock_kb for each CPU, and RLIMIT_MEMLOCK on top). Beyond the limit mmap
// fails with EPERM, and mapRings tries smaller rings.
func (e *Events) mapRings(size int) error {
	for ; ; size /= 2 {
		err := e.mapRingsOf(size)
		if err == nil {
			e.ringSize = size
			return nil
		}
		for _, r := range e.rings {
			r.unmap()
		}
		if err != unix.EPERM && err != unix.ENOMEM {
			return fmt.Errorf("perfevent: mapping the kernel's buffers: %w", err)
		}
		if size <= minRing {
			return fmt.Errorf("perfevent: the kernel does not grant %d KB of locked memory for each of %d CPUs: "+
				"raise the limit (ulimit -l) or the sysctl kernel.perf_event_mlock_kb: %w", minRing>>10,
				len(e.rings), err)
		}
	}
}

func (e *Events) mapRingsOf(size int) error {
	for _, r := range e.rings {
		if err := r.mmap(size); err != nil {
			return err
		}
	}
	return nil
}

// goodSize is enough for a CPU's records in ringHolds, with the greatest stack copies.
func goodSize(period time.Duration, cpus int) int {
	need := int(ringHolds/period+1) * maxRecord
	size := minRing
	for size < need && size < goodRing && 2*size*cpus <= ringTotal {
		size *= 2
	}
	return size
}

func (r *ring) mmap(size int) error {
	page := os.Getpagesize()
	mem, err := unix.Mmap(r.fd, 0, page+size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	r.mem, r.page, r.data = mem, (*unix.PerfEventMmapPage)(unsafe.Pointer(&mem[0])), mem[page:]
	return nil
}

// take directs the records of an event into the ring.
func (r *ring) take(fd int) error {
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_OUTPUT, r.fd); err != nil {
		return fmt.Errorf("perfevent: directing an event to its ring: %w", err)
	}
	return nil
}

func (r *ring) unmap() {
	if r.mem != nil {
		_ = unix.Munmap(r.mem) // cannot fail for a mapping of ours
		r.mem, r.page, r.data = nil, nil, nil
	}
}

func (r *ring) close() {
	r.unmap()
	unix.Close(r.fd)
	r.closeNotes()
}

func (r *ring) closeNotes() {
	if r.notes >= 0 {
		unix.Close(r.notes)
	}
	r.notes, r.notesID = -1, 0
}

// load reads the end of the kernel's writing. Data before head is complete: the kernel raises
// head after writing, and we read head before the data.
func (r *ring) load() { r.head = atomic.LoadUint64(&r.page.Data_head) }

// release lets the kernel write over everything before tail.
func (r *ring) release() { atomic.StoreUint64(&r.page.Data_tail, r.tail) }

// next finds size and time of the record at tail; false at the end.
func (r *ring) next() (bool, error) {
	if r.tail == r.head {
		return false, nil
	}
	left, mask := r.head-r.tail, uint64(len(r.data)-1)
	if left > uint64(len(r.data)) || left < headerSize || r.tail%8 != 0 {
		return false, r.broken(left)
	}
	header := r.word(r.tail & mask)
	r.size = header >> 48
	at, ok := timeOffset(uint32(header), r.size)
	if !ok || r.size > left || r.size%8 != 0 {
		return false, r.broken(r.size)
	}
	r.time = time.Duration(r.word((r.tail + at) & mask))
	return true, nil
}

// word reads the eight bytes at a place; aligned words do not wrap.
func (r *ring) word(at uint64) uint64 { return binary.LittleEndian.Uint64(r.data[at:]) }

// broken drops the contents of the ring: the start of the next record is not known.
func (r *ring) broken(n uint64) error {
	err := fmt.Errorf("%w of %d bytes at %d of the ring of CPU %d", errRecord, n, r.tail, r.cpu)
	r.tail = r.head
	return err
}

// record is the record that next has found. The bytes are in the ring, or in scratch if the
// record wraps around the end.
func (r *ring) record(scratch []byte) []byte {
	from := r.tail & uint64(len(r.data)-1)
	if from+r.size <= uint64(len(r.data)) {
		return r.data[from : from+r.size]
	}
	n := copy(scratch, r.data[from:])
	copy(scratch[n:r.size], r.data)
	return scratch[:r.size]
}
