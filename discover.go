package clrsnap

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"

	"clrsnap/internal/engine"
	"clrsnap/internal/locate"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

// Found is a .NET process that Discover found.
type Found struct {
	PID     int
	UID     int
	User    string // name of UID, or the number where it has none
	Command string // command line, arguments separated by spaces
	// Runtime is what is known of the runtime: nothing for a process that may
	// not be looked into.
	Runtime profile.Runtime
	// Err says why the process cannot be opened and what to do; nil if it can.
	Err error
}

// Discover lists the .NET processes that are visible here, by process id:
// programs compiled ahead of time and processes of other users too, with the
// reason why those cannot be opened. Of most other processes it reads the list
// of mappings and nothing else.
func Discover() ([]Found, error) {
	names, err := procEntries()
	if err != nil {
		return nil, fmt.Errorf("cannot list the processes: %w", err)
	}
	s := search{users: map[int]string{}, other: map[fileID]bool{}}
	var out []Found
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if f, ok := s.look(pid); ok {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b Found) int { return a.PID - b.PID })
	return out, nil
}

func procEntries() ([]string, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// fileID tells executables apart.
type fileID struct{ dev, ino uint64 }

// search is what one Discover remembers.
type search struct {
	users map[int]string
	other map[fileID]bool // executables that have no runtime in them
	buf   []byte
}

// look reports whether a process runs .NET, and what is known of it.
func (s *search) look(pid int) (Found, bool) {
	dir := "/proc/" + strconv.Itoa(pid) + "/"
	maps, err := s.readFile(dir + "maps")
	switch {
	case errors.Is(err, os.ErrPermission):
		if !dotNetThreads(dir) {
			return Found{}, false
		}
		f := s.found(pid, dir)
		if f.Err = openError(pid); f.Err == nil {
			f.Err = err
		}
		return f, true
	case err != nil || len(maps) == 0: // it has ended, or is the kernel's own
		return Found{}, false
	}
	var exe syscall.Stat_t
	id := fileID{}
	if syscall.Stat(dir+"exe", &exe) == nil {
		id = fileID{exe.Dev, exe.Ino}
	}
	if !bytes.Contains(maps, []byte("/libcoreclr.so\n")) && !bytes.Contains(maps, []byte("/libcoreclr.so (deleted)\n")) && s.other[id] {
		return Found{}, false
	}
	r, err := runtimeIn(pid)
	if errors.Is(err, ErrNotDotNet) || r == nil && (errors.Is(err, live.ErrNoProcess) || errors.Is(err, live.ErrZombie) || errors.Is(err, live.ErrArch)) {
		if errors.Is(err, ErrNotDotNet) && id != (fileID{}) {
			s.other[id] = true
		}
		return Found{}, false
	}
	if r == nil && !dotNetThreads(dir) {
		return Found{}, false
	}
	f := s.found(pid, dir)
	f.Err = err
	if r != nil {
		f.Runtime = describeRuntime(r)
	}
	return f, true
}

// runtimeIn looks for the runtime of a process, through its mappings. With a
// runtime the error is why it cannot be read.
func runtimeIn(pid int) (*locate.Runtime, error) {
	p, err := live.Open(pid)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	e, err := engine.New(p)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	r, err := e.OpenRuntime()
	if r == nil {
		return nil, err
	}
	return r, runtimeError(err, p)
}

// openError is why a process cannot be opened.
func openError(pid int) error {
	p, err := live.Open(pid)
	if err == nil {
		p.Close()
	}
	return err
}

// dotNetThreads recognises a process that may not be looked into by the names
// that the runtime gives to its threads, which everybody may read.
func dotNetThreads(dir string) bool {
	tasks, err := os.ReadDir(dir + "task")
	if err != nil {
		return false
	}
	for _, t := range tasks {
		if comm, err := os.ReadFile(dir + "task/" + t.Name() + "/comm"); err == nil && bytes.HasPrefix(comm, []byte(".NET ")) {
			return true
		}
	}
	return false
}

// found describes the process itself.
func (s *search) found(pid int, dir string) Found {
	f := Found{PID: pid, UID: -1, Command: commandLine(pid)}
	status, err := s.readFile(dir + "status")
	if err != nil {
		return f
	}
	for line := range bytes.Lines(status) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		fields := bytes.Fields(value)
		switch {
		case string(key) == "Name" && f.Command == "":
			f.Command = "[" + string(bytes.TrimSpace(value)) + "]"
		case string(key) == "Uid" && len(fields) > 1: // real, effective, saved, file system
			f.UID, _ = strconv.Atoi(string(fields[1]))
		}
	}
	f.User = s.user(f.UID)
	return f
}

func (s *search) user(uid int) string {
	name, ok := s.users[uid]
	if !ok {
		name = strconv.Itoa(uid)
		if u, err := user.LookupId(name); err == nil {
			name = u.Username
		}
		s.users[uid] = name
	}
	return name
}

// readFile reads a file of /proc into a buffer that lasts until the next call.
func (s *search) readFile(name string) ([]byte, error) {
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	if s.buf == nil {
		s.buf = make([]byte, 64<<10)
	}
	for n := 0; ; {
		if n == len(s.buf) {
			s.buf = append(s.buf, make([]byte, len(s.buf))...)
		}
		m, err := syscall.Read(fd, s.buf[n:])
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return nil, err
		case m <= 0:
			return s.buf[:n], nil
		}
		n += max(m, 0)
	}
}
