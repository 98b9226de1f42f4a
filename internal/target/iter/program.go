package iter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// The program is written as instructions, so neither building nor running clrsnap takes a
// compiler for BPF. Only programs under a licence compatible with the GPL may call
// bpf_task_pt_regs, bpf_seq_write and bpf_probe_read_kernel; the program may be used under the
// MIT licence and under the GPL version 2, too.
const license = "Dual MIT/GPL"

// ErrUnavailable is in the chain of errors that explain why the kernel does not let us read
// registers.
var ErrUnavailable = errors.New("the kernel does not give the registers of threads")

// Error is an ErrUnavailable.
type Error struct {
	Err    error
	Detail string
	Remedy string // "": no remedy on this machine
}

func (e *Error) Error() string { return fmt.Sprintf("%v: %s", ErrUnavailable, e.Detail) }

// Unwrap returns ErrUnavailable and the cause.
func (e *Error) Unwrap() []error { return []error{ErrUnavailable, e.Err} }

// unavailable explains an error from the kernel.
func unavailable(err error) error {
	e := &Error{Err: err}
	switch {
	case isRefusal(err) && lockedDown():
		e.Detail = "the kernel is locked down for confidentiality (" + lockdownFile + ")"
	case errors.Is(err, unix.EPERM):
		e.Detail = "that takes CAP_BPF and CAP_PERFMON"
		e.Remedy = "run as root, or give clrsnap the capabilities (setcap cap_sys_ptrace,cap_bpf,cap_perfmon+ep; " +
			"for a container --cap-add BPF --cap-add PERFMON)"
	case errors.Is(err, errNoTypes):
		e.Detail = errNoTypes.Error()
	default:
		line, _, _ := strings.Cut(err.Error(), "\n") // without the log of the kernel's check of programs
		e.Detail = line + " (needs Linux 5.15)"
	}
	return e
}

// lockdownFile says whether the kernel denies even root to read the kernel's memory (security/lockdown/lockdown.c of
// the kernel).
const lockdownFile = "/sys/kernel/security/lockdown"

func lockedDown() bool {
	b, err := os.ReadFile(lockdownFile)
	return err == nil && bytes.Contains(b, []byte("[confidentiality]"))
}

// isRefusal reports whether an error is as of a kernel that is locked down: the check of programs does not know the
// functions that read the kernel's memory.
func isRefusal(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINVAL)
}

// layout has the offsets of members in the kernel's structures, from the kernel's own
// description.
type layout struct {
	state, onCPU, flags, exit, start          member // of struct task_struct
	voluntary, involuntary, ran, waited, runs member
	threadPID, leader                         member
	level, numbers                            member // of struct pid
	nr                                        member // of struct upid
	numberSize                                int32
	hook                                      uint32 // the type id of the iterator's function

	types struct{ task, pid, number, regs uint32 } // ids
}

// member is a member of a structure: its offset and its size.
type member struct {
	at   int32
	size asm.Size
}

// loaded loads the program once, for all processes.
var loaded = sync.OnceValues(func() (program int, err error) {
	l, err := kernelLayout()
	if err != nil {
		return 0, err
	}
	return load(l, 0)
})

var kernelLayout = sync.OnceValues(readLayout)

// load loads the program, and returns its descriptor. If only is not 0, the program drops the
// threads of all other processes.
func load(l *layout, only int) (program int, err error) {
	var code bytes.Buffer
	if err := l.instructions(only).Marshal(&code, binary.LittleEndian); err != nil {
		return 0, err
	}
	const instruction = 8 // bytes
	instructions, licence := code.Bytes(), []byte(license+"\x00")
	attr := struct { // of BPF_PROG_LOAD, only the used part (union bpf_attr of include/uapi/linux/bpf.h)
		kind, count                     uint32
		instructions, license           uint64
		logLevel, logSize               uint32
		log                             uint64
		kernel, flags                   uint32
		name                            [16]byte
		device, attach, types, infoSize uint32
		info                            uint64
		infos, lineSize                 uint32
		line                            uint64
		lines, hook                     uint32
	}{
		kind: uint32(ebpf.Tracing), count: uint32(len(instructions) / instruction),
		instructions: uint64(uintptr(unsafe.Pointer(&instructions[0]))),
		license:      uint64(uintptr(unsafe.Pointer(&licence[0]))),
		attach:       uint32(ebpf.AttachTraceIter), hook: l.hook,
	}
	copy(attr.name[:], "registers")
	program, err = bpf(cmdProgLoad, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	runtime.KeepAlive(instructions)
	runtime.KeepAlive(licence)
	return program, err
}

// Places on the program's stack.
const (
	record   = -int32(unsafe.Sizeof(Task{}))
	slotWord = record - 8 // an intermediate word
)

// instructions returns the program. R6 has the iterator's file, R7 the thread.
func (l *layout) instructions(only int) asm.Instructions {
	var t Task
	in := asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord), // struct bpf_iter__task: meta, task
		asm.LoadMem(asm.R7, asm.R1, 8, asm.DWord),
		asm.JEq.Imm(asm.R7, 0, "end"),             // after the last thread
		asm.LoadMem(asm.R6, asm.R6, 0, asm.DWord), // struct bpf_iter_meta: seq
	}
	in = append(in, l.ids()...)
	if only != 0 {
		in = append(in,
			asm.LoadMem(asm.R1, asm.RFP, int16(record)+int16(unsafe.Offsetof(t.PID)), asm.Word),
			asm.JNE.Imm(asm.R1, int32(only), "end"),
		)
	}
	for _, f := range []struct {
		from member
		to   uintptr
		size asm.Size
	}{
		{l.onCPU, unsafe.Offsetof(t.OnCPU), asm.Word}, // first: see Task.Rested
		{l.runs, unsafe.Offsetof(t.Runs), asm.DWord},
		{l.voluntary, unsafe.Offsetof(t.Voluntary), asm.DWord},
		{l.involuntary, unsafe.Offsetof(t.Involuntary), asm.DWord},
		{l.ran, unsafe.Offsetof(t.Ran), asm.DWord},
		{l.waited, unsafe.Offsetof(t.Waited), asm.DWord},
		{l.flags, unsafe.Offsetof(t.Flags), asm.Word},
		{l.state, unsafe.Offsetof(t.State), asm.Word},
		{l.exit, unsafe.Offsetof(t.Exit), asm.Word},
		{l.start, unsafe.Offsetof(t.Start), asm.DWord},
	} {
		in = append(in,
			asm.LoadMem(asm.R1, asm.R7, int16(f.from.at), f.from.size),
			asm.StoreMem(asm.RFP, int16(record)+int16(f.to), asm.R1, f.size),
		)
	}
	return append(in,
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.FnTaskPtRegs.Call(),
		asm.Mov.Reg(asm.R3, asm.R0),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, record+int32(unsafe.Offsetof(t.Regs))),
		asm.Mov.Imm(asm.R2, int32(unsafe.Sizeof(t.Regs))),
		asm.FnProbeReadKernel.Call(),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, record),
		asm.Mov.Imm(asm.R3, -record),
		asm.FnSeqWrite.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	)
}

// ids writes the thread's and the process's ids in our PID namespace. The reader of the file is
// the current thread.
func (l *layout) ids() asm.Instructions {
	var t Task
	in := asm.Instructions{asm.FnGetCurrentTask.Call()}
	in = append(in, read(asm.R0, l.threadPID.at, slotWord, 8)...)
	in = append(in, asm.LoadMem(asm.R1, asm.RFP, int16(slotWord), asm.DWord))
	in = append(in, read(asm.R1, l.level.at, slotWord, 4)...)
	in = append(in,
		asm.LoadMem(asm.R8, asm.RFP, int16(slotWord), asm.Word),
		asm.Mul.Imm(asm.R8, l.numberSize),
		asm.Add.Imm(asm.R8, l.numbers.at+l.nr.at), // offset of the number for that level in struct pid
	)
	number := func(task asm.Register, to uintptr) {
		in = append(in, read(task, l.threadPID.at, slotWord, 8)...)
		in = append(in,
			asm.LoadMem(asm.R1, asm.RFP, int16(slotWord), asm.DWord),
			asm.Add.Reg(asm.R1, asm.R8),
		)
		in = append(in, read(asm.R1, 0, record+int32(to), 4)...)
	}
	number(asm.R7, unsafe.Offsetof(t.TID))
	in = append(in, read(asm.R7, l.leader.at, slotWord, 8)...)
	in = append(in, asm.LoadMem(asm.R1, asm.RFP, int16(slotWord), asm.DWord))
	number(asm.R1, unsafe.Offsetof(t.PID))
	return in
}

// read reads n bytes, at an offset from a register's pointer, onto the stack. Unreadable bytes
// become zero.
func read(from asm.Register, offset, to, n int32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R3, from),
		asm.Add.Imm(asm.R3, offset),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, to),
		asm.Mov.Imm(asm.R2, n),
		asm.FnProbeReadKernel.Call(),
	}
}

// readLayout reads the layout from the kernel's description of its types.
func readLayout() (*layout, error) {
	var l layout
	err := withKernelTypes(l.read, l.wanted()...)
	return &l, err
}

// wanted are the types that read needs.
func (l *layout) wanted() []wanted {
	return []wanted{
		{"task_struct", kindStruct, &l.types.task}, {"pid", kindStruct, &l.types.pid},
		{"upid", kindStruct, &l.types.number}, {"pt_regs", kindStruct, &l.types.regs},
		{"bpf_iter_task", kindFunc, &l.hook},
	}
}

func (l *layout) read(t *types) error {
	if l.hook == 0 {
		return errors.New("the kernel has no iterator of tasks")
	}
	for _, s := range []struct {
		name    string
		id      uint32
		members map[string]*member
	}{
		{"task_struct", l.types.task, map[string]*member{
			"__state": &l.state, "on_cpu": &l.onCPU, "flags": &l.flags, "exit_state": &l.exit,
			"start_boottime": &l.start, "nvcsw": &l.voluntary, "nivcsw": &l.involuntary,
			"se.sum_exec_runtime": &l.ran, "sched_info.run_delay": &l.waited, "sched_info.pcount": &l.runs,
			"thread_pid": &l.threadPID, "group_leader": &l.leader,
		}},
		{"pid", l.types.pid, map[string]*member{"level": &l.level, "numbers": &l.numbers}},
		{"upid", l.types.number, map[string]*member{"nr": &l.nr}},
	} {
		of, ok := t.get(s.id)
		if !ok {
			return fmt.Errorf("the kernel describes no struct %s", s.name)
		}
		for name, to := range s.members {
			if *to, ok = t.member(of, name); !ok {
				return fmt.Errorf("the kernel's struct %s has no %s", s.name, name)
			}
		}
		if s.name == "upid" {
			l.numberSize = int32(of.size)
		}
	}
	if r, ok := t.get(l.types.regs); !ok || r.size != uint32(unsafe.Sizeof(Regs{})) {
		return errors.New("the kernel's struct pt_regs is not known")
	}
	return nil
}
