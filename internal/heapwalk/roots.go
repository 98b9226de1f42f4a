package heapwalk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/contract"
	"clrsnap/internal/session"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// Bounds of the roots that threads have.
const (
	maxThreadArrays = 1 << 12 // of one thread
	maxThreadFields = 1 << 12 // of one class
	maxLocals       = 1 << 22 // static fields of all threads, and arrays of them
)

// findRoots reads the roots, once. Stacks are read if they are wanted. Failures are noted in out.
func (h *heapWalk) findRoots(g *heap.Graph, stacks bool, out *snapshot.Heap) *rootsOf {
	lack := func(what string, err error) {
		if err != nil && h.p.Alive() == nil {
			out.RootsLack = append(out.RootsLack, fmt.Sprintf("%s: %v", what, err))
		}
	}
	r := h.roots
	if r == nil {
		r = &rootsOf{by: map[uint32]root{}}
		h.roots = r
		h.p.Engine.Cache.Invalidate()
		if h.p.Runtime == nil {
			h.aheadRoots(g, r, lack)
		} else {
			h.tableRoots(g, r)
			lack("static fields of threads", h.threadRoots(g, r))
		}
		lack("handles", h.handleRoots(g, r))
		lack("the queue of finalizers", h.readyRoots(g, r))
		if h.p.Runtime == nil {
			h.frozenRoots(g, r)
		}
	}
	if stacks && !r.stacks {
		r.stacks = true
		lack("stacks", h.stackRoots(g, r))
	}
	if r.full {
		r.full = false
		lack("objects", fmt.Errorf("more than %d are kept directly", maxRoots))
	}
	out.RootsMoved = h.moved()
	return r
}

// Bounds of the read before the walk.
const (
	maxEarlyTables = 1 << 10
	maxEarlySlots  = 1 << 10 // of one table
)

// readSlots reads static fields before the objects of a running program are walked. A field may be
// set to a new object meanwhile: the field of an event, for example, when somebody subscribes.
// After the walk the field would lead to an object that the walk has not met.
func (h *heapWalk) readSlots() {
	if h.p.Runtime == nil {
		h.readHolders()
		return
	}
	if !h.p.Moments().Changes() {
		return
	}
	handles, _ := h.p.Managed.Heap.Handles(h.p.Target()) // an error is reported later
	tables := 0
	for i := range handles {
		if handles[i].Kind != heap.Strong || tables >= maxEarlyTables || h.Stopped() {
			continue
		}
		at := handles[i].Object
		class, err := h.p.Managed.Objects.Class(at)
		if err != nil || class.Display != "object[]" {
			continue
		}
		tables++
		fields, err := h.p.Managed.Objects.References(at, maxEarlySlots)
		for j, to := range fields {
			if err == nil && to != 0 {
				h.early = append(h.early, slot{at, at + arch.Addr(arrayData+8*j), to})
			}
		}
	}
}

// tableRoots adds the tables in which the runtime keeps static fields, and the objects in the
// tables.
func (h *heapWalk) tableRoots(g *heap.Graph, r *rootsOf) {
	isTable := func(t *heap.Table) bool { return h.isStatics(heap.Object{Table: t}, heap.Pinned) }
	var tables []int
	g.Of(heap.Pinned, isTable, func(n int) { tables = append(tables, n) })
	for _, n := range tables {
		g.Slots(n, r.field)
	}
	h.earlyRoots(g, r)
	for _, n := range tables {
		r.add(&r.sure, n, root{kind: snapshot.RootHandle, handle: snapshot.HandleStrong})
	}
}

// handleKinds are the handles that keep objects.
var handleKinds = map[heap.HandleKind]snapshot.HandleKind{
	heap.Strong: snapshot.HandleStrong, heap.PinnedHandle: snapshot.HandlePinned,
	heap.VariableHandle: snapshot.HandleVariable, heap.RefCounted: snapshot.HandleRefCounted,
	heap.AsyncPinned: snapshot.HandleAsyncPinned, heap.SizedRef: snapshot.HandleSized,
}

// handleRoots adds the handles. Dependent handles are references from one object to another.
func (h *heapWalk) handleRoots(g *heap.Graph, r *rootsOf) error {
	handles, err := h.p.Managed.Heap.Handles(h.p.Target())
	for i := range handles {
		one := &handles[i]
		n, ok := g.Number(one.Object)
		if !ok {
			continue
		}
		if kind, ok := handleKinds[one.Kind]; ok && one.Keeps() {
			r.add(&r.sure, n, root{kind: snapshot.RootHandle, handle: kind})
		}
		if one.Kind != heap.Dependent {
			continue
		}
		if to, ok := g.Number(one.Secondary); ok {
			g.Link(n, to)
		}
	}
	return err
}

// readyRoots adds the objects with a finalizer still to run.
func (h *heapWalk) readyRoots(g *heap.Graph, r *rootsOf) error {
	ready, err := h.p.Managed.Heap.Ready(h.p.Target())
	for _, at := range ready {
		if n, ok := g.Number(at); ok {
			r.add(&r.sure, n, root{kind: snapshot.RootFinalizer})
		}
	}
	return err
}

// threadRoots adds the thread-static fields.
func (h *heapWalk) threadRoots(g *heap.Graph, r *rootsOf) error {
	if err := h.p.ReadThreadStore(); err != nil {
		return err
	}
	left := maxLocals
	for _, t := range h.p.ThreadsByID() {
		outer, skipped, ok := h.p.Managed.Threads.Statics(t.Address)
		if !ok {
			continue
		}
		arrays, err := h.p.Managed.Objects.References(outer, maxThreadArrays)
		if err != nil {
			continue // the thread has just ended, or makes the array larger
		}
		ref := h.p.ThreadRef(&t)
		for i, array := range arrays {
			if h.Stopped() {
				return nil
			}
			if left <= 0 {
				return fmt.Errorf("there are more than %d", maxLocals)
			}
			fields, err := h.p.Managed.Objects.References(array, maxThreadFields)
			if left -= 1 + len(fields); err != nil {
				continue // an array of fields that are no references, or no array yet
			}
			for j, to := range fields {
				if n, ok := g.Number(to); ok {
					r.add(&r.sure, n, root{
						kind: snapshot.RootThreadStatic, thread: ref, array: uint32(i) + skipped,
						offset: uint32(arrayData + 8*j),
					})
				}
			}
		}
		if n, ok := g.Number(outer); ok {
			r.add(&r.sure, n, root{kind: snapshot.RootThreadStatic, thread: ref, array: contract.Absent})
		}
	}
	return nil
}

// stackRoots adds the objects that words on the stacks of managed threads lead to.
func (h *heapWalk) stackRoots(g *heap.Graph, r *rootsOf) error {
	inspect := func(x *session.Inspection) {
		h.runningCode(g, r, x.Thread)
		s := stackScan{g: g, r: r, t: x.Thread}
		if len(x.Thread.Frames) > 0 {
			s.from = arch.Addr(x.Thread.Frames[0].SP)
		}
		s.registers(x.Context)
		s.region(&x.Stack.Region)
		for i := range x.Stack.Extra {
			s.region(&x.Stack.Extra[i])
		}
	}
	managed := func(t *session.Thread) bool { return t.ID != 0 }
	_, err := h.p.Snapshot(h.ctx, session.SnapshotOptions{Filter: managed, Unpacked: true, Inspect: inspect})
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil // the walk itself reports the end
	}
	return err
}

// stackScan looks through a thread's stack.
type stackScan struct {
	g    *heap.Graph
	r    *rootsOf
	t    *snapshot.Thread
	from arch.Addr // start of the newest frame
	next int       // the next word lies in this frame or in an older frame
}

// region looks through a piece of the stack. Below the newest frame lie the remains of calls that
// have returned.
func (s *stackScan) region(piece *target.Region) {
	data, base := piece.Data, piece.Base
	if s.from > base && s.from-base < arch.Addr(len(data)) {
		data, base = data[s.from-base:], s.from
	}
	skip := int(-base & 7)
	for i := skip; i+8 <= len(data); i += 8 {
		s.word(binary.LittleEndian.Uint64(data[i:]), base+arch.Addr(i))
	}
}

// registers looks through the known registers.
func (s *stackScan) registers(of *arch.Context) {
	for i := range of.Regs {
		if v, ok := of.Reg(uint8(i)); ok {
			s.word(v, s.from)
		}
	}
}

func (s *stackScan) word(v uint64, at arch.Addr) {
	if v == 0 || v%8 != 0 {
		return
	}
	n, ok := s.g.Number(arch.Addr(v))
	if !ok {
		return
	}
	if _, known := s.r.by[uint32(n)]; known {
		return
	}
	ref := session.RefOf(s.t)
	s.r.add(&s.r.maybe, n, root{kind: snapshot.RootStack, thread: &ref, method: s.method(at)})
}

// method names the managed method of the frame in which a word of the stack lies, or else the next
// managed caller.
func (s *stackScan) method(at arch.Addr) string {
	frames := s.t.Frames
	if s.next >= len(frames) || arch.Addr(frames[s.next].SP) > at {
		s.next = 0
	}
	for s.next+1 < len(frames) && arch.Addr(frames[s.next+1].SP) <= at {
		s.next++
	}
	for i := s.next; i < len(frames); i++ {
		if f := &frames[i]; f.Kind == snapshot.Managed && !f.Inlined {
			return f.Display
		}
	}
	return ""
}

// noteEpoch notes the GC epoch of the objects' addresses, and reads the fields that may change
// during the walk. Only a graph needs both.
func (h *heapWalk) noteEpoch() {
	if h.graph() {
		h.epoch = h.p.Moments().Epoch()
		h.readSlots()
	}
}
