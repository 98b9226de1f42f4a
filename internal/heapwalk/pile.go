package heapwalk

import (
	"cmp"
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/session"
	"clrsnap/internal/tasks"
)

// Pile is a large collection: an object that refers to many others directly or indirectly. It is an event with many
// handlers, a collection, the timers, or a token with many callbacks. The handles of a program are a Pile as well.
type Pile struct {
	At    arch.Addr // of the object, during the walk; 0: handles
	Kind  PileKind
	Type  string // of the object: the delegate's, the collection's; "": handles
	Count int    // of handlers, elements, timers
	// the counted objects: for an event the class of the objects that most handlers of a sample call, for a
	// collection the last type argument, for handles the class of most of a sample. "": static methods are called, or
	// there are no type arguments
	Element string
	Holds   string // of a list of references: the class of most of the last elements; "": of other collections
	Calls   string // of timers and tokens: the callee of most of a sample; "": static methods, or not known
}

// PileKind is the kind of a Pile.
type PileKind uint8

// The kinds of piles.
const (
	Event      PileKind = iota // a delegate that calls many others: the delegate of an event with many handlers
	Collection                 // of System.Collections
	Timers                     // active timers of all System.Threading.TimerQueues, one queue for each CPU, in an array
	Token                      // callbacks that are registered with a System.Threading.CancellationTokenSource
	Handles                    // System.Runtime.InteropServices.GCHandles, and the runtime's own, that keep an object
)

// Bounds of Piles.
const (
	leastPile     = 100
	mostPile      = 1 << 28
	maxPiles      = 1 << 10 // large collections that are kept
	maxPileTypes  = 1 << 14
	sampledPile   = 64
	mostAlike     = 16      // of the same type
	maxPileTables = 1 << 12 // of concurrent dictionaries
	maxPileLocks  = 1 << 12 // of a dictionary
)

// countable says which fields count the elements of a class's objects: one field's number, less another field's
// number.
type countable struct {
	kind       PileKind
	count      string
	free       string // "": nothing is free
	eightBytes bool
	segments   bool // count leads to the first segment: see queued
}

// pileWalk searches the heap for large collections.
type pileWalk struct {
	p       *session.Process
	classes map[arch.Addr]*pileClass // by MethodTable; nil: not countable
	found   []foundPile
	tables  int                           // of concurrent dictionaries
	tokens  map[arch.Addr]*tokenCallbacks // by CancellationTokenSource+Registrations

	delegates tasks.DelegateNames
}

func newPileWalk(p *session.Process) *pileWalk {
	return &pileWalk{
		p: p, classes: map[arch.Addr]*pileClass{}, tokens: map[arch.Addr]*tokenCallbacks{},
		delegates: tasks.DelegateNames{},
	}
}

// pileClass is a class whose objects have a count.
type pileClass struct {
	*object.Class
	countable
	count, free uint32 // offsets; free is 0 if there is no such field
	element     string
	list        string     // of Event: the field with the array
	node        nodeFields // of Token
}

type foundPile struct {
	class *pileClass
	at    arch.Addr
	count int
	token *tokenCallbacks // of Token
}

// number reads a number in an object; 0: the object is too short.
func number(data []byte, at uint32, eightBytes bool) int64 {
	switch {
	case eightBytes && int(at)+8 <= len(data):
		return int64(binary.LittleEndian.Uint64(data[at:]))
	case !eightBytes && int(at)+4 <= len(data):
		return int64(int32(binary.LittleEndian.Uint32(data[at:])))
	}
	return 0
}

// keep adds a large collection, and drops smaller ones above the bound.
func (h *pileWalk) keep(f foundPile) {
	h.found = append(h.found, f)
	if len(h.found) >= 2*maxPiles {
		h.trim()
	}
}

func (h *pileWalk) trim() {
	slices.SortFunc(h.found, func(a, b foundPile) int { return cmp.Compare(b.count, a.count) })
	h.found = h.found[:min(len(h.found), maxPiles)]
}

// nodeFields are the offsets of a node's fields: its registrations, its callback, and the callback's argument.
type nodeFields struct{ of, callback, state uint32 }

// tokenCallbacks are the callbacks of one CancellationTokenSource.
type tokenCallbacks struct {
	class  *pileClass // of the nodes
	count  int
	sample []calledBack
}

// calledBack is the callback of a node: a delegate, and the object that the delegate gets, or 0.
type calledBack struct{ delegate, state arch.Addr }
