package procfs

import (
	"bytes"
	"errors"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// MaxMaps bounds ReadInto's reading of a file, in bytes; the longest file is the list of
// mappings. With as many mappings as kernels allow, the list has some 5 MB, or more with long
// paths: a path can have any length.
const MaxMaps = 16 << 20

// ErrTooLong: a file is longer than ReadInto's bound.
var ErrTooLong = errors.New("the kernel's list of its mappings has more than 16 MB, " +
	"and clrsnap looks at no program with so many or with such paths")

var errMaps = errors.New("unexpected format of /proc/<pid>/maps")

// ParseMaps parses a maps (proc_pid_maps(5)). The paths are cut out of one string, made once:
// separate strings would take most of the time.
func ParseMaps(b []byte) (target.Mappings, error) {
	text := string(b)
	ms := make(target.Mappings, 0, bytes.Count(b, []byte{'\n'}))
	for pos := 0; pos < len(b); {
		end := bytes.IndexByte(b[pos:], '\n')
		if end < 0 {
			end = len(b)
		} else {
			end += pos
		}
		m, path, ok := ParseMapping(b[pos:end])
		if !ok {
			return nil, errMaps
		}
		m.Path, m.Deleted = mapsPath(text[end-len(path) : end])
		// The kernel gives the file in pieces. A mapping that grows between two pieces can appear
		// twice, and the second is dropped.
		if n := len(ms); n == 0 || ms[n-1].End <= m.Start {
			ms = append(ms, m)
		}
		pos = end + 1
	}
	return ms, nil
}

// ParseMapping parses a line of the form
//
//	7f0a1c000000-7f0a1c021000 rw-p 00000000 fd:01 131 /path with spaces (deleted)
//
// without its end. path is in the kernel's form; the Path of m stays empty.
func ParseMapping(line []byte) (m target.Mapping, path []byte, ok bool) {
	v, b := leadingHex(line)
	m.Start = arch.Addr(v)
	if len(b) < 2 || b[0] != '-' {
		return m, nil, false
	}
	v, b = leadingHex(b[1:])
	m.End = arch.Addr(v)
	if m.End <= m.Start || len(b) < 6 || b[0] != ' ' {
		return m, nil, false
	}
	m.Perm = parsePerm(b[1:5])
	m.Offset, b = leadingHex(b[6:])
	if len(b) < 2 || b[0] != ' ' {
		return m, nil, false
	}
	major, b := leadingHex(b[1:])
	if len(b) < 2 || b[0] != ':' {
		return m, nil, false
	}
	minor, b := leadingHex(b[1:])
	m.Dev = unix.Mkdev(uint32(major), uint32(minor))
	inode, b := nextField(b)
	if m.Inode, ok = number(inode); !ok {
		return m, nil, false
	}
	return m, bytes.TrimLeft(b, " "), true
}

func parsePerm(b []byte) (p target.Perm) {
	for i, c := range "rwxs" {
		if b[i] == byte(c) {
			p |= 1 << i
		}
	}
	return p
}

// mapsPath undoes the kernel's encoding of a path: a newline is written as \012 (seq_file_path
// with "\n" in fs/proc/task_mmu.c; a backslash is not changed), and " (deleted)" is appended when
// the file has no name any more. A file with a name that really ends so is told apart on opening,
// by its inode.
func mapsPath(s string) (path string, deleted bool) {
	const mark = " (deleted)"
	if len(s) > len(mark) && s[0] == '/' && s[len(s)-1] == ')' && s[len(s)-len(mark):] == mark {
		s, deleted = s[:len(s)-len(mark)], true
	}
	if strings.Contains(s, `\012`) {
		s = strings.ReplaceAll(s, `\012`, "\n")
	}
	return s, deleted
}
