package core

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"clrsnap/internal/arch"
)

// Types of notes (Linux, include/uapi/linux/elf.h).
const (
	noteStatus  = 1          // NT_PRSTATUS
	noteProcess = 3          // NT_PRPSINFO
	noteAuxv    = 6          // NT_AUXV
	noteSignal  = 0x53494749 // NT_SIGINFO
	noteFile    = 0x46494c45 // NT_FILE
)

// Bounds on the memory that a dump may make us hold. Linux allows 16 MB of NT_FILE at most
// (kernel.core_file_note_size_limit).
const (
	maxAuxv     = 1 << 16 // bytes
	maxFileNote = 1 << 24 // bytes
)

// A Thread is a thread of the dump.
type Thread struct {
	TID     int
	Name    string // empty: dumps have no names of threads
	Context arch.Context
	Syscall int64 // number of the thread's current system call; -1: none

	local arch.Addr // of its thread-local storage: the C library's description of the thread
}

// writer is a program that writes dumps.
type writer string

const (
	writerKernel     writer = "kernel"
	writerGCore      writer = "gcore"
	writerCreatedump writer = "createdump"
)

// notes is the content of the notes.
type notes struct {
	writer  writer
	threads []Thread
	index   map[int]int // of threads, by id
	doubles int         // threads with the id of an earlier thread
	cut     bool        // the file ends within the notes
	damaged bool        // some notes could not be read because other notes are malformed

	process process
	auxv    []byte
	files   []fileRange // nil: no such note
	signal  *Signal
	crashed int
}

// process is the content of NT_PRPSINFO.
type process struct {
	known   bool
	pid     int
	name    string // at most 15 bytes
	command string // at most 79 bytes of the command line
}

// fileRange is a line of NT_FILE: a piece of memory that is, or was, a file's.
type fileRange struct {
	start, end arch.Addr
	off        uint64 // in bytes
	path       string // in the kernel's form, " (deleted)" included
}

// readNotes reads a PT_NOTE. If the end of the file cuts the notes off, readNotes records the
// fact, without an error: a dump without its last thread is better than none.
func (c *Core) readNotes(off, size, align uint64) error {
	if off >= c.size {
		c.notes.cut = c.notes.cut || size > 0
		return nil
	}
	whole := size <= c.size-off
	if !whole {
		size, c.notes.cut = c.size-off, true
	}
	n := noteReader{align: 4, left: size,
		r: bufio.NewReaderSize(io.NewSectionReader(c.file, int64(off), int64(size)), 64<<10)}
	if align == 8 {
		n.align = 8
	}
	for {
		ok, err := n.next()
		if err != nil {
			return err
		}
		if !ok {
			// In a file that is cut off, the last note reaches beyond the end, which is no
			// damage.
			c.notes.damaged = c.notes.damaged || n.damaged && whole
			return nil
		}
		if err := c.addNote(&n); err != nil {
			return err
		}
	}
}

// noteReader goes through a sequence of notes: three words (length of the name, of the
// description, type), the name, the description, each padded (gABI, "Note Section").
type noteReader struct {
	r     *bufio.Reader
	align uint64
	left  uint64 // unread bytes

	typ  uint32
	name [8]byte // the first bytes, and the bytes after the zero
	size uint64  // of the description
	rest uint64  // of description and padding

	damaged bool // a note had no name, or was longer than the rest of the notes
}

// next goes to the description of the next note.
func (n *noteReader) next() (bool, error) {
	if err := n.skip(n.rest); err != nil || n.left < 12 {
		return false, err
	}
	var h [12]byte
	if err := n.read(h[:]); err != nil {
		return false, err
	}
	le := binary.LittleEndian
	nameLen := n.pad(uint64(le.Uint32(h[:])))
	n.size, n.typ = uint64(le.Uint32(h[4:])), le.Uint32(h[8:])
	n.rest = n.pad(n.size)
	short := min(nameLen, uint64(len(n.name)))
	n.name = [8]byte{}
	if nameLen == 0 {
		n.damaged = true // most likely zeros in the place of notes
	}
	if nameLen > n.left || n.size > n.left-nameLen {
		n.damaged = true // the position of the next note is not known
		return false, nil
	}
	if err := n.read(n.name[:short]); err != nil {
		return false, err
	}
	return true, n.skip(nameLen - short)
}

func (n *noteReader) pad(size uint64) uint64 { return (size + n.align - 1) &^ (n.align - 1) }

func (n *noteReader) read(b []byte) error {
	if _, err := io.ReadFull(n.r, b); err != nil {
		return err
	}
	n.left -= uint64(len(b))
	return nil
}

func (n *noteReader) skip(size uint64) error {
	size = min(size, n.left)
	n.left -= size
	const step = 1 << 30 // Discard takes an int
	for size > 0 {
		d, err := n.r.Discard(int(min(size, step)))
		if err != nil {
			return err
		}
		size -= uint64(d)
	}
	return nil
}

// description reads the description, of max bytes at most.
func (n *noteReader) description(max uint64) ([]byte, error) {
	if n.size > max {
		return nil, fmt.Errorf("the dump is damaged: a note of type %#x has %d bytes", n.typ, n.size)
	}
	b := make([]byte, n.size)
	n.rest -= n.size
	return b, n.read(b)
}

// owner is the note's name up to its zero.
func (n *noteReader) owner() string {
	name, _, _ := strings.Cut(string(n.name[:]), "\x00")
	return name
}

func (c *Core) addNote(n *noteReader) error {
	if n.owner() != "CORE" {
		return nil
	}
	c.recogniseWriter(n)
	switch n.typ {
	case noteStatus:
		return c.addThread(n)
	case noteProcess:
		return c.addProcess(n)
	case noteSignal:
		return c.addSignal(n)
	case noteAuxv:
		b, err := n.description(maxAuxv)
		c.notes.auxv = b
		return err
	case noteFile:
		return c.addFiles(n)
	}
	return nil
}

// recogniseWriter recognises the writer by its first note (doc.go).
func (c *Core) recogniseWriter(n *noteReader) {
	if c.notes.writer != "" {
		return
	}
	const afterName = len("CORE\x00")
	switch {
	case string(n.name[afterName:]) != "\x00\x00\x00":
		c.notes.writer = writerCreatedump
	case n.typ == noteStatus:
		c.notes.writer = writerKernel
	default:
		c.notes.writer = writerGCore
	}
}

func (c *Core) addThread(n *noteReader) error {
	b, err := n.description(uint64(max(c.layout.prstatus, 1<<12)))
	if err != nil {
		return err
	}
	t, err := c.layout.thread(b)
	if err != nil {
		return err
	}
	if err := c.hold(threadCosts); err != nil {
		return err
	}
	if _, ok := c.notes.index[t.TID]; ok {
		c.notes.doubles++
		return nil
	}
	if c.notes.index == nil {
		c.notes.index = map[int]int{}
		if c.notes.writer == writerKernel {
			c.fallbackSignal(b, t.TID)
		}
	}
	c.notes.index[t.TID] = len(c.notes.threads)
	c.notes.threads = append(c.notes.threads, t)
	return nil
}

// addProcess reads struct elf_prpsinfo (Linux, include/linux/elfcore.h): the process id at 24,
// the program's name at 40, the beginning of the command line at 56.
func (c *Core) addProcess(n *noteReader) error {
	const size = 136
	b, err := n.description(1 << 12)
	if err != nil || len(b) != size || c.notes.process.known {
		return err
	}
	c.notes.process = process{
		known: true, pid: int(int32(binary.LittleEndian.Uint32(b[24:]))),
		name: cString(b[40:56]), command: strings.TrimRight(cString(b[56:136]), " "),
	}
	return nil
}

func cString(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// addFiles reads NT_FILE: the number of files, the size of a page, a triple of start, end and
// offset in pages for each file, and the names (Linux, fs/binfmt_elf.c, fill_files_note).
func (c *Core) addFiles(n *noteReader) error {
	b, err := n.description(maxFileNote)
	if err != nil || c.notes.files != nil {
		return err
	}
	le := binary.LittleEndian
	if len(b) < 16 {
		return nil
	}
	count, page := le.Uint64(b), le.Uint64(b[8:])
	b = b[16:]
	if count > uint64(len(b))/25 { // a triple, and the zero after a name
		return fmt.Errorf("the dump is damaged: %d files in a note of %d bytes", count, n.size)
	}
	if err := c.hold(int(count) * fileCosts); err != nil {
		return err
	}
	names := b[count*24:]
	c.notes.files = make([]fileRange, 0, count)
	for i := range count {
		name, rest, ok := bytes.Cut(names, []byte{0})
		if !ok {
			break
		}
		names = rest
		e := b[i*24:]
		r := fileRange{
			start: arch.Addr(le.Uint64(e)), end: arch.Addr(le.Uint64(e[8:])), off: le.Uint64(e[16:]) * page,
			path: string(name),
		}
		if r.start < r.end {
			c.notes.files = append(c.notes.files, r)
		}
	}
	return nil
}
