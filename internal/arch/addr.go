package arch

import "strconv"

// Addr is an address in a target's address space. The type of its own prevents
// a mix-up with a length or an offset, and makes visible where arithmetic can
// overflow: every number that comes out of a target is hostile until checked.
type Addr uint64

// Add returns a+n, and false if the sum leaves the address space.
func (a Addr) Add(n uint64) (Addr, bool) {
	e := a + Addr(n)
	return e, e >= a
}

// Offset returns a+n for a signed n, and false if the sum leaves the address
// space.
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
