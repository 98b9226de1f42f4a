// Package openfiles finds the processes that have a pipe or a socket open: from /proc/PID/fd, as lsof and fuser do. To
// look at a process of another user takes the process's rights (ptrace(2), access mode PTRACE_MODE_READ_FSCREDS); a
// process in another PID namespace perhaps cannot be seen at all.
package openfiles

import (
	"strconv"
	"strings"
	"time"

	"clrsnap/internal/procfs"
)

// Holder is a descriptor of a process.
type Holder struct {
	PID, FD int
	Command string // the kernel's name of the process; "": not known
	Writes  bool   // the pipe or socket can be written
	Reads   bool   // and read
}

// Index has the holders of pipes and sockets, at the time of Look.
type Index struct {
	holders map[string][]place
	places  int
	Hidden  int  // processes whose descriptors could not be read
	Partial bool // there are more descriptors than Look's bounds, or Look took too long
}

// place is a descriptor of a process.
type place struct{ pid, fd int }

// Bounds of a look through all processes.
const (
	maxDescriptors = 1 << 17
	maxTime        = 300 * time.Millisecond
	maxHolders     = 16 // described holders of one pipe or socket
)

// Look looks through the descriptors of all visible processes: first comes first.
func Look(first int) *Index {
	x := &Index{holders: map[string][]place{}}
	pids, err := procfs.Processes()
	x.Partial = err != nil
	end := time.Now().Add(maxTime)
	x.add(first)
	for _, pid := range pids {
		if x.Partial || time.Now().After(end) {
			x.Partial = true
			break
		}
		if pid != first {
			x.add(pid)
		}
	}
	return x
}

// add adds the descriptors of a process.
func (x *Index) add(pid int) {
	dir, err := procfs.Open(pid)
	if err != nil {
		return // the process has ended
	}
	defer dir.Close()
	names, err := dir.Names("fd")
	if err != nil {
		x.Hidden++
		return
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		link, err := dir.Readlink("fd/" + name)
		if err != nil || !isShared(link) {
			continue
		}
		if x.places++; x.places > maxDescriptors {
			x.Partial = true
			return
		}
		x.holders[link] = append(x.holders[link], place{pid, fd})
	}
}

// isShared reports whether the target of a link connects processes.
func isShared(link string) bool {
	return strings.HasPrefix(link, "pipe:[") || strings.HasPrefix(link, "socket:[")
}

// Of returns the holders of a pipe or a socket, by the link of a descriptor: "pipe:[173886]".
func (x *Index) Of(link string) (out []Holder) {
	list := x.holders[link]
	for _, p := range list[:min(len(list), maxHolders)] {
		if h, ok := describe(p, link); ok {
			out = append(out, h)
		}
	}
	return out
}

// describe describes a descriptor, unless it leads elsewhere by now.
func describe(p place, link string) (h Holder, ok bool) {
	dir, err := procfs.Open(p.pid)
	if err != nil {
		return h, false
	}
	defer dir.Close()
	fd := strconv.Itoa(p.fd)
	h = Holder{PID: p.pid, FD: p.fd}
	if h.Command, err = dir.Comm(); err != nil {
		h.Command = ""
	}
	info, err := dir.ReadFile("fdinfo/" + fd)
	if err != nil {
		return h, false
	}
	h.Reads, h.Writes = access(string(info))
	now, err := dir.Readlink("fd/" + fd)
	return h, err == nil && now == link
}

// access reads a descriptor's access mode: the last two bits of flags, in octal (proc_pid_fdinfo(5), open(2)).
func access(info string) (reads, writes bool) {
	const writeOnly, readWrite, mask = 1, 2, 3
	for line := range strings.Lines(info) {
		text, ok := strings.CutPrefix(line, "flags:")
		if !ok {
			continue
		}
		flags, err := strconv.ParseUint(strings.TrimSpace(text), 8, 64)
		if err != nil {
			return false, false
		}
		return flags&mask != writeOnly, flags&mask == writeOnly || flags&mask == readWrite
	}
	return false, false
}
