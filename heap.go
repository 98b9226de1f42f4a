package clrsnap

import (
	"context"
	"regexp"

	"clrsnap/internal/session"
	"clrsnap/profile"
)

// HeapOptions say what is looked at on the heap. The zero value counts all objects by type.
type HeapOptions struct {
	// Type chooses types by their names with namespaces, such as Shop.Customer<string>. Their largest objects are
	// listed in profile.Heap.Instances; nil: none are.
	Type *regexp.Regexp
	// MaxInstances bounds that list; 0 stands for 1,000.
	MaxInstances int
	// MaxStrings is how many texts of strings are listed, those with the most bytes first; 0: none. They can be
	// secrets.
	MaxStrings int
	// Roots chooses types by their names: profile.Heap.Paths says what keeps their objects, and by which references; nil:
	// none. Stacks of managed threads are read for it, too. That takes memory: 16 bytes for each object on the heap, and 4 for each reference; twice as much in the end.
	Roots *regexp.Regexp
	// Retained finds how much the objects of each type keep from being collected (profile.HeapType.Retained). That takes
	// as much memory as Roots, and half as much again.
	Retained bool
	// MaxCPU is how many CPUs may be used, such as 0.5; 0 stands for 1. More than 1 let several goroutines walk a
	// running process.
	MaxCPU float64
	// Progress is called from time to time with how many bytes have been walked, of how many; nil: it is not.
	Progress func(done, all uint64)
}

// Heap walks all objects of the managed heap and counts them by type, dead ones that have not been collected yet
// included. It stops no thread. While the program runs, its collector moves objects: profile.Heap.ConsistentShare says
// of which share of the heap it is proved that nothing was moved while it was read. When ctx ends, the result has what
// was walked until then, and is Partial; when the process exits, there is an error and a result, too. With other
// errors there is no result. ErrNoHeap: the layout of this runtime's heap is not known.
func (p *Process) Heap(ctx context.Context, o HeapOptions) (*profile.Heap, error) {
	h, err := p.s.Heap(ctx, session.HeapOptions(o))
	return h, publish(err)
}
