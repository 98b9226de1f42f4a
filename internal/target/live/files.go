package live

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// ErrNotRegular: a path of the target names something other than a file.
var ErrNotRegular = errors.New("not a regular file")

// Executable is the path of the program that the process runs, as the process
// sees it.
func (p *Process) Executable() (string, error) {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.pid))
	if err != nil {
		return "", fmt.Errorf("cannot read its executable: %w", p.explain(err))
	}
	return strings.TrimSuffix(exe, " (deleted)"), nil
}

// OpenFile opens a regular file by the path that the target sees, which is
// another one than ours when the target runs in a container.
func (p *Process) OpenFile(path string) (*os.File, error) {
	root, err := unix.Openat(p.dir, "root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s of process %d: %w", path, p.pid, p.explain(err))
	}
	defer unix.Close(root)
	// RESOLVE_IN_ROOT: an absolute link inside the container must not lead to
	// our files.
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(root, path, &how)
	if err == unix.ENOSYS || err == unix.EPERM { // before Linux 5.6, or a seccomp filter
		fd, err = unix.Openat(root, "."+path, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open %s of process %d: %w", path, p.pid, err)
	}
	return reopen(fd, path)
}

// reopen opens for reading what fd (O_PATH) names, if that is a regular file.
// Opening a pipe or a device can block or do something; O_PATH never does.
func reopen(fd int, path string) (*os.File, error) {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("cannot open %s: %w", path, ErrNotRegular)
	}
	rd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", path, err)
	}
	return os.NewFile(uintptr(rd), path), nil
}

// OpenMapping opens the file behind a mapping: the very file, also where its
// name has been removed or given to another one since (an update of a running
// program). For those the kernel wants CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
func (p *Process) OpenMapping(m *target.Mapping) (target.File, error) {
	if !m.IsFile() {
		return nil, fmt.Errorf("mapping at %v: %w", m.Start, ErrNotRegular)
	}
	f, err := p.OpenFile(m.Path)
	if err == nil && sameFile(f, m, true) {
		return f, nil
	}
	name := fmt.Sprintf("map_files/%x-%x", uint64(m.Start), uint64(m.End))
	fd, merr := unix.Openat(p.dir, name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if merr == nil {
		if f != nil {
			f.Close()
		}
		if f, err = reopen(fd, m.Path); err != nil {
			return nil, err
		}
		return f, nil
	}
	if err != nil && !m.Deleted {
		return nil, err
	}
	// On btrfs and on overlays stat(2) tells another device than maps does.
	if f != nil && sameFile(f, m, false) {
		return f, nil
	}
	if f != nil {
		f.Close()
	}
	return nil, fmt.Errorf("cannot open %s of process %d: the file was removed or replaced while it runs (%w): run as root, or restart the program", m.Path, p.pid, merr)
}

// sameFile compares f with what the mapping says of its file.
func sameFile(f *os.File, m *target.Mapping, dev bool) bool {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Ino != m.Inode {
		return false
	}
	return !dev || st.Dev == m.Dev
}
