package async

import (
	"errors"
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
)

// IsBox reports whether objects of a class, by MethodTable, are boxes of async methods, or RuntimeAsyncTasks.
func (r *Reader) IsBox(mt arch.Addr) bool {
	s := r.shapeAt(mt)
	return s != nil && (s.kind.box() || s.kind == runtimeTask)
}

func (r *Reader) shapeAt(mt arch.Addr) *shape {
	class, err := r.objects.Table(mt)
	if err != nil {
		return nil
	}
	s, err := r.shape(class)
	if err != nil {
		return nil
	}
	return s
}

// ErrMoved: the builder in a box leads to another box. The collector has moved the box.
var ErrMoved = errors.New("the box has been moved")

// Alive reports whether the method in a box has not finished: its builder still leads to the box. A box keeps nothing
// of a finished method, and may be used for another method.
func (r *Reader) Alive(b *Box) (bool, error) {
	at, err := r.Current(b)
	if err != nil || at == 0 {
		return false, err
	}
	if at != b.Object {
		return false, ErrMoved
	}
	return true, nil
}

// Current returns the current address of a method's box, by the method's builder. If the collector has moved the box,
// the builder leads elsewhere, and b is only the old copy. 0: the method has finished.
func (r *Reader) Current(b *Box) (arch.Addr, error) {
	if b.Machine.hidden {
		return r.hiddenCurrent(b)
	}
	if b.HasState && b.State == Finished || b.Machine.builder == 0 {
		return 0, nil
	}
	for i := range arch.Addr(builderWords) {
		obj, err := r.objects.Word(b.at + arch.Addr(b.Machine.builder) + 8*i)
		if err != nil || obj == b.Object {
			return obj, err
		}
		if obj == 0 {
			continue
		}
		if other, err := r.Box(obj); err == nil && other.Machine.Table == b.Machine.Table {
			return obj, nil
		}
	}
	return 0, nil
}

// Next returns the box that awaits a task or a box, through objects other than async methods; 0: there is none, or
// there are several.
func (r *Reader) Next(obj arch.Addr) (arch.Addr, error) {
	for range maxIndirections {
		n, err := r.next(obj)
		if err != nil || n.obj == 0 || n.box != nil || n.runtime {
			return n.obj, err
		}
		obj = n.obj
	}
	return 0, nil
}

// Through is Next, with the objects between: tasks that are no async methods.
func (r *Reader) Through(obj arch.Addr) (next arch.Addr, through []arch.Addr, err error) {
	for range maxIndirections {
		n, err := r.next(obj)
		if err != nil || n.obj == 0 || n.box != nil || n.runtime {
			return n.obj, through, err
		}
		obj = n.obj
		through = append(through, obj)
	}
	return 0, through, nil
}

// Awaited is the object that a suspended method waits for.
type Awaited struct {
	Object arch.Addr // 0: not known, as with Task.Yield and awaitables outside .NET
	Class  *object.Class
}

// The fields of state machines with awaiters begin so: the C# compiler's, and Visual Basic's. The field of the
// current await has the awaiter; the fields of other awaits are empty.
const awaiterField, awaiterFieldVB = "<>u__", "$A"

// maxAwaiter bounds an awaiter, in bytes: the awaiter of a ValueTask has a result of some words. The object comes
// first.
const maxAwaiter = 64

// Awaited returns the object that a suspended method waits for: the object in the method's awaiter.
func (r *Reader) Awaited(b *Box) (Awaited, error) {
	if b.Machine.hidden {
		return r.hiddenAwaited(b)
	}
	fields, err := r.objects.FieldsOf(b.Machine.class)
	if err != nil {
		return Awaited{}, err
	}
	for _, f := range fields {
		if !strings.HasPrefix(f.Name, awaiterField) && !strings.HasPrefix(f.Name, awaiterFieldVB) {
			continue
		}
		end := r.end(b.Machine, fields, &f)
		for at := (f.Offset + 7) &^ 7; at+8 <= end; at += 8 { // references are aligned
			obj, err := r.objects.Word(b.at + arch.Addr(at))
			if err != nil {
				return Awaited{}, err
			}
			if obj == 0 {
				continue
			}
			if class, err := r.objects.Class(obj); err == nil {
				return Awaited{obj, class}, nil
			}
		}
	}
	return Awaited{}, nil
}

// end is the greatest possible end of a field: the begin of the next field, or the end of the state machine.
func (r *Reader) end(m *Machine, fields []object.Field, f *object.Field) uint32 {
	if f.Reference {
		return f.Offset + 8
	}
	end := f.Offset + maxAwaiter
	if m.size == 0 { // not known: only the first word of the last field is read
		end = f.Offset + 8
	}
	for i := range fields {
		if o := fields[i].Offset; o > f.Offset {
			end = min(end, o)
		}
	}
	if m.size != 0 {
		end = min(end, m.size)
	}
	return end
}

// OfMachine returns the box of a state machine that is an object: an async iterator is the source of its own
// ValueTasks. 0: the object is no state machine.
func (r *Reader) OfMachine(obj arch.Addr, class *object.Class) arch.Addr {
	if r.objects.Hides() {
		return r.hiddenOfMachine(obj, class)
	}
	if !slices.ContainsFunc(r.fieldNames(class), func(n string) bool { return n == promiseField }) {
		return 0
	}
	b, err := r.Of(obj, class.Table)
	if err != nil {
		return 0
	}
	return b.Object
}

func (r *Reader) fieldNames(class *object.Class) []string {
	fields, err := r.objects.FieldsOf(class)
	if err != nil {
		return nil
	}
	out := make([]string, len(fields))
	for i := range fields {
		out[i] = fields[i].Name
	}
	return out
}
