// Package confine makes a process give up every right that it no longer needs, before the
// process reads an untrusted file. The process cannot regain a right that it has given up.
//
// Capabilities are dropped, and execve(2) cannot gain new capabilities (no_new_privs).
// Landlock, where the kernel has it, denies all files but the named files, TCP connections,
// and signals and abstract sockets to other processes. A seccomp filter allows only the system
// calls for reading and writing: no system call that changes modes, times, limits or keys,
// starts a program, makes a Unix socket, or reaches into another process. Open descriptors
// stay usable. All threads are confined, and so are new threads.
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

// Rights are the rights that a process keeps.
type Rights struct {
	Read    []string // readable files, and readable folders with all contents
	Write   *os.File // a file that may be opened again for writing; nil: none
	Make    *os.File // a folder where, and below which, regular files may be created; nil: none
	Replace bool     // and files removed, or replaced by others
	Folder  *os.File // a folder where files may be created, read, written and removed; nil: none
	Network bool     // sockets of the Internet may be made
	// Capabilities are kept, if the process has them.
	Capabilities []int
}

// To confines this process to the rights. Actions that the kernel cannot deny stay allowed.
func To(r Rights) error {
	_ = time.Local.String() // reads the time zone's file, while reading is allowed
	if err := keep(r.Capabilities); err != nil {
		return fmt.Errorf("cannot give up capabilities: %w", err)
	}
	if err := r.restrict(); err != nil {
		return fmt.Errorf("cannot give up rights to files: %w", err)
	}
	if err := filterCalls(r.Network); err != nil { // the last: the filter denies Landlock's calls, too
		return fmt.Errorf("cannot give up system calls: %w", err)
	}
	return nil
}

// keep drops all capabilities but some. Without CAP_DAC_READ_SEARCH,
// CAP_DAC_OVERRIDE is kept in its place: containers have CAP_DAC_OVERRIDE.
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

// restrict has Landlock deny everything outside the rights. The library leaves out
// rules unknown to the kernel.
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

// isPipe reports whether a file is outside the file system, for example a pipe of the
// shell: Landlock has no rules for pipes, and needs none.
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
		// A link leads to another of the files, or outside of the readable files.
		if e.Type()&os.ModeSymlink == 0 && !slices.Contains([]string{"proc", "sys", "dev"}, e.Name()) {
			names = append(names, filepath.Join("/", e.Name()))
		}
	}
	return names
}

// WholeABI is the first version of Landlock's interface that can deny everything that
// the package denies with Landlock: files, truncation, devices, TCP, signals and
// abstract sockets.
const WholeABI = 6

// LandlockABI is the version of the kernel's Landlock interface, 0 without Landlock
// (landlock(7)).
func LandlockABI() int {
	v, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return v
}
