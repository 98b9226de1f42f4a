package clrsnap

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/session"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// ThreadID is the address of the runtime's Thread object.
type ThreadID uint64

func (t ThreadID) String() string { return arch.Addr(t).String() }

// FunctionID is the address of a method's MethodDesc, exactly the FunctionID of
// the profiling API. 0 stands for a run of unmanaged frames.
type FunctionID uint64

func (f FunctionID) String() string { return arch.Addr(f).String() }

// SnapshotInfo is the infoFlags argument of DoStackSnapshot: the profiling API's
// COR_PRF_SNAPSHOT_INFO.
type SnapshotInfo uint32

// The flags of DoStackSnapshot.
const (
	COR_PRF_SNAPSHOT_DEFAULT          SnapshotInfo = 0 // no register context is passed
	COR_PRF_SNAPSHOT_REGISTER_CONTEXT SnapshotInfo = 1 // each callback gets a context
	COR_PRF_SNAPSHOT_X86_OPTIMIZED    SnapshotInfo = 2 // E_INVALIDARG on 64-bit targets
)

// Context is a register context: the instruction pointer and the integer registers with known values. Register n is
// known if bit n of Valid is set; the values of other registers mean nothing. On AMD64 the numbers of the registers are
// the numbers in instructions: 0 rax, 1 rcx, 2 rdx, 3 rbx, 4 rsp, 5 rbp, 6 rsi, 7 rdi, 8 to 15 r8 to r15.
type Context struct {
	Regs    [32]uint64
	IP      uint64
	Valid   uint32
	Machine Machine
}

// Machine is the CPU architecture of a Context.
type Machine uint8

// The machines. 0 is no machine: the Context was not filled in.
const (
	AMD64 = Machine(arch.MachineAMD64)
	ARM64 = Machine(arch.MachineARM64)
)

// Reg returns the value of a register and whether it is known.
func (c *Context) Reg(r uint8) (uint64, bool) { return c.inner().Reg(r) }

// Set gives a register a value and marks the register as known.
func (c *Context) Set(r uint8, v uint64) {
	c.Regs[r] = v
	c.Valid |= 1 << r
}

func (c *Context) inner() *arch.Context {
	return &arch.Context{
		Regs: c.Regs, IP: arch.Addr(c.IP), Valid: arch.RegMask(c.Valid), Machine: arch.Machine(c.Machine),
	}
}

func newContext(c *arch.Context) *Context {
	return &Context{Regs: c.Regs, IP: uint64(c.IP), Valid: uint32(c.Valid), Machine: Machine(c.Machine)}
}

// StackSnapshotCallback is called once for each managed frame and once for each run of unmanaged frames, leaf first.
//
//   - id is the method, or 0 for a run of unmanaged frames.
//   - ip is the instruction pointer in the frame; for a run, in the run's most recently pushed frame.
//   - frame and context are valid during the call only. context is nil without COR_PRF_SNAPSHOT_REGISTER_CONTEXT. Only
//     the instruction pointer, the stack pointer and the non-volatile registers in context can be meaningful. Valid
//     says which registers are.
//   - clientData is the argument of DoStackSnapshot.
//
// Returning anything but nil stops the walk. The target's locks are in another process, so a callback may do whatever
// the callback likes, except walk again.
type StackSnapshotCallback func(id FunctionID, ip uint64, frame *FrameInfo, context *Context, clientData any) error

// ErrStale: a FrameInfo was used after its callback had returned.
var ErrStale = errors.New("a FrameInfo is valid only during its callback")

// FrameInfo is the frameInfo argument of the callback. FrameInfo says more of this very frame than its FunctionID does.
// A FrameInfo is valid during the callback.
type FrameInfo struct {
	p    *session.Process // nil outside the callback
	code *codemap.Code
}

// frameInfos hands out FrameInfos. A FrameInfo is never used again, so that nobody takes a stale FrameInfo for the
// FrameInfo of a later frame. FrameInfos are allocated many at a time, because an allocation for each frame would cost
// more than the walk.
type frameInfos []FrameInfo

func (f *frameInfos) next(p *session.Process, code *codemap.Code) *FrameInfo {
	if len(*f) == 0 {
		*f = make([]FrameInfo, 64)
	}
	i := &(*f)[0]
	*f = (*f)[1:]
	*i = FrameInfo{p: p, code: code}
	return i
}

// Tier says how the frame's code was compiled: "tier-0", "tier-1", "ReadyToRun",
// "OSR", ….
func (f *FrameInfo) Tier() (string, error) {
	if f == nil || f.p == nil {
		return "", ErrStale
	}
	return f.p.Tier(f.code)
}

// CodeStart is the address at which the code of the frame's method begins. CodeStart is 0 for a run of unmanaged
// frames, and for code that has been unloaded meanwhile.
func (f *FrameInfo) CodeStart() (uint64, error) {
	if f == nil || f.p == nil {
		return 0, ErrStale
	}
	if f.code == nil {
		return 0, nil
	}
	return uint64(f.code.MethodStart), nil
}

// Mode changes what DoStackSnapshot reports.
type Mode uint8

// The modes.
const (
	// AsDocumented follows Microsoft's documentation: each run of unmanaged frames once, except a run at the leaf, and
	// true return addresses.
	AsDocumented = Mode(walk.AsDocumented)
	// AsCoreCLR reports the frames as CoreCLR does, to compare the two callback by callback. AsCoreCLR leaves out the
	// runs that dispatch an exception, and gives the ip in the InlinedCallFrame for a method in a P/Invoke.
	// docs/correctness.md has the comparison.
	AsCoreCLR = Mode(walk.AsCoreCLR)
)

// Thread is one thread of the target.
type Thread struct {
	ID          ThreadID // 0: the runtime does not know this thread
	ManagedID   int      // Environment.CurrentManagedThreadId
	OSThreadID  int      // in this process's PID namespace
	NSThreadID  int      // in the target's PID namespace
	Name        string
	Role        string // "Main", "Finalizer", "ThreadPool worker", …
	Cooperative bool   // at the time of the listing
}

func newThread(t *session.Thread) *Thread {
	return &Thread{
		ID: ThreadID(t.ID), ManagedID: t.ManagedID, OSThreadID: t.OSThreadID, NSThreadID: t.NSThreadID,
		Name: t.Name, Role: t.Role, Cooperative: t.Cooperative,
	}
}

// Filter chooses threads of Process.Threads.
type Filter func(*Thread) bool

func (f Filter) inner() session.Filter {
	if f == nil {
		return nil
	}
	return func(t *session.Thread) bool { return f(newThread(t)) }
}

// Stack is a thread with its frames from Snapshot.
type Stack = snapshot.Thread

// ClassID is the address of a type's MethodTable: the ClassID of the profiling
// API.
type ClassID uint64

func (c ClassID) String() string { return arch.Addr(c).String() }
