package session

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/permits"
	"clrsnap/internal/naming"
	"clrsnap/profile"
)

// Permits and promised tasks of methods suspended by the runtime itself. As with state machines, the code tells the
// permits and tasks at each await. The objects are found by the variables in Continuations.

// resumedHave reports whether the methods suspended in a RuntimeAsyncTask are likely holders.
func (l *likely) resumedHave(obj arch.Addr) bool {
	steps, _, err := l.t.r.Methods(obj)
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
	code, err := l.p.permitReader().Code(m.Module, m.RID)
	if err != nil || code.Empty() {
		l.blind = l.blind || err != nil
		return nil
	}
	inner := ""
	if i > 0 {
		inner = l.p.StepName(&steps[i-1])
	}
	key := naming.ResumedKey{IP: at.IP, State: at.State, Inner: inner}
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

// atAwait finds the permits and promised tasks at the await of a suspended method; false: several awaits are
// possible, with different results.
func (l *likely) atAwait(c *suspendedCode, code *permits.Code, at *async.Resumption, inner string) bool {
	f, native := l.p.ResumedFrame(at)
	if native == nil {
		return false
	}
	awaits, err := l.p.FindAwaitILs(&f.Of.Method, native, at, inner)
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
		list := l.p.dutiesAt(c.of, c.held, c.promised, l.p.savedRoots(steps[i].Resumption))
		unsure = unsure || missesPermit(c.held, list)
		out = append(out, list...)
	}
	return out, unsure
}

// savedRoots are the saved arguments and variables of a method, as far as the debug info of the code tells. The
// method's own object, and the objects that lead to semaphores and tasks, can also be found by class, if a single
// object of the class is saved.
func (p *Process) savedRoots(at *async.Resumption) permits.Roots {
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
	uses, err := p.permitReader().Code(m.Module, m.RID)
	if err != nil {
		return none
	}
	saved := p.savedVariables(at, &code)
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
			out, ok = p.placeAt(at.Object + arch.Addr(offset))
		}
		switch {
		case ok:
			return out, true
		case v == permits.This && !static:
			return p.savedThis(at, &m)
		}
		if fits := p.permitReader().Fitting(uses, v); fits != nil {
			return p.savedOnly(at, fits)
		}
		return out, false
	}
}

// placeAt returns the object that a word refers to.
func (p *Process) placeAt(word arch.Addr) (out permits.Place, ok bool) {
	obj, err := p.Managed.Objects.Word(word)
	if err != nil || obj == 0 {
		return out, false
	}
	class, err := p.Managed.Objects.Class(obj)
	return permits.Place{At: obj, Class: class}, err == nil
}

// savedVariables returns the offsets of a method's variables in its Continuation, by their numbers.
func (p *Process) savedVariables(at *async.Resumption, code *codemap.Code) map[uint32]uint32 {
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
func (p *Process) savedThis(at *async.Resumption, m *method.Method) (out permits.Place, ok bool) {
	of, err := p.Runtime.Types.Canonical(m.MethodTable)
	if err != nil {
		return out, false
	}
	return p.savedOnly(at, func(class *object.Class) bool {
		for c := range class.Bases {
			if is, err := p.Runtime.Types.Canonical(c.Table); err == nil && is == of {
				return true
			}
		}
		return false
	})
}

// savedOnly returns the only saved object of some class; false: there are none or several.
func (p *Process) savedOnly(at *async.Resumption, is func(*object.Class) bool) (out permits.Place, ok bool) {
	several := false
	err := p.asyncReader().Saved(at, func(obj arch.Addr, class *object.Class) {
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
	t := l.t
	t.running, t.looks, t.threads = map[arch.Addr]*runningTask{}, 0, nil
	if !t.r.Resumptions() || !t.canResume() {
		return
	}
	byThread := map[int]int{}
	for i := range l.out.Threads {
		th := &l.out.Threads[i]
		byThread[th.OSThreadID] = i
		t.threads = append(t.threads, Thread{ID: arch.Addr(th.ThreadID), OSThreadID: th.OSThreadID})
	}
	t.lookForRunning()
	for task, run := range t.running {
		i := byThread[run.thread.OSThreadID]
		var list []duty
		unsure, runs := false, false
		stands := l.p.moments.Read(func() error {
			list, unsure, runs = nil, false, false
			d, err := t.dispatching(run)
			if err != nil || d.Task != task {
				return err
			}
			chain, err := t.r.Resuming(d)
			if err == nil {
				runs = true
				list, unsure = l.dutiesOfResumed(chain.Steps)
			}
			return err
		}, nil)
		l.unsure = l.unsure || unsure || !stands
		if stands && runs {
			if !slices.Contains(l.runs[task], i) {
				l.runs[task] = append(l.runs[task], i)
			}
			l.addDuties(profile.ThreadParty(i), list)
		}
	}
}
