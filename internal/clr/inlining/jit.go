package inlining

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// jitRecord is the runtime's record of the JIT's inlining: the inlined methods, by the MethodDesc of the caller. The
// methods are typical definitions.
type jitRecord struct {
	read    bool // at this moment
	err     error
	callees map[arch.Addr][]arch.Addr
	pairs   int
	slots   int       // of all tables
	virtual arch.Addr // the first word of all entries
}

// mapHead is the table of one module.
type mapHead struct {
	table       arch.Addr
	size, count uint32
}

// JITInlineTrackingMap: its loader allocator, a hash table of trackers of collectible code, and the table that
// jitRecord reads: from a method to a list of the callers that the method was inlined into. Both tables are SHash
// (inc/shash.h): pointer, size, count of entries, of used entries, limit.
const (
	mapTable = 32
	mapSize  = 40
	mapCount = 44
	mapLen   = 56

	// KeyValueStore: virtual functions, capacity, key, values. If collectible code is among the values, a
	// LAHashKeyToTrackers is in the KeyValueStore's place: virtual functions, trackers, KeyValueStore.
	storeCapacity = 8
	storeKey      = 16
	storeValues   = 24
	trackersStore = 16
)

const (
	maxModules  = 1 << 14
	maxTable    = 1 << 18 // entries of one module's table
	maxSlots    = 1 << 21 // of all modules
	maxCapacity = 1 << 16
	maxPairs    = 1 << 20 // of all modules: 16 MB, more or less
	maxProbes   = 1 << 10
	maxBlocks   = 1 << 12 // of the list of assemblies
)

// jitInlinees returns the methods that the JIT has inlined into the method of a MethodDesc.
func (r *Reader) jitInlinees(desc arch.Addr) ([]Definition, error) {
	if !r.jit.read {
		r.jit = jitRecord{read: true, callees: map[arch.Addr][]arch.Addr{}}
		r.jit.err = r.readJIT()
	}
	if r.jit.err != nil {
		return nil, r.jit.err
	}
	var out []Definition
	for _, callee := range r.jit.callees[desc] {
		d, ok, err := r.Definition(callee)
		if err != nil || !ok {
			return nil, corrupt("%v was inlined, but is no method (%v)", callee, err)
		}
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
		if len(out) > maxNodes {
			return nil, ErrUnknown // graph has no room for more
		}
	}
	return out, nil
}

// readJIT reads the tables of all modules. All methods inlined into code are in the tables before the code runs. So
// tables that are read after a stack are complete for all code on the stack.
func (r *Reader) readJIT() error {
	if !r.l.hasJIT() {
		return ErrUnknown
	}
	modules, err := r.Modules()
	if err != nil {
		return err
	}
	slices.Sort(modules)
	for _, m := range slices.Compact(modules) {
		err := r.readModule(m)
		for try := 0; err != nil && !errors.Is(err, ErrUnknown) && r.refresh != nil && try < maxTries; try++ {
			r.refresh() // the table was replaced
			err = r.readModule(m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Modules returns the modules of all assemblies.
func (r *Reader) Modules() ([]arch.Addr, error) {
	if !r.l.hasAssemblies() {
		return nil, fmt.Errorf("%w: the list of assemblies", ErrUnknown)
	}
	domain, err := r.mem.Pointer(r.l.AppDomain)
	if err != nil {
		return nil, err
	}
	list := domain + arch.Addr(r.l.Assemblies)
	if r.l.Direct != contract.Absent {
		list = domain + arch.Addr(r.l.Direct)
	}
	n, err := r.mem.Uint32(list + arch.Addr(r.l.ListCount))
	if err != nil {
		return nil, err
	}
	if n > maxModules {
		return nil, corrupt("%d assemblies", n)
	}
	out := make([]arch.Addr, 0, n)
	block := list + arch.Addr(r.l.ListFirst)
	for range maxBlocks {
		if block == 0 || n == 0 {
			return out, nil
		}
		size, err := r.mem.Uint32(block + arch.Addr(r.l.BlockSize))
		if err != nil {
			return nil, err
		}
		for i := range min(size, n) {
			m, err := r.moduleOf(block + arch.Addr(r.l.BlockStart) + 8*arch.Addr(i))
			if err != nil {
				return nil, err
			}
			if m != 0 {
				out = append(out, m)
			}
		}
		n -= min(size, n)
		if block, err = r.mem.Pointer(block + arch.Addr(r.l.BlockNext)); err != nil {
			return nil, err
		}
	}
	return nil, corrupt("the list of assemblies does not end")
}

// moduleOf follows the element of the list at an address: an Assembly, or before .NET 11 a DomainAssembly, with the
// Assembly in the first word. 0: the element is empty.
func (r *Reader) moduleOf(element arch.Addr) (arch.Addr, error) {
	at, err := r.mem.Pointer(element)
	if err != nil || at == 0 {
		return 0, err
	}
	if r.l.Direct == contract.Absent {
		if at, err = r.mem.Pointer(at); err != nil || at == 0 {
			return 0, err
		}
	}
	return r.mem.Pointer(at + arch.Addr(r.l.AsmModule))
}

// readModule reads the inlined methods of a module, and their callers.
func (r *Reader) readModule(module arch.Addr) error {
	h, err := r.mapHead(module)
	if err != nil || h.count == 0 {
		return err
	}
	if r.jit.slots += int(h.size); r.jit.slots > maxSlots {
		return corrupt("the tables of inlined methods have more than %d entries", maxSlots)
	}
	b, err := r.mem.Bytes(h.table, 8*int(h.size))
	if err != nil {
		return err
	}
	t, found := table(b), uint32(0)
	for i := range h.size {
		if at := t.at(i); at == 0 || at == deleted {
			continue
		}
		key, inliners, err := r.store(t, i)
		for try := 0; err != nil && try < maxTries; try++ {
			key, inliners, err = r.storeAgain(module, &h, t, i)
		}
		if err != nil {
			return err
		}
		for _, in := range inliners {
			r.jit.callees[in] = append(r.jit.callees[in], key)
		}
		if r.jit.pairs += 1 + len(inliners); r.jit.pairs > maxPairs {
			return corrupt("more than %d methods inlined", maxPairs)
		}
		found++
	}
	if found < h.count {
		return corrupt("%d of %d inlined methods of the module at %v", found, h.count, module)
	}
	return nil
}

// maxTries is the number of further reads of an entry that has been replaced since the table was read.
const maxTries = 5

// storeAgain is store for the entry's present value. Entries that the table has got meanwhile do not matter.
func (r *Reader) storeAgain(module arch.Addr, h *mapHead, t table, slot uint32) (arch.Addr, []arch.Addr, error) {
	if r.refresh == nil {
		return 0, nil, corrupt("entry %d of a table of inlined methods is no entry", slot)
	}
	r.refresh()
	now, err := r.mapHead(module)
	if err != nil {
		return 0, nil, err
	}
	if now.table != h.table || now.size != h.size {
		return 0, nil, corrupt("a table of inlined methods has been replaced")
	}
	at, err := r.mem.Pointer(h.table + 8*arch.Addr(slot))
	if err != nil {
		return 0, nil, err
	}
	t.set(slot, at)
	return r.store(t, slot)
}

// mapHead reads the table's head. A module without a table does not track inlining; the inlined methods of the module
// are not known then.
func (r *Reader) mapHead(module arch.Addr) (h mapHead, err error) {
	at, err := r.mem.Pointer(module + arch.Addr(r.l.ModInliners))
	if err != nil {
		return h, err
	}
	if at == 0 {
		return h, ErrUnknown
	}
	allocator, err := r.mem.Pointer(module + arch.Addr(r.l.ModAllocator))
	if err != nil {
		return h, err
	}
	b, err := r.mem.Bytes(at, mapLen)
	if err != nil {
		return h, err
	}
	le := binary.LittleEndian
	h.table, h.size, h.count = arch.Addr(le.Uint64(b[mapTable:])), le.Uint32(b[mapSize:]), le.Uint32(b[mapCount:])
	if arch.Addr(le.Uint64(b)) != allocator || h.size > maxTable || h.count > h.size || h.size > 0 && h.table == 0 {
		return h, corrupt("%d of %d entries in the table of the module at %v", h.count, h.size, module)
	}
	return h, nil
}

// table is the content of an SHash of pointers.
type table []byte

const deleted = ^arch.Addr(0)

func (t table) size() uint32 { return uint32(len(t) / 8) }

func (t table) set(i uint32, to arch.Addr) { binary.LittleEndian.PutUint64(t[8*i:], uint64(to)) }

func (t table) at(i uint32) arch.Addr { return arch.Addr(binary.LittleEndian.Uint64(t[8*i:])) }

// belongs reports whether a slot may have the entry of a key: whether a search for the key visits the slot
// (SHash::Lookup, with the low half of the key as the hash).
func (t table) belongs(key arch.Addr, slot uint32) bool {
	n := t.size()
	if key == 0 || key%8 != 0 || n < 2 {
		return false
	}
	hash := uint32(key)
	at, step := hash%n, hash%(n-1)+1
	for range min(n, maxProbes) {
		if at == slot {
			return true
		}
		if t.at(at) == 0 {
			return false
		}
		at = uint32((uint64(at) + uint64(step)) % uint64(n))
	}
	return false
}

// store reads an entry: a method, and the callers that the method was inlined into. Memory that was freed since the
// table was read does not begin like an entry.
func (r *Reader) store(t table, slot uint32) (key arch.Addr, inliners []arch.Addr, err error) {
	at := t.at(slot)
	if key, err = r.storeKey(t, slot, at); err != nil {
		return 0, nil, err
	}
	if key == 0 {
		if at, err = r.mem.Pointer(at + trackersStore); err != nil {
			return 0, nil, err
		}
		if key, err = r.storeKey(t, slot, at); err != nil {
			return 0, nil, err
		}
	}
	if key == 0 {
		return 0, nil, corrupt("entry %d of a table of inlined methods is no entry", slot)
	}
	n, err := r.mem.Uint32(at + storeCapacity)
	if err != nil {
		return 0, nil, err
	}
	if n > maxCapacity {
		return 0, nil, corrupt("%v was inlined into %d methods", key, n)
	}
	values, err := r.mem.Bytes(at+storeValues, 8*int(n))
	if err != nil {
		return 0, nil, err
	}
	inliners, err = usedValues(table(values))
	return key, inliners, err
}

// storeKey returns the key of the KeyValueStore at an address; 0: there is none. All stores begin with the same
// address of their virtual functions.
func (r *Reader) storeKey(t table, slot uint32, at arch.Addr) (arch.Addr, error) {
	virtual, err := r.mem.Pointer(at)
	if err != nil {
		return 0, err
	}
	key, err := r.mem.Pointer(at + storeKey)
	if err != nil || !t.belongs(key, slot) {
		return 0, err
	}
	if r.jit.virtual == 0 {
		r.jit.virtual = virtual
	}
	if virtual != r.jit.virtual {
		return 0, corrupt("entry %d of a table of inlined methods is no entry", slot)
	}
	return key, nil
}

// usedValues returns the values in use. If the last two values are not in use, the last value is the number of values
// in use (crossloaderallocatorhash.inl, ComputeUsedEntries).
func usedValues(t table) ([]arch.Addr, error) {
	n := t.size()
	used := n
	switch {
	case n >= 2 && t.at(n-2) == 0:
		if t.at(n-1) > arch.Addr(n-2) {
			return nil, corrupt("%d of %d values in use", t.at(n-1), n)
		}
		used = uint32(t.at(n - 1))
	case n >= 1 && t.at(n-1) == 0:
		used = n - 1
	}
	out := make([]arch.Addr, 0, used)
	for i := range used {
		if v := t.at(i); v != 0 {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
