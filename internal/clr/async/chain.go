package async

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
)

// maxSteps bounds a chain.
const maxSteps = 256

// Step is a method or promise that goes on when the step before completes.
type Step struct {
	Box        *Box        // an async method; nil: not a box
	Resumption *Resumption // a method suspended by the runtime itself
	Label      string      // otherwise: the method of .NET behind the promise, as System.Threading.Tasks.Task.WhenAll
}

// Task returns the object that goes on with a method: the box, or the RuntimeAsyncTask of the suspended method.
func (s *Step) Task() arch.Addr {
	switch {
	case s.Box != nil:
		return s.Box.Object
	case s.Resumption != nil:
		return s.Resumption.Task
	}
	return 0
}

// End is why a chain goes no further.
type End uint8

// The ends.
const (
	Nobody  End = iota // nothing awaits the last step
	Several            // the last step is awaited several times
	Thread             // a thread waits for the last step
	Done               // the last step is complete: its awaiters are no longer known
	Unknown            // the awaiter's class is not known
	Cyclic             // the awaiter is in the chain already, or the chain is too long
)

// Chain is the awaiter of an async method, the awaiter's awaiter, and so on.
type Chain struct {
	Steps []Step // the inner one first
	End   End
	Last  arch.Addr // the object that End is about: a task, mostly
	Count int       // of Several: how many
	Class string    // of Unknown
}

// Awaiting follows the chain of awaiters of a task or a box.
func (r *Reader) Awaiting(obj arch.Addr) (Chain, error) {
	c := Chain{Last: obj}
	seen := map[arch.Addr]bool{obj: true}
	for len(c.Steps) < maxSteps && len(seen) < 4*maxSteps {
		n, err := r.next(c.Last)
		if err != nil {
			return c, err
		}
		if n.end != Nobody || n.obj == 0 {
			c.End, c.Count, c.Class = n.end, n.count, n.class
			return c, nil
		}
		if seen[n.obj] {
			break
		}
		seen[n.obj] = true
		c.Last = n.obj
		switch {
		case n.box != nil:
			c.Steps = append(c.Steps, Step{Box: n.box})
		case len(n.resumed) > 0:
			c.Steps = append(c.Steps, n.resumed[:min(len(n.resumed), maxSteps-len(c.Steps))]...)
		case n.label != "":
			c.Steps = append(c.Steps, Step{Label: n.label})
		}
	}
	c.End = Cyclic
	return c, nil
}

// follower is the object that goes on when another object completes: a box or a task, or why there is none.
type follower struct {
	obj   arch.Addr
	box   *Box
	label string

	runtime bool   // obj is a RuntimeAsyncTask
	resumed []Step // the methods suspended in obj

	end   End
	count int
	class string
}

// next returns the follower of a task or a box.
func (r *Reader) next(obj arch.Addr) (follower, error) {
	class, err := r.objects.Class(obj)
	if err != nil {
		return follower{}, err
	}
	s, err := r.shape(class)
	if err != nil {
		return follower{}, err
	}
	switch s.kind {
	case taskBox:
		b, err := r.box(obj, class, s)
		if err != nil {
			return follower{}, err
		}
		if p := b.Machine.promise; p != 0 {
			return r.core(b.at + arch.Addr(p))
		}
		if b.Machine.hidden && !b.Machine.value {
			if f, ok, err := r.hiddenConsumer(b); ok || err != nil {
				return f, err
			}
		}
		return r.at(obj + arch.Addr(s.next))
	case pooledBox:
		return r.core(obj + arch.Addr(s.next))
	case task, runtimeTask:
		return r.at(obj + arch.Addr(s.field))
	}
	return follower{end: Unknown, class: class.Display}, nil
}

// at follows the reference in a field.
func (r *Reader) at(field arch.Addr) (follower, error) {
	obj, err := r.objects.Word(field)
	if err != nil || obj == 0 {
		return follower{}, err
	}
	return r.resolve(obj, 0, true)
}

// maxIndirections bounds the objects between a task and its awaiter.
const maxIndirections = 16

// resolve returns the box or the task that a continuation leads to. lists: the continuation may be a list. The
// runtime puts no list into a list, and 64 lists in each of 64 would keep the reader busy for good.
func (r *Reader) resolve(obj arch.Addr, depth int, lists bool) (follower, error) {
	for ; depth < maxIndirections; depth++ {
		class, err := r.objects.Class(obj)
		if err != nil {
			return follower{}, err
		}
		s, err := r.shape(class)
		if err != nil {
			return follower{}, err
		}
		switch s.kind {
		case taskBox, pooledBox:
			b, err := r.box(obj, class, s)
			return follower{obj: obj, box: b}, err
		case task:
			return follower{obj: obj, label: s.label}, nil
		case runtimeTask:
			steps, err := r.resumptions(obj, s)
			return follower{obj: obj, runtime: true, resumed: steps}, err
		case blocking:
			return follower{end: Thread}, nil
		case finished:
			return follower{end: Done}, nil
		case list:
			if !lists {
				return follower{end: Unknown, class: class.Display}, nil
			}
			return r.resolveList(obj, class, s, depth+1)
		case delegate, wrapper, continuing:
			if obj, err = r.objects.Word(obj + arch.Addr(s.field)); err != nil {
				return follower{}, err
			}
			if obj == 0 {
				return follower{end: Unknown, class: class.Display}, nil
			}
		default:
			return follower{end: Unknown, class: class.Display}, nil
		}
	}
	return follower{end: Cyclic}, nil
}

// maxContinuations bounds the continuations read of a task.
const maxContinuations = 64

// resolveList follows a list of continuations, if a single continuation leads on.
func (r *Reader) resolveList(obj arch.Addr, class *object.Class, s *shape, depth int) (follower, error) {
	items, err := r.objects.Word(obj + arch.Addr(s.field))
	if err != nil {
		return follower{}, err
	}
	size, err := r.objects.Uint32(obj, class, "_size")
	if err != nil {
		return follower{}, err
	}
	refs, err := r.objects.References(items, min(int(size), maxContinuations))
	if err != nil {
		return follower{}, err
	}
	found, count := follower{}, 0
	for _, ref := range refs {
		if ref == 0 {
			continue // the continuation was removed
		}
		f, err := r.resolve(ref, depth, false)
		if err != nil {
			return follower{}, err
		}
		if count++; count == 1 {
			found = f
		}
	}
	if count > 1 {
		return follower{end: Several, count: count + max(0, int(size)-maxContinuations)}, nil
	}
	return found, nil
}

// actionOfObject is the class of the continuations of ValueTasks' sources.
const actionOfObject = "System.Action`1"

// core follows the continuation in a struct ManualResetValueTaskSourceCore: a delegate, and its argument.
func (r *Reader) core(at arch.Addr) (follower, error) {
	action, err := r.objects.Word(at)
	if err != nil || action == 0 {
		return follower{}, err
	}
	class, err := r.objects.Class(action)
	if err != nil {
		return follower{}, err
	}
	if _, full, err := r.objects.FullName(class); err != nil || full != actionOfObject || class.Assembly != coreLib {
		return follower{end: Unknown, class: class.Display}, nil
	}
	state, err := r.objects.Word(at + 8)
	if err != nil {
		return follower{}, err
	}
	if state == 0 { // ManualResetValueTaskSourceCoreShared.s_sentinel, or a delegate that is not .NET's
		return follower{end: Done}, nil
	}
	return r.resolve(state, 0, true)
}
