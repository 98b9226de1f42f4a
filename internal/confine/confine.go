// Package confine makes a process give up every right that it no longer needs, before it
// reads an untrusted file. What is given up cannot be regained.
//
// Capabilities are dropped, and execve(2) cannot gain new ones (no_new_privs). Landlock,
// where the kernel has it, denies all files but those that are named, TCP connections, and
// signals and abstract sockets to other processes. A seccomp filter allows the system calls
// that reading and writing need, and no other: none that changes modes, times, limits or keys,
// starts a program, makes a Unix socket, or reaches into another process.
// Open descriptors stay usable. All threads are confined, and so are those that they start.
package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// Rights are what a process keeps.
type Rights struct {
	Read    []string // files that may be read, and folders with all that is below them
	Write   *os.File // a file that may be opened again for writing; nil: none
	Make    *os.File // a folder in which, and below which, regular files may be created; nil: none
	Replace bool     // and files removed, or replaced by others
	Folder  *os.File // a folder in which files may be created, read, written and removed; nil: none
	Network bool     // sockets of the Internet may be made
	// Capabilities are those that are kept, if the process has them.
	Capabilities []int
}

// To confines this process to these rights. What the kernel cannot deny stays allowed.
func To(r Rights) error {
	_ = time.Local.String() // reads the time zone's file, while that is allowed
	if err := keep(r.Capabilities); err != nil {
		return fmt.Errorf("cannot give up capabilities: %w", err)
	}
	if err := r.restrict(); err != nil {
		return fmt.Errorf("cannot give up rights to files: %w", err)
	}
	if err := filterCalls(r.Network); err != nil { // the last: it denies Landlock's calls, too
		return fmt.Errorf("cannot give up system calls: %w", err)
	}
	return nil
}

// keep drops all capabilities but some. If CAP_DAC_READ_SEARCH is lacking,
// CAP_DAC_OVERRIDE is kept in its place: containers have that one.
func keep(some []int) error {
	had, kept := cap.GetProc(), cap.NewSet()
	for _, c := range some {
		v := cap.Value(c)
		has, err := had.GetFlag(cap.Permitted, v)
		if v == cap.DAC_READ_SEARCH && !has && err == nil {
			v = cap.DAC_OVERRIDE
			has, err = had.GetFlag(cap.Permitted, v)
		}
		if err == nil && has {
			err = errors.Join(kept.SetFlag(cap.Permitted, true, v), kept.SetFlag(cap.Effective, true, v))
		}
		if err != nil {
			return err
		}
	}
	return kept.SetProc()
}

// restrict has Landlock deny what is not among the rights. The library leaves out what
// the kernel does not know.
func (r *Rights) restrict() error {
	var rules []landlock.Rule
	allow := func(f *os.File, access landlock.AccessFSSet) {
		rules = append(rules, landlock.PathAccess(access, "/proc/self/fd/"+strconv.Itoa(int(f.Fd()))))
	}
	for _, name := range r.Read {
		// A missing file is not an error here: reading it fails later.
		if fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			f := os.NewFile(uintptr(fd), name)
			defer f.Close()
			allow(f, ll.AccessFSReadFile)
		}
	}
	if r.Write != nil && !isPipe(r.Write) {
		allow(r.Write, ll.AccessFSWriteFile|ll.AccessFSTruncate)
	}
	if r.Make != nil {
		access := landlock.AccessFSSet(ll.AccessFSMakeReg)
		if r.Replace {
			access |= ll.AccessFSRemoveFile
		}
		allow(r.Make, access)
	}
	if r.Folder != nil {
		allow(r.Folder, ll.AccessFSMakeReg|ll.AccessFSRemoveFile|ll.AccessFSReadFile|ll.AccessFSReadDir|
			ll.AccessFSWriteFile|ll.AccessFSTruncate)
	}
	most := landlock.V11.BestEffort()
	if !r.Network {
		err := most.Restrict(rules...)
		runtime.KeepAlive(r)
		return err
	}
	err := errors.Join(most.RestrictPaths(rules...), most.RestrictScoped())
	runtime.KeepAlive(r)
	return err
}

// isPipe reports whether a file is not in the file system, such as a pipe of the shell:
// Landlock has no rules for those, and needs none.
func isPipe(f *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &st) == nil && st.Type == unix.PIPEFS_MAGIC
}

// Files returns all files and folders at the root, except the kernel's file systems: /proc,
// /sys and /dev.
func Files() []string {
	entries, _ := os.ReadDir("/") // none, then
	var names []string
	for _, e := range entries {
		// A link leads to another of them, or outside of what may be read.
		if e.Type()&os.ModeSymlink == 0 && !slices.Contains([]string{"proc", "sys", "dev"}, e.Name()) {
			names = append(names, filepath.Join("/", e.Name()))
		}
	}
	return names
}

// WholeABI is the first version of Landlock's interface that can deny everything that
// this package denies with it: files, truncation, devices, TCP, signals and abstract
// sockets.
const WholeABI = 6

// LandlockABI is the version of Landlock's interface that the kernel has, 0 if it has none
// (landlock(7)).
func LandlockABI() int {
	v, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return v
}
