package waits

import (
	"clrsnap/internal/arch"
	"clrsnap/snapshot"
)

// Optimised code need not keep the awaited object: the code has the address from a field, or as a
// constant. So the fields of the callers are searched for an object that no frame refers to. Only
// the object's parts prove that the thread waits for the object.

// hasParts are the kinds of wait whose object is proved by the object's parts.
var hasParts = map[snapshot.WaitKind]bool{
	snapshot.HandleOne: true, snapshot.EventWait: true, snapshot.SemaphoreWait: true, snapshot.CountdownWait: true,
	snapshot.BarrierWait: true, snapshot.TaskWait: true, snapshot.CollectionTake: true, snapshot.CollectionAdd: true,
	snapshot.ReadLock: true, snapshot.UpgradeableLock: true, snapshot.WriteLock: true,
}

// partClasses are the classes of awaited objects, and of the objects' parts.
var partClasses = []part{
	semaphoreSlim, eventSlim, taskPart, {threading, "System.Threading.CountdownEvent"},
	{threading, "System.Threading.Barrier"}, {concurrent, "System.Collections.Concurrent.BlockingCollection"},
	{coreLib, readerWriterClass}, {coreLib, waitHandleClass},
}

// Bounds of the search.
const (
	maxParts     = 1 << 8  // objects of partClasses
	maxPartWords = 1 << 12 // references
	partsOfParts = 2       // a BlockingCollection has a SemaphoreSlim
)

// parts are objects of partClasses.
type parts struct {
	r     *Reader
	list  []found
	seen  map[arch.Addr]bool
	words int
}

func (p *parts) full() bool { return len(p.list) >= maxParts || p.words >= maxPartWords }

// add adds the object at an address, with the object's parts, if the object is of partClasses.
func (p *parts) add(obj arch.Addr, depth int) {
	if p.words++; obj == 0 || p.full() || p.seen[obj] || !p.r.Managed.Heap.Contains(obj) {
		return
	}
	p.seen[obj] = true
	class, err := p.r.Managed.Objects.Class(obj)
	if err != nil {
		return
	}
	for _, c := range partClasses {
		if class.Is(c.assembly, c.class) {
			f := found{obj, class}
			if p.list = append(p.list, f); depth < partsOfParts {
				p.fields(f, depth+1)
			}
			return
		}
	}
}

// of adds the objects of partClasses that the fields of an object refer to.
func (p *parts) of(f found) { p.fields(f, 0) }

func (p *parts) fields(f found, depth int) {
	fields, err := p.r.Managed.Objects.FieldsOf(f.class)
	if err != nil {
		return
	}
	for _, of := range fields {
		if !of.Reference {
			continue
		}
		if to, err := p.r.Managed.Objects.Word(f.obj + arch.Addr(of.Offset)); err == nil {
			p.add(to, depth)
		}
	}
}

// inFields returns the objects of partClasses that the fields of a primitive's callers refer to,
// from a frame on. The thread may wait for one of the objects, or for an object made of one.
func (r *Reader) inFields(s *Subject, first int) []found {
	if r.Managed.Heap.Scarce() || len(s.Frames) == 0 {
		return nil
	}
	n := naming{r: r, s: s, found: map[arch.Addr]place{}, parts: &parts{r: r, seen: map[arch.Addr]bool{}}}
	n.walk(first)
	return n.parts.list
}
