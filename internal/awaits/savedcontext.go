package awaits

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/gcinfo"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind/insns"
)

// How to find the instantiation of a suspended method, if the method is shared generic code. The runtime itself has
// suspended the method.
//
// The method has saved its context, the source of the instantiation, if it needs the context later. The debug info of
// jitted code says where. ReadyToRun code has no such debug info, but tells whether the context was saved. If the
// context is a method or a class, the code allocates the Continuation with a helper. The helper gets the context and
// a place for the object that keeps the context alive. If the context is the method's object, and the code keeps the
// object for the runtime's own use, then the code keeps the object all the time. The context is then the saved word
// that fits the code. If several words fit, they must be of one instantiation, or it must be known that the method's
// object comes first.
//
// The JIT saves variables behind the runtime's own data: the execution context, the context to go on in, an
// exception, and the results of awaits. Among the variables, references come first, and among the references the
// method's object, variable 0. An await's result may be left over from before. So the order is not known if an await
// of the method can give a result.
//
// Sources (dotnet/runtime): src/coreclr/jit/async.cpp (ContinuationNeedsKeepAlive, CreateAllocContinuationCall,
// ContinuationLayoutBuilder::Create), src/coreclr/inc/jithelpers.h (CORINFO_HELP_ALLOC_CONTINUATION_METHOD). The
// order is the order of .NET 11.0.0, as in the debug info of jitted code.

// savingKey is where a method continues, and the number of the await.
type savingKey struct {
	ip    arch.Addr
	state int32
}

// saving is the place of a suspended method's context.
type saving struct {
	kind   gcinfo.Context // NoContext: nowhere, or not known
	offset uint32         // from the start of its Continuation, in bytes; 0: among the saved words
	first  bool           // the first fitting word is the context, unless the runtime needs that word
}

// maxSavings bounds the remembered places of contexts.
const maxSavings = 1 << 16

// savedContext reads the context of a suspended method; 0: not known.
func (p *Program) savedContext(m *async.Resumption) arch.Addr {
	code, err := p.runtime.Code.Lookup(m.IP)
	if err != nil || code.MethodDesc == 0 {
		return 0
	}
	s := p.savingOf(&code, m)
	switch {
	case s.kind == gcinfo.NoContext:
		return 0
	case s.offset == 0:
		return p.contextAmong(p.AsyncReader(), p.managed.Objects, &code, m, s)
	}
	at, err := p.managed.Objects.Word(m.Object + arch.Addr(s.offset))
	if err != nil {
		return 0
	}
	return contextOf(p.managed.Objects, at, s.kind)
}

// contextOf is the context of a word: a method, a class, or an object's class; 0: none.
func contextOf(objects *object.Reader, word arch.Addr, kind gcinfo.Context) arch.Addr {
	if kind != gcinfo.This {
		return word
	}
	class, err := objects.Class(word)
	if err != nil {
		return 0
	}
	return class.Table
}

// savingOf returns the place of a suspended method's context. For code that stays, the place is found once.
func (p *Program) savingOf(code *codemap.Code, m *async.Resumption) saving {
	key := savingKey{m.IP, m.State}
	if s, ok := p.savings[key]; ok {
		return s
	}
	out, err := p.findSaving(code, m)
	if err != nil || code.Collectible {
		return out
	}
	if p.savings == nil || len(p.savings) >= maxSavings {
		p.savings = map[savingKey]saving{}
	}
	p.savings[key] = out
	return out
}

func (p *Program) findSaving(code *codemap.Code, m *async.Resumption) (out saving, err error) {
	known, err := p.MethodOf(code)
	if err != nil {
		return out, err
	}
	n, err := p.runtime.Names.Method(&known.Method, code.Collectible)
	if err != nil || !n.Shared {
		return out, err
	}
	number, kind, ok := p.ContextArgument(&known.Method)
	if !ok {
		return out, nil
	}
	if code.Kind == codemap.ReadyToRun {
		if saves, err := p.savesContext(code, m.IP, kind); err != nil || !saves {
			return out, err
		}
		first := kind == gcinfo.This && p.noResults(&known.Method)
		return saving{kind: kind, first: first}, nil
	}
	list, err := p.runtime.IL.Saved(code, m.State, uint32(m.IP-code.MethodStart))
	for _, v := range list {
		if v.Number == number {
			out = saving{kind: kind, offset: v.Offset}
		}
	}
	return out, err
}

// savesContext reports whether ReadyToRun code certainly saves its context at the suspension.
func (p *Program) savesContext(code *codemap.Code, ip arch.Addr, kind gcinfo.Context) (bool, error) {
	if kind == gcinfo.This {
		place, err := p.runtime.Generic.Place(code)
		return place.Kind == gcinfo.This, err
	}
	const most = 96 // bytes: four or five instructions
	if ip >= code.End {
		return false, nil
	}
	b, err := target.NewReader(p.memory).Bytes(ip, int(min(most, code.End-ip)))
	if err != nil {
		return false, err
	}
	place, ok := insns.ThirdArgument(b)
	return ok && place%wordSize == 0 && place >= continuationData-objectHeader, nil
}

// noResults reports whether a method has awaits, and none gives a result.
func (p *Program) noResults(m *method.Method) bool {
	awaits, err := p.runtime.Names.Awaits(m.Module, m.RID)
	gives := func(a name.Await) bool { return a.Result }
	return err == nil && len(awaits) > 0 && !slices.ContainsFunc(awaits, gives)
}

// The least offset of a Continuation's data, in bytes, and the size of a word.
const (
	continuationData = 32
	wordSize         = 8
)

// contextAmong returns the context among the saved words of a method; 0: several words are possible.
func (p *Program) contextAmong(
	r *async.Reader, objects *object.Reader, code *codemap.Code, m *async.Resumption, s saving,
) (out arch.Addr) {
	known, err := p.MethodOf(code)
	if err != nil {
		return 0
	}
	var first method.Method
	several := false
	err = r.SavedWords(m, func(word arch.Addr) {
		context := contextOf(objects, word, s.kind)
		if context == 0 || context == out {
			return
		}
		x, err := p.runtime.Generic.Exact(&known.Method, s.kind, context)
		switch {
		case err != nil: // not a context
		case out == 0:
			out, first = context, x
		case x.MethodTable != first.MethodTable || !slices.Equal(x.Args, first.Args):
			several = true
		}
	})
	if err != nil || several && (!s.first || p.neededByRuntime(out)) {
		return 0
	}
	return out
}

// neededByRuntime reports whether the runtime itself may have saved an object of a class, to go on with the object.
func (p *Program) neededByRuntime(class arch.Addr) bool {
	c, err := p.managed.Objects.Table(class)
	if err != nil {
		return true
	}
	for _, base := range []string{contextClass, schedulerClass, exceptionName} {
		if c.Is(coreLib, base) {
			return true
		}
	}
	return false
}

// The contexts that a method goes on in.
const (
	contextClass   = "System.Threading.SynchronizationContext"
	schedulerClass = "System.Threading.Tasks.TaskScheduler"
)
