package profile

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestStackAfterStack: for any sequence of stacks, each stack's node leads to the stack's locations.
func TestStackAfterStack(t *testing.T) {
	b := NewBuilder(Limits{Nodes: 300})
	rnd := rand.New(rand.NewPCG(1, 2))
	var stack []int32
	for range 20_000 {
		keep := rnd.IntN(len(stack) + 1) // of the root's side
		stack = slices.Clone(stack[len(stack)-keep:])
		for range rnd.IntN(4) {
			stack = slices.Insert(stack, 0, rnd.Int32N(3))
		}
		stack = stack[max(0, len(stack)-6):]
		cut := b.Truncated()
		node := b.Stack(stack)
		var got []int32
		for n := node; n > 0; n = b.r.Nodes[n].Parent {
			got = append(got, b.r.Nodes[n].Location)
		}
		want := stack
		if b.Truncated() > cut {
			want = stack[len(stack)-len(got):] // there is no room for the rest
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v is kept as %v", stack, got)
		}
	}
	if b.Truncated() == 0 || len(b.r.Nodes) > 300 {
		t.Errorf("%d stacks were cut, %d nodes", b.Truncated(), len(b.r.Nodes))
	}
}
