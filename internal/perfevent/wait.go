package perfevent

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// waiter waits for the rings and for a time in Go's own poller: the goroutine is parked, and no
// OS thread is in a system call that Go's scheduler would have to watch. The wait costs one
// switch to us and one back. A wait in poll(2) costs several more: a thread of Go's runtime
// begins to check the call every 20 µs, and then starts a third thread.
//
// The descriptors are in an epoll instance of ours, because Go's poller knows a time only to the
// millisecond, and has one goroutine for each descriptor.
type waiter struct {
	epoll *os.File
	raw   syscall.RawConn
	fd    int // of epoll
	timer int // timerfd_create(2)
}

func (w *waiter) open() (err error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or Go would not poll it
		unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	w.fd, w.epoll = fd, os.NewFile(uintptr(fd), "rings")
	w.timer = -1
	if w.raw, err = w.epoll.SyscallConn(); err != nil {
		return err
	}
	if w.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	return w.add(w.timer)
}

// add waits for another descriptor, until the descriptor is closed.
func (w *waiter) add(fd int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, fd, &event))
}

func (w *waiter) close() {
	if w.epoll != nil {
		w.epoll.Close()
		unix.Close(w.timer)
		w.epoll = nil
	}
}

// until waits until ready returns true, or until a time. It calls ready and reads the clock
// before the wait, and at each event of a ring. The checks are necessary: Read forgets events
// before its wait, even the end of the time, and an event of an earlier wait may come later.
func (w *waiter) until(end time.Duration, ready func() bool) (woken bool, err error) {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(end, 1)))}
	// This resets the timer's count to 0.
	if err := unix.TimerfdSettime(w.timer, unix.TFD_TIMER_ABSTIME, &at, nil); err != nil {
		return false, os.NewSyscallError("timerfd_settime", err)
	}
	err = w.raw.Read(func(uintptr) bool {
		woken = ready()
		return woken || monotonic() >= end
	})
	return woken, err
}

// full reports whether a ring is full enough for the kernel's wakeup.
func (e *Events) full() bool {
	for _, r := range e.rings {
		if r.page == nil {
			continue
		}
		unread := atomic.LoadUint64(&r.page.Data_head) - r.tail
		if unread >= uint64(len(r.data)/wakeAt) || e.prompt && unread > 0 {
			return true
		}
	}
	return false
}
