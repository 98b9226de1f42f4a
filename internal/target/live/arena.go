package live

import (
	"errors"
	"os"

	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// An arena is the memory for the copies of all threads of a CaptureAll: pages of our own, outside
// the Go heap. A page costs nothing until the first write. Most pages are never written, because
// most threads need not be copied, and no thread uses its whole stack.
type arena struct {
	pages []byte
	left  []byte
}

// surelyUsed bytes of each thread's part are written before any thread is stopped, so the stop
// has no page faults there. At most preparedThreads threads are prepared.
const (
	surelyUsed      = 16 << 10
	preparedThreads = 256
)

var errTooMany = errors.New("the requested stacks are too large")

// fit makes room for the copies of reqs.
func (a *arena) fit(reqs []target.Request) error {
	need := 0
	for i := range reqs {
		if need += roomFor(&reqs[i]); need > 1<<40 {
			return errTooMany
		}
	}
	if need > len(a.pages) {
		a.free()
		pages, err := unix.Mmap(-1, 0, need, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			return err
		}
		// With huge pages each thread would get, and clear, a page of 2 MB. A kernel without huge
		// pages refuses the call, without harm.
		_ = unix.Madvise(pages, unix.MADV_NOHUGEPAGE)
		a.pages = pages
	}
	a.left = a.pages
	prepared := 0
	for i := range reqs {
		room := roomFor(&reqs[i])
		if reqs[i].Proof == "" && prepared < preparedThreads {
			prepared++
			for at := 0; at < min(room, surelyUsed); at += 4096 {
				a.left[at] = 1
			}
		}
		a.left = a.left[room:]
	}
	a.left = a.pages
	return nil
}

// roomFor returns the memory for a request, in whole pages. A request that is too large for
// copier.prepare gets no room; copier.prepare refuses the request.
func roomFor(r *target.Request) int {
	n := r.HeadLen + stackLimit(r)
	for _, e := range r.Extra {
		n += e.Len
		if e.Len < 0 || e.Len > target.MaxStackLimit {
			return 0
		}
	}
	if r.HeadLen < 0 || r.HeadLen > maxHead || stackLimit(r) > target.MaxStackLimit || len(r.Extra) > MaxExtra {
		return 0
	}
	page := os.Getpagesize()
	return (n + page - 1) &^ (page - 1)
}

// lend gives out the next part of the arena.
func (a *arena) lend(r *target.Request, out *target.Capture) {
	room := roomFor(r)
	if room == 0 {
		return
	}
	part := a.left[:room]
	a.left = a.left[room:]
	cut := func(n int) []byte {
		b := part[:n:n]
		part = part[n:]
		return b
	}
	out.Buffers.Head, out.Buffers.Stack = cut(r.HeadLen), cut(stackLimit(r))
	out.Buffers.Extra = out.Buffers.Extra[:0]
	for _, e := range r.Extra {
		out.Buffers.Extra = append(out.Buffers.Extra, cut(e.Len))
	}
}

func (a *arena) free() {
	if a.pages != nil {
		_ = unix.Munmap(a.pages) // cannot fail: the mapping is ours
	}
	*a = arena{}
}
