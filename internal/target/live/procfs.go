package live

import (
	"bytes"
	"errors"
	"io"
	"strconv"

	"golang.org/x/sys/unix"
)

// Parsers of /proc, for proc_pid_stat(5) and related files. A process chooses its own
// name, so even these files hold hostile text.

// stat is what we use of /proc/<pid>/stat.
type stat struct {
	comm  string
	state byte // R S D T t Z X I
	ppid  int
	flags uint64 // PF_… of the kernel
	count int    // threads
	start uint64 // clock ticks since boot
}

// pfKthread is PF_KTHREAD of include/linux/sched.h.
const pfKthread = 0x00200000

var errProcFormat = errors.New("unexpected format of a file in /proc")

// parseStat reads the fields of a stat file. The name stands in brackets and
// may itself hold brackets and spaces: the last one counts.
func parseStat(b []byte) (stat, error) {
	var s stat
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open || end+3 >= len(b) {
		return s, errProcFormat
	}
	s.comm = string(b[open+1 : end])
	s.state = b[end+2]
	b = b[end+3:]
	for field := 4; field <= 22; field++ {
		var f []byte
		if f, b = nextField(b); len(f) == 0 {
			return s, errProcFormat
		}
		switch field {
		case 4:
			s.ppid = int(parseUint(f))
		case 9:
			s.flags = parseUint(f)
		case 20:
			s.count = int(parseUint(f))
		case 22:
			s.start = parseUint(f)
		}
	}
	return s, nil
}

// nextField splits b after its first run of characters other than space.
func nextField(b []byte) (field, rest []byte) {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for i, c := range b {
		if c == ' ' || c == '\t' || c == '\n' {
			return b[:i], b[i:]
		}
	}
	return b, nil
}

// parseUint reads leading decimal digits; a field that is negative, where only
// presence matters, reads as 0.
func parseUint(b []byte) uint64 {
	var v uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		v = v*10 + uint64(c-'0')
	}
	return v
}

// parseHex reads hexadecimal digits, with or without 0x, and what follows.
func parseHex(b []byte) (v uint64, rest []byte) {
	if len(b) > 1 && b[0] == '0' && b[1] == 'x' {
		b = b[2:]
	}
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		default:
			return v, b[i:]
		}
	}
	return v, nil
}

// status is what we use of /proc/<pid>/status.
type status struct {
	tgid, tracer int
	uid, gid     [4]uint64 // real, effective, saved, file system
	nspid        []int     // from our PID namespace down to the innermost
	permitted    uint64    // CapPrm
	effective    uint64    // CapEff
	bounding     uint64    // CapBnd
	seccomp      uint64
}

func parseStatus(b []byte) status {
	var s status
	for len(b) > 0 {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		key, val, _ := bytes.Cut(line, []byte{':'})
		s.set(string(key), val)
	}
	return s
}

func (s *status) set(key string, val []byte) {
	first, rest := nextField(val)
	switch key {
	case "Tgid":
		s.tgid = int(parseUint(first))
	case "TracerPid":
		s.tracer = int(parseUint(first))
	case "Uid":
		s.uid = fourIDs(val)
	case "Gid":
		s.gid = fourIDs(val)
	case "NSpid":
		for ; len(first) > 0 && len(s.nspid) < 32; first, rest = nextField(rest) {
			s.nspid = append(s.nspid, int(parseUint(first)))
		}
	case "CapPrm":
		s.permitted, _ = parseHex(first)
	case "CapEff":
		s.effective, _ = parseHex(first)
	case "CapBnd":
		s.bounding, _ = parseHex(first)
	case "Seccomp":
		s.seccomp = parseUint(first)
	}
}

func fourIDs(val []byte) (ids [4]uint64) {
	for i := range ids {
		var f []byte
		f, val = nextField(val)
		ids[i] = parseUint(f)
	}
	return ids
}

// syscallLine is /proc/<pid>/task/<tid>/syscall of a thread that is blocked.
type syscallLine struct {
	nr     int64 // -1: blocked, but not in a system call
	args   [6]uint64
	sp, pc uint64
}

// parseSyscall reports false for "running", which is what the kernel writes
// for a thread that was not off the CPU during the whole check.
func parseSyscall(b []byte) (l syscallLine, blocked bool) {
	f, b := nextField(b)
	if len(f) == 0 || f[0] == 'r' {
		return l, false
	}
	if f[0] == '-' {
		l.nr = -1
	} else {
		l.nr = int64(parseUint(f))
		for i := range l.args {
			f, b = nextField(b)
			l.args[i], _ = parseHex(f)
		}
	}
	f, b = nextField(b)
	l.sp, _ = parseHex(f)
	f, _ = nextField(b)
	l.pc, _ = parseHex(f)
	return l, len(f) > 0
}

// readAt reads a whole small file below the directory dir.
func readAt(dir int, name string, buf []byte) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return readAll(fd, buf[:0])
}

// MaxMaps bounds what is read of a file in /proc, in bytes; the longest is the list of mappings.
// A process that has as many mappings as kernels allow has some 5 MB of them, more if their
// paths are long: each can have as many characters as it likes.
const MaxMaps = 16 << 20

// ErrTooLong: a file in /proc is longer than MaxMaps.
var ErrTooLong = errors.New("the kernel's list of its mappings has more than 16 MB: " +
	"clrsnap does not read processes with so many mappings, or with such long paths")

// readAll appends the rest of fd to buf. Files of /proc return their contents in pieces;
// at the end a read returns 0.
func readAll(fd int, buf []byte) ([]byte, error) {
	for {
		if len(buf) > MaxMaps {
			return nil, ErrTooLong
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return buf, err
		case n <= 0:
			return buf, nil
		default:
			buf = buf[:len(buf)+n]
		}
	}
}

// readProc reads /proc/<name>; "" where it cannot be read.
func readProc(name string) string {
	fd, err := unix.Open("/proc/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	b, err := readAll(fd, nil)
	if err != nil && err != io.EOF {
		return ""
	}
	return string(bytes.TrimSpace(b))
}

// commOf names a process for a message.
func commOf(pid int) string {
	if c := readProc(strconv.Itoa(pid) + "/comm"); c != "" {
		return c
	}
	return "?"
}
