package live

import (
	"encoding/binary"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// EndedBy returns the signal that has ended the process. The result is 0 if the process lives,
// has exited by itself, or if the exit status is not known. The status is known until the parent
// has collected it, and also later from Linux 6.15 on.
func (p *Process) EndedBy() unix.Signal {
	for range exitLooks {
		if p.Alive() == nil {
			return 0
		}
		if status, ok := p.Dir().ExitCode(); ok {
			return ending(status)
		}
		if status, ok := collected(p.pidfd); ok {
			return ending(status)
		}
		time.Sleep(exitLook) // the parent is about to collect the status
	}
	return 0
}

const (
	exitLooks = 3
	exitLook  = time.Millisecond
)

func ending(status uint32) unix.Signal {
	if w := unix.WaitStatus(status); w.Signaled() {
		return w.Signal()
	}
	return 0
}

// The request for the data of a pidfd's process (include/uapi/linux/pidfd.h).
const (
	pidfdGetInfo     = 0xc040ff0b // PIDFD_GET_INFO, for the first version of struct pidfd_info
	pidfdInfoExit    = 1 << 3     // PIDFD_INFO_EXIT
	pidfdInfoSize    = 64
	pidfdInfoStatus  = 60 // exit_code
	pidfdInfoMaskLen = 8
)

// collected returns the exit status of a collected process.
func collected(pidfd int) (status uint32, ok bool) {
	if pidfd < 0 {
		return 0, false
	}
	var info [pidfdInfoSize]byte
	binary.NativeEndian.PutUint64(info[:pidfdInfoMaskLen], pidfdInfoExit)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(pidfd), pidfdGetInfo, uintptr(unsafe.Pointer(&info)))
	if errno != 0 || binary.NativeEndian.Uint64(info[:pidfdInfoMaskLen])&pidfdInfoExit == 0 {
		return 0, false
	}
	return binary.NativeEndian.Uint32(info[pidfdInfoStatus:]), true
}
