package live

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/procdir"
	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// Mappings returns the target's mappings as they are now. Captures made later
// use them to find the end of a stack.
func (p *Process) Mappings() (target.Mappings, error) {
	p.mapsMu.Lock()
	defer p.mapsMu.Unlock()
	ms, _, err := p.readMappings()
	return ms, err
}

// readMappings also returns what the kernel says, until the next call.
func (p *Process) readMappings() (target.Mappings, []byte, error) {
	b, err := p.readMem("maps", p.mapsBuf)
	if err != nil {
		return nil, nil, fmt.Errorf("its mappings cannot be read: %w", p.explain(err))
	}
	if p.mapsBuf = b; cap(b) > 1<<20 {
		p.mapsBuf = nil // such a large buffer is seldom needed
	}
	if len(b) == 0 {
		return nil, nil, p.explain(unix.ESRCH) // an exiting process has no memory
	}
	ms, err := parseMaps(b)
	if err != nil {
		return nil, nil, err
	}
	p.setSpans(ms)
	return ms, b, nil
}

// ReadMaps reads what the kernel says of a process's mappings, into buf if there is room.
func ReadMaps(of procdir.Dir, buf []byte) ([]byte, error) { return readAt(of.FD(), "maps", buf) }

// readMem reads a file that shows the address space, from a thread that has
// one.
func (p *Process) readMem(name string, buf []byte) ([]byte, error) {
	b, err := readAt(p.dir, p.memPrefix()+name, buf)
	if (err != nil || len(b) == 0) && p.relead() {
		b, err = readAt(p.dir, p.memPrefix()+name, buf)
	}
	return b, err
}

// span is a readable mapping reduced to what a capture needs while a thread is
// stopped.
type span struct{ start, end uint64 }

func (p *Process) setSpans(ms target.Mappings) {
	spans := make([]span, 0, len(ms))
	for i := range ms {
		if ms[i].Perm&target.PermRead != 0 {
			spans = append(spans, span{uint64(ms[i].Start), uint64(ms[i].End)})
		}
	}
	p.spans.Store(&spans)
}

var errMaps = errors.New("unexpected format of /proc/<pid>/maps")

// parseMaps reads the lines of a maps file. The paths are cut out of one
// string, made once: most of the time would go into them otherwise.
func parseMaps(b []byte) (target.Mappings, error) {
	text := string(b)
	ms := make(target.Mappings, 0, bytes.Count(b, []byte{'\n'}))
	for pos := 0; pos < len(b); {
		end := bytes.IndexByte(b[pos:], '\n')
		if end < 0 {
			end = len(b)
		} else {
			end += pos
		}
		m, ok := parseMapsLine(b[pos:end], text[pos:end])
		if !ok {
			return nil, errMaps
		}
		// The kernel returns the file in pieces; a mapping that grows between
		// two of them can appear twice: the older one is dropped.
		if n := len(ms); n == 0 || ms[n-1].End <= m.Start {
			ms = append(ms, m)
		}
		pos = end + 1
	}
	return ms, nil
}

// parseMapsLine reads a line of the form
//
//	7f0a1c000000-7f0a1c021000 rw-p 00000000 fd:01 131	/path with spaces (deleted)
//
// given as bytes and as the string that paths are cut from.
func parseMapsLine(b []byte, text string) (m target.Mapping, ok bool) {
	all := len(b)
	v, b := parseHex(b)
	m.Start = arch.Addr(v)
	if len(b) < 2 || b[0] != '-' {
		return m, false
	}
	v, b = parseHex(b[1:])
	m.End = arch.Addr(v)
	if m.End <= m.Start || len(b) < 6 || b[0] != ' ' {
		return m, false
	}
	m.Perm = parsePerm(b[1:5])
	m.Offset, b = parseHex(b[6:])
	if len(b) < 2 || b[0] != ' ' {
		return m, false
	}
	major, b := parseHex(b[1:])
	if len(b) < 2 || b[0] != ':' {
		return m, false
	}
	minor, b := parseHex(b[1:])
	m.Dev = unix.Mkdev(uint32(major), uint32(minor))
	inode, b := nextField(b)
	if len(inode) == 0 {
		return m, false
	}
	m.Inode = parseUint(inode)
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	m.Path, m.Deleted = mapsPath(text[all-len(b):])
	return m, true
}

func parsePerm(b []byte) (p target.Perm) {
	for i, c := range "rwxs" {
		if b[i] == byte(c) {
			p |= 1 << i
		}
	}
	return p
}

// mapsPath undoes what the kernel does to a path: a newline is written as \012
// (seq_file_path with "\n" in fs/proc/task_mmu.c; a backslash stays as it is),
// and " (deleted)" is appended when the file has no name any more. A file whose
// name really ends so is recognised by its inode when it is opened.
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
