package export

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// heapTree is a heap as nested areas: types in their namespaces, or a tree of dominators. The first
// node is the whole heap; each node comes before its children.
type heapTree struct {
	nodes []heapNode
	first [][]int32 // by node: its children, the largest first
}

// heapNode is a group, or a type.
type heapNode struct {
	parent int32
	typ    int32  // index in the heap's types; -1: none
	label  string // of a node without a type
	total  snapshot.HeapAmount
	own    snapshot.HeapAmount // of the node's type itself
}

// heapTypeKey identifies a type in two heaps.
type heapTypeKey struct{ name, assembly, context string }

// heapChanges are the changes of types, in bytes.
func heapChanges(h, base *snapshot.Heap) map[heapTypeKey]int64 {
	out := map[heapTypeKey]int64{}
	for _, c := range h.ChangeFrom(base) {
		out[heapTypeKey{c.Name, c.Assembly, c.Context}] += c.Bytes
	}
	return out
}

// typeOrigin is originIndex of a type: the origin of its code.
func typeOrigin(t *snapshot.HeapType) int {
	switch t.Origin() {
	case snapshot.OfUser:
		return 0
	case snapshot.OfPackage:
		return 1
	}
	return 2
}

// hasGenerations reports whether the objects' generations are known.
func hasGenerations(h *snapshot.Heap) bool {
	return slices.ContainsFunc(h.Types, func(t snapshot.HeapType) bool {
		return t.Generations != [snapshot.Generations]snapshot.HeapAmount{}
	})
}

// shownTypes are the types in a picture.
func shownTypes(h *snapshot.Heap) []snapshot.HeapType {
	return h.Types[:min(len(h.Types), mostHeapTypes)]
}

func signedBytes(n int64) string {
	if n < 0 {
		return "−" + display.Weight(profile.Bytes, -n)
	}
	return "+" + display.Weight(profile.Bytes, n)
}

// mostHeapTypes is how many types a picture has; the other types are one area.
const mostHeapTypes = 20_000

// deepestNamespace is how many parts of a namespace are groups at most.
const deepestNamespace = 8

// heapTreeOf returns the picture of a heap: the tree of dominators, if it is known, or else types in
// their namespaces.
func heapTreeOf(h *snapshot.Heap) *heapTree {
	if h.Dominators != nil {
		return keeperTree(h)
	}
	return namespaceTree(h)
}

// keeperTree is the tree of dominators.
func keeperTree(h *snapshot.Heap) *heapTree {
	t := &heapTree{}
	for i := range h.Dominators {
		k := &h.Dominators[i]
		n := heapNode{parent: k.Parent, typ: k.Type, own: k.Objects}
		n.total = snapshot.HeapAmount{Count: k.Objects.Count, Bytes: k.Retained}
		switch {
		case i == 0:
			n.label = "everything"
		case k.Type < 0:
			n.label = rootLabel(k)
		}
		t.nodes = append(t.nodes, n)
	}
	t.arrange()
	return t
}

// rootLabel names a dominator that is not an object.
func rootLabel(k *snapshot.HeapDominator) string {
	switch k.Root {
	case snapshot.RootStatic:
		return cmp.Or(k.Static, "fields without a name") + " (static)"
	case snapshot.RootThreadStatic:
		return cmp.Or(k.Static, "fields without a name") + " (thread static)"
	case snapshot.RootHandle:
		return "handles (" + string(k.Handle) + ")"
	}
	return string(k.Root)
}

// namespaceTree is the types in their namespaces.
func namespaceTree(h *snapshot.Heap) *heapTree {
	root := &namespace{}
	shown := shownTypes(h)
	for i := range shown {
		at := root
		for _, part := range strings.SplitN(namespaceOf(shown[i].Name), ".", deepestNamespace) {
			if part != "" {
				at = at.in(part)
			}
		}
		at.types = append(at.types, int32(i))
	}
	t := &heapTree{nodes: []heapNode{{typ: -1, label: "everything"}}}
	root.add(t, h, 0)
	if rest := h.Types[len(shown):]; len(rest) > 0 {
		n := heapNode{typ: -1, label: "and " + display.Number(len(rest)) + " more types"}
		for i := range rest {
			n.total.Add(rest[i].HeapAmount)
		}
		t.nodes[0].total.Add(n.total)
		t.nodes = append(t.nodes, n)
	}
	t.arrange()
	return t
}

// arrange sorts the children of each node.
func (t *heapTree) arrange() {
	t.first = make([][]int32, len(t.nodes))
	for i := 1; i < len(t.nodes); i++ {
		p := t.nodes[i].parent
		t.first[p] = append(t.first[p], int32(i))
	}
	for _, list := range t.first {
		slices.SortStableFunc(list, func(a, b int32) int {
			return cmp.Compare(t.nodes[b].total.Bytes, t.nodes[a].total.Bytes)
		})
	}
}

// namespace is a namespace while the tree is made.
type namespace struct {
	names []string
	below map[string]*namespace
	types []int32
}

func (n *namespace) in(name string) *namespace {
	if n.below == nil {
		n.below = map[string]*namespace{}
	}
	to := n.below[name]
	if to == nil {
		to = &namespace{}
		n.below[name] = to
		n.names = append(n.names, name)
	}
	return to
}

// add adds the content of a namespace to a node. A namespace with nothing except one namespace inside
// is joined with the inner namespace.
func (n *namespace) add(t *heapTree, h *snapshot.Heap, at int32) {
	for _, i := range n.types {
		own := h.Types[i].HeapAmount
		t.nodes = append(t.nodes, heapNode{parent: at, typ: i, total: own, own: own})
		t.nodes[at].total.Add(own)
	}
	for _, name := range n.names {
		below := n.below[name]
		for len(below.names) == 1 && len(below.types) == 0 {
			name += "." + below.names[0]
			below = below.below[below.names[0]]
		}
		to := int32(len(t.nodes))
		t.nodes = append(t.nodes, heapNode{parent: at, typ: -1, label: name})
		below.add(t, h, to)
		t.nodes[at].total.Add(t.nodes[to].total)
	}
}

// namespaceOf is the namespace of a type by its name. Types with a C# keyword are in System.
func namespaceOf(name string) string {
	end := strings.IndexAny(name, "<[(+*&{")
	if end < 0 {
		end = len(name)
	}
	dot := strings.LastIndexByte(name[:end], '.')
	switch {
	case dot > 0:
		return name[:dot]
	case strings.HasPrefix(name, "(") || keywords[strings.TrimSuffix(name[:end], "?")]:
		return "System"
	}
	return ""
}

var keywords = map[string]bool{
	"bool": true, "byte": true, "char": true, "decimal": true, "double": true, "dynamic": true, "float": true,
	"int": true, "long": true, "nint": true, "nuint": true, "object": true, "sbyte": true, "short": true,
	"string": true, "uint": true, "ulong": true, "ushort": true, "void": true,
}

// label is the name of a node in its place.
func (t *heapTree) label(h *snapshot.Heap, i int32) string {
	n := &t.nodes[i]
	if n.typ < 0 {
		return n.label
	}
	return shortType(h.Types[n.typ].Name)
}

// shortType is a type's name without namespaces. The box around the state of an async method is named
// after the method, as in stacks: HttpServer.HandleAsync{async}.
func shortType(name string) string {
	const box = "AsyncStateMachineBox<"
	i := strings.Index(name, box)
	if i < 0 || !strings.HasSuffix(name, ">") {
		return display.WithoutNamespaces(name)
	}
	method := []rune(name[i+len(box) : len(name)-1])
	at := methodStart(method)
	if at > 0 {
		at = methodStart(method[:at-1]) // with the class
	}
	return string(method[at:]) + "{async}"
}

// heapFacts are a heap in some words.
func heapFacts(h *snapshot.Heap) []string {
	all := h.Objects()
	facts := []string{
		display.Weight(profile.Bytes, int64(all.Bytes)), display.Number(int(all.Count)) + " objects",
		display.Number(len(h.Types)) + " types", display.Weight(profile.Bytes, int64(h.Free())) + " free between them",
	}
	if !h.CapturedAt.IsZero() {
		facts = append(facts, h.CapturedAt.Format("2006-01-02 15:04:05"))
	}
	if h.Process.PID != 0 {
		facts = append(facts, "process "+strconv.Itoa(h.Process.PID))
	}
	if v := h.Process.Runtime.Version; v != "" {
		facts = append(facts, ".NET "+v)
	}
	return facts
}

// heapTitle names a heap by its program.
func heapTitle(h *snapshot.Heap) string {
	return "Heap of " + cmp.Or(h.Process.Program(), "process "+strconv.Itoa(h.Process.PID))
}
