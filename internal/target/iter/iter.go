package iter

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Iterator reads the threads of one process. It is not safe for concurrent use.
type Iterator struct {
	pid  int
	link int
	own  int // the program for this process only; 0: the kernel visits no other processes
}

// New returns an Iterator of a process. An ErrUnavailable gives the reason for a failure.
func New(pid int) (*Iterator, error) {
	program, err := loaded()
	if err != nil {
		return nil, unavailable(err)
	}
	link, err := attach(program, pid)
	if err == nil {
		return &Iterator{pid: pid, link: link}, nil
	}
	if !errors.Is(err, unix.E2BIG) && !errors.Is(err, unix.EINVAL) {
		return nil, unavailable(err)
	}
	return newOwn(pid)
}

// newOwn is New for a kernel that cannot visit one process only: the program drops the threads of
// other processes.
func newOwn(pid int) (*Iterator, error) {
	l, err := kernelLayout()
	if err != nil {
		return nil, unavailable(err)
	}
	program, err := load(l, pid)
	if err != nil {
		return nil, unavailable(err)
	}
	link, err := attach(program, 0)
	if err != nil {
		unix.Close(program)
		return nil, unavailable(err)
	}
	return &Iterator{pid: pid, link: link, own: program}, nil
}

// Commands of bpf(2) (enum bpf_cmd of include/uapi/linux/bpf.h).
const (
	cmdProgLoad   = 5
	cmdLinkCreate = 28
	cmdIterCreate = 33
)

// attach makes a link for opening iterator files. If pid is not 0, the files visit only the
// threads of that process.
func attach(program, pid int) (link int, err error) {
	info := struct{ tid, pid, pidfd uint32 }{pid: uint32(pid)} // union bpf_iter_link_info
	attr := struct {
		program, target, kind, flags uint32
		info                         uint64
		infoLen, _                   uint32
	}{program: uint32(program), kind: uint32(ebpf.AttachTraceIter)}
	if pid != 0 {
		attr.info, attr.infoLen = uint64(uintptr(unsafe.Pointer(&info))), uint32(unsafe.Sizeof(info))
	}
	link, err = bpf(cmdLinkCreate, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	runtime.KeepAlive(&info)
	return link, err
}

func bpf(cmd uintptr, attr unsafe.Pointer, size uintptr) (int, error) {
	fd, _, e := unix.Syscall(unix.SYS_BPF, cmd, uintptr(attr), size)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

// Read reads all threads, into the memory of tasks if large enough. A thread that starts or ends
// meanwhile may be missing, and other threads with it.
func (i *Iterator) Read(tasks []Task) ([]Task, error) {
	attr := struct{ link, flags uint32 }{link: uint32(i.link)}
	fd, err := bpf(cmdIterCreate, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err != nil {
		return nil, os.NewSyscallError("bpf", err)
	}
	defer unix.Close(fd)
	const size = int(unsafe.Sizeof(Task{}))
	for got := 0; ; {
		tasks = slices.Grow(tasks[:(got+size-1)/size], maxRead)
		room := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(tasks))), cap(tasks)*size)
		n, err := unix.Read(fd, room[got:])
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
			continue // the kernel has visited very many threads, and goes on
		case err != nil:
			return nil, os.NewSyscallError("read", err)
		case n == 0:
			return slices.DeleteFunc(tasks[:got/size], func(t Task) bool { return t.PID != uint32(i.pid) }), nil
		}
		got += n
	}
}

// maxRead bounds the threads of one read: the kernel's buffer has 32 KB (bpf_seq_read in
// kernel/bpf/bpf_iter.c).
const maxRead = 1 << 15 / int(unsafe.Sizeof(Task{}))

// Close ends the use of the iterator.
func (i *Iterator) Close() {
	unix.Close(i.link)
	if i.own != 0 {
		unix.Close(i.own)
	}
}
