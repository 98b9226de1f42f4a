// Package async reads async methods that are suspended, or that run after a suspension: which method awaits which.
//
// When an async method awaits an incomplete object, the method's locals go to the heap. C# and F# compile the method
// to a state machine, a type whose MoveNext has the method's code. .NET puts the state machine into a box, an object
// that is also the task returned by the method. The runtime notes in the task the continuation, to be called at the
// completion of the task. The continuation is the awaiting method's box, or an object that leads to the box: a
// delegate, a list of several, a promise as for Task.WhenAll. So a chain of awaiting methods is read from the inside
// out, object by object. There is no search, and an object of an unknown class ends the chain.
//
// ValueTasks need not be tasks. Their sources note the continuation in a struct, ManualResetValueTaskSourceCore; so
// do the boxes of PoolingAsyncValueTaskMethodBuilder, and async iterators. Methods that the runtime itself suspends
// have no state machine: see continuation.go.
//
// Sources (dotnet/runtime, src/libraries/System.Private.CoreLib/src/System): Threading/Tasks/Task.cs,
// TaskContinuation.cs, Sources/ManualResetValueTaskSourceCore.cs;
// Runtime/CompilerServices/AsyncTaskMethodBuilderT.cs, PoolingAsyncValueTaskMethodBuilderT.cs,
// AsyncMethodBuilderCore.cs. The names of classes and fields are from .NET 8 to 11.
package async

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/contract"
)

const (
	coreLib = "System.Private.CoreLib"

	maxClasses = 1 << 13
)

// ErrNoBox: an object is no box of an async method.
var ErrNoBox = errors.New("not a box of an async method")

// errEnded: the box's method has ended, and the box has dropped its state machine. The state machine is an object: an
// async iterator's, or a debug build's (AsyncTaskMethodBuilderT.cs, AsyncStateMachineBox.ClearStateUponCompletion).
var errEnded = errors.New("the async method has ended")

// Reader reads the async methods of a runtime. Objects are read as memory has them at some moment, like in
// object.Reader. A Reader is not safe for concurrent use.
type Reader struct {
	objects  *object.Reader
	names    Machines
	shapes   map[arch.Addr]*shape   // by MethodTable
	machines map[arch.Addr]*Machine // likewise

	continuation continuationLayout
	resume       func(arch.Addr) (arch.Addr, error) // reads a word of resume info, outside objects
	context      func(*Resumption) arch.Addr        // the context of a method's instantiation; nil: there is none
}

// Machines names state machines.
type Machines interface {
	// Machine names the async method of the type of a state machine, by MethodTable.
	Machine(mt arch.Addr) (name.Machine, error)
}

// New returns a Reader of async methods by objects and names, for the runtime that d describes.
func New(d *contract.Descriptor, objects *object.Reader, names Machines) (*Reader, error) {
	r := &Reader{
		objects: objects, names: names, shapes: map[arch.Addr]*shape{}, machines: map[arch.Addr]*Machine{},
	}
	r.resume = objects.Word
	return r, d.Bind(&r.continuation)
}

// ResumeInfoBy sets the function that reads a word of resume info, outside objects. By default words are read like
// words of objects.
func (r *Reader) ResumeInfoBy(word func(arch.Addr) (arch.Addr, error)) { r.resume = word }

// Machine is the type of a state machine.
type Machine struct {
	name.Machine
	Table arch.Addr // its MethodTable

	class   *object.Class
	value   bool   // a struct, inside the box
	size    uint32 // in bytes, as if a struct had a MethodTable in front of it; 0: not known
	state   uint32 // offset of the state; 0: there is no known state
	promise uint32 // of the struct with the continuation of an async iterator; 0: no async iterator
	builder uint32 // of the builder; 0: not known
	hidden  bool   // the fields are not known: see hidden.go
}

// Fields of state machines: the C# compiler's names, and Visual Basic's.
const (
	stateField, stateFieldVB     = "<>1__state", "$State"
	builderField, builderFieldVB = "<>t__builder", "$Builder"
	promiseField                 = "<>v__promiseOfValueOrEnd"
)

// is reports whether two types are of the same method, as instantiations of the same code are.
func (m *Machine) is(o *Machine) bool { return m.Module == o.Module && m.RID == o.RID }

// Runs reports whether a box is a box of the method whose MoveNext a type has.
func (r *Reader) Runs(b *Box, mt arch.Addr) (bool, error) {
	m, err := r.machine(mt)
	if err != nil {
		return false, err
	}
	return b.Machine.is(m), nil
}

// machine describes the type of a state machine.
func (r *Reader) machine(mt arch.Addr) (*Machine, error) {
	if m := r.machines[mt]; m != nil {
		return m, nil
	}
	class, err := r.objects.Table(mt)
	if err != nil {
		return nil, err
	}
	m := &Machine{Table: mt, class: class}
	if m.value, err = r.objects.IsValue(mt); err != nil {
		return nil, err
	}
	if m.Machine, err = r.names.Machine(mt); err != nil {
		return nil, err
	}
	if m.size, err = r.objects.Size(mt); err != nil {
		return nil, err
	}
	fields, err := r.objects.FieldsOf(class)
	if err != nil {
		return nil, err
	}
	m.hidden = r.objects.Hides()
	for _, f := range fields {
		switch f.Name {
		case stateField, stateFieldVB:
			m.state = f.Offset
		case builderField, builderFieldVB:
			m.builder = f.Offset
		case promiseField:
			m.promise = f.Offset
		}
	}
	if !m.Passing {
		if len(r.machines) >= maxClasses {
			clear(r.machines)
		}
		r.machines[mt] = m
	}
	return m, nil
}

// States of a state machine; other states are numbers of awaits, from 0 on (Roslyn, StateMachineState).
const (
	Running  = -1 // or not started yet
	Finished = -2
	notBegun = -3 // an async iterator before the first request for an element; lower states: at a yield
)

// Box is an async method that has been suspended at least once.
type Box struct {
	Object   arch.Addr
	Machine  *Machine
	State    int32 // Running, Finished, or the number of the await where the method waits, in the order of compilation
	HasState bool

	kind  kind
	class *object.Class // of the box
	field uint32        // of the state machine, in the box
	at    arch.Addr     // of the state machine, as if a struct had a MethodTable in front of it
}

// Rests reports whether the box is of an async iterator that nobody waits for: the consumer has an element, or has
// asked for none. The iterator neither runs nor waits.
func (b *Box) Rests() bool { return b.HasState && b.State <= notBegun && b.Machine.promise != 0 }

// IsIterator reports whether objects of a class, by MethodTable, are iterators: the state machine of an iterator is the
// object that the caller gets.
func (r *Reader) IsIterator(mt arch.Addr) bool {
	m, err := r.machine(mt)
	return err == nil && !m.value && m.state != 0 && (m.promise != 0 || m.builder == 0)
}

// Iterator reads an iterator as if the iterator were its own box. An async iterator that has never waited has no box,
// and neither has any other iterator.
func (r *Reader) Iterator(obj arch.Addr) (*Box, error) {
	class, err := r.objects.Class(obj)
	if err != nil {
		return nil, err
	}
	b := &Box{Object: obj, class: class, at: obj, HasState: true}
	if b.Machine, err = r.machine(class.Table); err != nil {
		return nil, err
	}
	b.State, err = r.objects.Int32(obj + arch.Addr(b.Machine.state))
	return b, err
}

// Yields reports whether an iterator is at a yield return. Of an async iterator, the state is below notBegun. Of any
// other iterator, the state is above 0 (dotnet/roslyn, StateMachineStates.cs).
func (b *Box) Yields() bool {
	if b.Machine.promise == 0 {
		return b.State > 0
	}
	return b.State < notBegun
}

// Async reports whether an iterator is an async iterator.
func (b *Box) Async() bool { return b.Machine.promise != 0 }

// Reused reports whether the box serves other calls of the method after the end of this call.
func (b *Box) Reused() bool { return b.kind == pooledBox }

// Box reads a box; for another object the error is ErrNoBox.
func (r *Reader) Box(obj arch.Addr) (*Box, error) {
	class, err := r.objects.Class(obj)
	if err != nil {
		return nil, err
	}
	s, err := r.shape(class)
	if err != nil {
		return nil, err
	}
	if !s.kind.box() {
		return nil, ErrNoBox
	}
	return r.box(obj, class, s)
}

// Fields returns the place and the class of the state machine's fields: an object, or a struct as if a MethodTable
// were in front of the struct.
func (b *Box) Fields() (at arch.Addr, class *object.Class) { return b.at, b.Machine.class }

const objectHeader = 8 // the MethodTable in front of an object's fields, in bytes

func (r *Reader) box(obj arch.Addr, class *object.Class, s *shape) (*Box, error) {
	b := &Box{Object: obj, kind: s.kind, class: class, field: s.field}
	mt := s.machine
	if !s.value {
		var err error
		if b.at, err = r.objects.Word(obj + arch.Addr(s.field)); err != nil {
			return nil, err
		}
		if b.at == 0 {
			return nil, errEnded
		}
		c, err := r.objects.Class(b.at) // the argument may be an interface
		if err != nil {
			return nil, err
		}
		mt = c.Table
	} else {
		b.at = obj + arch.Addr(s.field) - objectHeader
	}
	m, err := r.machine(mt)
	if err != nil {
		return nil, err
	}
	if b.Machine = m; m.state != 0 {
		if b.State, err = r.objects.Int32(b.at + arch.Addr(m.state)); err != nil {
			return nil, err
		}
		b.HasState = true
	}
	return b, nil
}

// builderWords is how many words of a builder may refer to the box: AsyncVoidMethodBuilder has a
// SynchronizationContext as well.
const builderWords = 2

// Of returns the box of the state machine that a MoveNext runs on, by the first argument of the MoveNext: the address
// of a struct, or an object. mt is the type with the MoveNext. A method that has not been suspended yet has no box.
//
// The builder in the state machine leads to the box, and the box must have this state machine, of that type: after
// the end of the method, the collector may have put another method's box there.
func (r *Reader) Of(this, mt arch.Addr) (*Box, error) {
	m, err := r.machine(mt)
	if err != nil {
		return nil, err
	}
	at := this
	if m.value {
		at -= objectHeader
	} else {
		class, err := r.objects.Class(this)
		if err != nil {
			return nil, err
		}
		if m, err = r.machine(class.Table); err != nil { // an instantiation of the shared code
			return nil, err
		}
	}
	if m.builder == 0 {
		return nil, ErrNoBox
	}
	unread := ErrNoBox
	for i := range arch.Addr(builderWords) {
		obj, err := r.objects.Word(at + arch.Addr(m.builder) + 8*i)
		if err != nil {
			return nil, err
		}
		b, err := r.Box(obj)
		if err == nil && b.at == at && b.Machine.is(m) {
			return b, nil
		}
		if err != nil && !errors.Is(err, object.ErrNoObject) && !errors.Is(err, ErrNoBox) {
			unread = err
		}
	}
	return nil, unread
}
