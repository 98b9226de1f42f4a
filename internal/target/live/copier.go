package live

import (
	"errors"
	"syscall"
	"unsafe"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// MaxExtra bounds the further pieces of memory (target.Request.Extra) in one request.
const MaxExtra = 16

const (
	maxHead = 1 << 20

	// maxPieces is a power of two. An index masked with maxPieces-1 needs no bounds check, and
	// the tracer's stack has no room for a panic.
	maxPieces = 32
)

// copier copies the pieces of one request. Its arrays are filled before a thread is stopped;
// during the stop only numbers change.
type copier struct {
	local  [maxPieces]unix.Iovec
	remote [maxPieces]unix.RemoteIovec
	got    [maxPieces]int // bytes that arrived
	count  int            // pieces: head, stack, extras
	limit  uint64         // of the stack's copy
	end    uint64         // of the stack, where the request has it
	spans  []span
	vm     bool    // use process_vm_readv
	mem    uintptr // else this file
	err    syscall.Errno

	spUnmapped, cut bool
}

const (
	pieceHead  = 0
	pieceStack = 1
	pieceExtra = 2
)

var errRequest = errors.New("the request is too large")

func stackLimit(r *target.Request) int {
	if r.StackLimit <= 0 {
		return target.DefaultStackLimit
	}
	return r.StackLimit
}

// prepare makes room for all pieces of req.
func (c *copier) prepare(p *Process, req *target.Request, out *target.Capture) error {
	limit := stackLimit(req)
	if limit > target.MaxStackLimit || req.HeadLen < 0 || req.HeadLen > maxHead || len(req.Extra) > MaxExtra {
		return &target.ThreadError{TID: req.TID, Err: errRequest}
	}
	c.limit, c.end = uint64(limit), uint64(req.StackEnd)
	c.count = pieceExtra + len(req.Extra)
	c.spUnmapped, c.cut, c.err = false, false, 0
	out.Buffers.Stack = grow(out.Buffers.Stack, limit)
	out.Buffers.Head = grow(out.Buffers.Head, req.HeadLen)
	c.set(pieceHead, out.Buffers.Head, req.Head, req.HeadLen)
	c.set(pieceStack, out.Buffers.Stack, 0, 0)
	for len(out.Buffers.Extra) < len(req.Extra) {
		out.Buffers.Extra = append(out.Buffers.Extra, nil)
	}
	for i, r := range req.Extra {
		if r.Len < 0 || r.Len > target.MaxStackLimit {
			return &target.ThreadError{TID: req.TID, Err: errRequest}
		}
		out.Buffers.Extra[i] = grow(out.Buffers.Extra[i], r.Len)
		c.set(pieceExtra+i, out.Buffers.Extra[i], r.Addr, r.Len)
	}
	if cap(out.Stack.Extra) < len(req.Extra) {
		out.Stack.Extra = make([]target.Region, 0, len(req.Extra))
	}
	if s := p.spans.Load(); s != nil {
		c.spans = *s
	}
	if c.vm = !p.noVM.Load(); !c.vm {
		fd, err := p.mem()
		if err != nil {
			return err
		}
		c.mem = uintptr(fd)
	}
	return nil
}

// grow returns a buffer of n bytes. grow writes to each page of a new buffer. Otherwise each
// fresh page would cost a page fault while a thread is stopped.
func grow(b []byte, n int) []byte {
	if n <= cap(b) {
		return b[:n]
	}
	b = make([]byte, n)
	for i := 0; i < n; i += 4096 {
		b[i] = 1
	}
	return b
}

func (c *copier) set(piece int, buf []byte, addr arch.Addr, n int) {
	c.got[piece] = 0
	c.local[piece] = unix.Iovec{Len: uint64(n)}
	if len(buf) > 0 {
		c.local[piece].Base = &buf[0]
	}
	c.remote[piece] = unix.RemoteIovec{Base: uintptr(addr), Len: n}
}

//go:norace
//go:nosplit
func (c *copier) length(piece int, addr, n uint64) {
	piece &= maxPieces - 1
	c.local[piece].Len = n
	c.remote[piece].Base, c.remote[piece].Len = uintptr(addr), int(n)
}

// find returns the known mapping around addr.
//
//go:norace
//go:nosplit
func (c *copier) find(addr uint64) (span, bool) { return findSpan(c.spans, addr) }

// findSpan returns the span around addr.
//
//go:norace
//go:nosplit
func findSpan(spans []span, addr uint64) (span, bool) {
	lo, hi := 0, len(spans)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if uint(mid) >= uint(len(spans)) {
			break // never: saves a bounds check, and so a panic
		}
		if spans[mid].end > addr {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if uint(lo) < uint(len(spans)) && spans[lo].start <= addr {
		return spans[lo], true
	}
	return span{}, false
}

// copy copies all pieces of a thread that stands still with stack pointer sp. tid is any thread
// with the address space.
//
//go:norace
//go:nosplit
func (c *copier) copy(tid uintptr, sp uint64) {
	base, end := sp-redZone, sp-redZone+c.limit
	s, known := c.find(sp)
	if known {
		base, end = max(base, s.start), s.end
	}
	if sp < redZone || end < base { // hostile: at either end of the address space
		base, end, known = sp, sp, false
	}
	if c.end > sp && c.end < end {
		end = c.end
	}
	c.spUnmapped = !known
	c.cut = known && end-base > c.limit
	c.length(pieceStack, uint64(base), min(end-base, c.limit))
	for from := pieceHead; from < c.count; {
		from = c.readFrom(tid, from)
	}
	if c.got[pieceStack] == 0 && c.err == 0 && base < sp {
		// The mappings have changed, or the page just below the stack pointer has not been
		// touched yet: copy from sp on.
		c.spUnmapped = true
		c.length(pieceStack, sp, min(uint64(c.remote[pieceStack].Len), c.limit))
		if c.vm {
			c.got[pieceStack] = c.readv(tid, pieceStack, 1)
		} else {
			c.readMem(pieceStack)
		}
	}
}

// readFrom reads pieces with one call, beginning at from, and notes how much of each piece
// arrived. It returns the next piece to read: the kernel stops at the first unreadable byte, and
// the later pieces are still wanted.
//
//go:norace
//go:nosplit
func (c *copier) readFrom(tid uintptr, from int) int {
	if !c.vm {
		c.readMem(from)
		return from + 1
	}
	n := c.readv(tid, from, c.count-from)
	for i := from; i < c.count; i++ {
		want := c.remote[i&(maxPieces-1)].Len
		if n < want {
			c.got[i&(maxPieces-1)] = n
			return i + 1
		}
		c.got[i&(maxPieces-1)] = want
		n -= want
	}
	return c.count
}

// readMem reads a piece from the target's memory file.
//
//go:norace
//go:nosplit
func (c *copier) readMem(piece int) {
	piece &= maxPieces - 1
	l := &c.local[piece]
	n, e := raw6(unix.SYS_PREAD64, c.mem, uintptr(unsafe.Pointer(l.Base)), uintptr(l.Len), c.remote[piece].Base, 0, 0)
	if e != 0 {
		n = 0
	}
	c.got[piece] = int(n)
}

//go:norace
//go:nosplit
func (c *copier) readv(tid uintptr, from, count int) int {
	n, e := raw6(unix.SYS_PROCESS_VM_READV, tid,
		uintptr(unsafe.Pointer(&c.local[from&(maxPieces-1)])), uintptr(count),
		uintptr(unsafe.Pointer(&c.remote[from&(maxPieces-1)])), uintptr(count), 0)
	if e != 0 {
		if e != unix.EFAULT {
			c.err = e
		}
		return 0
	}
	return int(n)
}

// deliver puts the copied pieces into out.
func (c *copier) deliver(req *target.Request, out *target.Capture) error {
	out.TID = req.TID
	out.SPUnmapped, out.Truncated = c.spUnmapped, c.cut
	out.Head = out.Buffers.Head[:c.got[pieceHead]]
	out.Stack.Base = arch.Addr(c.remote[pieceStack].Base)
	out.Stack.Data = out.Buffers.Stack[:c.got[pieceStack]]
	out.Stack.Miss, out.Stack.Live = 0, nil
	out.Stack.Extra = out.Stack.Extra[:0]
	for i, r := range req.Extra {
		if n := c.got[pieceExtra+i]; n > 0 {
			out.Stack.Extra = append(out.Stack.Extra, target.Region{Base: r.Addr, Data: out.Buffers.Extra[i][:n]})
		}
	}
	if c.got[pieceHead] != req.HeadLen {
		err := error(unix.EFAULT)
		if c.err != 0 {
			err = c.err
		}
		unread := &target.ReadError{Addr: req.Head, Len: req.HeadLen, Err: err}
		return &target.ThreadError{TID: req.TID, Err: unread, Detail: "the runtime's Thread object"}
	}
	if c.got[pieceStack] == 0 {
		err := error(unix.EFAULT)
		if c.err != 0 {
			err = c.err
		}
		unread := &target.ReadError{Addr: out.Stack.Base, Len: c.remote[pieceStack].Len, Err: err}
		return &target.ThreadError{TID: req.TID, Err: unread, Detail: "its stack"}
	}
	return nil
}
