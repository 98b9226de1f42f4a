package iter

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// The program is written as instructions, so that neither building nor running clrsnap takes a compiler for BPF. The
// kernel lets only programs under a licence compatible with the GPL call bpf_task_pt_regs, bpf_seq_write and
// bpf_probe_read_kernel; this program may be used under the MIT licence and under the GPL version 2, too.
const license = "Dual MIT/GPL"

// ErrUnavailable is in the chain of errors that say why the kernel does not let us read registers.
var ErrUnavailable = errors.New("the kernel does not give the registers of threads")

// Error is an ErrUnavailable.
type Error struct {
	Err    error
	Detail string
	Remedy string // "": nothing helps on this machine
}

func (e *Error) Error() string { return fmt.Sprintf("%v: %s", ErrUnavailable, e.Detail) }

// Unwrap returns ErrUnavailable and the cause.
func (e *Error) Unwrap() []error { return []error{ErrUnavailable, e.Err} }

// unavailable explains an error of the kernel's.
func unavailable(err error) error {
	e := &Error{Err: err}
	switch {
	case errors.Is(err, unix.EPERM):
		e.Detail = "that takes CAP_BPF and CAP_PERFMON"
		e.Remedy = "run as root, or give the program the capabilities (setcap cap_sys_ptrace,cap_bpf,cap_perfmon+ep; " +
			"for a container --cap-add BPF --cap-add PERFMON)"
	case errors.Is(err, errNoTypes):
		e.Detail = errNoTypes.Error()
	default:
		line, _, _ := strings.Cut(err.Error(), "\n") // without the log of the kernel's check of programs
		e.Detail = line + " (it takes Linux 5.15)"
	}
	return e
}

var errNoTypes = errors.New("this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)")

// layout is where the kernel's structures have their members, by its own description.
type layout struct {
	state, onCPU, flags, exit, start          member // of struct task_struct
	voluntary, involuntary, ran, waited, runs member
	threadPID, leader                         member
	level, numbers                            member // of struct pid
	nr                                        member // of struct upid
	numberSize                                int32
}

// member is a member of a structure: where it begins, and its size.
type member struct {
	at   int32
	size asm.Size
}

// loaded is what is done once for all processes that we look at.
var loaded = sync.OnceValues(func() (*ebpf.Program, error) {
	l, err := kernelLayout()
	if err != nil {
		return nil, err
	}
	return load(l, 0)
})

var kernelLayout = sync.OnceValues(readLayout)

// load loads the program. Where only is not 0, it drops the threads of all other processes.
func load(l *layout, only int) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "thread_registers", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "task",
		License: license, Instructions: l.instructions(only),
	})
}

// Places on the program's stack.
const (
	record   = -int32(unsafe.Sizeof(Task{}))
	slotWord = record - 8 // what is read on the way
)

// instructions are the program. R6 has the file that is read, R7 the thread.
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

// ids writes the ids that thread and process have in our PID namespace. The reader of the file is the current thread.
func (l *layout) ids() asm.Instructions {
	var t Task
	in := asm.Instructions{asm.FnGetCurrentTask.Call()}
	in = append(in, read(asm.R0, l.threadPID.at, slotWord, 8)...)
	in = append(in, asm.LoadMem(asm.R1, asm.RFP, int16(slotWord), asm.DWord))
	in = append(in, read(asm.R1, l.level.at, slotWord, 4)...)
	in = append(in,
		asm.LoadMem(asm.R8, asm.RFP, int16(slotWord), asm.Word),
		asm.Mul.Imm(asm.R8, l.numberSize),
		asm.Add.Imm(asm.R8, l.numbers.at+l.nr.at), // where struct pid has the number for that level
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

// read reads n bytes, at an offset from what a register points to, into a place on the stack. What cannot be read is
// zero.
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

// readLayout reads the layout from the kernel's description of its types (BTF).
func readLayout() (*layout, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoTypes, err)
	}
	var l layout
	for _, s := range []struct {
		name    string
		members map[string]*member
	}{
		{"task_struct", map[string]*member{
			"__state": &l.state, "on_cpu": &l.onCPU, "flags": &l.flags, "exit_state": &l.exit,
			"start_boottime": &l.start, "nvcsw": &l.voluntary, "nivcsw": &l.involuntary,
			"se.sum_exec_runtime": &l.ran, "sched_info.run_delay": &l.waited, "sched_info.pcount": &l.runs,
			"thread_pid": &l.threadPID, "group_leader": &l.leader,
		}},
		{"pid", map[string]*member{"level": &l.level, "numbers": &l.numbers}},
		{"upid", map[string]*member{"nr": &l.nr}},
	} {
		var t *btf.Struct
		if err := spec.TypeByName(s.name, &t); err != nil {
			return nil, fmt.Errorf("this kernel describes no struct %s: %w", s.name, err)
		}
		for name, to := range s.members {
			var ok bool
			if *to, ok = find(t.Members, name); !ok {
				return nil, fmt.Errorf("this kernel's struct %s has no %s", s.name, name)
			}
		}
		if s.name == "upid" {
			l.numberSize = int32(t.Size)
		}
	}
	var regs *btf.Struct
	if err := spec.TypeByName("pt_regs", &regs); err != nil || regs.Size != uint32(unsafe.Sizeof(Regs{})) {
		return nil, errors.New("this kernel's struct pt_regs is not known")
	}
	return &l, nil
}

// find finds a member by its path, also inside unnamed structures: kernels with a randomised layout have those.
func find(members []btf.Member, path string) (member, bool) {
	name, rest, nested := strings.Cut(path, ".")
	for _, m := range members {
		at := int32(m.Offset.Bytes())
		inner, isStruct := btf.UnderlyingType(m.Type).(*btf.Struct)
		switch {
		case m.Name == name && nested && isStruct:
			found, ok := find(inner.Members, rest)
			found.at += at
			return found, ok
		case m.Name == name && !nested:
			size, _ := btf.Sizeof(m.Type) // 0 for an array without a length
			return member{at, sizes[size]}, true
		case m.Name == "" && isStruct:
			if found, ok := find(inner.Members, path); ok {
				found.at += at
				return found, true
			}
		}
	}
	return member{}, false
}

var sizes = map[int]asm.Size{4: asm.Word, 8: asm.DWord}
