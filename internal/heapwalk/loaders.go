package heapwalk

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/session"
	"clrsnap/snapshot"
)

// An object of a collectible type keeps the LoaderAllocator of the type, although no field refers
// to the LoaderAllocator: the collector asks the type (dotnet/runtime, src/coreclr/gc/gc.cpp,
// go_through_object_cl; vm/gcenv.ee.cpp, GetLoaderAllocatorObjectForGC).

const (
	allocatorClass = "System.Reflection.LoaderAllocator"
	scoutClass     = "System.Reflection.LoaderAllocatorScout"
	scoutField     = "m_nativeLoaderAllocator"
	contextField   = "_name" // of System.Runtime.Loader.AssemblyLoadContext
	maxContextName = 256     // UTF-16 units
	unnamed        = "a load context"
)

// linkTypes adds a reference from each object of a collectible type to the LoaderAllocator of the
// type.
func (h *heapWalk) linkTypes(g *heap.Graph) {
	if h.p.Runtime == nil {
		return // no code can be unloaded
	}
	keeps := make([]uint32, len(g.Tables))
	found := false
	for i, t := range g.Tables {
		keeps[i] = heap.None
		if c, err := h.p.Runtime.Types.Read(t.Addr); err != nil || !c.Collectible || t.Free {
			continue
		}
		if n, ok := h.allocator(g, t.Addr); ok {
			keeps[i], found = n, true
		}
	}
	if found {
		g.LinkTypes(keeps)
	}
}

// runningCode adds the roots of a thread's running code: the LoaderAllocators of collectible types
// (src/coreclr/vm/stackwalk.cpp, gcenv.ee.common.cpp, GcReportLoaderAllocator).
func (h *heapWalk) runningCode(g *heap.Graph, r *rootsOf, t *snapshot.Thread) {
	if h.p.Runtime == nil {
		return
	}
	for i := range t.Frames {
		f := &t.Frames[i]
		if f.Kind != snapshot.Managed || f.FunctionID == 0 || f.Inlined {
			continue
		}
		m, err := h.p.Runtime.Methods.Read(arch.Addr(f.FunctionID))
		if err != nil {
			continue
		}
		c, err := h.p.Runtime.Types.Read(m.MethodTable)
		if err != nil || !c.Collectible {
			continue
		}
		if n, ok := h.allocator(g, m.MethodTable); ok {
			ref := session.RefOf(t)
			r.add(&r.sure, int(n), root{kind: snapshot.RootCode, thread: &ref, method: f.Display})
		}
	}
}

// allocator returns the LoaderAllocator object of a type; false: unknown.
func (h *heapWalk) allocator(g *heap.Graph, mt arch.Addr) (n uint32, ok bool) {
	at, err := h.p.Runtime.Types.LoaderAllocator(mt)
	if err != nil {
		return 0, false
	}
	if h.allocators == nil {
		h.allocators = h.findAllocators(g)
	}
	n, ok = h.allocators[at]
	return n, ok
}

// findAllocators finds the LoaderAllocator objects: each has a scout with the address of the
// runtime's LoaderAllocator.
func (h *heapWalk) findAllocators(g *heap.Graph) map[arch.Addr]uint32 {
	out := map[arch.Addr]uint32{}
	named := func(name string) func(*heap.Table) bool {
		return func(t *heap.Table) bool {
			c := h.Name(t.Addr)
			return c.Display == name && c.Assembly == coreLib
		}
	}
	for in := range heap.Generation(heap.NumGenerations) {
		g.Of(in, named(allocatorClass), func(n int) {
			g.References(n, func(to int) {
				scout, _ := g.Object(to)
				if !named(scoutClass)(scout.Table) {
					return
				}
				class, err := h.p.Managed.Objects.Class(scout.Addr)
				if err != nil || class.Table != scout.Table.Addr { // the scout was moved
					return
				}
				if at, err := h.p.Managed.Objects.Pointer(scout.Addr, class, scoutField); err == nil && at != 0 {
					out[at] = uint32(n)
				}
			})
		})
	}
	return out
}

// loadContext names the load context of a type; empty: the default context, or unknown. Contexts
// with the same name get numbers. Collectible contexts with an unknown name (.NET 8 and 9) also get
// numbers.
func (h *heapWalk) loadContext(mt arch.Addr) string {
	if h.p.Runtime == nil {
		return "" // no assembly is loaded
	}
	c := &h.contexts
	if c.names == nil {
		c.names, c.count = map[arch.Addr]string{}, map[string]int{}
	}
	at, object, err := h.p.Runtime.Types.LoadContext(mt)
	if err != nil {
		if t, err := h.p.Runtime.Types.Read(mt); err != nil || !t.Collectible {
			return ""
		}
		if at, err = h.p.Runtime.Types.LoaderAllocator(mt); err != nil {
			return ""
		}
	}
	if name, ok := c.names[at]; ok {
		return name
	}
	name := unnamed
	if object != 0 {
		if name, err = h.contextName(object); err != nil {
			return ""
		}
	}
	if name != "" {
		if c.count[name]++; c.count[name] > 1 {
			name = fmt.Sprintf("%s #%d", name, c.count[name])
		}
	}
	c.names[at] = name
	return name
}

// contextName reads the name of an AssemblyLoadContext; empty: the default context.
func (h *heapWalk) contextName(object arch.Addr) (string, error) {
	objects := h.p.Managed.Objects
	class, err := objects.Class(object)
	if err != nil {
		return "", err
	}
	if class.Display == "System.Runtime.Loader.DefaultAssemblyLoadContext" {
		return "", nil
	}
	at, err := objects.Pointer(object, class, contextField)
	if err != nil {
		return "", err
	}
	if at == 0 {
		return unnamed, nil
	}
	name, _, err := objects.Text(at, maxContextName)
	return name, err
}

func (h *heapWalk) typeKey(mt arch.Addr) typeKey {
	c := h.Name(mt)
	return typeKey{c.Display, c.Assembly, h.loadContext(mt)}
}
