package procfs

import (
	"bytes"
	"fmt"
	"math"
)

// Status is the used part of /proc/PID/status, and of a thread's (proc_pid_status(5)). A value
// that the kernel does not show is 0 or nil, except for user and group ids.
type Status struct {
	Name                   string // newlines and backslashes are escaped with a backslash
	State                  byte   // as in Stat
	TGID                   int    // the thread's process
	PPID, TracerPID        int    // 0: nobody, or nobody in our PID namespace
	UID, GID               IDs
	Groups                 []int
	NSPID                  []int  // from our PID namespace down to the innermost
	RSS                    int64  // the process's bytes of memory in RAM, including shared memory
	Anonymous              int64  // the part of RSS without a file; 0 before Linux 4.5
	CapPrm, CapEff, CapBnd uint64 // capabilities, as bits
	Seccomp                int    // 0: off, 1: strict, 2: a filter
	VoluntarySwitches      uint64 // context switches because the thread waited for something
	InvoluntarySwitches    uint64 // and because other threads had their turn
}

// IDs are user or group ids of a process, in numbers of our user namespace; -1: the kernel does
// not show the id.
type IDs struct{ Real, Effective, Saved, FileSystem int }

var unknownIDs = IDs{-1, -1, -1, -1}

// Bounds of the lists in a status.
const (
	maxNSPID  = 33      // MAX_PID_NS_LEVEL of include/linux/pid_namespace.h, and the first namespace
	maxGroups = 1 << 16 // NGROUPS_MAX of include/uapi/linux/limits.h
)

// InnermostPID is the id of the process, or of the thread, in its own PID namespace. False: the
// kernel does not show the id (before Linux 4.1).
func (s *Status) InnermostPID() (int, bool) {
	if len(s.NSPID) == 0 {
		return 0, false
	}
	return s.NSPID[len(s.NSPID)-1], true
}

// Status reads the status of the process. With an error its user and group ids are -1.
func (d Dir) Status() (Status, error) {
	s, err := d.status("status")
	if err != nil || s.RSS != 0 {
		return s, err
	}
	if other, ok := d.living("status"); ok {
		if of, err := d.status(other); err == nil {
			s.RSS, s.Anonymous = of.RSS, of.Anonymous
		}
	}
	return s, nil
}

// TaskStatus reads the status of a thread.
func (d Dir) TaskStatus(tid int) (Status, error) { return d.status(TaskFile(tid, "status")) }

func (d Dir) status(name string) (Status, error) {
	b, err := d.ReadFile(name)
	if err != nil {
		return Status{UID: unknownIDs, GID: unknownIDs}, err
	}
	s, err := ParseStatus(b)
	if err != nil {
		return s, fmt.Errorf("%s: %w", d.path(name), err)
	}
	return s, nil
}

// ParseStatus parses a status. The error is ErrFormat.
func ParseStatus(b []byte) (Status, error) {
	s := Status{UID: unknownIDs, GID: unknownIDs}
	for line := range bytes.Lines(b) {
		key, value, _ := bytes.Cut(line, []byte{':'})
		if !s.set(string(key), value) {
			return Status{UID: unknownIDs, GID: unknownIDs}, ErrFormat
		}
	}
	return s, nil
}

// set takes the value of one line, and reports whether the value has the right format.
func (s *Status) set(key string, value []byte) (ok bool) {
	ok = true
	first, _ := nextField(value)
	switch key {
	case "Name":
		s.Name = string(bytes.TrimSuffix(bytes.TrimPrefix(value, []byte{'\t'}), []byte{'\n'}))
	case "State":
		if ok = len(first) == 1; ok {
			s.State = first[0]
		}
	case "Tgid":
		s.TGID, ok = id(first)
	case "PPid":
		s.PPID, ok = id(first)
	case "TracerPid":
		s.TracerPID, ok = id(first)
	case "Uid":
		ok = s.UID.set(value)
	case "Gid":
		ok = s.GID.set(value)
	case "Groups":
		s.Groups, ok = idList(nil, value, maxGroups)
	case "NSpid":
		s.NSPID, ok = idList(nil, value, maxNSPID)
	case "VmRSS":
		s.RSS, ok = kibibytes(first)
	case "RssAnon":
		s.Anonymous, ok = kibibytes(first)
	case "CapPrm":
		s.CapPrm, ok = hex(first)
	case "CapEff":
		s.CapEff, ok = hex(first)
	case "CapBnd":
		s.CapBnd, ok = hex(first)
	case "Seccomp":
		s.Seccomp, ok = id(first)
	case "voluntary_ctxt_switches":
		s.VoluntarySwitches, ok = number(first)
	case "nonvoluntary_ctxt_switches":
		s.InvoluntarySwitches, ok = number(first)
	}
	return ok
}

// kibibytes reads a field with a number of KiB, and returns bytes.
func kibibytes(field []byte) (int64, bool) {
	kib, ok := number(field)
	return int64(kib) << 10, ok && kib <= math.MaxInt64>>10
}

func (i *IDs) set(value []byte) bool {
	var room [4]int
	list, ok := idList(room[:0], value, len(room))
	if !ok || len(list) != len(room) {
		return false
	}
	*i = IDs{list[0], list[1], list[2], list[3]}
	return true
}

// idList appends ids to list. most bounds the length of list.
func idList(list []int, value []byte, most int) ([]int, bool) {
	for {
		var field []byte
		if field, value = nextField(value); len(field) == 0 {
			return list, true
		}
		v, ok := id(field)
		if !ok || len(list) == most {
			return nil, false
		}
		list = append(list, v)
	}
}
