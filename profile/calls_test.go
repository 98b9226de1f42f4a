package profile

import (
	"fmt"
	"strings"
	"testing"

	"clrsnap/snapshot"
)

// callsOf builds a recording of stacks like "Main Work Sleep": base first, a second for each.
func callsOf(stacks ...string) *Recording {
	b := NewBuilder(Limits{})
	b.Thread(RecordedThread{})
	for i, s := range stacks {
		node := int32(0)
		for _, name := range strings.Fields(s) {
			l := Location{Function: b.Function(Function{Kind: snapshot.Managed, Display: name}), Offset: uint64(i)}
			node = b.Child(node, b.Location(l))
		}
		b.Add(Sample{Weight: 1, Node: node})
	}
	return b.Recording()
}

// treeText is a tree of calls as lines: name, total, self.
func treeText(r *Recording, list []Call) string {
	var b strings.Builder
	depth := make([]int, len(list))
	for i, c := range list {
		if c.Parent >= 0 && int(c.Parent) < i {
			depth[i] = depth[c.Parent] + 1
		}
		fmt.Fprintf(&b, "%s%s %d", strings.Repeat("-", depth[i]), r.Functions[c.Function].Display, c.Total.All().Weight)
		if self := c.Self.All().Weight; self > 0 {
			fmt.Fprintf(&b, "/%d", self)
		}
		b.WriteString("; ")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func TestCalls(t *testing.T) {
	r := callsOf("Main Work Sleep", "Main Work Sleep", "Main Sleep", "Main Work", "Main Work Work Sleep Wait",
		"Timer Sleep Back Sleep", "Other")
	named := func(name string) func(*Function) bool { return func(f *Function) bool { return f.Display == name } }
	for _, c := range []struct {
		got, want string
	}{
		{treeText(r, r.Callers(CPU, named("Sleep")).List),
			"Sleep 5; -Work 3; --Main 3; -Main 1; -Back 1; --Sleep 1; -Timer 1"},
		{treeText(r, r.Callees(CPU, named("Sleep")).List), "Sleep 5/3; -Wait 1/1; -Back 1; --Sleep 1/1"},
		{treeText(r, r.Callees(CPU, named("Work")).List), "Work 4/1; -Sleep 3/2; --Wait 1/1"},
		{treeText(r, r.Callers(CPU, named("Main")).List), "Main 5"},
		{treeText(r, r.Callers(CPU, func(f *Function) bool { return strings.HasSuffix(f.Display, "r") }).List),
			"Timer 1; Other 1"},
		{treeText(r, r.Callers(CPU, named("None")).List), ""},
		{treeText(r, r.Callers(Wall, named("Sleep")).List), ""},
		{treeText(r, r.Callees(CPU, nil).HeaviestPath()), "Main 5; -Work 4/1; --Sleep 3/2"},
		{treeText(r, r.Callees(Wall, nil).HeaviestPath()), ""},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
	c := r.Callers(CPU, named("Sleep"))
	if c.Matched.All().Weight != 5 || c.All.All().Weight != 7 || c.Cut {
		t.Errorf("%+v", c)
	}
	if c.List[0].End != 7 || c.List[1].End != 3 || c.List[2].End != 3 || c.List[3].End != 4 {
		t.Errorf("%+v", c.List)
	}
}

// TestCallsBounded: a tree of calls has a limited number of levels and of calls.
func TestCallsBounded(t *testing.T) {
	b := NewBuilder(Limits{})
	b.Thread(RecordedThread{})
	node := int32(0)
	for i := range 10_000 {
		l := b.Location(Location{Function: b.Function(Function{Kind: snapshot.Managed, Display: fmt.Sprint("F", i)})})
		node = b.Child(node, l)
	}
	b.Add(Sample{Weight: 1, Node: node})
	r := b.Recording()
	c := r.Callers(CPU, func(f *Function) bool { return f.Display == "F9999" })
	if !c.Cut || len(c.List) > 2*maxCallers || c.Matched.All().Weight != 1 {
		t.Errorf("%d callers, cut %v", len(c.List), c.Cut)
	}
	if c := r.Callees(CPU, func(f *Function) bool { return f.Display == "F1" }); c.Cut || len(c.List) != 9999 {
		t.Errorf("%d callees, cut %v", len(c.List), c.Cut)
	}
	if path := r.Callees(CPU, nil).HeaviestPath(); len(path) != 10_000 {
		t.Errorf("a path of %d calls", len(path))
	}
}
