package waits

import (
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// Bounds of the search for the fields that hold locks.
const (
	fieldFrames = 32 // frames of a stack
	ownFrames   = 4  // frames of the program's own code among them
	maxEnclosed = 4  // enclosing classes of a class
)

// thisField is the field in which closures and state machines of C# keep the object of their
// method.
const thisField = "<>4__this"

const delegateClass = "System.Delegate"

// nameFields names the fields that hold the objects of waits or of holds. The search covers the
// fields of the objects that the frames from first on, and their callees, refer to, and the static
// fields of the classes of the frames' methods. nameFields is called when all else has been read. A
// field is named only if no collection has moved objects since the first read: so the addresses
// still belong to the same objects.
func (r *Reader) nameFields(s *Subject, first int, of ...*snapshot.Wait) {
	n := naming{r: r, s: s, found: map[arch.Addr]place{}}
	for _, w := range of {
		if w.Certain && w.Object != 0 {
			n.wanted = append(n.wanted, arch.Addr(w.Object))
		}
	}
	if r.Runtime == nil || len(n.wanted) == 0 || len(s.Frames) == 0 || r.Managed.Heap.Scarce() {
		return // the rest of the heap's budget is for more important reads
	}
	searched, unknown := r.searched, r.unknown
	n.walk(first)
	r.searched, r.unknown = searched, unknown
	if len(n.found) == 0 || !r.Managed.Heap.Stands(r.Live) {
		return
	}
	for _, w := range of {
		if p, ok := n.found[arch.Addr(w.Object)]; ok && w.Certain {
			w.Field = p.name
		}
	}
}

// naming is a search for the fields that hold some objects.
type naming struct {
	r      *Reader
	s      *Subject
	wanted []arch.Addr
	found  map[arch.Addr]place
	caller string // the assembly of the code that has called the primitive; "": none
	parts  *parts // nil: only the fields of wanted objects are searched
}

// place is a field that holds an object.
type place struct {
	name     string
	captured bool // a variable that has become a field
}

// walk looks through frames, the nearest first, until a field is found for each object.
func (n *naming) walk(first int) {
	frames := n.s.Frames
	from := arch.Addr(frames[0].SP)
	end := from + 8*maxWords
	if first > 0 && first < len(frames) && frames[first].Module != coreLib {
		n.caller = frames[first].Module
	}
	for i, own := first, 0; i < min(len(frames), first+fieldFrames) && own < ownFrames && !n.done() && from < end; i++ {
		f := &frames[i]
		if f.Kind != snapshot.Managed {
			continue
		}
		if to := min(frameAt(n.s, i+1), end); to > from {
			n.objects(from, to)
			from = to
		}
		n.statics(f)
		if o := f.Origin(); o == snapshot.OfUser || o == snapshot.OfPackage {
			own++
		}
	}
}

// done reports whether the search is complete.
func (n *naming) done() bool {
	if n.parts != nil {
		return n.parts.full()
	}
	for _, obj := range n.wanted {
		if p, ok := n.found[obj]; !ok || p.captured {
			return false
		}
	}
	return true
}

// objects looks through the objects that a part of the stack refers to.
func (n *naming) objects(from, to arch.Addr) {
	for _, f := range n.r.look(n.s.Stack, from, to) {
		n.object(f)
		if this, ok := n.this(f); ok {
			n.object(this)
		}
	}
}

// this returns the object of the method that a closure or a state machine belongs to, or the target
// of a delegate. Optimised code called by a closure, a state machine or a delegate need not keep
// the object.
func (n *naming) this(f found) (found, bool) {
	objects := n.r.Managed.Objects
	at, class := f.obj, f.class
	if class.Is(coreLib, delegateClass) {
		obj, err := objects.Pointer(at, class, "_target")
		if err != nil || obj == 0 || obj == f.obj {
			return found{}, false
		}
		c, err := objects.Class(obj)
		return found{obj, c}, err == nil
	}
	if strings.Contains(class.Display, asyncBox) {
		var err error
		if at, class, err = objects.Generic(f.obj, class, "StateMachine"); err != nil ||
			snapshot.Framework(class.Assembly) {
			return found{}, false
		}
	} else if snapshot.Framework(class.Assembly) {
		return found{}, false
	}
	obj, err := objects.Pointer(at, class, thisField)
	if err != nil || obj == 0 {
		return found{}, false
	}
	c, err := objects.Class(obj)
	return found{obj, c}, err == nil
}

// names reports whether the fields of a class tell a person anything. The fields of the program's
// code do, and the fields of the library that has called the primitive.
func (n *naming) names(c *object.Class) bool {
	return !snapshot.Framework(c.Assembly) || n.caller != "" && c.Assembly == n.caller
}

// object searches the fields of an object.
func (n *naming) object(f found) {
	if !n.names(f.class) {
		return
	}
	if n.parts != nil {
		n.parts.of(f)
	}
	for _, obj := range n.wanted {
		if p, ok := n.found[obj]; ok && !p.captured || obj == f.obj {
			continue
		}
		l, err := n.r.Managed.Objects.LinkTo(f.obj, f.class, obj)
		if err != nil || l.Name == "" || !n.names(l.Class) {
			continue
		}
		if n.is(f.obj, f.class.Table) && n.is(l.At, obj) && n.r.isObject(f.obj) {
			n.add(obj, l.Class.Table, l.Name)
		}
	}
}

// is reports whether the word at one address is another address now, whatever caches have.
func (n *naming) is(at, want arch.Addr) bool {
	if n.r.Live == nil {
		return true
	}
	v, err := target.NewReader(n.r.Live).Pointer(at)
	return err == nil && v&^7 == want
}

// add records a field that holds an object. The nearest field counts, but a captured variable
// counts only without another field.
func (n *naming) add(obj, table arch.Addr, field string) {
	name, err := n.r.Runtime.Names.Holder(table, field)
	if err != nil || name == "" {
		return
	}
	captured := strings.HasPrefix(name, "variable ")
	if old, ok := n.found[obj]; !ok || old.captured && !captured {
		n.found[obj] = place{name, captured}
	}
}

// statics looks through the static fields of the class of a frame's method, and of the enclosing
// classes. For .NET 8, the location of the statics of generic classes is not known.
func (n *naming) statics(f *snapshot.Frame) {
	rt := n.r.Runtime
	if f.FunctionID == 0 || n.done() {
		return
	}
	m, err := rt.Methods.Read(arch.Addr(f.FunctionID))
	if err != nil {
		return
	}
	mt := m.MethodTable
	for range maxEnclosed {
		n.static(mt)
		module, rid, ok, err := rt.Names.Enclosing(mt)
		if err != nil || !ok {
			return
		}
		if mt, err = rt.Types.Definition(module, rid); err != nil || mt == 0 {
			return
		}
	}
}

// static looks through the static fields of a class.
func (n *naming) static(mt arch.Addr) {
	rt := n.r.Runtime
	class, err := rt.Objects.Table(mt)
	if err != nil || !n.names(class) {
		return
	}
	base, ok := rt.Types.Statics(mt)
	if !ok {
		return
	}
	rows, err := rt.Names.FieldNames(mt)
	if err != nil {
		return
	}
	fields, err := rt.Types.Fields(mt, rows)
	if err != nil {
		return
	}
	for _, f := range fields {
		if !f.Static || f.Local || !f.Reference() && !f.Boxed() {
			continue
		}
		at := base + arch.Addr(f.Offset)
		v, err := target.NewReader(rt.Seen).Pointer(at)
		if n.parts != nil && err == nil {
			n.parts.add(v, 0)
		}
		for _, obj := range n.wanted {
			if err == nil && v == obj && n.is(at, obj) {
				n.add(obj, mt, rows[f.RID])
			}
		}
	}
}
