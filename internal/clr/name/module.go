package name

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/ecma335"
	"clrsnap/internal/pe"
)

// assembly is the metadata of one module. The bytes are a copy: a mapped file may be overwritten while the program
// runs, and the runtime may free memory.
type assembly struct {
	md   *ecma335.Metadata
	name string
	id   moduleID
	cost int // bytes of Namer.room

	unproved bool // the image may differ from the image that the runtime has loaded
}

// assembly returns the metadata of the runtime's Module at address module.
func (n *Namer) assembly(module arch.Addr) (*assembly, error) {
	id, err := n.identify(module)
	if err != nil {
		return nil, err
	}
	if a := n.assemblies[module]; a != nil && a.id == id {
		return a, nil
	}
	if err := n.failed[id]; err != nil {
		return nil, fmt.Errorf("module at %v: %w", module, err)
	}
	n.drop(module) // the cached metadata belongs to another module, or has grown since
	collectible, err := n.isCollectible(module)
	if err != nil { // before the metadata is read: megabytes for each frame otherwise
		return nil, err
	}
	a, err := n.load(id)
	if err == nil {
		if err = n.prove(module, a); err != nil {
			n.room += a.cost
		}
	}
	if err != nil {
		if len(n.failed) >= maxFailed {
			clear(n.failed)
		}
		n.failed[id] = err
		return nil, fmt.Errorf("module at %v: %w", module, err)
	}
	if collectible {
		n.passing = append(n.passing, module)
	}
	n.assemblies[module] = a
	return a, nil
}

// load reads metadata from the PE image. For a module that the program emits, load reads the runtime's copy.
func (n *Namer) load(id moduleID) (a *assembly, err error) {
	at, size := id.metadata, int(id.size)
	if id.metadata == 0 {
		if id.base == 0 {
			return nil, fmt.Errorf("%w: no image", pe.ErrNoMetadata)
		}
		if at, size, err = pe.Metadata(n.mem, id.base); err != nil {
			return nil, err
		}
	}
	if size > pe.MaxMetadata {
		return nil, fmt.Errorf("%d bytes of metadata", size)
	}
	// Only metadata with the right signature is worth a copy.
	if v, err := n.mem.Uint32(at); err != nil || v != ecma335.Signature {
		return nil, fmt.Errorf("%w at %v (%v)", pe.ErrNoMetadata, at, err)
	}
	cost := size + assemblyCost
	if err := n.take(cost); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			n.room += cost
		}
	}()
	b, err := n.mem.Bytes(at, size)
	if err != nil {
		return nil, err
	}
	md, err := ecma335.Parse(b)
	if err != nil {
		return nil, err
	}
	a = &assembly{md: md, id: id, cost: cost}
	if s, ok := md.AssemblyName(); ok {
		a.name = s
	} else if s, ok := md.ModuleName(); ok {
		a.name = s
	}
	return a, nil
}

// isCollectible reports whether a module can be unloaded, so that the module's address may come to mean another
// module.
func (n *Namer) isCollectible(module arch.Addr) (bool, error) {
	assembly, err := n.mem.Pointer(module + arch.Addr(n.l.ModAssembly))
	if err != nil {
		return false, err
	}
	c, err := n.mem.Uint8(assembly + arch.Addr(n.l.AsmCollectible))
	if c > 1 {
		return false, fmt.Errorf("%w: the assembly at %v is neither collectible nor not: %d", errFlag, assembly, c)
	}
	return c != 0, err
}
