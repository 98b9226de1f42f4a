package origin

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// stillMemory is the memory of an origin that does not change.
type stillMemory interface {
	target.Memory
	Arch() *arch.Arch
	Mappings() (target.Mappings, error)
	// Dumped is how many of the n bytes at addr can be read, from addr on.
	Dumped(addr arch.Addr, n int) int
}

// stillThread is a thread of an origin that does not change.
type stillThread struct {
	context arch.Context
	syscall int64   // number of the thread's current system call; -1: none
	needed  int     // how much of a Thread object must be there, in bytes
	buf     *[]byte // holds the stack of the last capture
}

var errNoStack = errors.New("the stack pointer is in no memory of the dump")

// redZone is the space below the stack pointer that a leaf function may use, in bytes (System V ABI
// for x86-64, 3.2.2).
const redZone = 128

// captureStill captures a thread. The pieces of stack are valid until the next capture into the same buffer.
func captureStill(m stillMemory, t *stillThread, req *target.Request, out *target.Capture) (err error) {
	*out = target.Capture{TID: req.TID, Context: t.context, SyscallNr: t.syscall, Stopped: true}
	if t.syscall >= 0 {
		for i, r := range []uint8{arch.RDI, arch.RSI, arch.RDX, arch.R10, arch.R8, arch.R9} {
			out.SyscallArgs[i] = t.context.Regs[r]
		}
	}
	if out.Head, err = stillHead(m, req, t.needed); err != nil {
		return err
	}
	sp := arch.Addr(t.context.Regs[m.Arch().SP])
	maps, err := m.Mappings()
	if err != nil {
		return err
	}
	in := maps.Find(sp)
	if in == nil {
		return &target.ReadError{Addr: sp, Err: errNoStack}
	}
	start := max(in.Start, sp-min(sp, redZone))
	size := min(uint64(in.End-start), uint64(req.StackLimit))
	out.Truncated = uint64(in.End-start) > size
	pieces, err := stillPieces(m, append([]target.Range{{Addr: start, Len: int(size)}}, req.Extra...), t.buf)
	if err != nil {
		return err
	}
	out.Stack.Region, out.Stack.Extra = pieces[0], pieces[1:]
	return nil
}

// stillHead copies the head of a Thread object. If memory ends within the head, the rest is zero: only the first
// needed bytes are used.
func stillHead(m stillMemory, req *target.Request, needed int) ([]byte, error) {
	if req.HeadLen == 0 {
		return nil, nil
	}
	b := make([]byte, req.HeadLen)
	has := max(needed, m.Dumped(req.Head, req.HeadLen))
	if err := m.ReadMemory(b[:has], req.Head); err != nil {
		return nil, &target.ThreadError{TID: req.TID, Err: err, Detail: "the runtime's Thread object"}
	}
	return b, nil
}

// stillPieces copies pieces of memory into buf, each up to the first byte that cannot be read.
func stillPieces(m stillMemory, ranges []target.Range, buf *[]byte) ([]target.Region, error) {
	total := 0
	for i := range ranges {
		ranges[i].Len = m.Dumped(ranges[i].Addr, ranges[i].Len)
		total += ranges[i].Len
	}
	if total > len(*buf) {
		*buf = make([]byte, max(total, 2*len(*buf)))
	}
	out, rest := make([]target.Region, len(ranges)), *buf
	for i, r := range ranges {
		out[i] = target.Region{Base: r.Addr, Data: rest[:r.Len:r.Len]}
		if err := m.ReadMemory(out[i].Data, r.Addr); err != nil {
			return nil, err
		}
		rest = rest[r.Len:]
	}
	return out, nil
}
