package thread

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// ErrFrameKinds: the identifiers of the kinds of Frame are not those that are assumed.
var ErrFrameKinds = errors.New("the kinds of its explicit Frames are confused with one another")

// virtuals is how many virtual functions of a Frame are looked at. In .NET 9 and older
// a Frame's class is identified by its table of virtual functions. One of them, the
// twelfth in these versions, finds the caller (frames.h, Frame::UpdateRegDisplay).
const virtuals = 16

// firstTable is more than any number that stands for a kind of Frame (.NET 10), and less
// than any address.
const firstTable = 4096

// CheckKinds compares the kinds of Frame with the runtime's own code. Classes that are
// read in the same way have inherited the same virtual function for it; classes that are
// read in another way have another function. With a class too many or too few in the
// list that the kinds come from (vptr_list.h), a class is mistaken for its neighbour,
// and this does not hold.
func (c *Chain) CheckKinds(mem *target.Reader) error {
	for id := range c.kinds {
		if id < firstTable {
			return nil
		}
	}
	for n := range arch.Addr(virtuals) {
		if fits, err := c.divides(mem, n); fits || err != nil {
			return err
		}
	}
	return ErrFrameKinds
}

// divides reports whether the n-th virtual function is the same in all kinds of Frame
// that are read in the same way, and in no others.
func (c *Chain) divides(mem *target.Reader, n arch.Addr) (bool, error) {
	ways, functions := map[arch.Addr]way{}, map[way]arch.Addr{}
	for id, kind := range c.kinds {
		f, err := mem.Pointer(arch.Addr(id) + 8*n)
		if err != nil {
			return false, err
		}
		w := kind.way()
		if other, ok := ways[f]; ok && other != w {
			return false, nil
		}
		if other, ok := functions[w]; ok && other != f {
			return false, nil
		}
		ways[f], functions[w] = w, f
	}
	return true, nil
}
