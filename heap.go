package clrsnap

import (
	"context"
	"regexp"
	"time"

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
	// Roots chooses types by their names: profile.Heap.Paths says what keeps their objects, and by which references;
	// nil: none. Stacks of managed threads are read for it, too. That takes memory: 20 bytes for each object on the
	// heap, and 4 for each reference.
	Roots *regexp.Regexp
	// Retained finds how much the objects of each type keep from being collected (profile.HeapType.Retained). That
	// takes 32 bytes for each object, and 8 for each reference.
	Retained bool
	// Graph keeps all objects and their references: profile.Heap.Graph. That takes as much memory as Roots.
	Graph bool
	// Owners finds whose the types are (profile.HeapType.Owner), which their assemblies' names do not always say. It
	// reads the deps.json files of the program.
	Owners bool
	// Keepers finds what keeps what, type by type: profile.Heap.Keepers. It includes Retained, and takes 70 MB more.
	Keepers bool
	// MaxCPU is how many CPUs may be used, such as 0.5; 0 stands for 1. More than 1 let several goroutines walk a
	// running process. While it is stopped, 0 stands for all CPUs, 4 at most.
	MaxCPU float64
	// Stop stops all threads of a running process while its heap is read, so that the heap is that of one moment:
	// profile.Heap.Stop says whether it is, and how long the threads stood still. If threads do not stop, or MaxPause
	// is used up, they go on and the heap is read without that. They also go on if this process ends or is killed.
	Stop bool
	// MaxPause is how long threads may stand still; 0 stands for 2 s. That is also for several stops together, which
	// are made if threads were stopped while objects were being moved.
	MaxPause time.Duration
	// Progress is called from time to time with how many bytes have been walked, of how many; nil: it is not.
	Progress func(done, all uint64)
	// Doing is called from time to time with what is found out about what was walked, and how far that has come: from 0
	// to 1; nil: it is not.
	Doing func(what string, done float64)
}

// Heap walks all objects of the managed heap and counts them by type, dead ones that have not been collected yet
// included. Without HeapOptions.Stop it stops no thread. While the program runs, its collector moves objects:
// profile.Heap.ConsistentShare says of which share of the heap it is proved that nothing was moved while it was read.
// When ctx ends, the result has what was walked until then, and is Partial; when the process exits, there is an error
// and a result, too. With other errors there is no result. ErrNoHeap: the layout of this runtime's heap is not known.
func (p *Process) Heap(ctx context.Context, o HeapOptions) (*profile.Heap, error) {
	h, err := p.s.Heap(ctx, session.HeapOptions(o))
	return h, publish(err)
}
