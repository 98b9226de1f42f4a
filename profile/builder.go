package profile

import (
	"cmp"
	"slices"
	"time"
)

// Builder builds a Recording sample by sample. Limits bound the Builder's memory.
type Builder struct {
	r         Recording
	limits    Limits
	functions map[Function]int32
	locations map[Location]int32
	methods   map[Method]int32
	sites     map[int32]bool // methods that have call sites
	sources   *Sources
	nodes     map[Node]int32
	latest    []visit             // the nodes of the latest stack, from the root
	open      map[sampleKey]int32 // index of the sample that takes further equal samples, once there are too many
	bin       time.Duration       // the interval within which equal samples become one; 0: each sample is kept
	cut       int                 // stacks that were cut for lack of nodes
}

// Limits bound the memory of a Builder. A field that is 0 stands for the field's default.
type Limits struct {
	// Samples is the number of samples, by default 1,048,576 (40 MB). Beyond that number, equal samples are
	// added up: samples of one thread with equal stacks, from one interval. The interval starts at 50 ms and
	// doubles as often as necessary.
	Samples int
	// Nodes is the number of nodes in the tree of stacks, by default 1,048,576 (60 MB with the index). Beyond
	// that, a stack keeps its callers as far as the tree has them, and loses the frames towards the leaf.
	Nodes int
	// Functions is the number of functions, by default 65,536 (about 40 MB with their names). Beyond that,
	// further functions of a module share one entry.
	Functions int
}

// visit is a location of a stack, and its node.
type visit struct{ location, node int32 }

type sampleKey struct {
	bin          int64
	thread, node int32
	mode         Mode
	state        State
	incomplete   bool
}

// NewBuilder returns an empty Builder.
func NewBuilder(l Limits) *Builder {
	if l.Samples <= 0 {
		l.Samples = 1 << 20
	}
	if l.Nodes <= 0 {
		l.Nodes = 1 << 20
	}
	if l.Functions <= 0 {
		l.Functions = 1 << 16
	}
	b := &Builder{
		r:         Recording{Nodes: []Node{{Parent: -1, Location: -1}}},
		limits:    l,
		functions: map[Function]int32{}, locations: map[Location]int32{}, nodes: map[Node]int32{},
		methods: map[Method]int32{}, sites: map[int32]bool{},
	}
	b.sources = NewSources(&b.r)
	return b
}

// Recording returns the recording, its samples sorted by time. The recording shares its data with the Builder,
// and the Builder remains usable. The caller fills in the fields that do not come from samples: Start,
// Duration, Processes, Modes and so on.
func (b *Builder) Recording() *Recording {
	slices.SortStableFunc(b.r.Samples, func(x, y Sample) int { return cmp.Compare(x.At, y.At) })
	slices.SortStableFunc(b.r.Holds, func(x, y Hold) int { return cmp.Compare(x.At, y.At) })
	slices.SortStableFunc(b.r.Sites, func(x, y CallSite) int { return cmp.Compare(x.Method, y.Method) })
	clear(b.open) // indices have changed
	return &b.r
}

// Truncated returns how many stacks were cut, for lack of nodes or because they were
// deeper than MaxDepth.
func (b *Builder) Truncated() int { return b.cut }

// Bin returns the interval within which equal samples were added up; 0: no samples were added up.
func (b *Builder) Bin() time.Duration { return b.bin }

// Function adds a function, unless b has the function, and returns its index.
func (b *Builder) Function(f Function) int32 {
	i, ok := b.functions[f]
	if ok || len(b.r.Functions) < b.limits.Functions {
		if !ok {
			i = intern(b.functions, &b.r.Functions, f)
		}
		return i
	}
	const name = "[other functions]"
	return intern(b.functions, &b.r.Functions, Function{Kind: f.Kind, Display: name, Short: name, Module: f.Module})
}

// Location adds a location, unless b has the location, and returns its index.
func (b *Builder) Location(l Location) int32 { return intern(b.locations, &b.r.Locations, l) }

// MaxAssemblies bounds Recording.Assemblies.
const MaxAssemblies = 1 << 14

// Assembly adds an assembly and returns its index; 0: there are MaxAssemblies.
func (b *Builder) Assembly(a Assembly) int32 {
	if len(b.r.Assemblies) == 0 {
		b.r.Assemblies = append(b.r.Assemblies, Assembly{})
	}
	if len(b.r.Assemblies) >= MaxAssemblies {
		return 0
	}
	b.r.Assemblies = append(b.r.Assemblies, a)
	return int32(len(b.r.Assemblies) - 1)
}

// Library adds a native module and returns its index; 0: there are MaxLibraries.
func (b *Builder) Library(l Library) int32 {
	if len(b.r.Libraries) == 0 {
		b.r.Libraries = append(b.r.Libraries, Library{})
	}
	if len(b.r.Libraries) >= MaxLibraries {
		return 0
	}
	b.r.Libraries = append(b.r.Libraries, l)
	return int32(len(b.r.Libraries) - 1)
}

// SetAssembly replaces the assembly with index i.
func (b *Builder) SetAssembly(i int32, a Assembly) { b.r.Assemblies[i] = a }

// Method adds a method, unless b has the method, and returns its index.
func (b *Builder) Method(m Method) int32 {
	if len(b.r.Methods) == 0 {
		intern(b.methods, &b.r.Methods, Method{})
	}
	return intern(b.methods, &b.r.Methods, m)
}

// Sites adds the call sites of a method, in the order of their offsets, unless the method has sites or there is
// no room.
func (b *Builder) Sites(sites []CallSite) {
	if len(sites) == 0 || b.HasSites(sites[0].Method) || len(b.r.Sites)+len(sites) > MaxSites {
		return
	}
	b.sites[sites[0].Method] = true
	b.r.Sites = append(b.r.Sites, sites...)
}

// HasSites reports whether a method has call sites.
func (b *Builder) HasSites(method int32) bool { return b.sites[method] }

// Sources returns the Sources that adds source files and lines.
func (b *Builder) Sources() *Sources { return b.sources }

// FunctionOf returns the index of a location's function.
func (b *Builder) FunctionOf(location int32) int32 { return b.r.Locations[location].Function }

// Tier returns the tier of a location's code.
func (b *Builder) Tier(location int32) string { return b.r.Locations[location].Tier }

// At returns a location by index, and the location's function.
func (b *Builder) At(location int32) (Location, Function) {
	l := b.r.Locations[location]
	return l, b.r.Functions[l.Function]
}

// Thread adds a thread and returns its index.
func (b *Builder) Thread(t RecordedThread) int32 {
	b.r.Threads = append(b.r.Threads, t)
	return int32(len(b.r.Threads) - 1)
}

func intern[T comparable](index map[T]int32, list *[]T, v T) int32 {
	i, ok := index[v]
	if !ok {
		i = int32(len(*list))
		index[v] = i
		*list = append(*list, v)
	}
	return i
}

// MaxDepth is the maximum number of frames in a stack of a recording. The bound exists because code that shows
// recordings recurses down the tree of stacks.
const MaxDepth = 1 << 18

// Stack adds a stack and returns its node. The stack is given as the indices of its locations, leaf first. A
// stack deeper than MaxDepth loses the frames towards the leaf.
func (b *Builder) Stack(locations []int32) int32 {
	if deeper := len(locations) - MaxDepth; deeper > 0 {
		b.cut++
		locations = locations[deeper:]
	}
	at, depth := int32(0), 0
	for _, l := range slices.Backward(locations) {
		// Stacks often begin like the stack before.
		if depth < len(b.latest) && b.latest[depth].location == l {
			at = b.latest[depth].node
			depth++
			continue
		}
		next := b.Child(at, l)
		if next == at {
			b.cut++
			break
		}
		b.latest = append(b.latest[:depth], visit{l, next})
		at = next
		depth++
	}
	return at
}

// Child returns the node for a call from parent to a location, and adds the node unless the tree has it. Child
// returns parent if the tree is full.
func (b *Builder) Child(parent, location int32) int32 {
	n := Node{Parent: parent, Location: location}
	if at, ok := b.nodes[n]; ok || len(b.r.Nodes) < b.limits.Nodes {
		if !ok {
			at = intern(b.nodes, &b.r.Nodes, n)
		}
		return at
	}
	return parent
}

// Add adds a sample. A Count of 0 stands for 1.
func (b *Builder) Add(s Sample) {
	s.Count = max(s.Count, 1)
	if b.bin > 0 && b.join(s) {
		return
	}
	b.r.Samples = append(b.r.Samples, s)
	for len(b.r.Samples) >= b.limits.Samples {
		b.coarsen()
	}
}

// join adds s to the sample with the same key, if there is one.
func (b *Builder) join(s Sample) bool {
	key := b.key(&s)
	if i, ok := b.open[key]; ok {
		b.r.Samples[i].add(&s)
		return true
	}
	b.open[key] = int32(len(b.r.Samples))
	return false
}

func (b *Builder) key(s *Sample) sampleKey {
	return sampleKey{int64(s.At / b.bin), s.Thread, s.Node, s.Mode, s.State, s.Incomplete}
}

func (s *Sample) add(t *Sample) {
	s.At = min(s.At, t.At)
	s.Weight += t.Weight
	s.Events += t.Events
	s.Count += t.Count
}

// firstBin is the first interval within which equal samples are added up.
const firstBin = 50 * time.Millisecond

// coarsen doubles the interval and adds up equal samples. If that no longer helps, because too many stacks
// differ, coarsen raises the limit.
func (b *Builder) coarsen() {
	b.bin = max(firstBin, 2*b.bin)
	before := b.r.Samples
	b.open, b.r.Samples = make(map[sampleKey]int32, len(before)/2), before[:0]
	for _, s := range before {
		if !b.join(s) {
			b.r.Samples = append(b.r.Samples, s)
		}
	}
	if b.bin > time.Hour {
		b.limits.Samples *= 2
	}
}

// Hold adds a look at the holder of a lock. It returns false if there are MaxHolds.
func (b *Builder) Hold(h Hold) bool {
	if len(b.r.Holds) >= MaxHolds {
		return false
	}
	b.r.Holds = append(b.r.Holds, h)
	return true
}

// SetThread replaces the thread with index i.
func (b *Builder) SetThread(i int32, t RecordedThread) { b.r.Threads[i] = t }
