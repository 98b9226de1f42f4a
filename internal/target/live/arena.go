package live

import (
	"errors"
	"os"

	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// An arena is the memory that all threads of a CaptureAll are copied to: pages
// of our own, outside the Go heap, which cost nothing until they are written to.
// Most of them never are, because most threads need not be copied, and no thread
// uses all of the stack that it may have.
type arena struct {
	pages []byte
	left  []byte
}

// surelyUsed is how much of a thread's part is written to before any thread is
// stopped, so that its page faults do not fall into the stop; for as many
// threads as preparedThreads.
const (
	surelyUsed      = 16 << 10
	preparedThreads = 256
)

var errTooMany = errors.New("the stacks that are asked for are too large")

// fit makes room for what reqs ask for.
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
		// With huge pages each thread would get, and clear, one of 2 MB. A kernel
		// without huge pages refuses the call, which does no harm.
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

// roomFor is the memory that a request takes, in whole pages. One that is too large for
// copier.prepare, which refuses it, takes nothing.
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

// lend has out use the next part.
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
		_ = unix.Munmap(a.pages) // cannot fail: it is a mapping of ours
	}
	*a = arena{}
}
