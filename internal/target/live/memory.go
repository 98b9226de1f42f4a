package live

import (
	"errors"
	"sync"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// isDenied reports whether a system call was refused for lack of rights, or by a seccomp filter,
// which can also claim that the call does not exist.
func isDenied(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS)
}

// ReadMemory implements target.Memory.
func (p *Process) ReadMemory(b []byte, addr arch.Addr) error {
	n, err := p.ReadPartial(b, addr)
	if n == len(b) {
		return nil
	}
	if err == nil {
		err = unix.EFAULT
	}
	if err = p.explain(err); errors.Is(err, ErrExited) {
		return err
	}
	return &target.ReadError{Addr: addr, Len: len(b), Err: err}
}

// ReadPartial fills b from addr up to the first unreadable byte and returns the number of bytes
// read. The error is nil if any byte was read.
func (p *Process) ReadPartial(b []byte, addr arch.Addr) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := p.readOnce(b, addr)
	if err == unix.ESRCH && p.Alive() == nil && p.relead() {
		n, err = p.readOnce(b, addr)
	}
	return n, err
}

func (p *Process) readOnce(b []byte, addr arch.Addr) (int, error) {
	lead := int(p.lead.Load())
	if p.noVM.Load() || lead != p.pid { // the id of an ended thread may be reused
		return p.readMemFile(b, addr)
	}
	if p.readKnown(b, addr) {
		return len(b), nil
	}
	local := [1]unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	remote := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}
	n, err := readVM(lead, local[:], remote[:])
	if err == unix.EPERM || err == unix.ENOSYS {
		// A seccomp filter (older container defaults) can forbid the call but allow the file:
		// both require the same rights.
		if m, merr := p.readMemFile(b, addr); merr == nil || !isDenied(merr) {
			p.noVM.Store(true)
			return m, merr
		}
	}
	if err != nil {
		return 0, err
	}
	// The call takes a process id. If the process still lives, the id was its own.
	if err := p.Alive(); err != nil {
		return 0, err
	}
	return n, nil
}

// readKnown serves a recording, which reads again and again. It reads through the target's memory
// file if the bytes were readable at the latest reading of the mappings, and reports whether it
// has read all bytes. The file takes half the time of the system call by process id: the kernel
// does not look up the process, and we need not check that the process is still the same.
//
// Other memory is not read through the file, because there the kernel ignores the process's own
// read permission. Memory that has become unreadable since then is read too, perhaps as zeros.
// Unmapped memory, and any memory after execve, is not read: the caller then reads by process id.
func (p *Process) readKnown(b []byte, addr arch.Addr) bool {
	spans := p.spans.Load()
	if !isAlone() || spans == nil || p.closed.Load() { // closed: the descriptor may have been reused
		return false
	}
	s, ok := findSpan(*spans, uint64(addr))
	if !ok || uint64(len(b)) > s.end-uint64(addr) {
		return false
	}
	fd, err := p.mem()
	if err != nil {
		return false
	}
	n, err := pread(fd, b, int64(addr))
	return err == nil && n == len(b)
}

func (p *Process) readMemFile(b []byte, addr arch.Addr) (int, error) {
	fd, err := p.mem()
	if err != nil {
		return 0, err
	}
	// Addresses of the upper half would be negative offsets.
	n, err := unix.Pread(fd, b, int64(addr))
	switch {
	case err == unix.EIO:
		return 0, unix.EFAULT
	case err == nil && n == 0:
		// The file shows the address space at the time of opening. The file is empty once the
		// process has ended or executed another program.
		return 0, unix.ESRCH
	}
	return max(n, 0), err
}

// Executed reports whether the process lives on as another program. execve has then replaced the
// address space of our memory file: our file reads as empty, a newly opened file does not.
// Nothing is mapped at address 0, so the read there fails in an existing address space. The first
// call opens our file.
func (p *Process) Executed() bool {
	var b [1]byte
	fd, err := p.mem()
	if err != nil || p.closed.Load() {
		return false
	}
	if n, err := unix.Pread(fd, b[:], 0); n != 0 || err != nil {
		return false
	}
	now, err := unix.Openat(p.dir, "mem", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(now)
	_, err = unix.Pread(now, b[:], 0)
	return err == unix.EIO && p.Alive() == nil
}

// mem opens /proc/<pid>/mem, once.
func (p *Process) mem() (int, error) {
	p.memOnce.Do(func() {
		p.memFD, p.memErr = unix.Openat(p.dir, p.memPrefix()+"mem", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	return p.memFD, p.memErr
}

// maxVector bounds the pieces of one system call (UIO_MAXIOV of include/uapi/linux/uio.h).
const maxVector = 1024

// A vector holds the arguments of a system call that reads several pieces.
type vector struct {
	local  [maxVector]unix.Iovec
	remote [maxVector]unix.RemoteIovec
}

var vectors = sync.Pool{New: func() any { return new(vector) }}

// free returns a vector with n pieces to the pool, without references to the pieces.
func (v *vector) free(n int) {
	clear(v.local[:n])
	vectors.Put(v)
}

// ReadMany implements target.Vector.
func (p *Process) ReadMany(pieces []target.Region) error {
	for len(pieces) > 0 {
		n := min(len(pieces), maxVector)
		if err := p.readVector(pieces[:n]); err != nil {
			return err
		}
		pieces = pieces[n:]
	}
	return nil
}

// readVector reads pieces with one system call where permitted, and otherwise one by one.
func (p *Process) readVector(pieces []target.Region) error {
	lead := int(p.lead.Load())
	if !p.noVM.Load() && lead == p.pid {
		v := vectors.Get().(*vector)
		local, remote := v.local[:0], v.remote[:0]
		defer func() { v.free(len(local)) }()
		total := 0
		for _, r := range pieces {
			if len(r.Data) == 0 {
				continue
			}
			to := unix.Iovec{Base: &r.Data[0]}
			to.SetLen(len(r.Data))
			local = append(local, to)
			remote = append(remote, unix.RemoteIovec{Base: uintptr(r.Base), Len: len(r.Data)})
			total += len(r.Data)
		}
		n, err := readVM(lead, local, remote)
		if err == nil && n == total {
			return p.Alive()
		}
	}
	for _, r := range pieces {
		if err := p.ReadMemory(r.Data, r.Base); err != nil {
			return err
		}
	}
	return nil
}
