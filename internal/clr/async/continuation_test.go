package async

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
)

// resumed adds a RuntimeAsyncTask with methods that wait at addresses, the innermost first; 0: a method of the
// runtime.
func (p *program) resumed(of *clrtest.Class, ips ...arch.Addr) arch.Addr {
	task := p.Object(p.Instance(p.runtimeTask, p.object.Table))
	next := arch.Addr(0)
	for i := len(ips) - 1; i >= 0; i-- {
		at := p.Object(of)
		p.Words[at+8] = uint64(next)
		if ips[i] != 0 {
			info := p.Room(16)
			p.Words[info+8], p.Words[at+16] = uint64(ips[i]), uint64(info)
		}
		p.Uint32(at+28, uint32(i))
		next = at
	}
	p.Set(task, p.runtimeTask, headField, uint64(next))
	return task
}

// resumable is the MethodTable of a RuntimeAsyncTask.
func (p *program) resumable() arch.Addr { return p.Instance(p.runtimeTask, p.object.Table).Table }

func ipsOf(steps []Step) (out []arch.Addr) {
	for _, s := range steps {
		if s.Resumption != nil {
			out = append(out, s.Resumption.IP)
		} else {
			out = append(out, 0)
		}
	}
	return out
}

func equal(a []arch.Addr, b ...arch.Addr) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// TestRuntimeAsync: methods that the runtime of .NET 11 suspends, between methods with state machines.
func TestRuntimeAsync(t *testing.T) {
	p := newProgram(t, clrtest.Net11)
	of := p.Continuation(p.continuation)
	r := p.reader(t)
	delay, outer := p.Object(p.task), p.suspended(p.outerBox, 0)
	task := p.resumed(of, 0x7f00_1000, 0, 0x7f00_2000)
	p.continues(delay, task)
	p.continues(task, outer)
	class := arch.Addr(p.Words[task])
	if !r.IsBox(class) || r.IsBox(p.task.Table) {
		t.Error("not recognised, or too much")
	}
	if to, err := r.Next(delay); err != nil || to != task {
		t.Errorf("%v, %v", to, err)
	}
	c, err := r.Awaiting(delay)
	if err != nil || !equal(ipsOf(c.Steps), 0x7f00_1000, 0x7f00_2000, 0) || c.End != Nobody || c.Last != outer {
		t.Fatalf("%+v, %v", c, err)
	}
	if s := c.Steps[1].Resumption.State; s != 2 {
		t.Errorf("state %d", s)
	}
	steps, alive, err := r.Methods(task)
	if err != nil || !alive || !equal(ipsOf(steps), 0x7f00_1000, 0x7f00_2000) {
		t.Errorf("%v, %v, %v", ipsOf(steps), alive, err)
	}
	if steps, alive, err := r.Methods(outer); err != nil || !alive || len(steps) != 1 || steps[0].Box == nil {
		t.Errorf("%v, %v, %v", steps, alive, err)
	}
	for what, head := range map[string]arch.Addr{"running": 0, "what is no Continuation": outer} {
		p.Set(task, p.runtimeTask, headField, uint64(head))
		if steps, alive, err := r.Methods(task); err != nil || alive || len(steps) > 0 {
			t.Errorf("%s: %v, %v, %v", what, ipsOf(steps), alive, err)
		}
	}
}

// TestAwaitedIn: the object awaited by the innermost of the methods suspended together.
func TestAwaitedIn(t *testing.T) {
	p := newProgram(t, clrtest.Net11)
	of := p.Continuation(p.continuation)
	delay, source := p.Object(p.whenAll), p.Object(p.action)
	behind := func(leaf, task arch.Addr) {
		p.Words[leaf+8] = p.Words[task+16]
		p.Set(task, p.runtimeTask, headField, uint64(leaf))
	}
	ofTask, ofSource := p.resumed(of, 0x7f00_1000), p.resumed(of, 0x7f00_2000)
	leaf := p.Object(p.ofTask)
	p.Set(leaf, p.ofTask, "Task", uint64(delay))
	p.Set(leaf, p.ofTask, "RuntimeAsyncTask", uint64(ofTask))
	behind(leaf, ofTask)
	p.continues(delay, leaf)
	from := p.Object(p.ofSource)
	p.Set(from, p.ofSource, "Source", uint64(source))
	behind(from, ofSource)

	// A method saves the awaiter, or the object that resumes the method, among other things: with a delegate, or
	// behind a wrapper.
	custom, wrapped, nothing := p.resumed(of, 0x7f00_3000), p.resumed(of, 0x7f00_4000), p.resumed(of, 0x7f00_5000)
	awaiter, other, waited := p.Object(p.awaiter), p.Object(p.awaiter), p.Object(p.task)
	for task, saved := range map[arch.Addr]arch.Addr{custom: awaiter, wrapped: waited, nothing: other} {
		action := p.Object(p.action)
		p.Set(action, p.action, "_target", uint64(task))
		p.Set(task, p.runtimeTask, "m_action", uint64(action))
		head := arch.Addr(p.Words[task+16])
		p.Words[head+32], p.Words[head+40] = 42, uint64(saved)
		switch saved {
		case awaiter:
			p.Set(awaiter, p.awaiter, "_go", uint64(action))
		case waited:
			wrapper := p.Object(p.wrapper)
			p.Set(wrapper, p.wrapper, "_continuation", uint64(action))
			p.continues(waited, wrapper)
		}
	}
	r := p.reader(t)
	for task, want := range map[arch.Addr]arch.Addr{
		ofTask: delay, ofSource: source, custom: awaiter, wrapped: waited, nothing: 0,
	} {
		a, err := r.AwaitedIn(task)
		if err != nil || a.Object != want || want != 0 && a.Class == nil {
			t.Errorf("%v: %+v, %v, want %v", task, a, err, want)
		}
		if steps, alive, err := r.Methods(task); err != nil || !alive || len(steps) != 1 || steps[0].Task() != task {
			t.Errorf("%v: %v, %v, %v", task, steps, alive, err)
		}
	}
	if c, err := r.Awaiting(delay); err != nil || !equal(ipsOf(c.Steps), 0x7f00_1000) {
		t.Errorf("%+v, %v", c, err)
	}
	if a, err := r.AwaitedIn(delay); err != nil || a.Object != 0 {
		t.Errorf("of another task: %+v, %v", a, err)
	}
}

// TestRuntimeAsyncHostile: Continuations that lead to themselves, or nowhere, end a chain.
func TestRuntimeAsyncHostile(t *testing.T) {
	p := newProgram(t, clrtest.Net11)
	of := p.Continuation(p.continuation)
	ips := make([]arch.Addr, 3*maxSteps)
	for i := range ips {
		ips[i] = 0x7f00_1000
	}
	long := p.resumed(of, ips...)
	circle := p.resumed(of, 0x7f00_1000, 0x7f00_2000)
	head := arch.Addr(p.Words[circle+16])
	p.Words[arch.Addr(p.Words[head+8])+8] = uint64(head)
	r := p.reader(t)
	if steps, _, err := r.Methods(circle); err != nil || len(steps) != 2 {
		t.Errorf("%d steps, %v", len(steps), err)
	}
	if steps, _, err := r.Methods(long); err != nil || len(steps) != maxSteps {
		t.Errorf("%d steps, %v", len(steps), err)
	}
	inner := p.suspended(p.innerBox, 0)
	p.continues(inner, long)
	p.continues(long, circle)
	if c, err := r.Awaiting(inner); err != nil || len(c.Steps) > maxSteps || c.End != Cyclic {
		t.Errorf("%d steps, end %d, %v", len(c.Steps), c.End, err)
	}
	p.Words[head+8] = 0x6fff_0000
	if _, _, err := r.Methods(circle); err == nil {
		t.Error("what is not there is read")
	}
}

// TestNoRuntimeAsync: before .NET 11 there are no methods suspended by the runtime.
func TestNoRuntimeAsync(t *testing.T) {
	p := newProgram(t, clrtest.Net10)
	task := p.resumed(p.continuation, 0x7f00_1000)
	if steps, alive, err := p.reader(t).Methods(task); err != nil || alive || len(steps) > 0 {
		t.Errorf("%v, %v, %v", steps, alive, err)
	}
}
