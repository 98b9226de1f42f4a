package perfevent

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// generation is a set of events that sample all threads in the same way.
//
// The events stay open until the end, even the events of ended threads: the kernel removes the
// inherited copies of an event together with the original (perf_event_release_kernel).
type generation struct {
	stackBytes int
	attr       *unix.PerfEventAttr
	events     []event
	firstID    uint64       // of the first event; all others have greater ids
	lateID     uint64       // of the first event of a thread that was found late; 0: none
	known      map[int]bool // threads with events, their own or inherited events
}

// event samples on one CPU: all threads there, or one thread.
type event struct{ fd, cpu int }

// maxRounds bounds the search for threads. Each round finds the threads that were started, during
// the previous round, by threads without events.
const maxRounds = 20

// openGeneration samples the scope.
func (e *Events) openGeneration(stackBytes int) (*generation, error) {
	g := &generation{stackBytes: stackBytes, attr: e.sampleAttr(stackBytes), known: map[int]bool{}}
	open := g.openCPUs
	if e.scope == PerThread {
		open = g.openAllThreads
	}
	if err := open(e); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// openAllThreads gives every thread its events, and starts them at once. A thread inherits the
// events of its parent thread, and the kernel writes a record about the new thread. A thread that
// is found without such a record gets its own events. A few threads then have own and inherited
// events: the threads that were started between the opening and the enabling of their parent's
// events. filter makes up for the surplus.
func (g *generation) openAllThreads(e *Events) error {
	for round := range maxRounds {
		tids, err := threads(e.o.PID)
		if err != nil {
			return err
		}
		if round > 0 {
			e.inherited(g)
		}
		n, err := g.openThreads(e, tids, round > 0)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	if len(g.events) == 0 {
		return exited(e.o.PID)
	}
	return nil
}

// openThreads gives events to the unknown threads in tids, and returns the number of these
// threads.
func (g *generation) openThreads(e *Events, tids []int, late bool) (int, error) {
	n := 0
	for _, tid := range tids {
		if g.known[tid] {
			continue
		}
		g.known[tid] = true
		from := len(g.events)
		err := g.openThread(e, tid)
		if err == unix.ESRCH { // the thread has ended
			continue
		}
		if err != nil {
			return n, e.openError(err, len(tids))
		}
		if late && g.lateID == 0 && len(g.events) > from {
			if g.lateID, err = eventID(g.events[from].fd); err != nil {
				return n, err
			}
		}
		n++
	}
	return n, nil
}

// openThread opens a thread's events, one for each CPU, and enables them when complete.
func (g *generation) openThread(e *Events, tid int) error {
	from := len(g.events)
	for _, r := range e.rings {
		err := g.openOn(e, tid, r)
		if err == unix.ENODEV { // the CPU has been switched off
			continue
		}
		if err != nil {
			return err
		}
	}
	return g.enable(from)
}

// openOn opens an event of a thread, or of all threads (-1), on the CPU of a ring.
func (g *generation) openOn(e *Events, tid int, r *ring) error {
	fd, err := g.open(e, tid, r.cpu)
	if err != nil {
		return err
	}
	g.events = append(g.events, event{fd, r.cpu})
	if err := r.take(fd); err != nil {
		return err
	}
	if g.firstID == 0 {
		g.firstID, err = eventID(fd)
	}
	return err
}

// enable starts the events from index from on.
func (g *generation) enable(from int) error {
	for _, ev := range g.events[from:] {
		if err := unix.IoctlSetInt(ev.fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
			return fmt.Errorf("perfevent: enabling an event: %w", err)
		}
	}
	return nil
}

// open opens one event, with fewer features than requested if necessary.
func (g *generation) open(e *Events, tid, cpu int) (int, error) {
	for {
		fd, err := unix.PerfEventOpen(g.attr, tid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		// The other events get the same features as the very first event.
		if err == nil || len(g.events) > 0 || e.gen != nil || !e.attr.retry(err) {
			return fd, err
		}
		g.attr = e.sampleAttr(g.stackBytes)
	}
}

// inherited looks in the rings, without reading them, for the threads that have been started with
// events of this generation.
func (e *Events) inherited(g *generation) {
	var rec Record
	for _, r := range e.rings {
		look := *r
		look.load()
		for {
			ok, err := look.next()
			if !ok || err != nil {
				break
			}
			if b := look.record(e.scratch); u32(b, 0) == unix.PERF_RECORD_FORK {
				if ok, err := rec.parse(b, false); ok && err == nil && rec.id >= g.firstID {
					g.known[rec.TID] = true
				}
			}
			look.tail += look.size
		}
	}
}

// disable ends sampling. Threads that have inherited the events are included.
func (g *generation) disable() {
	for _, ev := range g.events {
		_ = unix.IoctlSetInt(ev.fd, unix.PERF_EVENT_IOC_DISABLE, 0) // cannot fail for an event of ours
	}
}

// end ends the events and returns their counts, all together.
func (g *generation) end() (sum counts) {
	g.disable() // reading the counters of enabled events would interrupt their CPUs
	for _, ev := range g.events {
		c := countsOf(ev.fd)
		sum.lost += c.lost
		sum.enabled += c.enabled
	}
	g.close()
	return sum
}

// counts are the counters of events.
type counts struct {
	enabled time.Duration
	lost    uint64 // records without room in the ring; 0 before Linux 6.0
}

// countsOf reads the counters of an event with the read_format of readFormat (perf_read_one in
// kernel/events/core.c): its value, its enabled time, and its losses.
func countsOf(fd int) counts {
	var b [24]byte
	if n, err := unix.Read(fd, b[:]); err != nil || n < 16 {
		return counts{}
	}
	return counts{time.Duration(binary.LittleEndian.Uint64(b[8:])), binary.LittleEndian.Uint64(b[16:])}
}

func (g *generation) close() {
	for _, ev := range g.events {
		unix.Close(ev.fd)
	}
	g.events = nil
}

func eventID(fd int) (uint64, error) {
	var id uint64
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_ID, uintptr(unsafe.Pointer(&id)))
	if errno != 0 {
		return 0, fmt.Errorf("perfevent: reading an event's id: %w", errno)
	}
	return id, nil
}

// threads lists the threads of a process.
func threads(pid int) ([]int, error) {
	tids, err := procfs.TasksOf(pid)
	if err != nil {
		return nil, unread(pid, err)
	}
	return tids, nil
}

// onlineCPUs lists the CPUs that are switched on: "0-3,8". Without /sys, as in a chroot
// environment, the list comes from /proc/stat. /proc/stat is only the second choice: in a
// container the file may be the container's own.
func onlineCPUs() ([]int, error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		if cpus := slices.Sorted(maps.Keys(readIdle())); len(cpus) > 0 {
			return cpus, nil
		}
		return nil, fmt.Errorf("perfevent: %w", err)
	}
	return parseCPUs(strings.TrimSpace(string(b)))
}

const maxCPUs = 1 << 16

func parseCPUs(list string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || from < 0 || to < from || to >= maxCPUs || len(cpus) > maxCPUs {
			return nil, fmt.Errorf("perfevent: the kernel's list of CPUs is %q, which cannot be parsed", list)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}
