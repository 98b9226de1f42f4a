// Package foreign opens files that somebody else has chosen: by a name from a process or from a stranger's file, or in
// a place where strangers can put files. To open a pipe can block for ever, and to open a device can have effects. So a
// file's type is read before the file is opened, and only regular files and directories are opened.
package foreign

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNotRegular: a name leads to something other than a regular file.
var ErrNotRegular = errors.New("not a regular file")

// Open opens a regular file for reading. Links are followed.
func Open(name string) (*os.File, error) { return OpenAt(unix.AT_FDCWD, name, name) }

// OpenAt is Open for a name relative to a directory. title becomes the name of the os.File.
func OpenAt(dir int, name, title string) (*os.File, error) {
	fd, err := openat(dir, name, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return reopen(fd, title)
}

// OpenBelow opens a regular file by a path below root, a directory. Links are followed as if root were the root of
// everything: no link leads out of root.
func OpenBelow(root int, path string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(root, path, &how)
	if err == unix.ENOSYS || err == unix.EPERM { // before Linux 5.6, or a seccomp filter
		fd, err = Resolve(root, path, nil)
	}
	if err != nil {
		return nil, err
	}
	return reopen(fd, path)
}

// OpenDirBelow opens a directory for reading, with links as in OpenBelow.
func OpenDirBelow(root int, path string) (*os.File, error) {
	how := unix.OpenHow{Flags: dirFlags | unix.O_NONBLOCK, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(root, path, &how)
	if err == unix.ENOSYS || err == unix.EPERM { // as in OpenBelow
		fd, err = resolveDir(root, path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC

// resolveDir opens a directory for reading, step by step.
func resolveDir(root int, path string) (int, error) {
	fd, err := Resolve(root, path, nil)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return openat(fd, ".", dirFlags)
}

// reopen opens the file of fd (O_PATH) for reading, and closes fd.
func reopen(fd int, name string) (*os.File, error) {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, ErrNotRegular
	}
	// The file cannot have changed its type meanwhile.
	rd, err := openat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd),
		unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(rd), name), nil
}

func openat(dir int, name string, flags int) (fd int, err error) {
	for {
		if fd, err = unix.Openat(dir, name, flags, 0); err != unix.EINTR {
			return fd, err
		}
	}
}

// Bounds of Resolve, the same as the kernel's: the number of links, and the longest path in bytes.
const (
	maxLinks = 40
	maxPath  = 4096
)

// Resolve opens with O_PATH the file or directory at a path below root. Like OpenBelow, Resolve follows links below
// root, but name by name. Unless check is nil, Resolve calls check for each name, with the directory and the entry
// there (the entry may be a link); an error ends the resolution.
func Resolve(root int, path string, check func(name string, dir, there *unix.Stat_t) error) (int, error) {
	top, err := openat(root, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return -1, err
	}
	way := []int{top} // the directories from root to the present place, and at last the file
	leave := func(depth int) {
		for _, fd := range way[depth:] {
			unix.Close(fd)
		}
		way = way[:depth]
	}
	links := 0
	for rest := path; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			leave(max(1, len(way)-1))
			continue
		}
		fd, err := openat(way[len(way)-1], name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC)
		if err == nil && check != nil {
			var dir, there unix.Stat_t
			if err = errors.Join(unix.Fstat(way[len(way)-1], &dir), unix.Fstat(fd, &there)); err == nil {
				err = check(name, &dir, &there)
			}
			if err != nil {
				unix.Close(fd)
			}
		}
		if err != nil {
			leave(0)
			return -1, err
		}
		to, isLink := readlink(fd)
		if !isLink {
			way = append(way, fd)
			continue
		}
		unix.Close(fd)
		if links++; links > maxLinks || len(to)+len(rest) > maxPath {
			leave(0)
			return -1, unix.ELOOP
		}
		if strings.HasPrefix(to, "/") {
			leave(1)
		}
		rest = to + "/" + rest
	}
	last := len(way) - 1
	fd := way[last]
	way = way[:last]
	leave(0)
	return fd, nil
}

// readlink reads a link opened with O_PATH.
func readlink(fd int) (to string, isLink bool) {
	var buf [maxPath]byte
	n, err := unix.Readlinkat(fd, "", buf[:])
	if err != nil {
		return "", false
	}
	return string(buf[:n]), true
}
