package perfevent

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options say what to sample. Only PID must be set.
type Options struct {
	PID         int
	Period      time.Duration // of CPU time between two samples of a thread; 0: 10 ms; at least 10 µs
	StackBytes  int           // bytes copied of each stack; 0: 16 KB; at most MaxStackBytes
	Kernel      bool          // record the kernel's call chain too, where that is permitted
	Children    bool          // follow processes that the process starts from now on
	BufferBytes int           // of the ring of each CPU, a power of two; 0: for a quarter of a second
	Scope       Scope         // the scope; 0: the best permitted scope
}

// MaxStackBytes is the longest copy of a stack by the kernel: the length of a record is a 16-bit
// number, and lengths are multiples of eight.
const MaxStackBytes = 1<<16 - 8

const (
	defaultPeriod = 10 * time.Millisecond
	minPeriod     = 10 * time.Microsecond // the kernel's own (perf_swevent_start_hrtimer)
	defaultStack  = 16 << 10
)

// Stats counts since Open.
type Stats struct {
	Samples   int // delivered
	Lost      int // records dropped because a ring was full; nearly all of them are samples
	Throttled int // how often the kernel found too many samples
	Foreign   int // records of other processes, dropped
	Repeated  int // records that came from two events, dropped once

	// Missed estimates how often the timer of a busy CPU came a period or more late, or was
	// stopped because there were too many samples, for any running process. In the scope
	// Filtered, after Stop; else 0.
	Missed int
}

// Events samples a process. All methods must be called by one goroutine at a time.
type Events struct {
	o        Options
	asked    features
	attr     features // as granted
	scope    Scope
	why      error // why the scope is not better
	rings    []*ring
	ringSize int // in bytes
	waiter   waiter
	gen      *generation   // the sampling generation; nil after Stop
	filter   *kernelFilter // nil: no filter in the kernel
	accept   filter
	stats    Stats
	lostSeen uint64        // by the counters of closed events
	enabled  time.Duration // of all CPUs, in ended generations
	idle     idleTimes     // at the begin of the first generation
	rec      Record
	prompt   bool   // Wait returns for each sample
	scratch  []byte // a record that wraps around the end of its ring
}

// Open starts to sample a process. From now on its existing and future threads are sampled.
func Open(o Options) (*Events, error) {
	return openWith(o, features{kernel: true, inheritThread: !o.Children, formatLost: true})
}

// openWith asks for features, and works without the refused features.
func openWith(o Options, f features) (*Events, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	raiseLimit(unix.RLIMIT_NOFILE)
	e := &Events{o: o, asked: f, scratch: make([]byte, maxRecord)}
	e.accept.pids = map[int]bool{o.PID: true}
	err := e.waiter.open()
	if err == nil {
		err = e.openRings()
	}
	if err == nil {
		err = e.setScope(o.StackBytes)
	}
	if err != nil {
		e.Close()
		return nil, fewFiles(err)
	}
	return e, nil
}

func (o *Options) complete() error {
	if o.Period == 0 {
		o.Period = defaultPeriod
	}
	if o.StackBytes == 0 {
		o.StackBytes = defaultStack
	}
	switch {
	case o.PID <= 0:
		return fmt.Errorf("perfevent: process %d", o.PID)
	case o.Period < minPeriod:
		return fmt.Errorf("perfevent: a period of %v is below the kernel's shortest, %v", o.Period, minPeriod)
	case !validStack(o.StackBytes):
		return errStack(o.StackBytes)
	case o.BufferBytes != 0 && (o.BufferBytes < minRing || o.BufferBytes > maxRing ||
		o.BufferBytes&(o.BufferBytes-1) != 0):
		return fmt.Errorf("perfevent: a buffer of %d bytes is not a power of two from %d to %d",
			o.BufferBytes, minRing, maxRing)
	case o.Scope > PerThread:
		return fmt.Errorf("perfevent: there is no scope %d", o.Scope)
	}
	return nil
}

func validStack(n int) bool { return n >= 8 && n <= MaxStackBytes && n%8 == 0 }

func errStack(n int) error {
	return fmt.Errorf("perfevent: a stack copy of %d bytes is not a multiple of 8 up to %d", n, MaxStackBytes)
}

// start lets a new generation of events take over. At first there is no earlier generation.
func (e *Events) start(stackBytes int) error {
	g, err := e.openGeneration(stackBytes)
	if err != nil {
		return err
	}
	e.accept.begin(g, monotonic())
	e.endGeneration()
	e.gen = g
	return nil
}

// endGeneration ends the current generation, if any, and adds its counts.
func (e *Events) endGeneration() {
	if e.gen == nil {
		return
	}
	c := e.gen.end()
	e.lostSeen, e.enabled = e.lostSeen+c.lost, e.enabled+c.enabled
	e.gen = nil
}

// SetStackBytes changes the copied bytes of each stack, from now on. The new events start before
// the old events end, so only the current period of each thread is lost. After an error sampling
// continues unchanged.
func (e *Events) SetStackBytes(n int) error {
	if e.gen == nil {
		return os.ErrClosed
	}
	if !validStack(n) {
		return errStack(n)
	}
	return e.start(n)
}

// SetPrompt makes Wait return as soon as there is a sample, or ends that, from now on. New events
// start as with SetStackBytes.
func (e *Events) SetPrompt(on bool) error {
	if e.gen == nil {
		return os.ErrClosed
	}
	before := e.prompt
	e.prompt = on
	err := e.start(e.gen.stackBytes)
	if err != nil {
		e.prompt = before
	}
	return err
}

// KernelExcluded reports whether the kernel lets us sample a thread only while the thread
// executes its own code, so time in the kernel is not counted at all.
func (e *Events) KernelExcluded() bool { return !e.attr.kernel }

// Stats returns the counts so far.
func (e *Events) Stats() Stats { return e.stats }

// Wait waits until a ring is a quarter full, or, after SetPrompt, has a sample. It returns false
// after the timeout.
func (e *Events) Wait(timeout time.Duration) (bool, error) {
	if len(e.rings) == 0 {
		return false, os.ErrClosed
	}
	return e.waiter.until(monotonic()+timeout, e.full)
}

// Stop ends sampling and reads the remaining records, and then the counts of losses that the
// kernel had not yet reported in a ring (since Linux 6.0).
func (e *Events) Stop(visit func(*Record)) error {
	if e.gen == nil {
		return nil
	}
	e.gen.disable()
	err := e.read(visit, forever)
	e.endGeneration()
	e.countMissed()
	e.closeFilter()
	if e.attr.formatLost && e.lostSeen > uint64(e.stats.Lost) {
		e.rec.reset()
		e.rec.Kind, e.rec.Time, e.rec.Lost = Lost, monotonic(), int(e.lostSeen-uint64(e.stats.Lost))
		e.stats.Lost += e.rec.Lost
		visit(&e.rec)
	}
	return err
}

// Close ends sampling. Unread records are lost.
func (e *Events) Close() {
	if e.gen != nil {
		e.gen.close()
		e.gen = nil
	}
	e.closeFilter()
	for _, r := range e.rings {
		r.close()
	}
	e.rings = nil
	e.waiter.close()
}

// monotonic is the clock of the records. It is read without telling Go's scheduler.
func monotonic() time.Duration {
	var ts unix.Timespec
	// The call cannot fail with a valid clock.
	_, _, _ = syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}
