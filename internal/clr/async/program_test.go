package async

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/target"
)

// program is a made-up program with async methods: Shop.Store.Inner, Middle and Outer, Pooled with a box for repeated
// use, and an async iterator, Items. The offsets of fields are not those of a runtime.
type program struct {
	*clrtest.Program
	object, task, whenAll, mres, continuing, list *clrtest.Class
	delegate, action, actionOfObject, wrapper     *clrtest.Class
	continuation, runtimeTask                     *clrtest.Class
	ofTask, ofSource, awaiter                     *clrtest.Class

	inner, middle, outer, pooled, items                *clrtest.Class // state machines
	innerBox, middleBox, outerBox, pooledBox, itemsBox *clrtest.Class
	taskBoxes, pooledBoxes                             *clrtest.Class // their definitions
	objects                                            arch.Addr      // MethodTable of object[]
}

func ref(name string, offset uint32) clrtest.Field {
	return clrtest.Field{Name: name, Offset: offset, Type: clrtest.Reference}
}

func inline(name string, offset uint32) clrtest.Field {
	return clrtest.Field{Name: name, Offset: offset, Type: clrtest.Struct}
}

func newProgram(t testing.TB, descriptor string) *program {
	p := &program{Program: clrtest.NewProgram(t, descriptor)}
	p.core()
	p.shop()
	return p
}

// core adds System.Private.CoreLib.
func (p *program) core() {
	const services = "System.Runtime.CompilerServices."
	class := func(name string, base *clrtest.Class, size uint32, fields ...clrtest.Field) *clrtest.Class {
		return &clrtest.Class{Name: name, Base: base, Size: size, Fields: fields}
	}
	p.object = class("System.Object", nil, 8)
	p.task = class("System.Threading.Tasks.Task", p.object, 64,
		ref("m_action", 8), ref(headField, 16), ref("m_continuationObject", 32),
		clrtest.Field{Name: "m_stateFlags", Offset: 52, Type: clrtest.Int32})
	p.whenAll = class("System.Threading.Tasks.Task+WhenAllPromise", p.task, 72)
	p.mres = class("System.Threading.Tasks.Task+SetOnInvokeMres", p.object, 24)
	p.continuing = class("System.Threading.Tasks.AwaitTaskContinuation", p.object, 24, ref("m_action", 8))
	p.list = class("System.Collections.Generic.List`1", p.object, 24,
		ref("_items", 8), clrtest.Field{Name: "_size", Offset: 16, Type: clrtest.Int32})
	p.delegate = class("System.MulticastDelegate", p.object, 64, ref("_target", 8))
	p.action = class("System.Action", p.delegate, 64)
	p.actionOfObject = class("System.Action`1", p.delegate, 64)
	p.wrapper = class(services+"AsyncMethodBuilderCore+ContinuationWrapper", p.object, 32, ref("_continuation", 8))
	p.taskBoxes = class(services+"AsyncTaskMethodBuilder`1+AsyncStateMachineBox`1", p.task, 112,
		inline("StateMachine", 72))
	p.pooledBoxes = class(services+"PoolingAsyncValueTaskMethodBuilder`1+StateMachineBox`1", p.object, 136,
		inline("_valueTaskSource", 8), inline("StateMachine", 72))
	p.continuation = class(continuationClass, p.object, 32, ref("Next", 8))
	p.runtimeTask = class(runtimeTaskClass, p.task, 72)
	p.ofTask = class(leafContinuation, p.continuation, 72, ref("Task", 32), ref("RuntimeAsyncTask", 40))
	p.ofSource = class(services+"AsyncHelpers+ValueTaskSourceContinuation", p.continuation, 64, ref("Source", 32))
	p.awaiter = class("Shop.Awaiter", p.object, 24, ref("_go", 16))
	p.Assembly(coreLib, p.object, p.task, p.whenAll, p.mres, p.continuing, p.list, p.delegate, p.action,
		p.actionOfObject, p.wrapper, p.taskBoxes, p.pooledBoxes, p.continuation, p.runtimeTask, p.ofTask, p.ofSource,
		p.awaiter)
	p.objects = p.ArrayOf(p.object)
}

// shop adds the program's own assembly.
func (p *program) shop() {
	machine := func(method string) *clrtest.Class { // a struct with a state, a builder of one reference and an awaiter
		return &clrtest.Class{
			Name: "Shop.Store+<" + method + ">d__1", Value: true, Size: 32, Methods: []string{"MoveNext"},
			Fields: []clrtest.Field{
				{Name: "<>1__state", Offset: 8, Type: clrtest.Int32}, inline("<>t__builder", 16), inline("<>u__1", 24),
			},
		}
	}
	p.inner, p.middle, p.outer = machine("Inner"), machine("Middle"), machine("Outer")
	p.pooled, p.items = machine("Pooled"), machine("Items")
	p.items.Value, p.items.Base, p.items.Size = false, p.object, 80
	p.items.Fields = append(p.items.Fields, inline("<>v__promiseOfValueOrEnd", 32))
	p.Assembly("Shop", p.inner, p.middle, p.outer, p.pooled, p.items)
	boxes := func(of, machine *clrtest.Class) *clrtest.Class { return p.Instance(of, p.object.Table, machine.Table) }
	p.innerBox, p.middleBox = boxes(p.taskBoxes, p.inner), boxes(p.taskBoxes, p.middle)
	p.outerBox, p.itemsBox = boxes(p.taskBoxes, p.outer), boxes(p.taskBoxes, p.items)
	p.pooledBox = boxes(p.pooledBoxes, p.pooled)
}

// Offsets in boxes of the fields of their state machines.
const (
	boxState   = 72
	boxBuilder = 80
	boxAwaiter = 88
)

// suspended adds the box of a method that waits at the first await for the object awaited.
func (p *program) suspended(box *clrtest.Class, awaited arch.Addr) arch.Addr {
	at := p.Object(box)
	p.Words[at+boxBuilder], p.Words[at+boxAwaiter] = uint64(at), uint64(awaited)
	return at
}

// continues notes a continuation in a task.
func (p *program) continues(task, with arch.Addr) {
	p.Set(task, p.task, "m_continuationObject", uint64(with))
}

func (p *program) reader(t testing.TB) *Reader { return newReader(t, p, p.Descriptor()) }

func newReader(t testing.TB, mem target.Memory, descriptor string) *Reader {
	t.Helper()
	return readerOf(t, mem, mem, descriptor)
}

// readerOf returns a reader of objects in one memory, and of types in another memory.
func readerOf(t testing.TB, heap, mem target.Memory, descriptor string) *Reader {
	t.Helper()
	d := clrtest.Descriptor(t, descriptor)
	ts, err := types.New(mem, d)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := method.New(mem, d, ts)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := name.New(mem, d, ts, ms)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := object.New(heap, d, ts, ns)
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(d, objects, ns)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
