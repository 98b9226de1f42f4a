package async

import (
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/target"
)

// hiding has the fields of System.Private.CoreLib, and of other classes only the places of references.
type hiding struct {
	object.Types
	places map[arch.Addr][]uint32
}

func (h hiding) EachField(mt arch.Addr, visit func(name string, offset uint32, reference bool)) error {
	if full, err := h.FullName(mt); err != nil || strings.HasPrefix(full, "Shop.") {
		return types.ErrFields
	}
	return h.Types.EachField(mt, visit)
}

func (h hiding) Places(mt arch.Addr) ([]uint32, error) { return h.places[mt], nil }

// hiddenReader returns a reader of objects in a memory, of a program that hides the fields of its state machines.
func (p *program) hiddenReader(t testing.TB, heap target.Memory) *Reader {
	t.Helper()
	d := clrtest.Descriptor(t, p.Descriptor())
	ts, err := types.New(p, d)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := method.New(p, d, ts)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := name.New(p, d, ts, ms)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := object.New(p, d, ts, ns)
	if err != nil {
		t.Fatal(err)
	}
	inBox := []uint32{8, 16, 32, boxBuilder, boxAwaiter}
	objects, err := object.NewOf(heap, d, hiding{whole.Types(), map[arch.Addr][]uint32{
		p.innerBox.Table: inBox, p.middleBox.Table: inBox, p.outerBox.Table: inBox, p.pooledBox.Table: inBox,
		p.itemsBox.Table: inBox, p.items.Table: {16, 24, 32, 40}, p.awaiter.Table: {8, 16},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(d, objects, ns)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestHidden: what the references in state machines tell without the names of fields.
func TestHidden(t *testing.T) {
	p := newProgram(t, clrtest.Net11)
	inner, middle, outer := p.suspended(p.innerBox, 0), p.suspended(p.middleBox, 0), p.suspended(p.outerBox, 0)
	p.Words[middle+boxAwaiter], p.Words[outer+boxAwaiter] = uint64(inner), uint64(middle)
	p.continues(inner, middle)
	p.continues(middle, outer)
	source := func(delegate *clrtest.Class, to arch.Addr) arch.Addr {
		at := p.Object(p.awaiter)
		p.Words[at+8], p.Words[at+16] = uint64(p.Object(delegate)), uint64(to)
		return at
	}
	ofSource, ofOther := p.suspended(p.innerBox, 0), p.suspended(p.innerBox, 0)
	valueTask, timer := source(p.actionOfObject, ofSource), source(p.action, ofOther)
	p.Words[ofSource+boxAwaiter], p.Words[ofOther+boxAwaiter] = uint64(valueTask), uint64(timer)
	ofAnother := p.suspended(p.innerBox, 0)
	p.Words[ofAnother+boxAwaiter] = uint64(valueTask)
	ended, copied, number := p.suspended(p.innerBox, 0), p.suspended(p.innerBox, 0), p.suspended(p.innerBox, 0)
	p.Words[ended+boxBuilder], p.Words[ended+8] = 0, uint64(ended)
	p.Words[copied+boxBuilder] = uint64(inner)
	p.Words[number+boxAwaiter] = 12345
	iterator := p.Object(p.items)
	items := p.Object(p.itemsBox)
	p.Words[items+boxState], p.Words[iterator+24] = uint64(iterator), uint64(items)
	inner2 := p.suspended(p.innerBox, 0)
	p.Words[iterator+16] = uint64(inner2)
	p.continues(inner2, items)
	consumer, stranger := p.suspended(p.middleBox, iterator), p.suspended(p.middleBox, 0)
	p.Words[iterator+32], p.Words[iterator+40] = uint64(p.Object(p.actionOfObject)), uint64(consumer)
	p.continues(consumer, outer)
	p.continues(items, stranger)

	r := p.hiddenReader(t, p)
	for name, tt := range map[string]struct{ box, awaited, current arch.Addr }{
		"of nothing known":           {inner, 0, inner},
		"of a task":                  {middle, inner, middle},
		"of a task that awaits":      {outer, middle, outer},
		"of a source":                {ofSource, valueTask, ofSource},
		"of an object with an event": {ofOther, 0, ofOther},
		"of another's source":        {ofAnother, 0, ofAnother},
		"ended":                      {ended, 0, 0},
		"moved":                      {copied, 0, inner},
		"with a number":              {number, 0, number},
		"of a class":                 {items, inner2, items},
	} {
		b, err := r.Box(tt.box)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if current, err := r.Current(b); current != tt.current || err != nil {
			t.Errorf("%s: the box is at %v, not %v: %v", name, current, tt.current, err)
		}
		if a, err := r.Awaited(b); a.Object != tt.awaited || err != nil {
			t.Errorf("%s: waits for %v, not %v: %v", name, a.Object, tt.awaited, err)
		}
		if b.HasState {
			t.Errorf("%s: has the state %d", name, b.State)
		}
	}
	checkSteps := func(from arch.Addr, want ...string) {
		t.Helper()
		chain, err := r.Awaiting(from)
		if got := steps(&chain); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v leads to %q: %v", from, got, err)
		}
	}
	checkSteps(inner, "Shop.Store.Middle", "Shop.Store.Outer")
	checkSteps(inner2, "Shop.Store.Items", "Shop.Store.Middle", "Shop.Store.Outer")
	p.Words[iterator+40] = uint64(stranger)
	checkSteps(inner2, "Shop.Store.Items", "Shop.Store.Middle") // by the continuation
	p.Words[iterator+40] = 0
	checkSteps(inner2, "Shop.Store.Items", "Shop.Store.Middle")
	for obj, want := range map[arch.Addr]arch.Addr{iterator: items, inner: 0, valueTask: 0} {
		class, err := r.objects.Class(obj)
		if err != nil {
			t.Fatal(err)
		}
		if at := r.OfMachine(obj, class); at != want {
			t.Errorf("%s is the state machine of %v, not %v", class.Display, at, want)
		}
	}
}
