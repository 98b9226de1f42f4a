package inject

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// LibraryName is the file name of the agent's library: the module of its frames.
const LibraryName = "libclrsnap-agent.so"

const (
	folderPrefix = ".clrsnap-"
	libraryName  = LibraryName
	socketName   = "socket"

	// maxSocketPath bounds the address of a socket, in bytes (unix(7)).
	maxSocketPath = 107
	// maxListed bounds the names of a directory that are searched for old folders.
	maxListed = 1 << 14
)

// A folder is a new directory with the agent's library and socket, in the file system of a
// process.
type folder struct {
	path        string   // as the process sees the path
	user        user     // the owner
	parent, dir *os.File // nil: not there, or not any more
	listener    *net.UnixListener
}

func (f *folder) name() string    { return path.Base(f.path) }
func (f *folder) library() string { return path.Join(f.path, libraryName) }
func (f *folder) socket() string  { return path.Join(f.path, socketName) }

// newFolder makes a folder of user u in the directory where, a name below root.
func newFolder(root *os.File, where string, u user, library []byte) (*folder, error) {
	random := make([]byte, 6)
	rand.Read(random) // never fails
	f := &folder{path: path.Join(where, folderPrefix+hex.EncodeToString(random)), user: u}
	if tooLong := len(f.socket()) - maxSocketPath; tooLong > 0 {
		return nil, fmt.Errorf("the name is %d bytes too long", tooLong)
	}
	err := u.do(func() error {
		var err error
		if f.parent, err = u.openDir(root, where); err != nil {
			return err
		}
		if err = checkMount(f.parent); err != nil {
			return err
		}
		removeStale(f.parent)
		return f.make(library)
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkMount returns an error if dir or its file system cannot be written to, or if the file
// system is mounted noexec.
func checkMount(dir *os.File) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &fs); err != nil {
		return err
	}
	switch {
	case fs.Flags&unix.ST_RDONLY != 0:
		return errors.New("read-only")
	case fs.Flags&unix.ST_NOEXEC != 0:
		return errors.New("mounted noexec")
	}
	var attributes unix.Statx_t
	if unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, 0, &attributes) == nil &&
		attributes.Attributes&unix.STATX_ATTR_IMMUTABLE != 0 {
		return errors.New("immutable (chattr +i)")
	}
	return nil
}

// make makes the directory, with the library and the socket in it.
func (f *folder) make(library []byte) error {
	err := unix.Mkdirat(int(f.parent.Fd()), f.name(), 0o700)
	if err != nil {
		return err
	}
	if f.dir, err = lockFolder(f.parent, f.name()); err != nil {
		return errors.Join(err, unix.Unlinkat(int(f.parent.Fd()), f.name(), unix.AT_REMOVEDIR))
	}
	if err = writeLibrary(f.dir, library); err != nil {
		return err
	}
	f.listener, err = listen(f.dir)
	return err
}

// lockFolder opens a folder and takes its lock, which must be free.
func lockFolder(parent *os.File, name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(parent.Fd()), name, flags, 0)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), name)
	var st unix.Stat_t
	if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		err = unix.Fstat(fd, &st)
	}
	// Between making and locking, another process may have removed the folder as left behind.
	if err == nil && st.Nlink == 0 {
		err = unix.ENOENT
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// writeLibrary writes the library, readable only: mapping a file as code takes no execute
// permission of the file, only the file system's permission.
func writeLibrary(dir *os.File, library []byte) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(dir.Fd()), libraryName, flags, 0o400)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), libraryName)
	_, err = file.Write(library)
	return errors.Join(err, file.Close())
}

// listen makes the socket. Below /proc/self/fd the socket's path is short enough, even in a dir
// with a long path.
func listen(dir *os.File) (*net.UnixListener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), socketName)
	defer file.Close() // FileListener has its own descriptor
	// The socket's mode becomes the mode of its name (unix_bind_bsd in net/unix/af_unix.c).
	if err := unix.Fchmod(fd, 0o600); err != nil {
		return nil, err
	}
	path := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, err
	}
	const backlog = 128 // as many programs may start at the same moment
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, err
	}
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// Close stops listening and removes the folder.
func (f *folder) Close() error {
	var err error
	if f.listener != nil {
		err = f.listener.Close()
		f.listener = nil
	}
	if f.dir != nil {
		if e := f.user.do(f.remove); e != nil {
			err = errors.Join(err, fmt.Errorf("cannot remove %s: %w", f.path, e))
		}
		f.dir.Close()
		f.dir = nil
	}
	if f.parent != nil {
		f.parent.Close()
		f.parent = nil
	}
	return err
}

func (f *folder) remove() error { return removeFolder(f.parent, f.dir, f.name()) }

// removeFolder removes a folder that we have locked, unless foreign files are in the folder.
func removeFolder(parent, dir *os.File, name string) error {
	for _, inside := range []string{libraryName, socketName} {
		if err := unix.Unlinkat(int(dir.Fd()), inside, 0); err != nil && err != unix.ENOENT {
			return err
		}
	}
	return unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
}

// removeStale removes the folders that killed programs have left in parent: the folders with a
// free lock. Folders of other users stay, as they must.
func removeStale(parent *os.File) {
	names, err := parent.Readdirnames(maxListed)
	if err != nil {
		return // perhaps writable but not readable
	}
	for _, name := range names {
		if !strings.HasPrefix(name, folderPrefix) {
			continue
		}
		if dir, err := lockFolder(parent, name); err == nil {
			removeFolder(parent, dir, name) // on an error the folder stays: perhaps another user's
			dir.Close()
		}
	}
}
