package thread

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// ErrFrameKinds: the identifiers of the kinds of Frame are not the assumed identifiers.
var ErrFrameKinds = errors.New("the kinds of its explicit Frames are confused with one another")

// virtuals is the number of virtual functions of a Frame to look at. In .NET 9 and older, the table of virtual
// functions identifies a Frame's class. One virtual function, the twelfth in these versions, finds the caller
// (frames.h, Frame::UpdateRegDisplay).
const virtuals = 16

// firstTable is greater than any number of a kind of Frame (.NET 10), and less than any address.
const firstTable = 4096

// CheckKinds compares the kinds of Frame with the runtime's own code. Classes that are read in the same way have
// inherited the same virtual function that finds the caller; classes that are read in another way have another
// function. The kinds come from a list (vptr_list.h). If the list has a class too many or too few, a class is
// mistaken for its neighbour, and the comparison fails.
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

// divides reports whether the n-th virtual function is the same in all kinds of Frame that are read in the same way,
// and in no others.
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
