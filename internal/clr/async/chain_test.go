package async

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
)

// steps are the names of a chain's steps.
func steps(c *Chain) (out []string) {
	for _, s := range c.Steps {
		switch {
		case s.Box != nil:
			out = append(out, s.Box.Machine.Display)
		case s.Resumption != nil:
			out = append(out, s.Resumption.IP.String())
		default:
			out = append(out, s.Label)
		}
	}
	return out
}

// The descriptors that support made-up programs: .NET 8 keeps emitted metadata elsewhere.
var descriptors = []string{clrtest.Net9, clrtest.Net10, clrtest.Net11}

// TestAwaiting: each way from a task to the awaiting method.
func TestAwaiting(t *testing.T) {
	for _, d := range descriptors {
		t.Run(d, func(t *testing.T) {
			p := newProgram(t, d)
			for name, tt := range ways(p) {
				chain, err := p.reader(t).Awaiting(tt.from)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if !slices.Equal(steps(&chain), tt.steps) || chain.End != tt.end || chain.Count != tt.count {
					t.Errorf("%s: %q, end %d, %d times", name, steps(&chain), chain.End, chain.Count)
				}
			}
		})
	}
}

type way struct {
	from  arch.Addr
	steps []string
	end   End
	count int
}

func ways(p *program) map[string]way {
	// through leads from a box of Inner, through an object, to a box of Middle, and a box of Outer awaits Middle.
	through := func(link func(middle arch.Addr) arch.Addr) arch.Addr {
		inner, middle, outer := p.suspended(p.innerBox, 0), p.suspended(p.middleBox, 0), p.suspended(p.outerBox, 0)
		p.continues(inner, link(middle))
		p.continues(middle, outer)
		return inner
	}
	with := func(c *clrtest.Class, field string) func(arch.Addr) arch.Addr {
		return func(to arch.Addr) arch.Addr {
			at := p.Object(c)
			p.Set(at, c, field, uint64(to))
			return at
		}
	}
	list := func(size int, refs ...arch.Addr) arch.Addr {
		at := p.Object(p.list)
		p.Set(at, p.list, "_items", uint64(p.Array(p.objects, refs...)))
		p.Set(at, p.list, "_size", uint64(size))
		return at
	}
	thread := p.Object(p.mres)
	sentinel := p.Object(p.object)
	const whenAll = "System.Threading.Tasks.Task.WhenAll"
	both := []string{"Shop.Store.Middle", "Shop.Store.Outer"}
	circle := p.suspended(p.innerBox, 0)
	p.continues(circle, circle)
	unknown := p.Object(p.wrapper) // no task has a wrapper without a delegate as its continuation
	nested := p.Object(p.list)
	p.Set(nested, p.list, "_items", uint64(p.Array(p.objects, slices.Repeat([]arch.Addr{nested}, 64)...)))
	p.Set(nested, p.list, "_size", 64)
	return map[string]way{
		"directly": {from: through(func(m arch.Addr) arch.Addr { return m }), steps: both},
		"delegate": {from: through(with(p.action, "_target")), steps: both},
		"wrapped delegate": {
			from: through(func(m arch.Addr) arch.Addr {
				return with(p.action, "_target")(with(p.wrapper, "_continuation")(with(p.action, "_target")(m)))
			}),
			steps: both,
		},
		"context": {from: through(with(p.continuing, "m_action")), steps: both},
		"WhenAll": {from: through(with(p.whenAll, "m_continuationObject")),
			steps: append([]string{whenAll}, both...)},
		"list of one": {from: through(func(m arch.Addr) arch.Addr { return list(2, 0, m) }), steps: both},
		"list": {
			from: through(func(m arch.Addr) arch.Addr { return list(2, m, m) }), end: Several, count: 2,
		},
		"long list": {
			from: through(func(m arch.Addr) arch.Addr { return list(1000, slices.Repeat([]arch.Addr{m}, 1000)...) }),
			end:  Several, count: 1000,
		},
		"lists in a list": {from: through(func(arch.Addr) arch.Addr { return nested }), end: Several, count: 64},
		"thread":          {from: through(func(arch.Addr) arch.Addr { return thread }), end: Thread},
		"complete":        {from: through(func(arch.Addr) arch.Addr { return sentinel }), end: Done},
		"nobody":          {from: p.suspended(p.innerBox, 0)},
		"itself":          {from: circle, end: Cyclic},
		"what is unknown": {from: through(func(arch.Addr) arch.Addr { return unknown }), end: Unknown},
	}
}

// TestBox: a box leads to the method, and to the object that the method waits for; the state machine leads to the
// box.
func TestBox(t *testing.T) {
	for _, d := range descriptors {
		p := newProgram(t, d)
		r := p.reader(t)
		task := p.Object(p.task)
		at := p.suspended(p.innerBox, task)
		p.Uint32(at+boxState, 2)
		b, err := r.Box(at)
		if err != nil || b.State != 2 || !b.HasState || b.Machine.Display != "Shop.Store.Inner" {
			t.Fatalf("%s: %+v, %v", d, b, err)
		}
		if alive, err := r.Alive(b); err != nil || !alive {
			t.Errorf("%s: alive: %v, %v", d, alive, err)
		}
		if a, err := r.Awaited(b); err != nil || a.Object != task {
			t.Errorf("%s: awaits %v, %v", d, a.Object, err)
		}
		if own, err := r.Of(at+boxState, p.inner.Table); err != nil || own.Object != at {
			t.Errorf("%s: its state machine is of %+v, %v", d, own, err)
		}
		if _, err := r.Box(task); !errors.Is(err, ErrNoBox) {
			t.Errorf("%s: a task is a box: %v", d, err)
		}
		p.Words[at+boxBuilder] = 0
		if alive, err := r.Alive(b); err != nil || alive {
			t.Errorf("%s: without a builder it is alive: %v, %v", d, alive, err)
		}
	}
}

// fuzzed is the memory of a program with objects of fuzz data.
type fuzzed struct {
	types   clrtest.Words
	objects clrtest.Words
}

func (f *fuzzed) ReadMemory(p []byte, at arch.Addr) error {
	if err := f.objects.ReadMemory(p, at); err == nil {
		return nil
	}
	return f.types.ReadMemory(p, at)
}

const (
	fuzzedAt   = arch.Addr(0x7000_0000)
	fuzzedSize = 160 // bytes of an object
	maxFuzzed  = 64
)

// scatter makes objects of data. The first byte of each object chooses its class, and the following bytes its words.
// Most words refer to other objects.
func scatter(data []byte, tables []arch.Addr) (clrtest.Words, int) {
	const each = 1 + fuzzedSize/8
	words, n := clrtest.Words{}, 0
	for ; len(data) > 0 && n < maxFuzzed; n++ {
		chunk := make([]byte, each)
		data = data[copy(chunk, data):]
		at := fuzzedAt + arch.Addr(n)*fuzzedSize
		words[at] = uint64(tables[int(chunk[0])%len(tables)])
		for i := 1; i < fuzzedSize/8; i++ {
			switch b := chunk[i+1]; {
			case b < maxFuzzed:
				words[at+8*arch.Addr(i)] = uint64(fuzzedAt) + uint64(b)*fuzzedSize
			case b < 128:
				words[at+8*arch.Addr(i)] = uint64(b-maxFuzzed) | uint64(b)<<32
			case b < 250:
				words[at+8*arch.Addr(i)] = 0
			default:
				words[at+8*arch.Addr(i)] = ^uint64(b)
			}
		}
	}
	return words, n
}

// FuzzChains: objects of all classes in chains refer to one another in any way. Each chain is bounded, and is read in
// bounded time.
func FuzzChains(f *testing.F) {
	p := newProgram(f, clrtest.Net11)
	tables := []arch.Addr{p.objects, p.Continuation(p.continuation).Table, p.resumable()}
	for _, c := range []*clrtest.Class{
		p.object, p.task, p.whenAll, p.mres, p.continuing, p.list, p.delegate, p.action, p.actionOfObject, p.wrapper,
		p.innerBox, p.middleBox, p.outerBox, p.pooledBox, p.itemsBox, p.items,
	} {
		tables = append(tables, c.Table)
	}
	f.Add([]byte{11, 0, 0, 0, 0, 0})
	f.Add(slices.Repeat([]byte{6, 1, 64 + 63}, 200))             // lists
	f.Add(slices.Repeat([]byte{0, 65, 1, 2, 3, 4, 5, 6, 7}, 60)) // arrays
	f.Fuzz(func(t *testing.T, data []byte) {
		words, n := scatter(data, tables)
		mem := &fuzzed{p.Words, words}
		word := binary.LittleEndian.Uint64(append(slices.Clone(data), make([]byte, 8)...))
		for _, r := range []*Reader{newReader(t, mem, clrtest.Net11), p.hiddenReader(t, mem)} {
			took := testenv.Worked(func() {
				for i := range n {
					follow(t, r, fuzzedAt+arch.Addr(i)*fuzzedSize, word)
				}
			})
			if took > 5*time.Second {
				t.Errorf("%d objects took %v", n, took)
			}
		}
	})
}

// follow makes all reads of an object.
func follow(t *testing.T, r *Reader, obj arch.Addr, word uint64) {
	c, err := r.Awaiting(obj)
	if err == nil && (len(c.Steps) > maxSteps || (c.End == Several) != (c.Count > 1)) {
		t.Errorf("%d steps, end %d, %d times", len(c.Steps), c.End, c.Count)
	}
	if missing := (*target.ReadError)(nil); err != nil && !errors.As(err, &missing) && err.Error() == "" {
		t.Error("an error without words")
	}
	_, _ = r.Next(obj)
	if steps, _, _ := r.Methods(obj); len(steps) > maxSteps {
		t.Errorf("%d methods", len(steps))
	}
	if class, err := r.objects.Class(obj); err == nil {
		_ = r.OfMachine(obj, class)
		_, _ = r.Of(obj, class.Table)
	}
	_, _ = r.Of(arch.Addr(word), obj)
	b, err := r.Box(obj)
	if err != nil {
		return
	}
	if b.Machine == nil || b.Object != obj {
		t.Errorf("%+v", b)
	}
	_, _ = r.Alive(b)
	_, _ = r.Awaited(b)
}
