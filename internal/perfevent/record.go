package perfevent

import (
	"bytes"
	"encoding/binary"
	"time"

	"clrsnap/internal/arch"

	"golang.org/x/sys/unix"
)

// Kind is the kind of a Record.
type Kind uint8

// The kinds of records.
const (
	Sampled Kind = iota + 1 // a thread was running
	Started                 // PID, TID has begun, started by ParentPID, ParentTID
	Ended                   // PID, TID is about to end
	Named                   // PID, TID is called Name now
	// PID, TID executes another program, named Name; the process has no other threads any more
	Executed
	Lost      // Lost records were dropped because the ring of CPU was full
	Throttled // the kernel takes no more samples of an event for a moment
)

func (k Kind) String() string {
	names := [...]string{"none", "sampled", "started", "ended", "named", "executed", "lost", "throttled"}
	return names[min(int(k), len(names))%len(names)]
}

// Record is one record of the kernel. Fields that its kind does not use are zero, but Context is
// undefined where its Machine is 0.
type Record struct {
	Kind     Kind
	Time     time.Duration // of CLOCK_MONOTONIC
	PID, TID int           // in our PID namespace
	CPU      int

	// Of Sampled. A thread in the kernel has the registers at its entry into the kernel. A thread
	// that is about to end has no registers, and Machine is 0.
	Context   arch.Context
	Stack     []byte // from the stack pointer up, as far as readable, even into other mappings above
	Truncated bool   // Stack has the greatest length: the thread's stack may go on
	InKernel  bool
	Kernel    []uint64 // instruction pointers in the kernel, innermost first; all but the first are return addresses

	ParentPID, ParentTID int    // of Started
	Name                 string // of Named and Executed, and of Sampled in the scope Filtered: at most 15 bytes
	Lost                 int    // of Lost

	id uint64 // of the record's event, or of the event from which that event was inherited
}

func (r *Record) reset() {
	*r = Record{Kernel: r.Kernel[:0]}
}

// Layout of records: struct perf_event_header, then for samples the fields of sampleType, and for
// all others their own fields and the fields of sampleType again at the end.
const (
	headerSize = 8 // type, misc and size
	sampleTID  = 16
	sampleTime = 24
	sampleID   = 32
	sampleCPU  = 40
	sampleRest = 48 // call chain, registers, stack

	trailerSize = 32 // TID, time, ID, CPU
)

// timeOffset is the offset of the time in a record of a type and size, and false if the record is
// too short for a time.
func timeOffset(kind uint32, size uint64) (uint64, bool) {
	if kind == unix.PERF_RECORD_SAMPLE {
		return sampleTime, size >= sampleRest
	}
	return size - trailerSize + 8, size >= headerSize+trailerSize
}

func u32(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
func u64(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// cString is the text before the first zero.
func cString(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

// pid reads a process or thread id; the kernel writes -1 or 0 for an id outside our PID
// namespace.
func pid(b []byte, at int) int { return int(int32(u32(b, at))) }

// parse reads a complete record; chain says whether samples have a call chain. It returns false
// for records of other kinds.
func (r *Record) parse(b []byte, chain bool) (bool, error) {
	r.reset()
	if len(b) < headerSize {
		return false, errRecord
	}
	kind, misc := u32(b, 0), u32(b, 4)&0xffff
	if _, ok := timeOffset(kind, uint64(len(b))); !ok {
		return false, errRecord
	}
	if kind == unix.PERF_RECORD_SAMPLE {
		return true, r.sample(b, misc, chain)
	}
	body, t := b[headerSize:len(b)-trailerSize], b[len(b)-trailerSize:]
	r.PID, r.TID, r.Time, r.id, r.CPU = pid(t, 0), pid(t, 4), time.Duration(u64(t, 8)), u64(t, 16), int(u32(t, 24))
	return r.event(kind, misc, body)
}

// The bodies of struct fork, exit, comm and lost.
func (r *Record) event(kind, misc uint32, body []byte) (bool, error) {
	need := map[uint32]int{
		unix.PERF_RECORD_FORK: 24, unix.PERF_RECORD_EXIT: 24, unix.PERF_RECORD_COMM: 8, unix.PERF_RECORD_LOST: 16,
	}
	if len(body) < need[kind] {
		return false, errRecord
	}
	switch kind {
	case unix.PERF_RECORD_FORK:
		r.Kind = Started
		r.PID, r.ParentPID, r.TID, r.ParentTID = pid(body, 0), pid(body, 4), pid(body, 8), pid(body, 12)
	case unix.PERF_RECORD_EXIT:
		r.Kind = Ended
		r.PID, r.TID = pid(body, 0), pid(body, 8)
	case unix.PERF_RECORD_COMM:
		r.Kind = Named
		if misc&miscCommExec != 0 {
			r.Kind = Executed
		}
		r.PID, r.TID = pid(body, 0), pid(body, 4)
		r.Name = cString(body[8:])
	case unix.PERF_RECORD_LOST:
		r.Kind = Lost
		r.Lost = int(min(u64(body, 8), 1<<40))
		r.PID, r.TID = 0, 0 // the trailer has the ids of the thread that wrote the record
	case unix.PERF_RECORD_THROTTLE:
		r.Kind = Throttled
	default:
		return false, nil
	}
	return true, nil
}

// Values of perf_event_header.misc and of call chains.
const (
	miscCPUMode   = 7
	miscKernel    = 1
	miscCommExec  = 1 << 13
	contextMarker = ^uint64(0) - 4095 // PERF_CONTEXT_MAX: entries from here on give the kind of the following entries
)

func (r *Record) sample(b []byte, misc uint32, chain bool) error {
	r.Kind = Sampled
	r.PID, r.TID, r.Time = pid(b, sampleTID), pid(b, sampleTID+4), time.Duration(u64(b, sampleTime))
	r.id, r.CPU = u64(b, sampleID), int(u32(b, sampleCPU))
	r.InKernel = misc&miscCPUMode == miscKernel
	rest := b[sampleRest:]
	var ok bool
	if chain {
		if rest, ok = r.chain(rest); !ok {
			return errRecord
		}
	}
	if rest, ok = r.registers(rest); !ok || !r.stack(rest) {
		return errRecord
	}
	return nil
}

// chain reads the number of entries, and the entries.
func (r *Record) chain(b []byte) ([]byte, bool) {
	if len(b) < 8 || u64(b, 0) > uint64(len(b)-8)/8 {
		return nil, false
	}
	n, b := int(u64(b, 0)), b[8:]
	for i := range n {
		if ip := u64(b, 8*i); ip < contextMarker {
			r.Kernel = append(r.Kernel, ip)
		}
	}
	return b[8*n:], true
}

// registers reads the ABI and, unless there is none, the registers.
func (r *Record) registers(b []byte) ([]byte, bool) {
	if len(b) < 8 {
		return nil, false
	}
	abi, b := u64(b, 0), b[8:]
	if abi == unix.PERF_SAMPLE_REGS_ABI_NONE {
		return b, true
	}
	if len(b) < 8*numRegs {
		return nil, false
	}
	readContext(&r.Context, abi, b)
	return b[8*numRegs:], true
}

// stack reads the size of the copy, the copy and, unless the size is 0, the number of bytes that
// the kernel could fill. The copy ends early at the end of the stack, or at a page that is not in
// memory.
func (r *Record) stack(b []byte) bool {
	if len(b) < 8 {
		return false
	}
	size, b := u64(b, 0), b[8:]
	if size == 0 {
		return true
	}
	if uint64(len(b)) < 8 || size > uint64(len(b)-8) {
		return false
	}
	filled := u64(b, int(size))
	if filled > size {
		return false
	}
	if r.Context.Machine != 0 {
		r.Stack, r.Truncated = b[:filled:filled], filled == size
	}
	return true
}
