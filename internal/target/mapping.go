package target

import (
	"sort"

	"clrsnap/internal/arch"
)

// Perm is the set of a mapping's permissions.
type Perm uint8

// The permissions of a mapping.
const (
	PermRead Perm = 1 << iota
	PermWrite
	PermExec
	PermShared
)

// String prints p as /proc/<pid>/maps does: rwxs, or p at the end for private.
func (p Perm) String() string {
	b := []byte("---p")
	for i, c := range []byte("rwxs") {
		if p&(1<<i) != 0 {
			b[i] = c
		}
	}
	return string(b)
}

// Mapping is a piece of a target's address space with one backing.
type Mapping struct {
	Start, End arch.Addr // [Start, End)
	Offset     uint64    // in bytes, of Start in the file
	Perm       Perm
	Path       string // as the target sees it; "" for anonymous memory; [stack], [vdso], …
	Inode      uint64
	Dev        uint64 // as in stat(2)
	Deleted    bool   // the file has no name any more, or another file has the name
}

// Size is the length of m in bytes.
func (m *Mapping) Size() uint64 { return uint64(m.End - m.Start) }

// IsFile reports whether m is backed by a file that has, or had, a path.
func (m *Mapping) IsFile() bool { return m.Path != "" && m.Path[0] == '/' }

// Mappings are the mappings of a target in ascending order, without overlap.
type Mappings []Mapping

// Find returns the mapping around addr, or nil.
func (ms Mappings) Find(addr arch.Addr) *Mapping {
	i := sort.Search(len(ms), func(i int) bool { return ms[i].End > addr })
	if i < len(ms) && ms[i].Start <= addr {
		return &ms[i]
	}
	return nil
}

// Sorted reports whether ms is in ascending order without overlap, as Find requires. Mappings
// from a file of unknown origin are checked with Sorted.
func (ms Mappings) Sorted() bool {
	for i := range ms {
		if ms[i].Start >= ms[i].End || i > 0 && ms[i-1].End > ms[i].Start {
			return false
		}
	}
	return true
}
