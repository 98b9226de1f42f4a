package name

import (
	"fmt"

	"clrsnap/internal/arch"
)

// Bounds of what a Namer keeps, whatever a program has loaded: metadata and names, all of
// them together, in bytes. A large service has a third of it on its stacks.
const (
	maxKept      = 64 << 20
	assemblyCost = 8 << 10 // beside its metadata
	nameCost     = 256     // beside its text

	maxFailed = 1 << 10
	maxHidden = 1 << 10
)

// ErrRoom: there is more metadata than is kept, so that methods have no names any more.
var ErrRoom = fmt.Errorf("the metadata of the program and its names have more than the %d MB that are kept of them", maxKept>>20)

// take makes room for n bytes.
func (n *Namer) take(bytes int) error {
	if bytes > n.room {
		return ErrRoom
	}
	n.room -= bytes
	return nil
}

// drop forgets the metadata of a module, if it is there.
func (n *Namer) drop(module arch.Addr) {
	if a := n.assemblies[module]; a != nil {
		n.room += a.cost
		delete(n.assemblies, module)
	}
}
