// Package procroot opens directories of another process by the names that the
// process has for them, also where it has a mount namespace or a root directory of
// its own. A symbolic link there never leads out of that root: the process is not
// trusted.
package procroot

import (
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenDir opens the directory that is dir, an absolute path, below root (procfs.Dir.Root),
// for reading. Links are followed, as if root were the root of everything; before Linux
// 5.6, or where a seccomp filter forbids openat2(2), they are not.
func OpenDir(root *os.File, dir string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK | unix.O_CLOEXEC
	how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(root.Fd()), dir, &how)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		fd, err = openWithoutLinks(int(root.Fd()), dir, flags)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// openWithoutLinks opens dir one name after the other, none of which may be a link.
func openWithoutLinks(root int, dir string, flags int) (int, error) {
	at, err := unix.Openat(root, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for _, name := range strings.Split(path.Clean("/" + dir)[1:], "/") {
		if name == "" {
			break // dir is the root
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	defer unix.Close(at)
	return unix.Openat(at, ".", flags, 0)
}
