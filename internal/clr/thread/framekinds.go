package thread

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// ErrKinds: the kinds of Frame are not what they are taken for.
var ErrKinds = errors.New("the kinds of its explicit Frames are taken for one another")

// In .NET 9 and older a Frame's class is told by its table of virtual functions. Among
// the first so many, the twelfth in these versions, is the one that leads back
// (frames.h, Frame::UpdateRegDisplay).
const virtuals = 16

// firstTable is more than any number that stands for a kind of Frame (.NET 10), and less
// than any address.
const firstTable = 4096

// CheckKinds holds the kinds of Frame against the runtime's own code. Classes that are
// read in the same way have inherited the function that the runtime itself does it
// with, and those that are read in another way have another one: a class too many or
// too few in the list that the kinds come from (vptr_list.h) makes one of the others
// pass for its neighbour.
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
	return ErrKinds
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
