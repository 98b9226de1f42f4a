package core

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"clrsnap/internal/arch"
)

// misses records failed reads.
type misses struct {
	mu     sync.Mutex
	pages  map[arch.Addr]bool // at most maxMisses
	reads  int                // failed for lack of a page, including repetitions
	first  arch.Addr          // of the pages
	images map[*image]bool
}

const (
	maxMisses = 1 << 12
	maxNamed  = 20 // files that Missing names
)

// add records that addr could not be read. im is the image mapped at addr, or nil. If the file of im
// cannot be used, add records im instead of the page.
func (m *misses) add(addr arch.Addr, im *image) {
	failed := im != nil && im.load() != nil
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pages == nil {
		m.pages, m.images = map[arch.Addr]bool{}, map[*image]bool{}
	}
	if failed {
		m.images[im] = true
		return
	}
	m.reads++
	if len(m.pages) == 0 {
		m.first = addr
	}
	if len(m.pages) < maxMisses {
		m.pages[floor(addr)] = true
	}
}

// The range of a process's memory on x86-64: from vm.mmap_min_addr's default on, up to addresses
// of 47 bits.
const (
	lowest  arch.Addr = 1 << 16
	highest arch.Addr = 1 << 47
)

// Lacks reports whether some of the n bytes at addr are memory of the process that neither the
// dump nor a file has. Only the kernel's dumps list all memory of the process; for other dumps
// every address that could have been memory counts.
func (c *Core) Lacks(addr arch.Addr, n int) bool {
	end, ok := addr.Add(uint64(n))
	if !ok {
		return false
	}
	var b [1]byte
	for at := addr; at < end; at = floor(at) + pageSize {
		if c.ReadMemory(b[:], at) != nil {
			if m := c.mapping(at); m != nil {
				return !m.forbidden()
			}
			return c.notes.writer != writerKernel && at >= lowest && at < highest
		}
	}
	return false
}

// Misses counts the reads so far that failed for lack of a page in both the dump and the files. A
// file that cannot be used does not count.
func (c *Core) Misses() int {
	c.misses.mu.Lock()
	defer c.misses.mu.Unlock()
	return c.misses.reads
}

// Missing lists, in one sentence each, the needed bytes that could not be read, and the files
// that were used without proof. so is the consequence of missing pages; it can be empty.
func (c *Core) Missing(so string) []string {
	c.misses.mu.Lock()
	defer c.misses.mu.Unlock()
	out := c.Damages()
	if c.notes.doubles > 0 {
		out = append(out, fmt.Sprintf("the dump has %s the id of another thread",
			count(c.notes.doubles, "more thread with", "more threads with")))
	}
	out = append(out, c.missingFiles()...)
	if n := len(c.misses.pages); n > 0 {
		needed := count(n, "page was", "pages were")
		if n == maxMisses {
			needed = fmt.Sprintf("%d pages or more were", n)
		}
		if so != "" {
			so = ": " + so
		}
		out = append(out, fmt.Sprintf("%s needed, but neither in the dump nor in a file, the first at %v%s",
			needed, c.misses.first, so))
	}
	return out
}

// Damages lists, in one sentence each, the faults of the dump's file.
func (c *Core) Damages() (out []string) {
	if n := c.cut(); n > 0 {
		out = append(out, fmt.Sprintf("the dump is cut off: %s missing at the end",
			count(n, "byte of memory is", "bytes of memory are")))
	}
	if c.notes.cut {
		out = append(out, "the dump is cut off within its notes: there may be more threads")
	}
	if c.notes.damaged {
		out = append(out, "the dump is damaged within its notes: there may be more threads")
	}
	return out
}

// FileError says why the process's file at a path cannot be used, and the remedy; nil: the file
// can be used.
func (c *Core) FileError(path string) error {
	for _, im := range c.images {
		if im.path != path {
			continue
		}
		err := im.load()
		if err == nil {
			return nil
		}
		id := ""
		if b, ok := im.dumpedBuildID(); ok {
			id = fmt.Sprintf(" (build id %x)", b)
		}
		return fmt.Errorf("the dump needs the file %s%s, but this file %w%s", path, id, err, im.advice())
	}
	return nil
}

// missingFiles lists needed files that could not be used, and files that were used without proof.
func (c *Core) missingFiles() (out []string) {
	more, trusted := 0, 0
	var names []string
	for _, im := range c.images {
		switch {
		case c.misses.images[im]:
			if len(out) == maxNamed {
				more++
				continue
			}
			sentence := fmt.Sprintf("%s %v", im.path, im.load())
			if errors.Is(im.load(), errUnfound) {
				sentence += im.advice()
			}
			out = append(out, sentence)
		case im.contradicted() != nil:
			out = append(out, fmt.Sprintf("%s is another file: %v; code of this file has no names", im.path,
				im.contradicted()))
		case im.used.Load() && im.isTrusted() || im.doubted.Load():
			if trusted++; len(names) < maxNamed {
				names = append(names, path.Base(im.path))
			}
		}
	}
	if more > 0 {
		out = append(out, count(more, "more file", "more files")+" could not be used")
	}
	if trusted > 0 {
		list, them := strings.Join(names, ", "), "it"
		if trusted > 1 {
			them = "them"
		}
		if trusted > len(names) {
			list += ", …"
		}
		out = append(out, fmt.Sprintf(
			"%s taken on trust, because the dump has nothing to compare (names of %s end in (?)): %s",
			count(trusted, "file was", "files were"), them, list))
	}
	return out
}

// count prints a number of things.
func count[N int | uint64](n N, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}
