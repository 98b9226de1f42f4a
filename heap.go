package clrsnap

import (
	"context"
	"regexp"
	"time"

	"clrsnap/internal/heapwalk"
	"clrsnap/snapshot"
)

// HeapOptions say what to look at on the heap. The zero value counts all objects by type.
type HeapOptions struct {
	// Type chooses types by their names with namespaces, such as Shop.Customer<string>. snapshot.Heap.Instances lists
	// the largest objects of the chosen types; nil: none.
	Type *regexp.Regexp
	// MaxInstances bounds the list of instances; 0 stands for 1,000.
	MaxInstances int
	// MaxStrings is how many texts of strings are listed, the strings with the most bytes first; 0: none. The texts can
	// be secrets.
	MaxStrings int
	// Roots chooses types by their names: snapshot.Heap.Paths says what keeps their objects, and by which references;
	// nil: none. The stacks of managed threads are read, too. Roots takes memory: 20 bytes for each object on the heap,
	// and 4 for each reference.
	Roots *regexp.Regexp
	// Retained finds how much the objects of each type keep from being collected (snapshot.HeapType.Retained). Retained
	// takes 32 bytes for each object, and 8 for each reference.
	Retained bool
	// Graph keeps all objects and their references: snapshot.Heap.Graph. Graph takes as much memory as Roots.
	Graph bool
	// Owners finds whose the types are (snapshot.HeapType.Owner). The names of assemblies do not always say so. Owners
	// reads the deps.json files of the program.
	Owners bool
	// Dominators finds the dominators of objects, type by type: snapshot.Heap.Dominators. Dominators includes Retained,
	// and takes 70 MB more.
	Dominators bool
	// MaxCPU is how many CPUs may be used, such as 0.5; 0 stands for 1. More than 1 let several goroutines walk a
	// running process. While the process is stopped, 0 stands for all CPUs, 4 at most.
	MaxCPU float64
	// Stop stops all threads of a running process while its heap is read, so that the result shows the heap of one
	// moment. snapshot.Heap.Stop says whether that was so, and how long the threads stood still. If threads do not
	// stop, or MaxPause is used up, the threads go on and the heap is read while they run. The threads also go on if
	// this process ends or is killed.
	Stop bool
	// MaxPause is how long threads may stand still; 0 stands for 2 s. If the threads were stopped while objects were
	// being moved, there are several stops, and MaxPause bounds their sum.
	MaxPause time.Duration
	// Progress is called from time to time with the number of bytes walked, and of all bytes; nil: no calls.
	Progress func(done, all uint64)
	// Doing is called from time to time while the walked objects are evaluated: with the current step, and with how far
	// the step has come, from 0 to 1; nil: no calls.
	Doing func(what string, done float64)
}

// Heap walks all objects of the managed heap and counts them by type, dead objects that have not been collected yet
// included. Without HeapOptions.Stop no thread is stopped. While the program runs, its collector moves objects:
// snapshot.Heap.ConsistentShare is the share of the heap in which, as is proved, nothing was moved while Heap read.
// When ctx ends, the result has the objects walked until then, and is Partial. When the process exits, there is an
// error and a result, too. With other errors there is no result. ErrNoHeap: the layout of this runtime's heap is not
// known.
func (p *Process) Heap(ctx context.Context, o HeapOptions) (*snapshot.Heap, error) {
	h, err := heapwalk.Heap(ctx, p.s, heapwalk.Options(o))
	return h, publish(err)
}
