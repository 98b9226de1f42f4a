package perfevent

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bits of struct perf_event_attr and values without names in x/sys/unix.
const (
	bitInheritThread = 1 << 35 // since Linux 5.13
	formatLost       = 1 << 4  // PERF_FORMAT_LOST, since Linux 6.0
)

// features are optional: not every kernel supports them, and not every user may ask for them.
type features struct {
	kernel        bool // sample in the kernel too
	inheritThread bool // let new threads inherit the events, but not new processes
	formatLost    bool // let events count their losses
}

// The fields of every record; the order of the fields is the kernel's, in perf_output_sample and
// __perf_event__output_id_sample.
const sampleType = unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_ID |
	unix.PERF_SAMPLE_CPU | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER

// sampleAttr describes the events that sample the target.
func (e *Events) sampleAttr(stackBytes int) *unix.PerfEventAttr {
	a := newAttr(unix.PERF_COUNT_SW_CPU_CLOCK)
	a.Sample = uint64(e.o.Period.Nanoseconds())
	a.Sample_type = sampleType
	a.Sample_regs_user = sampleRegs
	a.Sample_stack_user = uint32(stackBytes)
	a.Bits |= unix.PerfBitSampleIDAll
	if e.scope == PerThread {
		a.Bits |= unix.PerfBitInherit | unix.PerfBitTask | unix.PerfBitComm | unix.PerfBitCommExec
		if e.attr.inheritThread {
			a.Bits |= bitInheritThread
		}
	} else {
		// For an event of a whole CPU these records would be about all processes' threads.
		a.Bits |= unix.PerfBitExcludeIdle
	}
	a.Read_format = e.attr.readFormat()
	if e.prompt {
		a.Wakeup = 1 // of an event without a watermark, in samples
	}
	switch {
	case !e.attr.kernel:
		a.Bits |= unix.PerfBitExcludeKernel
	case e.o.Kernel:
		a.Sample_type |= unix.PERF_SAMPLE_CALLCHAIN
		a.Bits |= unix.PerfBitExcludeCallchainUser
	}
	return a
}

// ringAttr describes an event that never happens and owns a ring. All events that write to a ring
// must use the ring's clock.
func ringAttr(wakeup int) *unix.PerfEventAttr {
	a := newAttr(unix.PERF_COUNT_SW_DUMMY)
	a.Bits |= unix.PerfBitExcludeKernel | unix.PerfBitWatermark
	a.Wakeup = uint32(wakeup)
	return a
}

func newAttr(config uint64) *unix.PerfEventAttr {
	return &unix.PerfEventAttr{
		Type:    unix.PERF_TYPE_SOFTWARE,
		Config:  config,
		Size:    uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Bits:    unix.PerfBitDisabled | unix.PerfBitExcludeHv | unix.PerfBitUseClockID,
		Clockid: unix.CLOCK_MONOTONIC,
	}
}

// readFormat is the format of an event's counters. Kernels that do not count losses have a
// shorter format.
func (f *features) readFormat() uint64 {
	if f.formatLost {
		return unix.PERF_FORMAT_TOTAL_TIME_ENABLED | formatLost
	}
	return unix.PERF_FORMAT_TOTAL_TIME_ENABLED
}

// retry reports whether an event that the kernel refused may be granted with fewer features, and
// removes a feature. The kernel refuses unknown bits with EINVAL, and kernel time with EACCES to
// users who may not see the kernel.
func (f *features) retry(err error) bool {
	switch {
	case err == unix.EINVAL && f.formatLost:
		f.formatLost = false
	case err == unix.EINVAL && f.inheritThread:
		f.inheritThread = false
	case (err == unix.EACCES || err == unix.EPERM) && f.kernel:
		f.kernel = false
	default:
		return false
	}
	return true
}
