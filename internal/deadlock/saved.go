package deadlock

import (
	"errors"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/permits"
	"clrsnap/internal/naming"
	"clrsnap/internal/session"
	"clrsnap/snapshot"
)

// Permits and promised tasks of methods suspended by the runtime itself. As with state machines, the code tells the
// permits and tasks at each await. The objects are found by the variables in Continuations.

// resumedHave reports whether the methods suspended in a RuntimeAsyncTask are likely holders.
func (l *likely) resumedHave(obj arch.Addr) bool {
	steps, _, err := l.t.Reader.Methods(obj)
	if err != nil {
		l.blind = true
		return false
	}
	for i := range steps {
		if c := l.codeOfResumed(steps, i); c != nil && len(c.held)+len(c.promised) > 0 {
			return true
		}
	}
	return false
}

// codeOfResumed returns the permits and promised tasks of one of several methods suspended by the runtime; nil: none,
// or not known.
func (l *likely) codeOfResumed(steps []async.Step, i int) *suspendedCode {
	at := steps[i].Resumption
	if at == nil {
		return nil
	}
	m, _, ok := l.p.ResumedMethod(at)
	if !ok {
		l.blind = true
		return nil
	}
	code, err := l.p.PermitReader().Code(m.Module, m.RID)
	if err != nil || code.Empty() {
		l.blind = l.blind || err != nil
		return nil
	}
	inner := before(steps, i)
	key := naming.ResumedKey{IP: at.IP, State: at.State, Inner: l.p.StepName(inner)}
	if c, ok := l.resumed[key]; ok {
		return c
	}
	l.resumed[key] = nil
	c := &suspendedCode{of: permits.MethodID{Module: m.Module, RID: m.RID}}
	if !l.atAwait(c, code, at, inner) {
		l.blind = l.blind || holdsSome(code)
		return nil
	}
	l.resumed[key] = c
	return c
}

// before is the step that a step awaits; nil: none.
func before(steps []async.Step, i int) *async.Step {
	if i == 0 {
		return nil
	}
	return &steps[i-1]
}

// awaitsAt returns a suspended method, and the places in the IL of the awaits at which the runtime may have suspended
// the method. inner is the step that the method awaits; nil: none.
func (l *likely) awaitsAt(at *async.Resumption, inner *async.Step) (of method.Method, awaits []uint32, err error) {
	f, native := l.p.ResumedFrame(at)
	if native == nil {
		return of, nil, errNoMethod
	}
	awaits, err = l.p.FindAwaitILs(&f.Of.Method, native, at, l.p.StepName(inner))
	return f.Of.Method, awaits, err
}

var errNoMethod = errors.New("the code belongs to no known method")

// atAwait finds the permits and promised tasks at the await of a suspended method; false: several awaits are
// possible, with different results.
func (l *likely) atAwait(c *suspendedCode, code *permits.Code, at *async.Resumption, inner *async.Step) bool {
	_, awaits, err := l.awaitsAt(at, inner)
	if err != nil || len(awaits) == 0 {
		return false
	}
	for i, il := range awaits {
		held, promised := code.At(il, il+1)
		if i == 0 {
			c.held, c.promised = held, promised
		} else if !slices.Equal(held, c.held) || !slices.Equal(promised, c.promised) {
			return false
		}
	}
	return true
}

// dutiesOfResumed finds the semaphores and tasks that suspended methods are going to release or complete. unsure: a
// method may have a permit of another semaphore.
func (l *likely) dutiesOfResumed(steps []async.Step) (out []duty, unsure bool) {
	for i := range steps {
		c := l.codeOfResumed(steps, i)
		if c == nil || len(c.held)+len(c.promised) == 0 {
			continue
		}
		list := dutiesAt(l.p, c.of, c.held, c.promised, savedRoots(l.p, steps[i].Resumption))
		unsure = unsure || missesPermit(c.held, list)
		out = append(out, list...)
	}
	return out, unsure
}

// savedRoots are the saved arguments and variables of a method, as far as the debug info of the code tells. The
// method's own object, and the objects that lead to semaphores and tasks, can also be found by class, if a single
// object of the class is saved.
func savedRoots(p *session.Process, at *async.Resumption) permits.Roots {
	none := func(permits.Variable) (permits.Place, bool) { return permits.Place{}, false }
	code, err := p.Runtime.Code.Lookup(at.IP)
	if err != nil {
		return none
	}
	m, _, ok := p.ResumedMethod(at)
	if !ok {
		return none
	}
	static, err := p.Runtime.Names.IsStatic(&m)
	if err != nil {
		return none
	}
	uses, err := p.PermitReader().Code(m.Module, m.RID)
	if err != nil {
		return none
	}
	saved := savedVariables(p, at, &code)
	arguments, err := p.Runtime.Names.Arguments(m.Module, m.RID)
	return func(v permits.Variable) (out permits.Place, ok bool) {
		number := uint32(v.Number)
		if v.Local {
			number += uint32(arguments)
		}
		offset, known := saved[number]
		switch {
		case v.Local && err != nil:
			return out, false
		case known:
			out, ok = placeAt(p, at.Object+arch.Addr(offset))
		}
		switch {
		case ok:
			return out, true
		case v == permits.This && !static:
			return savedThis(p, at, &m)
		}
		if fits := p.PermitReader().Fitting(uses, v); fits != nil {
			return savedOnly(p, at, fits)
		}
		return out, false
	}
}

// placeAt returns the object that a word refers to.
func placeAt(p *session.Process, word arch.Addr) (out permits.Place, ok bool) {
	obj, err := p.Managed.Objects.Word(word)
	if err != nil || obj == 0 {
		return out, false
	}
	class, err := p.Managed.Objects.Class(obj)
	return permits.Place{At: obj, Class: class}, err == nil
}

// savedVariables returns the offsets of a method's variables in its Continuation, by their numbers.
func savedVariables(p *session.Process, at *async.Resumption, code *codemap.Code) map[uint32]uint32 {
	list, err := p.Runtime.IL.Saved(code, at.State, uint32(at.IP-code.MethodStart))
	if err != nil {
		return nil
	}
	out := make(map[uint32]uint32, len(list))
	for _, v := range list {
		out[v.Number] = v.Offset
	}
	return out
}

// savedThis returns the object of a suspended method, by its class.
func savedThis(p *session.Process, at *async.Resumption, m *method.Method) (out permits.Place, ok bool) {
	of, err := p.Runtime.Types.Canonical(m.MethodTable)
	if err != nil {
		return out, false
	}
	return savedOnly(p, at, func(class *object.Class) bool {
		for c := range class.Bases {
			if is, err := p.Runtime.Types.Canonical(c.Table); err == nil && is == of {
				return true
			}
		}
		return false
	})
}

// savedOnly returns the only saved object of some class; false: there are none or several.
func savedOnly(p *session.Process, at *async.Resumption, is func(*object.Class) bool) (out permits.Place, ok bool) {
	several := false
	err := p.AsyncReader().Saved(at, func(obj arch.Addr, class *object.Class) {
		if obj != out.At && is(class) {
			several = several || out.At != 0
			out = permits.Place{At: obj, Class: class}
		}
	})
	return out, err == nil && !several && out.At != 0
}

// addRunning adds to threads the permits and promised tasks of the awaiters of resumed methods: while a resumed
// method runs, only its thread leads to the awaiters.
func (l *likely) addRunning() {
	byThread := map[int]int{}
	for i := range l.out.Threads {
		byThread[l.out.Threads[i].OSThreadID] = i
	}
	for task, tid := range l.t.ResumedBy(l.out.Threads) {
		i := byThread[tid]
		var list []duty
		unsure, runs := false, false
		stands := l.p.Moments().Read(func() (err error) {
			var steps []async.Step
			list, unsure = nil, false
			if steps, runs, err = l.t.Resuming(task); err == nil && runs {
				list, unsure = l.dutiesOfResumed(steps)
			}
			return err
		}, nil)
		l.unsure = l.unsure || unsure || !stands
		if stands && runs {
			if !slices.Contains(l.runs[task], i) {
				l.runs[task] = append(l.runs[task], i)
			}
			l.addDuties(snapshot.ThreadNode(i), list)
		}
	}
}
