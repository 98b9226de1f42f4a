package recorded

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Moment is a process at one moment, as far as a reader has read the process. Its methods are those of a target, for
// one reader at a time.
type Moment struct {
	Machine   arch.Machine
	Note      string   // the subject of the recording
	Truths    []string // the program's own words about the moment
	PID       int
	Command   string
	Program   string // the path of the main program
	Time      time.Time
	Mapped    target.Mappings
	Memory    Pages
	Fragments []target.Region // readable pieces of pages that are not readable as a whole
	Files     []*File
	Threads   []Thread

	misses int
}

// Thread is a thread of a Moment.
type Thread struct {
	TID     int // as the reader's side sees the thread
	OwnID   int // in the process's own PID namespace
	Name    string
	Context arch.Context
	Syscall int64 // number of the thread's current system call; -1: none
}

// Arch is the architecture of the process.
func (m *Moment) Arch() *arch.Arch { return arch.AMD64 }

// Executable is the path of the main program, as the process saw the path.
func (m *Moment) Executable() (string, error) { return m.Program, nil }

// Mappings are the mappings of the process.
func (m *Moment) Mappings() (target.Mappings, error) { return m.Mapped, nil }

// ReadMemory implements target.Memory.
func (m *Moment) ReadMemory(p []byte, addr arch.Addr) error {
	err := m.memory().ReadMemory(p, addr)
	if err != nil {
		m.misses++
	}
	return err
}

func (m *Moment) memory() Memory { return Memory{&m.Memory, &m.Fragments} }

// Misses is how many reads have failed so far.
func (m *Moment) Misses() int { return m.misses }

// Dumped is how many of the n bytes at addr were recorded, from addr on.
func (m *Moment) Dumped(addr arch.Addr, n int) int { return m.memory().present(addr, n) }

// OpenMapping opens the recorded part of the file behind a mapping.
func (m *Moment) OpenMapping(of *target.Mapping) (target.File, error) {
	return FindFile(m.Files, of.Path, of.Dev, of.Inode).Open(of.Path)
}

// OpenFile opens the recorded part of a file by the process's path.
func (m *Moment) OpenFile(path string) (target.File, error) {
	return FindFile(m.Files, path, 0, 0).Open(path)
}

// Thread returns the thread with an id, and false where there is none.
func (m *Moment) Thread(tid int) (*Thread, bool) {
	for i := range m.Threads {
		if m.Threads[i].TID == tid {
			return &m.Threads[i], true
		}
	}
	return nil, false
}

// magic begins a recording; the number is the version of the rest: a storedMoment.
const magic = "clrsnap moment 1\n"

// storedMoment is a Moment in a file.
type storedMoment struct {
	Moment Moment // without memory and files
	Shared string // the file with the first pages of the pool, in the same folder; "": none
	Sum    Sum    // of that file's pages
	Pool   [][]byte
	Memory StoredPages
	Files  []StoredFile
}

// Write writes the recording, without the shared pages. shared can be nil.
func (m *Moment) Write(w io.Writer, shared *Shared) error {
	s := storedMoment{Moment: *m}
	var pool Pool
	if shared != nil {
		s.Shared, s.Sum, pool.Pages = shared.Name, shared.Sum(), slices.Clone(shared.Pages)
	}
	first := len(pool.Pages)
	s.Memory, s.Files = pool.Store(&m.Memory), pool.StoreFiles(m.Files)
	s.Moment.Memory, s.Moment.Files, s.Pool = Pages{}, nil, pool.Pages[first:]
	return Encode(w, magic, &s)
}

// Read reads a recording. shared reads the file with shared pages, by its name.
func Read(in io.Reader, shared func(name string) (*Shared, error)) (*Moment, error) {
	var s storedMoment
	if err := Decode(in, magic, &s); err != nil {
		return nil, err
	}
	m, pool := &s.Moment, Pool{Pages: s.Pool}
	if s.Shared != "" {
		first, err := shared(s.Shared)
		if err != nil {
			return nil, err
		}
		if first.Sum() != s.Sum {
			return nil, fmt.Errorf("%w: %s has other pages than the recording needs", ErrFormat, s.Shared)
		}
		pool.Pages = slices.Concat(first.Pages, s.Pool)
	}
	var err error
	if m.Memory, err = pool.Load(&s.Memory); err != nil {
		return nil, err
	}
	if m.Files, err = pool.LoadFiles(s.Files); err != nil {
		return nil, err
	}
	if !m.Mapped.Sorted() {
		return nil, fmt.Errorf("%w: the mappings are not in order", ErrFormat)
	}
	if m.Machine != arch.AMD64.Machine {
		return nil, fmt.Errorf("%w: unknown architecture %d", ErrFormat, m.Machine)
	}
	return m, nil
}

// WriteFile writes the recording to a file. shared can be nil.
func (m *Moment) WriteFile(name string, shared *Shared) error {
	return ToFile(name, func(w io.Writer) error { return m.Write(w, shared) })
}

// ReadFile reads a recording from a file, and the shared pages from a file beside.
func ReadFile(name string) (m *Moment, err error) {
	err = FromFile(name, func(in io.Reader) error {
		m, err = Read(in, func(shared string) (*Shared, error) {
			return ReadShared(filepath.Join(filepath.Dir(name), filepath.Base(shared)))
		})
		return err
	})
	return m, err
}
