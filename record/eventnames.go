package record

import (
	"slices"
	"strings"
	"unicode"

	"clrsnap"
	"clrsnap/internal/agent"
	"clrsnap/internal/arch"
	"clrsnap/internal/session"
	"clrsnap/internal/walk"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// notified turns the stack of a notification into locations and puts them into f.stack, leaf
// first. It reports whether the stack is complete.
func (f *frameTable) notified(n *notification) bool {
	f.stack, f.unproven, f.taken = f.stack[:0], f.unproven[:0], n.At
	// E_FAIL: the thread has no managed frame, because the runtime itself waits or starts a thread there.
	whole := !n.record.Truncated && (n.HasStack() || clrsnap.HRESULT(n.record.Result) == clrsnap.E_FAIL)
	for i := range n.record.Frames {
		l, err := f.reported(&n.record.Frames[i])
		if err != nil {
			whole = false
		}
		f.stack = append(f.stack, l)
	}
	f.prove()
	f.awaitReported(n.record)
	leaf := f.messengers() // the messengers await nothing
	f.complete = slices.Delete(f.appendStack(f.complete[:0]), 0, leaf)
	f.stack = f.stack[leaf:]
	return whole
}

// messengers counts the frames at the leaf with which managed code reports an event to the runtime,
// for example the end of a wait for a lock.
func (f *frameTable) messengers() int {
	const messenger = "System.Diagnostics.Tracing.NativeRuntimeEventSource."
	i := 0
	for ; i < len(f.stack); i++ {
		if _, fn := f.b.At(f.stack[i]); !strings.HasPrefix(fn.Method, messenger) {
			break
		}
	}
	return i
}

// reported returns the location of a frame from the CLR's own walk.
func (f *frameTable) reported(fr *agent.Frame) (int32, error) {
	ctx := arch.Context{Machine: f.p.Arch.Machine, IP: arch.Addr(fr.IP)}
	if fr.Function == 0 {
		return f.unmanaged(&ctx)
	}
	if l, ok := f.lasting[frameKey{ip: ctx.IP, managed: true}]; ok {
		return l, nil // also after the process has exited
	}
	code, ok, err := f.p.Walker.Managed(ctx.IP)
	if err != nil || !ok || uint64(code.MethodDesc) != fr.Function {
		code, err = f.p.Engine.Code(ctx.IP, arch.Addr(fr.Function))
	}
	if err != nil {
		return f.unnamed(profile.UnknownCode), err
	}
	if uint64(code.MethodDesc) != fr.Function {
		return f.unnamed(profile.UnloadedCode), nil
	}
	return f.location(&walk.Frame{Kind: walk.Managed, Context: &ctx, Code: &code}, 0, nil)
}

// unmanaged returns the location of the frame that stands for a run of unmanaged frames. Code outside
// any module is the runtime's: a stub, or a helper.
func (f *frameTable) unmanaged(ctx *arch.Context) (int32, error) {
	m := f.p.Engine.Modules.Find(ctx.IP)
	if m == nil && f.newMappings() {
		m = f.p.Engine.Modules.Find(ctx.IP)
	}
	if m == nil {
		return f.location(&walk.Frame{Kind: walk.Stub, Context: ctx}, 0, nil)
	}
	return f.location(&walk.Frame{Kind: walk.Native, Context: ctx, Module: m}, 0, nil)
}

// class returns the leaf for objects of a class.
func (f *frameTable) class(id clrsnap.ClassID) profile.Function {
	n, err := f.p.Class(arch.Addr(id))
	if err != nil {
		return eventFunction("[unloaded class]")
	}
	return profile.Function{Kind: snapshot.Event, Display: n.Display, Short: n.Short, Module: n.Assembly}
}

// exception returns the leaf of an exception, without its fate.
func (f *frameTable) exception(n *notification) profile.Function {
	if n.Class != 0 {
		return f.class(n.Class)
	}
	name := n.ClassName
	short := name
	if !strings.ContainsAny(name, "[`") { // otherwise the name has type arguments, with dots of their own
		short = name[strings.LastIndexByte(name, '.')+1:]
	}
	return profile.Function{Kind: snapshot.Event, Display: name, Short: short}
}

// starting is the leaf of the start of a thread: the thread's name, if the thread has a name already.
func (np *notifiedProcess) starting(n *notification) profile.Function {
	threads := np.rp.p.Runtime.Threads
	if t, err := threads.Read(arch.Addr(n.Other)); err == nil {
		if name, _ := threads.Name(&t); name != "" {
			return eventFunction("thread " + withoutNumbers(name))
		}
	}
	return eventFunction("thread")
}

// collective is a name that a thread shares with others of its kind: its role, or its name without
// numbers.
func collective(t session.Thread) string {
	switch {
	case t.Role != "":
		return t.Role
	case t.Name != "":
		return withoutNumbers(t.Name)
	}
	return "a thread without a name"
}

// withoutNumbers replaces each number in a name by #. The names of a pool's threads differ in nothing
// else.
func withoutNumbers(name string) string {
	var b strings.Builder
	in := false
	for _, r := range name {
		digit := unicode.IsDigit(r)
		switch {
		case !digit:
			b.WriteRune(r)
		case !in:
			b.WriteByte('#')
		}
		in = digit
	}
	return b.String()
}

// eventFunction is the leaf of an event without a class.
func eventFunction(what string) profile.Function {
	return profile.Function{Kind: snapshot.Event, Display: what, Short: what}
}
