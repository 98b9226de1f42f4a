package arch

import "strconv"

// Addr is an address in a target's address space. It is a type of its own so
// that it is never mistaken for a length or an offset, and so that arithmetic
// on it shows where it can overflow: every number that comes out of a target
// is hostile until it has been checked.
type Addr uint64

// Add returns a+n, and false where the sum leaves the address space.
func (a Addr) Add(n uint64) (Addr, bool) {
	e := a + Addr(n)
	return e, e >= a
}

// Offset returns a+n for a signed n, and false where the sum leaves the
// address space.
func (a Addr) Offset(n int64) (Addr, bool) {
	e := a + Addr(n)
	if n < 0 {
		return e, e < a
	}
	return e, e >= a
}

// In reports whether lo <= a < hi.
func (a Addr) In(lo, hi Addr) bool { return a >= lo && a < hi }

// String prints a as 0x….
func (a Addr) String() string { return "0x" + strconv.FormatUint(uint64(a), 16) }
