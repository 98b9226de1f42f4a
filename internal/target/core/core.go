package core

import (
	"fmt"
	"os"
	"sync"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/foreign"
	"clrsnap/internal/target"
)

// Options say where a process's files are now. The zero value: at their original paths.
type Options struct {
	Exe     string // the file of the main program
	Sysroot string // the folder that replaces the root of the process's file paths
}

// Core is an open core dump. Its methods may be called from several goroutines.
type Core struct {
	path    string
	opts    Options
	file    *os.File
	size    uint64 // of the file, in bytes
	written time.Time
	layout  *layout

	segments []segment
	notes    notes
	auxv     map[uint64]uint64
	mappings []mapping // of files and anonymous memory, by address
	images   []*image  // the files of the mappings
	sysroot  *os.File  // nil: none

	ownOnce sync.Once
	own     map[int]int // see OwnID

	shownOnce sync.Once
	shown     target.Mappings // see Mappings
	misses    misses
	held      int // see hold
}

// Open opens a core dump. It reads headers and notes only. An error is one sentence about the
// fault of the file.
func Open(path string, o Options) (*Core, error) {
	c := &Core{path: path, opts: o}
	if err := c.open(); err != nil {
		c.Close()
		return nil, fmt.Errorf("cannot read the core dump %s: %w", path, err)
	}
	return c, nil
}

func (c *Core) open() (err error) {
	if c.file, err = foreign.Open(c.path); err != nil {
		return err
	}
	st, err := c.file.Stat()
	if err != nil {
		return err
	}
	c.size, c.written = uint64(st.Size()), st.ModTime()
	if c.opts.Sysroot != "" {
		if c.sysroot, err = openFolder(c.opts.Sysroot); err != nil {
			return err
		}
	}
	if c.opts.Exe != "" {
		if err := checkProgram(c.opts.Exe); err != nil {
			return err
		}
	}
	h, err := c.readHeader()
	if err != nil {
		return err
	}
	if err := c.readProgramHeaders(h); err != nil {
		return err
	}
	if len(c.notes.threads) == 0 {
		return c.noThreads()
	}
	c.auxv = parseAuxv(c.notes.auxv)
	if c.notes.files == nil {
		c.notes.files = c.linkMap()
	}
	c.makeMappings()
	return nil
}

// Close closes the dump and its open files.
func (c *Core) Close() error {
	for _, im := range c.images {
		im.close()
	}
	if c.sysroot != nil {
		c.sysroot.Close()
	}
	if c.file != nil {
		return c.file.Close()
	}
	return nil
}

// Arch is the architecture of the process.
func (c *Core) Arch() *arch.Arch { return c.layout.arch }

// PID is the process's id in its own PID namespace; gcore writes the id in gdb's namespace.
func (c *Core) PID() int { return c.notes.process.pid }

// Written is the file's modification time: the time of the dump, unless the file was copied
// since.
func (c *Core) Written() time.Time { return c.written }

// Writer is the writer of the dump: "kernel", "createdump", or "gcore", which stands for any
// writer with gdb's format.
func (c *Core) Writer() string { return string(c.notes.writer) }

// Threads are the threads of the process, in the order of the dump.
func (c *Core) Threads() []Thread { return c.notes.threads }

// Thread returns the thread with an id, and false where there is none.
func (c *Core) Thread(tid int) (*Thread, bool) {
	i, ok := c.notes.index[tid]
	if !ok {
		return nil, false
	}
	return &c.notes.threads[i], true
}

// Signal is the signal that ended the process; nil: it was still running.
func (c *Core) Signal() *Signal { return c.notes.signal }

// Crashed is the id of the thread that got the signal; 0: none.
func (c *Core) Crashed() int {
	if c.notes.signal == nil {
		return 0
	}
	return c.notes.crashed
}

// Executable is the path of the main program as the process saw the path.
func (c *Core) Executable() (string, error) {
	if m := c.main(); m != nil {
		return m.Path, nil
	}
	if p := c.execName(); p != "" {
		return p, nil
	}
	if c.opts.Exe != "" {
		return c.opts.Exe, nil
	}
	return "", fmt.Errorf("the core dump %s does not have the path of its program: name the program with --exe", c.path)
}

// main returns the main program's mapping with the program headers: the kernel has passed their
// address to the program (AT_PHDR).
func (c *Core) main() *mapping {
	for _, key := range []uint64{auxPHDR, auxEntry} {
		if at, ok := c.auxv[key]; ok {
			if m := c.mapping(arch.Addr(at)); m != nil && m.IsFile() {
				return m
			}
		}
	}
	return nil
}

// ReadMemory implements target.Memory.
func (c *Core) ReadMemory(p []byte, addr arch.Addr) error {
	if _, ok := addr.Add(uint64(len(p))); !ok {
		return &target.ReadError{Addr: addr, Len: len(p), Err: errWrap}
	}
	for n := 0; n < len(p); {
		at := addr + arch.Addr(n)
		got, err := c.readDumped(p[n:], at)
		if cut := err == errCut; cut || err == nil && got == 0 {
			if got, err = c.readFile(p[n:], at); err != nil && cut {
				err = errCut
			}
		}
		if err != nil {
			return &target.ReadError{Addr: addr, Len: len(p), Err: err}
		}
		n += got
	}
	return nil
}

// dumped is the memory in the dump itself, without the memory of files.
type dumped struct{ c *Core }

func (d dumped) ReadMemory(p []byte, addr arch.Addr) error {
	for n := 0; n < len(p); {
		got, err := d.c.readDumped(p[n:], addr+arch.Addr(n))
		if err == nil && got == 0 {
			err = errLeftOut
		}
		if err != nil {
			return &target.ReadError{Addr: addr, Len: len(p), Err: err}
		}
		n += got
	}
	return nil
}
