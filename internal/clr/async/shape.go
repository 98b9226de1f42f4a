package async

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
)

// kind is the role of an object in a chain of awaits.
type kind uint8

const (
	other       kind = iota
	taskBox          // the box of an async method, also the method's task
	pooledBox        // a box for repeated use, also the source of a ValueTask
	task             // another task, with a continuation
	runtimeTask      // the task of methods suspended by the runtime itself
	delegate
	wrapper    // of a delegate
	continuing // the record of an await with a context, or of ContinueWith, with a reference
	list       // of several continuations
	blocking   // a thread waits
	finished   // the mark in a completed task
)

func (k kind) box() bool { return k == taskBox || k == pooledBox }

// shape is the meaning of a class.
type shape struct {
	kind  kind
	label string // the name of a promise; empty: the promise is not shown
	field uint32 // offset of the next reference in the chain

	machine arch.Addr // of boxes: the type argument that is the type of the state machine
	value   bool      // of boxes: the state machine is a struct
	next    uint32    // of boxes: offset of the continuation, or of its struct; 0: in the state machine.
	// Of a runtimeTask: offset of the innermost suspended method.
}

// known are the classes of System.Private.CoreLib in chains, with the field of the next reference.
var known = map[string]struct {
	kind  kind
	field string
	label string
}{
	"System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1+AsyncStateMachineBox`1": {
		taskBox, "m_continuationObject", "",
	},
	"System.Runtime.CompilerServices.PoolingAsyncValueTaskMethodBuilder`1+StateMachineBox`1": {
		pooledBox, "_valueTaskSource", "",
	},
	"System.Runtime.CompilerServices.AsyncMethodBuilderCore+ContinuationWrapper": {wrapper, "_continuation", ""},
	"System.MulticastDelegate": {delegate, "_target", ""},

	"System.Threading.Tasks.AwaitTaskContinuation":        {continuing, "m_action", ""},
	"System.Threading.Tasks.ContinueWithTaskContinuation": {continuing, "m_task", ""},
	"System.Collections.Generic.List`1":                   {list, "_items", ""},
	"System.Threading.Tasks.Task+SetOnInvokeMres":         {blocking, "", ""},
	"System.Threading.Tasks.Task+SetOnCountdownMres":      {blocking, "", ""},

	"System.Threading.Tasks.Task+WhenAllPromise": {task, continuationField,
		"System.Threading.Tasks.Task.WhenAll"},
	"System.Threading.Tasks.Task+WhenAllPromise`1": {task, continuationField,
		"System.Threading.Tasks.Task.WhenAll"},
	"System.Threading.Tasks.Task+TwoTaskWhenAnyPromise`1": {task, continuationField,
		"System.Threading.Tasks.Task.WhenAny"},
	"System.Threading.Tasks.TaskFactory+CompleteOnInvokePromise": {
		task, continuationField, "System.Threading.Tasks.Task.WhenAny",
	},
	"System.Threading.Tasks.TaskFactory+CompleteOnInvokePromise`1": {
		task, continuationField, "System.Threading.Tasks.Task.WhenAny",
	},
	"System.Threading.Tasks.Task+CancellationPromise`1": {task, continuationField,
		"System.Threading.Tasks.Task.WaitAsync"},
	"System.Threading.Tasks.ContinuationTaskFromTask": {
		task, continuationField, "System.Threading.Tasks.Task.ContinueWith",
	},
	"System.Threading.Tasks.ContinuationResultTaskFromTask`1": {
		task, continuationField, "System.Threading.Tasks.Task.ContinueWith",
	},
	"System.Threading.Tasks.ContinuationTaskFromResultTask`1": {
		task, continuationField, "System.Threading.Tasks.Task.ContinueWith",
	},
	"System.Threading.Tasks.ContinuationResultTaskFromResultTask`2": {
		task, continuationField, "System.Threading.Tasks.Task.ContinueWith",
	},
	"System.Threading.Tasks.Task": {task, continuationField, ""},

	runtimeTaskClass: {runtimeTask, continuationField, ""},
	leafContinuation: {continuing, "RuntimeAsyncTask", ""},
	// a task around a box, while a profiler of async methods listens
	"System.Runtime.CompilerServices.AsyncStateMachineDispatcher": {wrapper, "_inner", ""},
}

const continuationField = "m_continuationObject"

// shape returns the shape of a class, or of the nearest known base.
func (r *Reader) shape(class *object.Class) (*shape, error) {
	if s := r.shapes[class.Table]; s != nil {
		return s, nil
	}
	s, err := r.shapeOf(class)
	if err != nil {
		return nil, err
	}
	if !class.Collectible {
		if len(r.shapes) >= maxClasses {
			clear(r.shapes)
		}
		r.shapes[class.Table] = s
	}
	return s, nil
}

func (r *Reader) shapeOf(class *object.Class) (*shape, error) {
	if class.Display == "object" || class.Display == "System.Object" {
		return &shape{kind: finished}, nil // Task.s_taskCompletionSentinel
	}
	for c := range class.Bases {
		if c.Assembly != coreLib {
			continue
		}
		_, full, err := r.objects.FullName(c)
		if err != nil {
			return &shape{}, nil // an array
		}
		k, ok := known[full]
		if !ok {
			continue
		}
		s := &shape{kind: k.kind, label: k.label}
		if k.field != "" {
			if s.field, err = r.objects.Offset(class, k.field); err != nil {
				return r.known(nil, err)
			}
		}
		switch {
		case s.kind.box():
			err = r.boxShape(s, class, c)
		case s.kind == runtimeTask:
			s.next, err = r.objects.Offset(class, headField)
		}
		return r.known(s, err)
	}
	return &shape{}, nil
}

// known returns a shape, or the shape of a class of which nothing is known: in a native AOT program the fields of some
// classes are not known.
func (r *Reader) known(s *shape, err error) (*shape, error) {
	if errors.Is(err, object.ErrNoField) && r.objects.Hides() {
		return &shape{}, nil
	}
	return s, err
}

// boxShape completes the shape of a box of a class. of is the class in known: class itself, or a base.
func (r *Reader) boxShape(s *shape, class, of *object.Class) error {
	args, err := r.objects.Arguments(of)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return ErrNoBox
	}
	s.machine, s.next = args[len(args)-1], s.field
	if s.value, err = r.objects.IsValue(s.machine); err != nil {
		return err
	}
	if s.field, err = r.objects.Offset(class, "StateMachine"); err != nil {
		return err
	}
	return nil
}
