package name

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/ecma335"
)

// The file of an assembly can differ from the file that the runtime had loaded: a dump lacks memory that was mapped
// from the file, or the file was written to while the program ran. Then a row of the metadata names another class or
// method than the runtime means by the row. The runtime's records in its own memory can contradict such a file. The
// records cannot prove the file: a build with only a changed method body has the same rows.

// Images knows the files of the images in memory.
type Images interface {
	// Proved reports whether the bytes read of an image are the bytes that the runtime has loaded.
	Proved(image arch.Addr) bool
	// Refused is called with an image that is not the loaded image, and with the evidence.
	Refused(image arch.Addr, why error)
}

// Check has images checked before the Namer uses them. Check forgets all earlier names.
func (n *Namer) Check(i Images) {
	n.images, n.room, n.canon, n.passing = i, maxKept, 0, nil
	clear(n.assemblies)
	clear(n.names)
	clear(n.instances)
	clear(n.classes)
	clear(n.hidden)
}

// Unproved is the end of a name from an image that is not proved to be the loaded image.
const Unproved = " (?)"

// ErrOther: an image is not the image that the runtime has loaded.
var ErrOther = errors.New("it is another build than the loaded build")

// mapsLayout has the places of a Module's maps from the rows of its metadata to loaded types, methods and fields.
// There is a map for each table, with room for all rows from the beginning (dotnet/runtime,
// src/coreclr/vm/ceeload.cpp, Module::AllocateMaps; ceeload.h, LookupMapBase). Rows count from 1, so a map has one
// more element.
type mapsLayout struct {
	Types   uint32 `clr:"Module.TypeDefToMethodTableMap,optional"`
	Methods uint32 `clr:"Module.MethodDefToDescMap,optional"`
	Fields  uint32 `clr:"Module.FieldDefToDescMap,optional"`
	Table   uint32 `clr:"ModuleLookupMap.TableData,optional"`
	Count   uint32 `clr:"ModuleLookupMap.Count,optional"`
}

const (
	mapFlags     = 7       // of an element of a map
	maxContested = 1 << 16 // methods of a module to compare
	maxCompared  = 1 << 22 // in all modules together
	maxRefused   = 1 << 12 // modules
)

// prove decides whether the metadata of a module is used, and whether as a fact.
func (n *Namer) prove(module arch.Addr, a *assembly) error {
	if n.images == nil || a.id.base == 0 || n.images.Proved(a.id.base) {
		return nil
	}
	a.unproved = true
	key := refusal{module, a.id}
	if err := n.refused[key]; err != nil {
		return err
	}
	err := n.sameRows(module, a.md)
	if err == nil {
		err = n.sameOwners(module, a.md)
	}
	if err != nil {
		if len(n.refused) < maxRefused {
			n.refused[key] = err
		}
		n.images.Refused(a.id.base, err)
	}
	return err
}

// refusal is a module, and an image that does not belong to the module. A refusal is final.
type refusal struct {
	module arch.Addr
	id     moduleID
}

// mark returns the end of the assembly's names.
func (a *assembly) mark() string {
	if a.unproved {
		return Unproved
	}
	return ""
}

// sameRows compares the numbers of rows. Unreadable memory contradicts nothing.
func (n *Namer) sameRows(module arch.Addr, md *ecma335.Metadata) error {
	l := &n.mapsL
	for _, m := range [...]struct {
		offset uint32
		table  ecma335.Table
		name   string
	}{
		{l.Types, ecma335.TableTypeDef, "types"},
		{l.Methods, ecma335.TableMethodDef, "methods"},
		{l.Fields, ecma335.TableField, "fields"},
	} {
		if m.offset == contract.Absent || l.Count == contract.Absent {
			continue
		}
		count, err := n.mem.Uint32(module + arch.Addr(m.offset) + arch.Addr(l.Count))
		if rows := md.Rows(m.table); err == nil && count != rows+1 {
			return fmt.Errorf("%w: it has %d %s, and the runtime knows of %d", ErrOther, rows, m.name, int64(count)-1)
		}
	}
	return nil
}

// sameOwners compares the class of each loaded method.
func (n *Namer) sameOwners(module arch.Addr, md *ecma335.Metadata) error {
	l := &n.mapsL
	if l.Methods == contract.Absent || l.Table == contract.Absent {
		return nil
	}
	table, err := n.mem.Pointer(module + arch.Addr(l.Methods) + arch.Addr(l.Table))
	if err != nil {
		return nil //nolint:nilerr // the dump lacks it
	}
	for rid := uint32(1); rid <= min(md.Rows(ecma335.TableMethodDef), maxContested); rid++ {
		desc, err := n.mem.Pointer(table + 8*arch.Addr(rid))
		if desc &^= mapFlags; err != nil || desc == 0 {
			continue
		}
		if n.compared++; n.compared > maxCompared {
			return nil
		}
		if m, err := n.methods.Read(desc); err == nil && m.RID == rid && m.Module == module {
			if err := n.sameOwner(m.MethodTable, rid, md); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameOwner compares the class of a method.
func (n *Namer) sameOwner(mt arch.Addr, rid uint32, md *ecma335.Metadata) error {
	t, err := n.types.Read(mt)
	if err != nil || t.RID == 0 {
		return nil //nolint:nilerr // the dump lacks it
	}
	if owner, err := md.MethodOwner(rid); err != nil || owner != t.RID {
		return fmt.Errorf("%w: its method %d belongs to its type %d, and to type %d in the runtime",
			ErrOther, rid, owner, t.RID)
	}
	return nil
}
