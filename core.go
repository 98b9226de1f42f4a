package clrsnap

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/target/core"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

// CoreOptions change how a core dump is looked at. The zero value is good.
type CoreOptions struct {
	// Mode, NativeOnly and MaxStack are those of Options; a MaxStack of 0 stands for
	// 64 MB.
	Mode       Mode
	NativeOnly bool
	MaxStack   int
	// Executable is the program's file, if it is not where the process had it.
	Executable string
	// Sysroot is the folder below which the process's files are: that of an
	// unpacked container image, for example. Empty: where the process had them.
	Sysroot string
}

// OpenCore opens the process whose core dump is in a file: one that the kernel, gcore
// or the runtime's createdump has written. What the dump leaves out is read from the
// process's files if they are the very ones. All of Process works but what needs a
// running one: Record and Subscribe.
func OpenCore(path string, o CoreOptions) (*Process, error) {
	if o.MaxStack <= 0 {
		o.MaxStack = live.MaxStackLimit
	}
	c, err := core.Open(path, core.Options{Exe: o.Executable, Sysroot: o.Sysroot})
	if err != nil {
		return nil, err
	}
	p := &Process{
		opts: Options{Mode: o.Mode, NativeOnly: o.NativeOnly, MaxStack: stackBound(o.MaxStack)},
		from: &dump{c}, core: c,
	}
	p.info = profile.Process{PID: c.PID(), Command: c.Command(), Core: &profile.Core{Path: path, Writer: c.Writer(), Signal: crashSignal(c)}}
	if err := p.open(); err != nil {
		return nil, err
	}
	return p, nil
}

func crashSignal(c *core.Core) *profile.Signal {
	s := c.Signal()
	if s == nil {
		return nil
	}
	return &profile.Signal{Number: s.Number, Name: s.Name, Reason: s.Reason, Address: uint64(s.Address), HasAddress: s.HasAddress}
}

// runs returns nil for a running process, else why it does nothing any more.
func (p *Process) runs() error {
	if p.core == nil {
		return nil
	}
	return fmt.Errorf("process %d is read from a core dump, where nothing happens any more: give a running process", p.from.PID())
}

// dump is a core dump as the origin of a Process.
type dump struct{ *core.Core }

// Alive implements origin: a dump does not end.
func (d *dump) Alive() error { return nil }

// NSTid implements origin.
func (d *dump) NSTid(tid int) (int, error) { return d.OwnID(tid), nil }

// Threads implements origin.
func (d *dump) Threads() ([]int, error) {
	var tids []int
	for _, t := range d.Core.Threads() {
		tids = append(tids, t.TID)
	}
	return tids, nil
}

// Thread implements origin.
func (d *dump) Thread(tid int) (live.ThreadInfo, error) {
	t, err := d.find(tid)
	if err != nil {
		return live.ThreadInfo{}, err
	}
	return live.ThreadInfo{TID: tid, Name: t.Name}, nil
}

func (d *dump) find(tid int) (*core.Thread, error) {
	all := d.Core.Threads()
	for i := range all {
		if all[i].TID == tid {
			return &all[i], nil
		}
	}
	return nil, &live.ThreadError{TID: tid, Err: live.ErrThreadExited}
}

// Capture implements origin.
func (d *dump) Capture(req *live.Request, out *live.Capture) error {
	t, err := d.find(req.TID)
	if err != nil {
		return err
	}
	*out = live.Capture{TID: req.TID, Context: t.Context, SyscallNr: t.Syscall, Stopped: true}
	if req.HeadLen > 0 {
		// A Thread object may be shorter, and lie at the end of what the dump has.
		out.Head = make([]byte, req.HeadLen)
		d.fill(out.Head, req.Head)
	}
	sp := arch.Addr(t.Context.Regs[d.Arch().SP])
	maps, err := d.Mappings()
	if err != nil {
		return err
	}
	m := maps.Find(sp)
	if m == nil {
		return &target.ReadError{Addr: sp, Err: errNoStack}
	}
	start := max(m.Start, sp-min(sp, redZone))
	size := min(uint64(m.End-start), uint64(req.StackLimit))
	out.Cut = uint64(m.End-start) > size
	out.Stack.Region = d.region(live.Range{Addr: start, Len: int(size)})
	for _, r := range req.Extra {
		out.Stack.Extra = append(out.Stack.Extra, d.region(r))
	}
	return nil
}

var errNoStack = errors.New("the stack pointer is in no memory of the dump")

// redZone is what a leaf function may use below the stack pointer, in bytes (System V
// ABI for x86-64, 3.2.2).
const redZone = 128

// region copies a piece of memory, or the part of it up to what the dump lacks.
func (d *dump) region(r live.Range) target.Region {
	b := make([]byte, r.Len)
	return target.Region{Base: r.Addr, Data: b[:d.fill(b, r.Addr)]}
}

// fill reads as much as there is without a gap, page by page.
func (d *dump) fill(b []byte, at arch.Addr) (n int) {
	if d.ReadMemory(b, at) == nil {
		return len(b)
	}
	const page = 4096
	for n < len(b) {
		size := min(len(b)-n, int(page-(uint64(at)+uint64(n))%page))
		if d.ReadMemory(b[n:n+size], at+arch.Addr(n)) != nil {
			break
		}
		n += size
	}
	return n
}
