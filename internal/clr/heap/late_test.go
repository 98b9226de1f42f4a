package heap

import (
	"slices"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
)

// TestGraphLate: an old object refers to an object that was made after the walk of the young objects. The late
// object, and the objects that only the late object leads to, belong to the graph, unless there has been a
// collection.
func TestGraphLate(t *testing.T) {
	for name, collected := range map[string]bool{"made": false, "made, and moved": true} {
		t.Run(name, func(t *testing.T) {
			mem := &changing{Words: clrtest.Words{}, change: func(arch.Addr) {}}
			r := spread(t, mem.Words)
			linked(mem.Words, r)
			o := still(mem)
			o.Still, o.Graph, o.nap = false, true, func(time.Duration) {}
			made := false
			mem.change = func(at arch.Addr) {
				if at != oldStart-front || made {
					return
				}
				made = true
				put(mem.Words, contextNext, plainTable, 0)
				mem.Words[contextNext+8], mem.Words[contextNext+16] = uint64(youngStart), 0
				mem.Words[oldStart+72] = uint64(contextNext)
				if collected {
					mem.Words[listAt+0x800] = 1
				}
			}
			c, err := r.Walk(o)
			if err != nil || !made {
				t.Fatal(made, err)
			}
			got := map[arch.Addr][]arch.Addr{}
			for n := range c.Graph.Len() {
				from, _ := c.Graph.Object(n)
				c.Graph.References(n, func(to int) {
					x, _ := c.Graph.Object(to)
					got[from.Addr] = append(got[from.Addr], x.Addr)
				})
			}
			_, late := c.Graph.Number(contextNext)
			counted := uint64(0)
			for i, of := range c.Counts {
				for _, n := range of {
					if i < len(c.Tables) && !c.Tables[i].Free {
						counted += n.Count
					}
				}
			}
			if counted != uint64(c.Graph.Len()) {
				t.Errorf("%d objects are counted, %d are in the graph", counted, c.Graph.Len())
			}
			if late == collected || late && (!slices.Contains(got[oldStart+64], contextNext) ||
				!slices.Equal(got[contextNext], []arch.Addr{youngStart})) {
				t.Errorf("there: %v; references %v", late, got)
			}
		})
	}
}

// TestGraphLateMany: a late array refers to old objects and to two late objects, and the second late object refers to
// a third. The walk finds all of them.
func TestGraphLateMany(t *testing.T) {
	mem := &changing{Words: clrtest.Words{}, change: func(arch.Addr) {}}
	r := spread(t, mem.Words)
	linked(mem.Words, r)
	o := still(mem)
	o.Still, o.Graph, o.nap = false, true, func(time.Duration) {}
	const first, second, third = youngEnd, youngEnd + 32, youngEnd + 64
	made := false
	mem.change = func(at arch.Addr) {
		if at != oldStart-front || made {
			return
		}
		made = true
		mem.Words[oldStart+112] = 0 // nothing else refers to young objects
		mem.Words.Zero(youngEnd-8, 0x400)
		put(mem.Words, contextNext, arrayTable, 20) // 104 bytes, with five references
		for i, to := range []arch.Addr{oldStart, oldStart, oldStart, first, second} {
			mem.Words[contextNext+16+16*arch.Addr(i)] = uint64(to)
		}
		for at, to := range map[arch.Addr]arch.Addr{first: youngStart, second: third, third: youngStart} {
			put(mem.Words, at, plainTable, 0)
			mem.Words[at+8], mem.Words[at+16] = uint64(to), 0
		}
		mem.Words[oldStart+72] = uint64(contextNext)
	}
	c, err := r.Walk(o)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	if n := len(c.Graph.cross); n != 1 {
		t.Errorf("%d references from older objects: those of late ones are none, and would overwrite the list", n)
	}
	for _, at := range []arch.Addr{contextNext, first, second, third} {
		if _, ok := c.Graph.Number(at); !ok {
			t.Errorf("the object at %v is missing", at)
		}
	}
}
