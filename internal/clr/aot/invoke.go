package aot

import (
	"encoding/binary"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// The invoke map has the methods that reflection can call; the stack trace map leaves them out. An entry has flags,
// the place of the method's record, the type, the start of the code, and the stub that calls the code
// (src/coreclr/tools/aot/ILCompiler.Compiler/Compiler/DependencyAnalysis/ReflectionInvokeMapNode.cs; the flags are
// InvokeTableFlags of MappingTableFlags.cs).
const invokeHasEntrypoint = 0x20

// tables are the blobs that lead from the invoke map to names. The metadata knows types by tokens, the invoke map by
// the addresses of their MethodTables: the type map has both. Addresses are in the fixups, relative to the fixups
// themselves.
type tables struct {
	invokeMap, typeMap []byte
	fieldMap, contexts []byte // of static fields: staticnames.go
	fixups             []byte
	fixupsAt           arch.Addr
	low, high          arch.Addr // of the code of methods; outside lie stubs that unbox, and have no frames
}

func (t *tables) readRange(r *target.Reader, l *layout) error {
	instance, err := r.Pointer(l.Instance)
	if err != nil {
		return err
	}
	if t.low, err = r.Pointer(instance + arch.Addr(l.CodeStart)); err != nil {
		return err
	}
	size, err := r.Uint64(instance + arch.Addr(l.CodeSize))
	t.high = t.low + arch.Addr(size)
	return err
}

// address returns the address in a fixup.
func (t *tables) address(i uint32) (arch.Addr, bool) {
	const size = 4
	if uint64(i) >= uint64(len(t.fixups)/size) {
		return 0, false
	}
	off := int(i) * size
	distance := int32(binary.LittleEndian.Uint32(t.fixups[off:]))
	return t.fixupsAt + arch.Addr(off) + arch.Addr(int64(distance)), true
}

// readOwners returns the tokens of the defined types, by MethodTable.
func (t *tables) readOwners() map[arch.Addr]uint32 {
	owners := map[arch.Addr]uint32{}
	eachEntry(t.typeMap, func(r *reader) {
		table, ok := t.address(r.unsigned())
		if token := r.unsigned(); ok && !r.bad {
			owners[table] = token
		}
	})
	return owners
}

// addInvoked adds the methods of the invoke map. Known methods, and code that several methods share, are left out.
func (n *Names) addInvoked(t *tables) {
	owners := n.owners
	starts := make(map[arch.Addr]bool, len(n.entries))
	for i := range n.entries {
		starts[n.entries[i].start] = true
	}
	found := map[arch.Addr]entry{}
	eachEntry(t.invokeMap, func(r *reader) {
		if r.unsigned()&invokeHasEntrypoint == 0 {
			return
		}
		method, table, code := r.unsigned(), r.unsigned(), r.unsigned()
		owner, ok := t.address(table)
		start, known := t.address(code)
		if r.bad || !ok || !known || !start.In(t.low, t.high) || starts[start] || owners[owner] == 0 {
			return
		}
		e := entry{start: start, owner: owners[owner]}
		m := &reader{b: n.metadata, pos: int(method)}
		m.unsigned() // flags
		m.unsigned() // flags of the implementation
		if e.name, e.signature = m.unsigned(), m.unsigned(); m.bad || e.name == 0 {
			return
		}
		if other, ok := found[start]; ok && other != e {
			e = entry{} // code that several methods share
		}
		found[start] = e
	})
	for _, e := range found {
		if e.name != 0 {
			n.entries = append(n.entries, e)
		}
	}
}

// eachEntry visits the entries of a hash table: the number of buckets and the size of an offset, the offsets of the
// buckets, and in each bucket the low byte of a hash and the distance to an entry (NativeHashtable of
// Common/src/Internal/NativeFormat/NativeFormatReader.cs). Buckets may overlap: there are no more entries than the
// blob has room for.
func eachEntry(b []byte, visit func(r *reader)) {
	if len(b) == 0 {
		return
	}
	const base = 1 // offsets count from behind the first byte
	bits, size := uint(b[0]>>2), 1<<(b[0]&3)
	if bits > 24 || size > 4 || base+size*(1<<bits+1) > len(b) {
		return
	}
	offset := func(i int) int {
		var wide [4]byte
		copy(wide[:], b[base+i*size:][:size])
		return int(binary.LittleEndian.Uint32(wide[:])) + base
	}
	left := len(b) / 2
	for i := range 1 << bits {
		r := reader{b: b, pos: offset(i)}
		for end := offset(i + 1); r.pos < end && !r.bad; {
			r.u8()
			from := r.pos
			entry := reader{b: b, pos: from + int(r.signed())}
			if left--; left < 0 {
				return
			}
			if !r.bad {
				visit(&entry)
			}
		}
	}
}
