// Package memfd makes files that exist in memory only.
package memfd

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Create makes a file that has no name anywhere, can be sealed, and is never executed:
// since Linux 6.3 a kernel warns of who does not say so, and with vm.memfd_noexec=2 the first
// of these refused him.
func Create(title string) (fd int, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate(title, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // an older kernel
		fd, err = unix.MemfdCreate(title, flags)
	}
	return fd, err
}
