package tasks

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/threadpool"
)

// Sometimes the method keeps nothing of the awaited object. A custom awaiter has a delegate to the
// methods that the runtime itself has suspended, but optimised code of these methods does not save
// the awaiter. And after Task.Yield a method waits for nothing but a thread of the pool.

// actionClass is the class of the delegate that a custom awaiter calls.
const actionClass = "System.Action"

// mayResume reports whether objects of a class may be custom awaiters.
func (t *Walk) mayResume(class *object.Class) bool {
	if !t.Reader.Resumptions() || t.p.Runtime == nil {
		return false
	}
	for c := range class.Bases {
		if c.Assembly == coreLib {
			return false
		}
		if names, err := t.p.Runtime.Names.FieldsOfClass(c.Table, actionClass); err == nil && len(names) > 0 {
			return true
		}
	}
	return false
}

// maxResumers bounds the remembered delegates of awaiters.
const maxResumers = 1 << 20

// resumer returns the custom awaiter that resumes the methods of a RuntimeAsyncTask. Object 0: none
// is found.
func (t *Walk) resumer(task arch.Addr) (async.Awaited, error) {
	action, err := t.Reader.Action(task)
	if err != nil || action == 0 {
		return async.Awaited{}, err
	}
	if t.resumers == nil {
		t.findResumers()
	}
	obj := t.resumers[action]
	if obj == 0 {
		return async.Awaited{}, nil
	}
	class, err := t.p.Managed.Objects.Class(obj)
	if err != nil || !t.Reader.Resumes(obj, class, action) { // the awaiter was moved meanwhile, or called
		return async.Awaited{}, err
	}
	return async.Awaited{Object: obj, Class: class}, nil
}

// findResumers finds the awaiter of each delegate.
func (t *Walk) findResumers() {
	objects := t.p.Managed.Objects
	t.resumers = map[arch.Addr]arch.Addr{}
	fields := map[*object.Class][]string{}
	for i, obj := range t.Objects[awaiterClass] {
		if i%1024 == 0 && t.Stopped() || len(t.resumers) >= maxResumers {
			return
		}
		class, err := objects.Class(obj)
		if err != nil {
			continue
		}
		names, ok := fields[class]
		if !ok {
			for c := range class.Bases {
				more, _ := t.p.Runtime.Names.FieldsOfClass(c.Table, actionClass)
				names = append(names, more...)
			}
			fields[class] = names
		}
		for _, name := range names {
			if action, err := objects.Pointer(obj, class, name); err == nil && action != 0 {
				t.resumers[action] = obj
			}
		}
	}
}

// isQueued reports whether a method waits in a queue of the thread pool for a thread.
func (t *Walk) isQueued(obj arch.Addr) bool {
	if t.slots == nil {
		t.findQueued()
	}
	slot := t.slots[obj]
	if slot == 0 {
		return false
	}
	at, err := t.p.Managed.Objects.Word(slot)
	return err == nil && at == obj
}

// findQueued finds the slots of the items in the queues of the thread pool.
func (t *Walk) findQueued() {
	t.slots = map[arch.Addr]arch.Addr{}
	q := queued{t: t, stopped: t.Stopped}
	add := func(p *threadpool.Part) error {
		return p.Each(func(slot arch.Addr) error {
			if err := q.another(); err != nil {
				return err
			}
			obj, err := t.p.Managed.Objects.Word(slot)
			if err == nil && obj != 0 && len(t.slots) < maxWorkItems {
				t.slots[obj] = slot
			}
			return err
		})
	}
	// A queue that cannot be read, or changes meanwhile, has no known items.
	r := threadpool.Queues{Objects: t.p.Managed.Objects, Look: q.another}
	for _, obj := range t.Objects[queueClass] {
		_ = r.Global(obj, add)
	}
	for _, obj := range t.Objects[localQueueClass] {
		if p, err := r.Local(obj); err == nil {
			_ = add(&p)
		}
	}
}
