package perfevent

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"clrsnap/internal/procfs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// The BPF programs of this package are small enough to be written as instructions, so neither
// building nor running clrsnap takes a compiler for BPF. Only programs under a licence compatible
// with the GPL may call some helpers; these programs may be used under the MIT licence and under
// the GPL version 2, too.
const bpfLicense = "Dual MIT/GPL"

// kernelFilter is the BPF program that decides in the kernel, for each sample of a CPU, whether
// the sample is of a wanted process, together with the program's maps.
//
// A kept sample has a note before it in the same ring, with the name of the thread, because the
// thread may have ended before we read the sample. (The kernel's own records of names are written
// for all threads of the machine, or for none.)
type kernelFilter struct {
	program *ebpf.Program
	wanted  *ebpf.Map // process ids in the kernel's own PID namespace
	inside  *ebpf.Map // process ids in space; nil if we are in the kernel's own PID namespace
	notes   *ebpf.Map // by CPU: the event for writing notes
	ticks   *ebpf.Map // by CPU: the timer's ticks while the CPU was busy

	space  namespace    // of the process in Options.PID
	family *familyHooks // nil: children are not followed
}

// namespace is a PID namespace: device and inode of its file in /proc.
type namespace struct{ dev, ino uint64 }

// initialNamespace is the inode number of the kernel's own PID namespace
// (PROC_PID_INIT_INO in include/linux/proc_ns.h).
const initialNamespace = 0xEFFFFFFC

// maxProcesses bounds the followed processes.
const maxProcesses = 1 << 14

// filterError explains why there is no filter in the kernel.
func filterError(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("samples cannot be filtered in the kernel (%w): "+
			"that takes CAP_BPF and CAP_PERFMON, before Linux 5.8 CAP_SYS_ADMIN", unix.EPERM)
	}
	return fmt.Errorf("samples cannot be filtered in the kernel: %w", oneLine{err})
}

// oneLine is an error of the BPF verifier without its log.
type oneLine struct{ error }

func (e oneLine) Error() string {
	s, _, _ := strings.Cut(e.error.Error(), "\n")
	return s
}

func (e oneLine) Unwrap() error { return e.error }

// newKernelFilter loads the program and makes process pid wanted, by its ids in its own PID
// namespace and in ours.
func newKernelFilter(pid int, children bool) (*kernelFilter, error) {
	raiseMemoryLimit()
	f := &kernelFilter{}
	if err := f.load(pid, children); err != nil {
		f.close()
		return nil, filterError(err)
	}
	return f, nil
}

func (f *kernelFilter) load(pid int, children bool) error {
	own, err := namespaceOf(os.Getpid())
	if err != nil {
		return err
	}
	if f.space, err = namespaceOf(pid); err != nil {
		return err
	}
	if f.wanted, err = newSet("wanted"); err != nil {
		return err
	}
	if own.ino != initialNamespace {
		if f.inside, err = newSet("inside"); err != nil {
			return err
		}
	}
	if f.notes, err = ebpf.NewMap(&ebpf.MapSpec{Name: "notes", Type: ebpf.PerfEventArray}); err != nil {
		return err
	}
	f.ticks, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "ticks", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1,
	})
	if err != nil {
		return err
	}
	f.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "wanted_sample", Type: ebpf.PerfEvent, License: bpfLicense, Instructions: f.instructions(),
	})
	if err != nil {
		return err
	}
	if children {
		if f.family, err = newFamilyHooks(f); err != nil {
			return err
		}
	}
	return f.follow(pid)
}

func newSet(name string) (*ebpf.Map, error) {
	return ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: maxProcesses})
}

// Offsets of the programs' variables on their stack, from the frame pointer.
const (
	slotKey  = -4  // a process id
	slotOne  = -8  // the value of map entries
	slotPids = -16 // struct bpf_pidns_info: pid, tgid
	slotName = -32 // 16 bytes
)

// instructions returns the program. The kernel keeps a sample if the program returns 1, and drops
// the sample before anything is copied if the program returns 0 (bpf_overflow_handler in
// kernel/events/core.c).
func (f *kernelFilter) instructions() asm.Instructions {
	in := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	in = append(in, f.countTick()...)
	in = append(in, f.isWanted("keep", "drop")...)
	return append(in,
		asm.Mov.Reg(asm.R1, asm.RFP).WithSymbol("keep"),
		asm.Add.Imm(asm.R1, slotName),
		asm.Mov.Imm(asm.R2, nameLen),
		asm.FnGetCurrentComm.Call(),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMapPtr(asm.R2, f.notes.FD()),
		asm.LoadImm(asm.R3, bpfCurrentCPU, asm.DWord),
		asm.Mov.Reg(asm.R4, asm.RFP),
		asm.Add.Imm(asm.R4, slotName),
		asm.Mov.Imm(asm.R5, nameLen),
		asm.FnPerfEventOutput.Call(),
		// If the ring has no room for the note, the sample is dropped too, so the two count as
		// one loss. If the note fails for another reason, the sample is kept.
		asm.JEq.Imm(asm.R0, -int32(unix.ENOSPC), "drop"),
		asm.Mov.Imm(asm.R0, 1),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("drop"),
		asm.Return(),
	)
}

const (
	nameLen       = 16         // TASK_COMM_LEN
	bpfCurrentCPU = 0xffffffff // BPF_F_CURRENT_CPU
)

// countTick adds one to the ticks of the current CPU.
func (f *kernelFilter) countTick() asm.Instructions {
	return asm.Instructions{
		asm.StoreImm(asm.RFP, slotKey, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, f.ticks.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, slotKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"), // never: the key is there
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
	}
}

// counted is the number of timer ticks of all CPUs while they were not idle.
func (f *kernelFilter) counted() (n int, ok bool) {
	var each []uint64
	if f.ticks.Lookup(uint32(0), &each) != nil {
		return 0, false
	}
	for _, c := range each {
		n += int(c)
	}
	return n, true
}

// isWanted jumps to yes or no, as the current process is wanted or not.
func (f *kernelFilter) isWanted(yes, no string) asm.Instructions {
	in := asm.Instructions{
		asm.FnGetCurrentPidTgid.Call(),
		asm.RSh.Imm(asm.R0, 32),
		asm.StoreMem(asm.RFP, slotKey, asm.R0, asm.Word),
	}
	in = append(in, lookup(f.wanted, yes)...)
	if f.inside != nil {
		// The kernel's own ids are hidden from us. The helper returns the current thread's ids in
		// a namespace only if the namespace is the thread's own.
		in = append(in,
			asm.LoadImm(asm.R1, int64(f.space.dev), asm.DWord),
			asm.LoadImm(asm.R2, int64(f.space.ino), asm.DWord),
			asm.Mov.Reg(asm.R3, asm.RFP),
			asm.Add.Imm(asm.R3, slotPids),
			asm.Mov.Imm(asm.R4, 8),
			asm.FnGetNsCurrentPidTgid.Call(),
			asm.JNE.Imm(asm.R0, 0, no),
			asm.LoadMem(asm.R1, asm.RFP, slotPids+4, asm.Word),
			asm.StoreMem(asm.RFP, slotKey, asm.R1, asm.Word),
		)
		in = append(in, lookup(f.inside, yes)...)
	}
	return append(in, asm.Ja.Label(no))
}

// lookup jumps to a symbol if a map has the key in its slot.
func lookup(m *ebpf.Map, found string) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, slotKey),
		asm.FnMapLookupElem.Call(),
		asm.JNE.Imm(asm.R0, 0, found),
	}
}

// follow makes a process wanted.
func (f *kernelFilter) follow(pid int) error {
	if f.inside == nil {
		return f.wanted.Put(uint32(pid), uint32(1))
	}
	space, err := namespaceOf(pid)
	if err != nil {
		return err
	}
	if space != f.space {
		return fmt.Errorf("process %d is in a PID namespace of its own: run clrsnap on the host, or in that container",
			pid)
	}
	id, err := innermostPID(pid)
	if err != nil {
		return err
	}
	return f.inside.Put(uint32(id), uint32(1))
}

// forget ends follow. An ended process whose ids we cannot see is left to the hooks.
func (f *kernelFilter) forget(pid int) {
	if f.inside == nil {
		_ = f.wanted.Delete(uint32(pid)) // perhaps not in the map
		return
	}
	if id, err := innermostPID(pid); err == nil {
		_ = f.inside.Delete(uint32(id)) // likewise
	}
}

func (f *kernelFilter) close() {
	if f.family != nil {
		f.family.close()
	}
	if f.program != nil {
		f.program.Close()
	}
	for _, m := range []*ebpf.Map{f.wanted, f.inside, f.notes, f.ticks} {
		if m != nil {
			m.Close()
		}
	}
}

// namespaceOf is the PID namespace of a process, in the form of BPF helpers: the kernel has minor
// numbers of 20 bits, stat(2) puts them elsewhere (include/linux/kdev_t.h).
func namespaceOf(pid int) (namespace, error) {
	dir, err := procfs.Open(pid)
	if err != nil {
		return namespace{}, unread(pid, err)
	}
	defer dir.Close()
	st, err := dir.StatFile("ns/pid")
	if err != nil {
		return namespace{}, unread(pid, err)
	}
	return namespace{uint64(unix.Major(st.Dev))<<20 | uint64(unix.Minor(st.Dev)), st.Ino}, nil
}

// innermostPID is the id of a process in its own PID namespace.
func innermostPID(pid int) (int, error) {
	s, err := statusOf(pid)
	if err != nil {
		return 0, err
	}
	id, ok := s.InnermostPID()
	if !ok {
		return 0, fmt.Errorf("process %d: /proc does not tell its NSpid", pid)
	}
	return id, nil
}

// statusOf is the status of a process. Like the kernel's events, statusOf takes a number, and the
// number may by now be another process's: Record checks afterwards that the process is the same.
func statusOf(pid int) (procfs.Status, error) {
	dir, err := procfs.Open(pid)
	if err != nil {
		return procfs.Status{}, unread(pid, err)
	}
	defer dir.Close()
	s, err := dir.Status()
	if err != nil {
		return s, unread(pid, err)
	}
	return s, nil
}

// raiseMemoryLimit raises our limit of locked memory as far as we may: before Linux 5.11 BPF maps
// count as locked memory.
func raiseMemoryLimit() { raiseLimit(unix.RLIMIT_MEMLOCK) }
