package name

import (
	"fmt"

	"clrsnap/internal/arch"
)

// Bounds of a Namer's memory, however much a program has loaded: metadata and names together, in bytes. The methods
// on a large service's stacks need a third of maxKept.
const (
	maxKept      = 64 << 20
	assemblyCost = 8 << 10 // beside the metadata
	nameCost     = 256     // beside the text

	maxFailed = 1 << 10
	maxHidden = 1 << 10
)

// ErrLimit: the bound on metadata and names is reached, so that further methods have no names.
var ErrLimit = fmt.Errorf("the program's metadata and names are larger than clrsnap's limit of %d MB",
	maxKept>>20)

// take reserves room for so many bytes.
func (n *Namer) take(bytes int) error {
	if bytes > n.room {
		return ErrLimit
	}
	n.room -= bytes
	return nil
}

// drop forgets the metadata of a module, if there is any.
func (n *Namer) drop(module arch.Addr) {
	if a := n.assemblies[module]; a != nil {
		n.room += a.cost
		delete(n.assemblies, module)
	}
}
