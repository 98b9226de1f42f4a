package symbols

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"clrsnap/internal/foreign"

	"golang.org/x/sys/unix"
)

// cache is a directory to which only this user and root can add files.
type cache struct {
	dir  *os.File
	path string
}

// Bounds of the cache.
const (
	maxCache  = 4 << 30 // bytes
	maxCached = 1 << 14 // files that room looks at
	abandoned = time.Hour
	tempName  = ".clrsnap-"
)

// DefaultCache is the usual directory for symbols: clrsnap/symbols in the user's cache directory.
func DefaultCache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "clrsnap", "symbols"), nil
}

// openCache opens a directory, and makes a missing directory. Other users must be able neither to write into the
// directory, nor to replace it or any directory on the path to it.
func openCache(path string) (*cache, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%s is not an absolute path", path)
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(root)
	var missing []string
	there := filepath.Clean(path)
	fd, err := foreign.Resolve(root, there, checkStep)
	for errors.Is(err, unix.ENOENT) && there != "/" {
		missing = append(missing, filepath.Base(there))
		there = filepath.Dir(there)
		fd, err = foreign.Resolve(root, there, checkStep)
	}
	if err != nil {
		return nil, err
	}
	slices.Reverse(missing)
	for _, name := range append(missing, ".") {
		next, err := below(fd, name)
		unix.Close(fd)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		fd = next
	}
	return &cache{os.NewFile(uintptr(fd), path), path}, nil
}

// below opens a directory in a directory of this user's own, and makes a missing directory.
func below(dir int, name string) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return -1, err
	}
	if err := checkDir(&st); err != nil {
		return -1, err
	}
	if name != "." {
		if err := unix.Mkdirat(dir, name, 0o700); err != nil && err != unix.EEXIST {
			return -1, err
		}
	}
	return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

const othersWrite = unix.S_IWGRP | unix.S_IWOTH

// checkStep returns an error if others can replace an entry of a directory on the way to the cache.
func checkStep(name string, dir, there *unix.Stat_t) error {
	switch {
	case !trusted(dir.Uid):
		return fmt.Errorf("the directory with %s belongs to user %d", name, dir.Uid)
	case dir.Mode&othersWrite != 0 && dir.Mode&unix.S_ISVTX == 0:
		return fmt.Errorf("other users can write to the directory with %s", name)
	case !trusted(there.Uid):
		return fmt.Errorf("%s belongs to user %d", name, there.Uid)
	}
	return nil
}

// checkDir returns an error if others can write to a directory.
func checkDir(st *unix.Stat_t) error {
	if !trusted(st.Uid) {
		return fmt.Errorf("the folder belongs to user %d", st.Uid)
	}
	if st.Mode&othersWrite != 0 {
		return errors.New("other users can write to the folder")
	}
	return nil
}

// trusted reports whether a user has all rights of this user anyway.
func trusted(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// open opens a file of the cache.
func (c *cache) open(name string) (*os.File, error) {
	fd, err := unix.Openat(int(c.dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || !trusted(st.Uid) {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s in %s is not a file of this user", name, c.path))
	}
	markUsed(fd)
	return f, nil
}

// markUsed sets a file's time of last use, for the method room. A refusal by the kernel does no harm. The call gives
// only the open file, no name: a confined process may not change the times of other files.
func markUsed(fd int) {
	now := [2]unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_OMIT}}
	_, _, _ = unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
}

// temp makes a file under a name that nobody looks for.
func (c *cache) temp() (*os.File, string, error) {
	var random [8]byte
	rand.Read(random[:]) // never fails
	name := tempName + hex.EncodeToString(random[:])
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(c.dir.Fd()), name, flags, 0o600)
	if err != nil {
		return nil, "", err
	}
	return os.NewFile(uintptr(fd), name), name, nil
}

// settle gives a file from temp its name.
func (c *cache) settle(temp, name string) error {
	return unix.Renameat(int(c.dir.Fd()), temp, int(c.dir.Fd()), name)
}

func (c *cache) remove(name string) { _ = unix.Unlinkat(int(c.dir.Fd()), name, 0) }

// room removes the files that have been unused for longest, until there is room for so many bytes more. room also
// removes the temporary files of killed clrsnap processes.
func (c *cache) room(bytes int64) {
	if _, err := c.dir.Seek(0, 0); err != nil {
		return
	}
	names, _ := c.dir.Readdirnames(maxCached)
	type kept struct {
		name string
		size int64
		used time.Time
	}
	var all []kept
	total := bytes
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(int(c.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil ||
			st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		used := time.Unix(max(st.Atim.Sec, st.Mtim.Sec), 0)
		if strings.HasPrefix(name, tempName) {
			if time.Since(used) > abandoned {
				c.remove(name)
			}
			continue
		}
		all = append(all, kept{name, st.Size, used})
		total += st.Size
	}
	slices.SortFunc(all, func(a, b kept) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.name, b.name)) })
	for _, k := range all {
		if total <= maxCache {
			break
		}
		c.remove(k.name)
		total -= k.size
	}
}
