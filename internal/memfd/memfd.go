// Package memfd makes files in memory only.
package memfd

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Create makes a file without a name in the file system. The file can be sealed, and is never executed. Since Linux
// 6.3 the kernel warns if a call does not state whether the file may be executed, and with vm.memfd_noexec=2 Linux 6.3
// refuses the call.
func Create(title string) (fd int, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate(title, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // an older kernel
		fd, err = unix.MemfdCreate(title, flags)
	}
	return fd, err
}
