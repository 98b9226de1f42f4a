// Package confine has a process give up every right that it does not need any more: before
// it reads a file that a stranger has made. What is given up does not come back.
//
// Capabilities are dropped, and no program can be had by execve(2) with more of them
// (no_new_privs). Landlock, where the kernel has it, denies all files but those that are
// named, TCP connections, signals and abstract sockets to others. A seccomp filter denies
// what Landlock knows nothing of: other sockets, programs that have no path, and to look
// into other processes. Descriptors that are open stay as they are. All threads are
// confined, and so are those that they start.
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
	Write   *os.File // a file that may be opened for writing once more; nil: none
	Make    *os.File // a folder in which, and below which, new regular files may be named; nil: none
	Replace bool     // and names of files taken away, or given to others
	// Capabilities are those that are kept, as far as they are there.
	Capabilities []int
}

// To leaves this process no more than these rights. Where the kernel cannot deny
// something, it stays allowed.
func To(r Rights) error {
	_ = time.Local.String() // has the file of the time zone read, once for all
	if err := keep(r.Capabilities); err != nil {
		return fmt.Errorf("cannot give up capabilities: %w", err)
	}
	if err := filterCalls(); err != nil {
		return fmt.Errorf("cannot give up system calls: %w", err)
	}
	if err := r.restrict(); err != nil {
		return fmt.Errorf("cannot give up rights to files: %w", err)
	}
	return nil
}

// keep drops all capabilities but some. Where the one to read every file is lacking, the
// one to open every file is taken for it: containers have that one.
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
		// What is not there cannot be read, and whoever wants to says so.
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
	err := landlock.V11.BestEffort().Restrict(rules...)
	runtime.KeepAlive(r)
	return err
}

// isPipe reports whether a file has no place in the file system: Landlock has no rules for
// pipes of the shell, and needs none.
func isPipe(f *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &st) == nil && st.Type == unix.PIPEFS_MAGIC
}

// Files are all files and folders at the root but those that the kernel makes up.
func Files() []string {
	entries, _ := os.ReadDir("/") // none, then
	var names []string
	for _, e := range entries {
		// A link leads to another of them, or to where nothing is to be read.
		if e.Type()&os.ModeSymlink == 0 && !slices.Contains([]string{"proc", "sys", "dev"}, e.Name()) {
			names = append(names, filepath.Join("/", e.Name()))
		}
	}
	return names
}

// WholeABI is the first version of Landlock's interface that can deny files, cutting them,
// devices, TCP, signals and abstract sockets.
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
