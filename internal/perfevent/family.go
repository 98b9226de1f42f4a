package perfevent

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// familyHooks are BPF programs that run when the kernel starts a task and when it frees a task: a
// child of a wanted process is wanted from its first instruction until its end. The hooks cost
// nothing while no process is started.
type familyHooks struct {
	programs []*ebpf.Program
	links    []link.Link
}

// taskLayout has the offsets of the ids in struct task_struct, from the kernel's own description.
type taskLayout struct{ pid, tgid int32 }

// newFamilyHooks attaches the programs.
func newFamilyHooks(f *kernelFilter) (*familyHooks, error) {
	layout, err := readTaskLayout()
	if err != nil {
		return nil, err
	}
	h := &familyHooks{}
	for _, hook := range []struct {
		tracepoint string
		in         asm.Instructions
	}{
		{"sched_process_fork", f.onFork(layout)},
		{"sched_process_free", f.onFree(layout)},
	} {
		if err := h.attach(hook.tracepoint, hook.in); err != nil {
			h.close()
			return nil, fmt.Errorf("children cannot be followed in the kernel: %w", oneLine{err})
		}
	}
	return h, nil
}

func (h *familyHooks) attach(tracepoint string, in asm.Instructions) error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: tracepoint, Type: ebpf.RawTracepoint, License: bpfLicense, Instructions: in,
	})
	if err != nil {
		return err
	}
	h.programs = append(h.programs, p)
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint, Program: p})
	if err != nil {
		return err
	}
	h.links = append(h.links, l)
	return nil
}

func (h *familyHooks) close() {
	for _, l := range h.links {
		l.Close()
	}
	for _, p := range h.programs {
		p.Close()
	}
}

// onFork runs in the process that starts a task; the arguments are the two tasks
// (include/trace/events/sched.h). A task is a process if it leads its thread group.
func (f *kernelFilter) onFork(l taskLayout) asm.Instructions {
	in := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	in = append(in, f.isWanted("keep", "end")...)
	in = append(in, asm.LoadMem(asm.R7, asm.R6, 8, asm.DWord).WithSymbol("keep"))
	in = append(in, leads(l)...)
	return append(in,
		asm.StoreImm(asm.RFP, slotOne, 1, asm.Word),
		asm.LoadMapPtr(asm.R1, f.wanted.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, slotKey),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, slotOne),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(), // beyond maxProcesses the call fails, and the process is not followed
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	)
}

// onFree runs when a task is freed: its id may soon be reused.
func (f *kernelFilter) onFree(l taskLayout) asm.Instructions {
	in := asm.Instructions{asm.LoadMem(asm.R7, asm.R1, 0, asm.DWord)}
	in = append(in, leads(l)...)
	return append(in,
		asm.LoadMapPtr(asm.R1, f.wanted.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, slotKey),
		asm.FnMapDeleteElem.Call(), // perhaps not in the map
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	)
}

// leads puts the thread group of the task in R7 into the slot of the key. If the task does not
// lead the group, leads jumps to the end.
func leads(l taskLayout) asm.Instructions {
	in := readInt(slotPids, l.pid)
	in = append(in, readInt(slotKey, l.tgid)...)
	return append(in,
		asm.LoadMem(asm.R1, asm.RFP, slotPids, asm.Word),
		asm.LoadMem(asm.R2, asm.RFP, slotKey, asm.Word),
		asm.JNE.Reg(asm.R1, asm.R2, "end"),
	)
}

// readInt reads the four bytes at an offset from R7 into a slot. Unreadable bytes become zero.
func readInt(slot int32, offset int32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, slot),
		asm.Mov.Imm(asm.R2, 4),
		asm.Mov.Reg(asm.R3, asm.R7),
		asm.Add.Imm(asm.R3, offset),
		asm.FnProbeReadKernel.Call(),
	}
}

// readTaskLayout finds the ids in the kernel's type information (BTF).
func readTaskLayout() (taskLayout, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return taskLayout{}, fmt.Errorf("this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF): %w",
			oneLine{err})
	}
	var task *btf.Struct
	if err := spec.TypeByName("task_struct", &task); err != nil {
		return taskLayout{}, err
	}
	pid, ok1 := memberOffset(task.Members, "pid")
	tgid, ok2 := memberOffset(task.Members, "tgid")
	if !ok1 || !ok2 {
		return taskLayout{}, errors.New("this kernel's struct task_struct has no pid or no tgid")
	}
	return taskLayout{pid, tgid}, nil
}

// memberOffset finds a member, also inside unnamed structures: kernels with a randomised layout
// have unnamed structures.
func memberOffset(members []btf.Member, name string) (int32, bool) {
	for _, m := range members {
		if m.Name == name {
			return int32(m.Offset.Bytes()), true
		}
		if inner, ok := m.Type.(*btf.Struct); ok && m.Name == "" {
			if at, ok := memberOffset(inner.Members, name); ok {
				return int32(m.Offset.Bytes()) + at, true
			}
		}
	}
	return 0, false
}
