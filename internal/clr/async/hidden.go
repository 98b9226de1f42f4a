package async

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
)

// In a native AOT program the fields of a state machine have no names. But the places of references are known, and
// some references tell what they are:
//
//   - The builder leads to the box as long as the method has not ended. So a state machine that refers to its own box
//     has not ended.
//   - The awaited object leads to the box as what goes on. So the object of a reference that leads back to the box is
//     the awaited object: a task by its continuation, another source by the box beside the delegate that resumes it.
//
// An async iterator is the source of its own ValueTasks: a state machine that is an object, with a delegate and the box
// of the consumer. The consumer refers to the state machine, too.
//
// The number of the await is not known.

// references returns the references in the state machine of a box.
func (r *Reader) references(b *Box) ([]arch.Addr, error) {
	if b.Machine.value {
		return r.objects.Places(b.Object, b.class, b.field)
	}
	return r.objects.Places(b.at, b.Machine.class, 0)
}

// hiddenCurrent is Current.
func (r *Reader) hiddenCurrent(b *Box) (arch.Addr, error) {
	list, err := r.references(b)
	if err != nil {
		return 0, err
	}
	moved := arch.Addr(0)
	for _, obj := range list {
		if obj == b.Object {
			return obj, nil
		}
		if class, err := r.objects.Class(obj); err == nil && class.Table == b.class.Table {
			moved = obj
		}
	}
	return moved, nil
}

// hiddenAwaited is Awaited.
func (r *Reader) hiddenAwaited(b *Box) (Awaited, error) {
	list, err := r.references(b)
	if err != nil {
		return Awaited{}, err
	}
	for _, obj := range list {
		if obj == 0 || obj == b.Object {
			continue
		}
		class, err := r.objects.Class(obj)
		if err != nil {
			continue // a struct may have a number there by now
		}
		if leads, err := r.leadsTo(obj, class, b.Object); err != nil {
			return Awaited{}, err
		} else if leads {
			return Awaited{obj, class}, nil
		}
	}
	return Awaited{}, nil
}

// leadsTo reports whether a box goes on when an object completes.
func (r *Reader) leadsTo(obj arch.Addr, class *object.Class, box arch.Addr) (bool, error) {
	s, err := r.shape(class)
	if err != nil {
		return false, nil // a field is not known
	}
	switch s.kind {
	case taskBox, task, runtimeTask:
		next, err := r.next(obj)
		return next.obj == box, err
	case other:
		return r.isSource(obj, class, box)
	}
	return false, nil
}

// isSource reports whether an object notes a box as the state of a delegate with one argument, as the sources of
// ValueTasks do.
func (r *Reader) isSource(obj arch.Addr, class *object.Class, box arch.Addr) (bool, error) {
	list, err := r.objects.Places(obj, class, 0)
	if err != nil {
		return false, err
	}
	for i := 1; i < len(list); i++ {
		if list[i] == box && r.isAction(list[i-1]) {
			return true, nil
		}
	}
	return false, nil
}

// isAction reports whether an object is a delegate with one argument.
func (r *Reader) isAction(obj arch.Addr) bool {
	if obj == 0 {
		return false
	}
	c, err := r.objects.Class(obj)
	if err != nil {
		return false
	}
	assembly, full, err := r.objects.FullName(c)
	return err == nil && assembly == coreLib && full == actionOfObject
}

// maxSources bounds the fields of a state machine that look like the part of a source. An iterator has one.
const maxSources = 4

// hiddenConsumer returns the method that waits for the next element of an async iterator; false: the box is not of an
// iterator, or nobody waits.
func (r *Reader) hiddenConsumer(b *Box) (f follower, ok bool, err error) {
	list, err := r.references(b)
	if err != nil {
		return f, false, err
	}
	tried := 0
	for i := 1; i < len(list) && tried < maxSources; i++ {
		if list[i] == 0 || !r.isAction(list[i-1]) {
			continue
		}
		tried++
		if f, err = r.resolve(list[i], 0, true); err == nil && r.consumes(&f, b) {
			return f, true, nil
		}
	}
	return follower{}, false, nil
}

// consumes reports whether a method waits for the state machine of a box.
func (r *Reader) consumes(f *follower, of *Box) bool {
	switch {
	case f.runtime:
		a, err := r.AwaitedIn(f.obj)
		return err == nil && a.Object == of.at
	case f.box != nil:
		list, err := r.references(f.box)
		return err == nil && slices.Contains(list, of.at)
	}
	return false
}

// hiddenOfMachine is OfMachine.
func (r *Reader) hiddenOfMachine(obj arch.Addr, class *object.Class) arch.Addr {
	if m, err := r.machine(class.Table); err != nil || m.value {
		return 0
	}
	list, err := r.objects.Places(obj, class, 0)
	if err != nil {
		return 0
	}
	for _, ref := range list {
		if b, err := r.Box(ref); err == nil && b.at == obj {
			return b.Object
		}
	}
	return 0
}
