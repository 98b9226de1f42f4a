package inject

import (
	"errors"
	"fmt"
	"os"
	"path"

	"clrsnap/internal/foreign"

	"golang.org/x/sys/unix"
)

// openDir opens a directory below root, if no other user can replace our files there by any step
// of the path: the runtime is told the path of a library, and loads whatever file has that path
// by then.
func (u user) openDir(root *os.File, where string) (*os.File, error) {
	fd, err := foreign.Resolve(int(root.Fd()), where, u.checkStep)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if err := u.checkDir(path.Base(where), &st); err != nil {
		return nil, err
	}
	dir, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(dir), where), nil
}

// checkStep returns an error if others can replace the named entry of a directory.
func (u user) checkStep(name string, dir, there *unix.Stat_t) error {
	if err := u.checkDir("the directory of "+name, dir); err != nil {
		return err
	}
	// In a directory with the sticky bit others can create entries of their own.
	if dir.Mode&othersWrite != 0 && !u.trusts(there.Uid) {
		return fmt.Errorf("user %d has made %s, in a directory that other users can write to", there.Uid, name)
	}
	return nil
}

const othersWrite = unix.S_IWGRP | unix.S_IWOTH

// checkDir returns an error if others can replace the user's entries in a directory.
func (u user) checkDir(name string, st *unix.Stat_t) error {
	switch {
	case !u.trusts(st.Uid):
		return fmt.Errorf("%s belongs to user %d", name, st.Uid)
	case st.Mode&othersWrite != 0 && st.Mode&unix.S_ISVTX == 0:
		return errOpenToOthers
	}
	return nil
}

var errOpenToOthers = errors.New("other users can write to the directory, or to a parent directory, without a sticky " +
	"bit")

// trusts reports whether a user has all rights of u anyway: root, root of the user's own user
// namespace, the user himself, and we.
func (u user) trusts(uid uint32) bool {
	return uid == 0 || int(uid) == u.uid || int(uid) == u.root || int(uid) == os.Geteuid()
}
