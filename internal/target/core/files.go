package core

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"clrsnap/internal/elfx"
	"clrsnap/internal/foreign"

	"golang.org/x/sys/unix"
)

var errNotELF = errors.New("not a 64-bit ELF file")

// errUnfound: there is no file at the process's path.
var errUnfound = errors.New("cannot be read")

// advice says how to name the file of an image. The advice is appended to a sentence.
func (im *image) advice() string {
	if im.main {
		return " (--exe names this file, --sysroot the folder with the process's files)"
	}
	return " (--sysroot names the folder with the process's files)"
}

// openFile opens the file of an image; vouched reports whether the user has named the file. The
// error continues a sentence that begins with the file's path.
func (c *Core) openFile(im *image) (f *os.File, vouched bool, err error) {
	switch {
	case im.main && c.opts.Exe != "":
		if f, err = foreign.Open(c.opts.Exe); err != nil {
			err = fmt.Errorf("cannot be read: %w", reason(err))
		}
		return f, true, err
	case c.sysroot != nil:
		if f, err = foreign.OpenBelow(int(c.sysroot.Fd()), im.path); err != nil {
			err = fmt.Errorf("is not below %s: %w", c.opts.Sysroot, err)
		}
		return f, true, err
	case isKernels(im.path):
		return nil, false, errors.New("is not a file on disk")
	}
	if f, err = foreign.Open(im.path); err != nil {
		return nil, false, fmt.Errorf("%w: %w", errUnfound, reason(err))
	}
	return f, false, nil
}

// OpenFile opens a regular file by the process's path: below the user's sysroot, if any, else in
// the same place.
func (c *Core) OpenFile(path string) (*os.File, error) {
	switch {
	case c.sysroot != nil:
		return foreign.OpenBelow(int(c.sysroot.Fd()), path)
	case isKernels(path):
		return nil, errors.New("is not a file on disk")
	}
	return foreign.Open(path)
}

// isKernels reports whether a path leads into a file system of the kernel.
func isKernels(p string) bool {
	p = path.Clean(p)
	return strings.HasPrefix(p, "/proc/") || strings.HasPrefix(p, "/sys/") || strings.HasPrefix(p, "/dev/")
}

// reason is an error without the path, because the sentence around the error has the path.
func reason(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// checkProgram makes sure that the user's path leads to a program.
func checkProgram(name string) error {
	f, err := foreign.Open(name)
	if err == nil {
		if _, bad := elfx.New(f); bad != nil {
			err = errNotELF
		}
		f.Close()
	}
	if err != nil {
		return fmt.Errorf("--exe names %s, but the program's file cannot be this file: %w", name, reason(err))
	}
	return nil
}

func openFolder(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("the process's files cannot be looked for below %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
