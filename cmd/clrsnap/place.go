package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// place is the place of a present or future file: a name in a directory. The directory is held open, so that nobody can
// replace the directory by another.
type place struct {
	dir  *os.File // with O_PATH
	name string
	st   *unix.Stat_t // of the present file; nil: no file
	proc bool         // a link of procfs, for example the target of /dev/stdout
}

func (p *place) close() { p.dir.Close() }

// locate returns the place of a path. locate follows a symbolic link at the path's end, unless another user may have
// planted the link: root, too, writes recordings into directories that everybody can write to. The kernel follows all
// other links.
func locate(path string) (*place, error) {
	at := unix.AT_FDCWD
	const most = 40 // links, as many as the kernel follows
	for range most {
		p, err := placeAt(at, path)
		if at != unix.AT_FDCWD {
			unix.Close(at)
		}
		if err != nil {
			return nil, err
		}
		if p.st == nil || p.st.Mode&unix.S_IFMT != unix.S_IFLNK || p.proc {
			return p, nil
		}
		to, err := readlinkat(int(p.dir.Fd()), p.name)
		if err == nil {
			err = p.checkOwner("the file is a symbolic link of user %d")
		}
		if err == nil {
			at, err = unix.Dup(int(p.dir.Fd()))
		}
		p.close()
		if err != nil {
			return nil, err
		}
		path = to
	}
	unix.Close(at) // of the last link
	return nil, unix.ELOOP
}

// placeAt returns the place of a path relative to a directory.
func placeAt(at int, path string) (*place, error) {
	folder, name := filepath.Split(path)
	if folder == "" {
		folder = "."
	}
	if name == "" || name == "." || name == ".." {
		return nil, errIsDirectory
	}
	fd, err := unix.Openat(at, folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	p := &place{dir: os.NewFile(uintptr(fd), folder), name: name}
	var st unix.Stat_t
	switch err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err {
	case nil:
		p.st = &st
	case unix.ENOENT:
	default:
		p.close()
		return nil, err
	}
	var system unix.Statfs_t
	if unix.Fstatfs(fd, &system) == nil && system.Type == unix.PROC_SUPER_MAGIC {
		// The text of a link in procfs is not a path. The link leads to an open file of a process.
		if p.proc = true; p.st != nil {
			if err := unix.Fstatat(fd, name, p.st, 0); err != nil {
				p.close()
				return nil, err
			}
		}
	}
	if p.st != nil && p.st.Mode&unix.S_IFMT == unix.S_IFDIR {
		p.close()
		return nil, errIsDirectory
	}
	return p, nil
}

var errIsDirectory = errors.New("a directory has this name")

// isStrangers reports whether a file belongs to a user other than this user and root.
func isStrangers(st *unix.Stat_t) bool { return st.Uid != 0 && int(st.Uid) != os.Geteuid() }

// checkOwner returns an error if another user may have planted the present file. who begins the error, with a %d for
// the user.
func (p *place) checkOwner(who string) error {
	if !isStrangers(p.st) {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(p.dir.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&(unix.S_IWGRP|unix.S_IWOTH) == 0 && !isStrangers(&st) {
		return nil
	}
	return fmt.Errorf(who+", in a directory that other users can write to", p.st.Uid)
}

func readlinkat(dir int, name string) (string, error) {
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(dir, name, buf[:])
	return string(buf[:max(n, 0)]), err
}

// open opens the present file, if nobody has replaced the file since p was made.
func (p *place) open(flags int) (*os.File, error) {
	flags |= unix.O_NOCTTY | unix.O_CLOEXEC
	if !p.proc {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Openat(int(p.dir.Fd()), p.name, flags, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), p.name)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != p.st.Dev || st.Ino != p.st.Ino {
		f.Close()
		return nil, errors.Join(err, errors.New("another file has taken the name meanwhile"))
	}
	return f, nil
}

// openThere opens the present file for writing, and truncates the file.
func (p *place) openThere() (*os.File, error) {
	f, err := p.open(unix.O_WRONLY)
	if err != nil {
		return nil, err
	}
	if p.st.Mode&unix.S_IFMT == unix.S_IFREG {
		if err := unix.Ftruncate(int(f.Fd()), 0); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// isOwn reports whether this user needs no capability to write to the present file (direct), or to replace the file.
func (p *place) isOwn(direct bool) bool {
	own := func(st *unix.Stat_t, mode uint32) bool { return int(st.Uid) == os.Geteuid() && st.Mode&mode == mode }
	var dir unix.Stat_t
	if unix.Fstat(int(p.dir.Fd()), &dir) != nil {
		return false
	}
	if direct {
		return own(&dir, unix.S_IXUSR) && own(p.st, unix.S_IWUSR)
	}
	return own(&dir, unix.S_IXUSR|unix.S_IWUSR)
}

// temporary is a file that will replace the file at a place. Until then the temporary has no name, if the file system
// supports nameless files: then nothing is left, however this process ends.
type temporary struct {
	*os.File
	at    *place
	name  string // in the directory; empty: none
	fresh bool   // there is no file to replace
}

// tempPrefix begins the names of incomplete files.
const tempPrefix = ".clrsnap-"

// makeTemp makes a new file in the place's directory. The file has its final mode, because a confined process cannot
// change modes.
func (p *place) makeTemp() (*temporary, error) {
	t, err := p.makeNameless()
	if err != nil {
		t, err = p.makeNamed()
	}
	if err != nil {
		return nil, err
	}
	mode := fs.FileMode(0o600) // the file has the secrets of a process: names, messages, paths
	if st := p.st; st != nil && !isStrangers(st) {
		mode = fs.FileMode(st.Mode & 0o777)
	}
	if err := t.Chmod(mode); err != nil {
		return nil, errors.Join(err, t.discard())
	}
	return t, nil
}

func (p *place) makeNameless() (*temporary, error) {
	fd, err := unix.Openat(int(p.dir.Fd()), ".", unix.O_WRONLY|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return &temporary{File: os.NewFile(uintptr(fd), p.name), at: p}, nil
}

// makeNamed is makeNameless for file systems without O_TMPFILE, such as NFS.
func (p *place) makeNamed() (*temporary, error) {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	var name string
	var fd int
	err := withName(func(random string) (err error) {
		name = random
		fd, err = unix.Openat(int(p.dir.Fd()), name, flags, 0o600)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &temporary{File: os.NewFile(uintptr(fd), name), at: p, name: name}, nil
}

// withName tries names until a name is free.
func withName(use func(name string) error) (err error) {
	const attempts = 100
	for range attempts {
		var random [8]byte
		rand.Read(random[:]) // never fails
		if err = use(tempPrefix + hex.EncodeToString(random[:])); err != unix.EEXIST {
			break
		}
	}
	return err
}

// settle gives the file the place's name, and so replaces the present file.
func (t *temporary) settle() error {
	dir := int(t.at.dir.Fd())
	if t.name == "" {
		self := fmt.Sprintf("/proc/self/fd/%d", t.Fd())
		link := func(name string) error { return unix.Linkat(unix.AT_FDCWD, self, dir, name, unix.AT_SYMLINK_FOLLOW) }
		if t.fresh {
			return link(t.at.name)
		}
		err := withName(func(name string) error {
			err := link(name)
			if err == nil {
				t.name = name
			}
			return err
		})
		if err != nil {
			return err
		}
	} else if err := t.Sync(); err != nil { // a network file system reports errors late
		return err
	}
	err := unix.Renameat(dir, t.name, dir, t.at.name)
	if err == nil {
		t.name = ""
	}
	return err
}

// discard closes the file, and removes an unsettled file.
func (t *temporary) discard() error {
	err := t.Close()
	if t.name != "" {
		err = errors.Join(err, unix.Unlinkat(int(t.at.dir.Fd()), t.name, 0))
	}
	return err
}

// become writes the file and gives the file the place's name. If that fails, become discards the file.
func (t *temporary) become(encode func(io.Writer) error) error {
	err := encode(t.File)
	if err == nil {
		err = t.settle()
	}
	return errors.Join(err, t.discard())
}

// replaceFile writes a new file that replaces the file at a path.
func replaceFile(path string, encode func(io.Writer) error) error {
	p, err := placeAt(unix.AT_FDCWD, path)
	if err != nil {
		return err
	}
	defer p.close()
	t, err := p.makeTemp()
	if err != nil {
		return err
	}
	return t.become(encode)
}
