package waits

import (
	"clrsnap/internal/arch"
	"clrsnap/profile"
)

// Code that is optimised need not keep what it waits for: it has the address from a field, or in itself. So what no
// frame refers to is looked for in the fields of the callers. That it is what the thread waits for says only what it is
// made of.

// hasParts are the kinds of wait whose object is proved to be the one by what it is made of.
var hasParts = map[profile.WaitKind]bool{
	profile.HandleOne: true, profile.EventWait: true, profile.SemaphoreWait: true, profile.CountdownWait: true,
	profile.BarrierWait: true, profile.TaskWait: true, profile.CollectionTake: true, profile.CollectionAdd: true,
	profile.ReadLock: true, profile.UpgradeableLock: true, profile.WriteLock: true,
}

// partClasses are the classes of what is waited for, and of its parts.
var partClasses = []part{
	semaphoreSlim, eventSlim, taskPart, {threading, "System.Threading.CountdownEvent"},
	{threading, "System.Threading.Barrier"}, {concurrent, "System.Collections.Concurrent.BlockingCollection"},
	{coreLib, readerWriterClass}, {coreLib, waitHandleClass},
}

// Bounds of what is looked through.
const (
	maxParts     = 1 << 8  // objects of such classes
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

// add notes what is at an address, if it is of such a class, and its parts.
func (p *parts) add(obj arch.Addr, depth int) {
	if p.words++; obj == 0 || p.full() || p.seen[obj] || !p.r.Runtime.Heap.Contains(obj) {
		return
	}
	p.seen[obj] = true
	class, err := p.r.Runtime.Objects.Class(obj)
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

// of notes the objects of such classes that the fields of an object refer to.
func (p *parts) of(f found) { p.fields(f, 0) }

func (p *parts) fields(f found, depth int) {
	fields, err := p.r.Runtime.Objects.FieldsOf(f.class)
	if err != nil {
		return
	}
	for _, of := range fields {
		if !of.Reference {
			continue
		}
		if to, err := p.r.Runtime.Objects.Word(f.obj + arch.Addr(of.Offset)); err == nil {
			p.add(to, depth)
		}
	}
}

// inFields are the objects of partClasses that the fields of the callers of a primitive refer to, those from a frame
// on. They may be what the thread waits for, or its parts.
func (r *Reader) inFields(s *Subject, first int) []found {
	if r.Runtime.Heap.Scarce() || len(s.Frames) == 0 {
		return nil
	}
	n := naming{r: r, s: s, found: map[arch.Addr]place{}, parts: &parts{r: r, seen: map[arch.Addr]bool{}}}
	n.walk(first)
	return n.parts.list
}
