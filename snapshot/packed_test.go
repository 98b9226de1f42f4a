package snapshot

import (
	"reflect"
	"testing"
)

// TestPack packs stacks with common frames, and unpacks the stacks again.
func TestPack(t *testing.T) {
	leaf := Frame{Kind: Native, IP: 0x10, Module: "libc.so.6"}
	line := &SourceLine{File: "Orders.cs", Line: 3}
	descend := Frame{Kind: Managed, FunctionID: 1, IP: 0x20, Method: "Shop.Orders.Add", Line: line}
	other := Frame{Kind: Managed, FunctionID: 2, IP: 0x20, Method: "Shop.Orders.Remove"} // code that was loaded later
	at := func(f Frame, sp uint64) Frame { f.SP = sp; return f }
	stacks := [][]Frame{
		{at(leaf, 0x100), at(descend, 0x200), at(descend, 0x300)},
		{at(leaf, 0x1100), at(descend, 0x1200), at(other, 0x1300)},
		{},
	}
	var table FrameTable
	var threads []Thread
	for _, s := range stacks {
		threads = append(threads, Thread{Packed: table.Pack(s)})
	}
	if threads[0].Frame(1) != threads[1].Frame(1) || threads[0].Frame(1) != threads[0].Frame(2) {
		t.Error("equal frames are kept several times")
	}
	var buf []Frame
	for i, want := range stacks {
		p := &threads[i]
		if got := p.Stack(&buf); len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("stack %d: %+v, want %+v", i, got, want)
		}
		if p.Depth() != len(want) {
			t.Errorf("stack %d has %d frames, want %d", i, p.Depth(), len(want))
		}
		plain := Thread{Frames: want}
		if plain.Depth() != len(want) ||
			len(want) > 0 && (plain.Frame(0) != &want[0] || &plain.Stack(&buf)[0] != &want[0]) {
			t.Errorf("stack %d is another one if it is not packed", i)
		}
		for k := range want {
			f := *p.Frame(k)
			if f.SP = want[k].SP; f != want[k] {
				t.Errorf("frame %d of stack %d: %+v, want %+v", k, i, f, want[k])
			}
		}
	}
	if stacks[0][0].SP != 0x100 {
		t.Error("what was packed has changed")
	}
}
