// Package async reads async methods that are suspended, or that run after they were: which method awaits
// which.
//
// When an async method awaits something that is not complete, its locals go to the heap. C# and F# compile
// the method to a state machine, a type whose MoveNext has the method's code; .NET puts that into a box, an
// object that is also the task that the method returns. Whoever awaits the task is found in it: the runtime
// notes there what goes on when the task completes. That is the awaiting method's box, or something that leads
// to it: a delegate, a list of several, a promise such as that of Task.WhenAll. So the chain of the methods that
// await each other is read from the inside out, object by object. Nothing is searched for, and what is of no
// known class ends the chain.
//
// ValueTasks need not be tasks. Their sources note the continuation in a struct, ManualResetValueTaskSourceCore;
// so do the boxes of PoolingAsyncValueTaskMethodBuilder, and async iterators. Methods that the runtime itself suspends
// have no state machine: see continuation.go.
//
// Sources (dotnet/runtime, src/libraries/System.Private.CoreLib/src/System): Threading/Tasks/Task.cs,
// TaskContinuation.cs, Sources/ManualResetValueTaskSourceCore.cs; Runtime/CompilerServices/
// AsyncTaskMethodBuilderT.cs, PoolingAsyncValueTaskMethodBuilderT.cs, AsyncMethodBuilderCore.cs. The names of
// classes and fields are those of .NET 8 to 11.
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

// errEnded: the box's method has ended, and the box has let go of its state machine, which is an object: an async
// iterator's, or that of a debug build (AsyncTaskMethodBuilderT.cs, AsyncStateMachineBox.ClearStateUponCompletion).
var errEnded = errors.New("the async method has ended")

// Reader reads the async methods of one runtime. What it reads of objects is what memory has at some moment, as
// with object.Reader. It is not safe for concurrent use.
type Reader struct {
	objects  *object.Reader
	names    *name.Namer
	shapes   map[arch.Addr]*shape   // by MethodTable
	machines map[arch.Addr]*Machine // likewise

	continuation continuationLayout
	resume       func(arch.Addr) (arch.Addr, error) // reads a word of what code is resumed by, which is no object
	context      func(*Resumption) arch.Addr        // what tells the instantiation of a method; nil: nothing does
}

// New returns what reads async methods by objects and names, of the runtime that d describes.
func New(d *contract.Descriptor, objects *object.Reader, names *name.Namer) (*Reader, error) {
	r := &Reader{
		objects: objects, names: names, shapes: map[arch.Addr]*shape{}, machines: map[arch.Addr]*Machine{},
	}
	r.resume = objects.Word
	return r, d.Bind(&r.continuation)
}

// ResumeInfoBy says how to read a word of what is no object, if not as those of objects.
func (r *Reader) ResumeInfoBy(word func(arch.Addr) (arch.Addr, error)) { r.resume = word }

// Machine is the type of a state machine.
type Machine struct {
	name.Machine
	Table arch.Addr // its MethodTable

	class   *object.Class
	value   bool   // a struct, inside the box
	size    uint32 // in bytes, as if a struct had a MethodTable in front of it; 0: not known
	state   uint32 // offset of its state; 0: it has none that is known
	promise uint32 // of the struct with the continuation of an async iterator; 0: it is none
	builder uint32 // of the builder; 0: not known
}

// Fields of state machines: of the C# compiler, and of Visual Basic's.
const (
	stateField, stateFieldVB     = "<>1__state", "$State"
	builderField, builderFieldVB = "<>t__builder", "$Builder"
	promiseField                 = "<>v__promiseOfValueOrEnd"
)

// is reports whether two types are of the same method, as instantiations of the same code are.
func (m *Machine) is(o *Machine) bool { return m.Module == o.Module && m.RID == o.RID }

// Runs reports whether a box is one of the method whose MoveNext a type has.
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

// States of a state machine; others are numbers of awaits, from 0 on (Roslyn, StateMachineState).
const (
	Running  = -1 // or not started yet
	Finished = -2
	notBegun = -3 // an async iterator of which nobody has asked for an element; below: it is at a yield
)

// Box is an async method that has been suspended at least once.
type Box struct {
	Object   arch.Addr
	Machine  *Machine
	State    int32 // Running, Finished, or at which await the method waits, in the order that they were compiled
	HasState bool

	kind kind
	at   arch.Addr // where the state machine is, as if a struct had a MethodTable in front of it
}

// Rests reports whether the box is of an async iterator that nobody waits for: whoever enumerates it has an element, or
// has asked for none. It neither runs nor waits.
func (b *Box) Rests() bool { return b.HasState && b.State <= notBegun && b.Machine.promise != 0 }

// Reused reports whether the box serves other calls of the method when this one has ended.
func (b *Box) Reused() bool { return b.kind == pooledBox }

// Box reads a box; of another object the error is ErrNoBox.
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

// Fields returns where the fields of the state machine are, and its class: an object, or a struct as if it had a
// MethodTable in front of it.
func (b *Box) Fields() (at arch.Addr, class *object.Class) { return b.at, b.Machine.class }

const objectHeader = 8 // the MethodTable in front of an object's fields, in bytes

func (r *Reader) box(obj arch.Addr, class *object.Class, s *shape) (*Box, error) {
	b := &Box{Object: obj, kind: s.kind}
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

// builderWords is where a builder may have its box: AsyncVoidMethodBuilder has a SynchronizationContext as well.
const builderWords = 2

// Of returns the box of the state machine that a MoveNext runs on, by its first argument: the address of a
// struct, or an object. mt is the type that has the MoveNext. A method that has not been suspended yet has no box.
//
// The builder in the state machine leads to the box, and the box must be the one that has this state machine, of that
// type: when the method has ended, the collector may have put the box of another one there.
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
