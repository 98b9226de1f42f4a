package async

import (
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
)

// TestDispatching: the awaiters of running methods, by the frames that have resumed the methods: a resumed method has
// resumed another method.
func TestDispatching(t *testing.T) {
	p := newProgram(t, clrtest.Net11)
	l := DispatcherLayout{Next: 0, Continuation: 8, Task: 16}
	const newest, stack = arch.Addr(0x7000_0000), arch.Addr(0x7100_0000)
	of := p.Continuation(p.continuation)
	info := func(at, next, task arch.Addr) {
		p.Zero(at, 24)
		p.Words[at], p.Words[at+16] = uint64(next), uint64(task)
		p.Words[at+8] = p.Words[task+16] // the methods are not in the task any more
		p.Set(task, p.runtimeTask, headField, 0)
	}
	inner, outer := p.resumed(of, 0x7f00_1000, 0x7f00_2000), p.resumed(of, 0x7f00_3000)
	box, last := p.suspended(p.outerBox, 0), p.resumed(of, 0x7f00_4000)
	p.continues(inner, box)
	p.continues(outer, last)
	info(stack+0x100, stack+0x800, inner)
	info(stack+0x800, 0, outer)
	p.Words[newest] = uint64(stack + 0x100)
	r := p.reader(t)

	resuming := func(low, high arch.Addr) ([]arch.Addr, error) {
		d, err := r.Dispatching(newest, l, low, high)
		if err != nil {
			return nil, err
		}
		c, err := r.Resuming(d)
		return ipsOf(c.Steps), err
	}
	for _, tt := range []struct {
		what      string
		low, high arch.Addr
		want      []arch.Addr
	}{
		{"the inner one", stack + 0x80, stack + 0x180, []arch.Addr{0x7f00_1000, 0x7f00_2000, 0}},
		{"the outer one", stack + 0x700, stack + 0x900, []arch.Addr{0x7f00_3000, 0x7f00_4000}},
		{"its frame begins with it", stack + 0x800, stack + 0x801, []arch.Addr{0x7f00_3000, 0x7f00_4000}},
	} {
		if got, err := resuming(tt.low, tt.high); err != nil || !equal(got, tt.want...) {
			t.Errorf("%s: %v, %v", tt.what, got, err)
		}
	}
	none := func(what string, low, high arch.Addr) {
		t.Helper()
		if got, err := resuming(low, high); !errors.Is(err, ErrNotDispatching) {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	for at, want := range map[arch.Addr]bool{
		stack + 0x100: true, stack + 0x800: true, stack + 0x108: false, stack + 0x110: false, newest: false,
	} {
		if got := r.IsDispatching(at, stack+0x1000, l); got != want {
			t.Errorf("%v is a structure: %v", at, got)
		}
	}
	if r.IsDispatching(stack+0x100, stack+0x800, l) {
		t.Error("a structure leads beyond the stack")
	}
	after := p.Words[stack+0x100+8]
	p.Words[stack+0x100+8] = uint64(box)
	if r.IsDispatching(stack+0x100, stack+0x1000, l) {
		t.Error("the next Continuation is a box")
	}
	p.Words[stack+0x100+8] = after
	none("a frame nearer to the leaf", stack, stack+0x100)
	none("between them", stack+0x200, stack+0x700)
	none("nearer to the base", stack+0x900, stack+0xa00)
	p.Words[stack+0x800+16] = uint64(box)
	none("of what is no task", stack+0x700, stack+0x900)
	p.Words[stack+0x100] = uint64(stack + 0x100)
	none("a circle", stack+0x700, stack+0x900)
	p.Words[newest] = 0
	none("none", stack, stack+0x900)
	p.Words[newest] = 0x7200_0000
	if got, err := resuming(0x7200_0000, 0x7200_0100); err == nil || errors.Is(err, ErrNotDispatching) {
		t.Errorf("not to be read: %v, %v", got, err)
	}
}
