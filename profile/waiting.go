package profile

import (
	"cmp"
	"iter"
	"path"
	"slices"
	"strings"

	"clrsnap/snapshot"
)

// WaitingFor is what a sampled thread waited for.
type WaitingFor struct {
	// Kind is what the thread's frames say; "" if the thread waits for something else, for example in native code of
	// a library. Idle threads have WaitIdle (Recording.Idle).
	Kind snapshot.WaitKind
	// Type is the display name of the awaited object's type, and Module the type's assembly; empty if not known. The
	// events of Monitor.Wait and of locks have a type. The type of other primitives is in Kind.
	Type, Module string
}

func (w *WaitingFor) compare(x *WaitingFor) int {
	return cmp.Or(strings.Compare(string(w.Kind), string(x.Kind)), strings.Compare(w.Type, x.Type),
		strings.Compare(w.Module, x.Module))
}

// String returns w as text: "Monitor.Wait Shop.Order".
func (w *WaitingFor) String() string {
	kind := cmp.Or(string(w.Kind), otherWait)
	if w.Type == "" {
		return kind
	}
	return kind + " " + w.Type
}

// otherWait is the text of a WaitingFor without a Kind.
const otherWait = "other"

// ioFunctions are the functions of the C library that wait for input or output. The names have no leading underscores
// and no "libc_"; the library's own symbols can have both.
var ioFunctions = map[string]bool{
	"read": true, "readv": true, "pread": true, "pread64": true, "preadv": true, "preadv64": true, "write": true,
	"writev": true, "pwrite": true, "pwrite64": true, "pwritev": true, "pwritev64": true, "recv": true,
	"recvfrom": true, "recvmsg": true, "send": true, "sendto": true, "sendmsg": true, "accept": true, "accept4": true,
	"connect": true, "fsync": true, "fdatasync": true, "flock": true, "poll": true, "ppoll": true, "select": true,
	"pselect": true, "epoll_wait": true, "epoll_pwait": true, "open": true, "open64": true, "openat": true,
	"openat64": true,
}

// entries are the functions of the runtime that waiting methods call, by the beginnings of their names. The JIT
// compiler inlines the waiting methods, but not the calls of these functions.
var entries = []struct {
	name string
	kind snapshot.WaitKind
}{
	{"Monitor_Wait", snapshot.MonitorWait},
	{"Monitor_Enter", snapshot.MonitorEnter},
	{"Monitor_TryEnter", snapshot.MonitorEnter},
	{"ThreadNative_Join", snapshot.ThreadJoin},
	{"ThreadNative_Sleep", snapshot.ThreadSleep},
	{"WaitHandle_WaitOne", snapshot.HandleOne},
	{"WaitHandle_SignalAndWait", snapshot.HandleOne},
	{"WaitHandle_WaitMultiple", snapshot.HandleAny},
}

// entryOf says what a method waits for in this function of the runtime; the zero value: nothing.
func entryOf(f *Function) WaitingFor {
	for i := range entries {
		if strings.HasPrefix(f.Method, entries[i].name) {
			return WaitingFor{Kind: entries[i].kind}
		}
	}
	return frameOf(f)
}

// runtimeModules are the modules with the runtime's code: a library, or a single-file program.
func (r *Recording) runtimeModules() map[string]bool {
	out := map[string]bool{"libcoreclr.so": true}
	for i := range r.Processes {
		if p := r.Processes[i].Runtime.Path; p != "" {
			out[path.Base(p)] = true
		}
	}
	return out
}

// coreLib is the assembly of System.Threading.Lock.
const coreLib = "System.Private.CoreLib"

// waiter finds out what samples wait for. For a stack, waiter and snapshot.PrimitiveOf agree, but waiter looks at each
// node once.
type waiter struct {
	r         *Recording
	functions []waitFunction
	idle      *idler
	// by node: the node itself or the nearest node toward the base that is a method; 0: none
	managed []int32
	kinds   []snapshot.WaitKind // by node: for a method, what its thread waits for if the method is the leaf
	entries []int32             // by node: for native code, the function that says what its method waits for; -1: none
	// by node: for native code, the method has called a function that waits for input or output
	io      []bool
	runtime []bool               // by node: for native code, the code or its caller is the runtime's
	events  map[int32]WaitingFor // by node: results found so far
}

func (r *Recording) waiter() *waiter {
	w := &waiter{
		r: r, idle: r.idler(), managed: make([]int32, len(r.Nodes)), kinds: make([]snapshot.WaitKind, len(r.Nodes)),
		entries: unknown(len(r.Nodes)), io: make([]bool, len(r.Nodes)), runtime: make([]bool, len(r.Nodes)),
		events: map[int32]WaitingFor{},
	}
	runtime := r.runtimeModules()
	w.functions = make([]waitFunction, len(r.Functions))
	for i := range w.functions {
		w.functions[i] = waitFunctionOf(&r.Functions[i], runtime)
	}
	for n := 1; n < len(r.Nodes); n++ { // a parent comes before its children
		f := &w.functions[r.Locations[r.Nodes[n].Location].Function]
		parent := r.Nodes[n].Parent
		w.managed[n] = w.managed[parent]
		if f.kind != snapshot.Managed {
			w.io[n], w.runtime[n] = w.io[parent] || f.io, w.runtime[parent] || f.runtime
			if w.entries[n] = w.entries[parent]; f.says || parent > 0 && w.managed[parent] == parent {
				w.entries[n] = r.Locations[r.Nodes[n].Location].Function
			}
			continue
		}
		w.managed[n] = int32(n)
		switch outer := w.kinds[parent]; {
		case f.waits == "" && !f.between:
		case outer != "" && w.managed[parent] == parent:
			w.kinds[n] = outer
		case f.waits != "":
			w.kinds[n] = f.waits
		}
	}
	return w
}

// waitFunction has the known facts of a function.
type waitFunction struct {
	kind        snapshot.Kind
	waits       snapshot.WaitKind // "": the function does not wait
	between     bool
	entry       WaitingFor
	says        bool // the function is a result of WaitingFor.Frame
	io, runtime bool
}

func waitFunctionOf(f *Function, runtime map[string]bool) waitFunction {
	c := f.code()
	out := waitFunction{kind: f.Kind, waits: c.WaitKind()}
	switch f.Kind {
	case snapshot.Managed:
		out.between = c.BetweenWaits()
	case snapshot.Native:
		name := strings.TrimPrefix(strings.TrimLeft(f.Method, "_"), "libc_")
		libc := strings.HasPrefix(f.Module, "libc.") || strings.HasPrefix(f.Module, "libc-") ||
			strings.HasPrefix(f.Module, "ld-musl") || strings.HasPrefix(f.Module, "libpthread")
		out.entry, out.says = entryOf(f), frameOf(f) != WaitingFor{}
		out.io, out.runtime = libc && ioFunctions[name], runtime[f.Module]
	}
	return out
}

// of returns the WaitingFor of a sample; false: the sample's thread was not waiting.
func (w *waiter) of(x *Sample) (WaitingFor, bool) {
	if x.State != Waiting {
		return WaitingFor{}, false
	}
	if x.Mode.OfEvents() {
		return w.event(x), true
	}
	if w.idle.of(x) != "" {
		return WaitingFor{Kind: snapshot.WaitIdle}, true
	}
	return w.waitingFor(x.Node), true
}

// waitingFor returns the WaitingFor of a thread, given the node of the thread's leaf. The frames name the primitive;
// the runtime function that the method called names the type.
func (w *waiter) waitingFor(node int32) WaitingFor {
	kind := w.kind(node)
	if entry := w.entry(node); kind == entry.Kind {
		return entry
	}
	return WaitingFor{Kind: kind}
}

// entry is what the method called the runtime to wait for, given the node of the thread's leaf.
func (w *waiter) entry(node int32) WaitingFor {
	if f := w.entries[node]; f >= 0 {
		return w.functions[f].entry
	}
	return WaitingFor{}
}

func (w *waiter) kind(node int32) snapshot.WaitKind {
	method := w.managed[node]
	switch kind := w.kinds[method]; {
	case kind != "" && !((kind == snapshot.HandleOne || kind == snapshot.MonitorWait) && w.saysMore(node)):
		return kind
	case w.entry(node).Kind != "":
		return w.entry(node).Kind
	case w.io[node]:
		return snapshot.WaitIO
	case w.runtime[node]:
		return snapshot.WaitRuntime
	}
	return ""
}

// saysMore reports whether the runtime itself says that a thread waits for a monitor, or for a primitive with a
// monitor inside. In optimised code from .NET 11 on, the frames may show only the handle by which all threads wait,
// or the Condition.
func (w *waiter) saysMore(node int32) bool {
	f := w.entries[node]
	return f >= 0 && frameOf(&w.r.Functions[f]).Kind != ""
}

// event returns the WaitingFor of an event's sample. The result depends on the sample's node only.
func (w *waiter) event(x *Sample) WaitingFor {
	out, ok := w.events[x.Node]
	if ok {
		return out
	}
	leaf := w.r.Function(x.Node)
	switch {
	case leaf == nil || leaf.Kind != snapshot.Event:
		out.Kind = w.kind(x.Node)
	case x.Mode == Contention:
		out = w.contention(x.Node)
	default:
		if out, _ = WaitEventOf(leaf.Display); out.Type != "" {
			out.Module = leaf.Module
		}
	}
	w.events[x.Node] = out
	return out
}

// contention returns the WaitingFor of a wait for a lock. The leaf says who held the lock, and the leaf's caller
// names the lock.
func (w *waiter) contention(node int32) WaitingFor {
	const lockClass = "System.Threading.Lock"
	out := WaitingFor{Kind: w.kind(node)}
	if lock := w.r.Function(w.r.Nodes[node].Parent); lock != nil && lock.Kind == snapshot.Event {
		if name, ok := strings.CutPrefix(lock.Display, "lock "); ok && !strings.HasPrefix(name, "of an unknown type") {
			name = strings.TrimSuffix(name, " (others)")
			if i := strings.LastIndex(name, " #"); i >= 0 {
				name = name[:i]
			}
			out.Type, out.Module = name, lock.Module
		}
	}
	switch {
	case out.Kind == snapshot.MonitorEnter || out.Kind == snapshot.LockEnter:
	case out.Type == lockClass && out.Module == coreLib:
		out.Kind = snapshot.LockEnter
	default:
		out.Kind = snapshot.MonitorEnter // the CLR's walk does not always have Monitor.Enter as a frame
	}
	return out
}

// WaitEvent returns the function that is the leaf of a wait, in mode Waits. short is Type without namespaces.
func (w WaitingFor) WaitEvent(short string) Function {
	f := Function{Kind: snapshot.Event, Display: w.String(), Module: w.Module}
	if w.Type = short; w.Type == "" {
		w.Module = ""
	}
	f.Short = w.String()
	return f
}

// Frame returns the function of a frame that says what a method waits for, in a recording of the wall clock. The
// function looks native. module is the runtime's.
func (w WaitingFor) Frame(module string) Function {
	name := "[" + w.String() + "]"
	return Function{Kind: snapshot.Native, Display: name, Short: name, Module: module}
}

// frameOf recovers the WaitingFor from a function that Frame returned; the zero value: f is another function.
func frameOf(f *Function) WaitingFor {
	name := strings.TrimSuffix(strings.TrimPrefix(f.Display, "["), "]")
	if len(name)+len("[]") != len(f.Display) || f.Method != "" || f.Kind != snapshot.Native {
		return WaitingFor{}
	}
	w, _ := WaitEventOf(name)
	switch w.Kind {
	case snapshot.MonitorEnter, snapshot.MonitorWait:
		return w
	case snapshot.SemaphoreWait, snapshot.EventWait, snapshot.LockEnter, snapshot.HandleOne, snapshot.HandleAny,
		snapshot.HandleAll, snapshot.ThreadJoin, snapshot.ThreadSleep:
		if w.Type == "" {
			return w
		}
	}
	return WaitingFor{}
}

// WaitedIn returns what a thread waited for in a wait of the runtime, in mode Waits. stack is the thread's stack,
// leaf first. whole: the stack lacks no frames.
func WaitedIn(stack iter.Seq[*Function], whole bool) snapshot.WaitKind {
	idle, _ := snapshot.IdleIn(func(yield func(snapshot.Code) bool) {
		for f := range stack {
			if !yield(f.code()) {
				return
			}
		}
	}, true)
	if whole && idle != "" {
		return snapshot.WaitIdle
	}
	p := snapshot.PrimitiveIn(func(yield func(int, snapshot.Code) bool) {
		i := 0
		for f := range stack {
			if !yield(i, f.code()) {
				return
			}
			i++
		}
	})
	return cmp.Or(p.Kind, snapshot.WaitRuntime)
}

// WaitEventOf returns the WaitingFor of a wait's leaf, in mode Waits, from the leaf's name with or without
// namespaces; false: name is not the name of a wait.
func WaitEventOf(name string) (WaitingFor, bool) {
	kind, class, _ := strings.Cut(name, " ")
	w := WaitingFor{Kind: snapshot.WaitKind(kind), Type: class}
	if slices.Contains(snapshot.WaitKinds[:], w.Kind) {
		return w, true
	}
	w.Kind = ""
	return w, kind == otherWait
}

// WaitTotal is the sum of the waits for one kind of thing.
type WaitTotal struct {
	WaitingFor
	Waits Amount
	// Methods are the waiting methods of the program's own code, the heaviest first. Each wait counts for the own
	// method nearest to the leaf. Waits of stacks without own code are in no method.
	Methods []MethodWaits
}

// MethodWaits is the part of a WaitTotal that waited in one method.
type MethodWaits struct {
	Function int32 // index in Recording.Functions
	Waits    Amount
}

// WaitTotals sums up what the waiting threads of a mode's samples wait for, the longest first. CPU samples, and
// samples of events that are not waits, have no totals.
func (r *Recording) WaitTotals(m Mode) []WaitTotal {
	if m != Wall && !m.OfWaits() {
		return nil
	}
	type place struct {
		total    int
		function int32
	}
	var out []WaitTotal
	w, own := r.waiter(), r.ownMethods()
	of, methods := map[WaitingFor]int{}, map[place]int{}
	for i := range r.Samples {
		x := &r.Samples[i]
		if x.Mode != m {
			continue
		}
		what, ok := w.of(x)
		if !ok {
			continue
		}
		t, ok := of[what]
		if !ok {
			t = len(out)
			of[what], out = t, append(out, WaitTotal{WaitingFor: what})
		}
		a := Amount{x.Weight, x.Events, int(x.Count)}
		out[t].Waits.Add(a)
		f := own[x.Node]
		if f < 0 {
			continue
		}
		at, ok := methods[place{t, f}]
		if !ok {
			at = len(out[t].Methods)
			methods[place{t, f}], out[t].Methods = at, append(out[t].Methods, MethodWaits{Function: f})
		}
		out[t].Methods[at].Waits.Add(a)
	}
	for i := range out {
		slices.SortStableFunc(out[i].Methods, func(a, b MethodWaits) int {
			return cmp.Compare(b.Waits.Weight, a.Waits.Weight)
		})
	}
	slices.SortFunc(out, func(a, b WaitTotal) int {
		return cmp.Or(cmp.Compare(b.Waits.Weight, a.Waits.Weight), a.compare(&b.WaitingFor))
	})
	return out
}

// ownMethods returns for each node the nearest method of the program's own code, as the first function with the
// method's name; -1: none.
func (r *Recording) ownMethods() []int32 {
	same, out := sameNames(r), make([]int32, len(r.Nodes))
	for n := range out {
		if n == 0 {
			out[n] = -1
			continue
		}
		f := r.Locations[r.Nodes[n].Location].Function
		if out[n] = out[r.Nodes[n].Parent]; r.Functions[f].Kind == snapshot.Managed &&
			r.Functions[f].Origin() == snapshot.OfUser {
			out[n] = same[f]
		}
	}
	return out
}

// WaitSamples returns the indices of the samples of waiting threads, grouped by WaitingFor.
func (r *Recording) WaitSamples() map[WaitingFor][]int32 {
	w, out := r.waiter(), map[WaitingFor][]int32{}
	for i := range r.Samples {
		if what, ok := w.of(&r.Samples[i]); ok {
			out[what] = append(out[what], int32(i))
		}
	}
	return out
}
