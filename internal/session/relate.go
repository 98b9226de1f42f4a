package session

import (
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/moment"
	"clrsnap/internal/waits"
	"clrsnap/snapshot"
)

// maxRunners bounds the threads whose tasks are remembered.
const maxRunners = 1 << 16

// noteRuns notes the tasks that a thread runs. The thread has just been walked.
func (s *visit) noteRuns(subject *waits.Subject) {
	g := s.g
	delete(g.runs, s.Thread.OSThreadID)
	if runs := g.WaitReader().Runs(subject); len(runs) > 0 && len(g.runs) < maxRunners {
		if g.runs == nil {
			g.runs = map[int][]waits.Run{}
		}
		g.runs[s.Thread.OSThreadID] = runs
	}
}

// relate adds other threads to waits: the thread that runs an awaited task, the readers of a ReaderWriterLockSlim,
// and the waiting writers. of has the indices of the waiting threads; nil: all.
func (g *gathering) relate(of []int) {
	threads := g.out.Threads
	if of == nil {
		of = make([]int, len(threads))
		for i := range of {
			of[i] = i
		}
	}
	r := relating{g: g, threads: threads}
	for _, i := range of {
		w := threads[i].Wait
		switch {
		case w != nil && w.Certain && len(w.Tasks) > 0:
			for k := range w.Tasks {
				r.runner(&w.Tasks[k], threads[i].OSThreadID)
				w.Certain = w.Certain && w.Tasks[k].Certain
			}
		case w == nil || w.Object == 0 || !w.Certain:
		case w.Kind == snapshot.TaskWait:
			r.runner(w, threads[i].OSThreadID)
		case w.Kind == snapshot.WriteLock && w.Owner == nil && strings.Contains(w.Detail, "reader"):
			if w.Readers = r.readers(w, i); !g.moments.Still(threads[i].OSThreadID) {
				w.Readers = nil // the thread may have got the lock since
			}
		case (w.Kind == snapshot.ReadLock || w.Kind == snapshot.UpgradeableLock) && w.Owner == nil:
			if w.Behind = r.writers(w, i); !g.moments.Still(threads[i].OSThreadID) {
				w.Behind = nil
			}
		}
	}
}

// relating is relate's knowledge of all threads.
type relating struct {
	g       *gathering
	threads []snapshot.Thread
	runs    map[uint64][]runner // by task
	reads   map[uint64][]int    // by the numbers of locks: the threads that read, as indices
	lists   map[uint64][]snapshot.ThreadRef
	writes  map[uint64][]int // likewise: the threads that wait to write
}

// runner is a thread that runs a task.
type runner struct {
	thread *snapshot.Thread
	run    waits.Run
}

// runner adds to a wait for a task the thread that runs the task, if the thread is known. The result is not certain
// if objects may have moved since the capture of either thread: tasks are told apart by their addresses.
func (r *relating) runner(w *snapshot.Wait, waiting int) {
	w.Owner = nil
	if r.runs == nil {
		r.runs = map[uint64][]runner{}
		for i := range r.threads {
			for _, run := range r.g.runs[r.threads[i].OSThreadID] {
				list := r.runs[uint64(run.Task)]
				if len(list) == 0 || list[len(list)-1].thread != &r.threads[i] {
					r.runs[uint64(run.Task)] = append(list, runner{&r.threads[i], run})
				}
			}
		}
	}
	list := r.runs[w.Object]
	var run *snapshot.Thread
	if len(list) == 1 {
		run = list[0].thread
	}
	r.g.NameTask(w, run)
	if len(list) != 1 || !r.g.WaitReader().StillRuns(list[0].run, r.g.moments.Still(list[0].thread.OSThreadID)) {
		return
	}
	ref := RefOf(list[0].thread)
	w.Owner, w.Certain = &ref, r.g.unmoved(waiting) && r.g.unmoved(ref.OSThreadID)
}

// maxReaders bounds the named readers of a lock. The lock itself tells the number of readers: Wait.Detail.
const maxReaders = 256

// readers returns the other threads that hold a lock to read. Several waits for the lock share the list.
func (r *relating) readers(w *snapshot.Wait, self int) (out []snapshot.ThreadRef) {
	id, ok := r.g.WaitReader().LockNumber(arch.Addr(w.Object))
	if !ok {
		return nil
	}
	if r.reads == nil {
		r.reads, r.lists = map[uint64][]int{}, map[uint64][]snapshot.ThreadRef{}
		for i := range r.threads {
			if at := r.threads[i].ThreadID; at != 0 {
				ids, _ := r.g.WaitReader().ReadLocks(arch.Addr(at))
				for _, lock := range ids {
					r.reads[lock] = append(r.reads[lock], i)
				}
			}
		}
	}
	out, ok = r.lists[id]
	if !ok {
		for _, i := range r.reads[id] {
			if len(out) < maxReaders && (len(out) == 0 || out[len(out)-1].OSThreadID != r.threads[i].OSThreadID) {
				out = append(out, RefOf(&r.threads[i]))
			}
		}
		if r.g.WaitReader().ReadByEnded(arch.Addr(w.Object), id) {
			out = append(out, snapshot.ThreadRef{})
		}
		r.lists[id] = out
	}
	own := func(t snapshot.ThreadRef) bool { return t.OSThreadID == r.threads[self].OSThreadID }
	if slices.ContainsFunc(out, own) {
		return slices.DeleteFunc(slices.Clone(out), own)
	}
	return out
}

// writers returns the other threads that wait to write under a lock. While there are any, a ReaderWriterLockSlim
// admits no new reader, though other threads may be reading (WAITING_WRITERS in ReaderWriterLockSlim.cs).
func (r *relating) writers(w *snapshot.Wait, self int) (out []snapshot.ThreadRef) {
	if w.Lock == 0 {
		return nil
	}
	if r.writes == nil {
		r.writes = map[uint64][]int{}
		for i := range r.threads {
			if o := r.threads[i].Wait; o != nil && o.Kind == snapshot.WriteLock && o.Lock != 0 && o.Certain &&
				r.g.moments.Still(r.threads[i].OSThreadID) { // otherwise the thread may have got the lock since
				r.writes[o.Lock] = append(r.writes[o.Lock], i)
			}
		}
	}
	for _, i := range r.writes[w.Lock] {
		if i != self && len(out) < maxBehind {
			out = append(out, RefOf(&r.threads[i]))
		}
	}
	return out
}

// maxBehind bounds the named writers: each waiting reader has the list.
const maxBehind = 16

// noteHeap notes the GC epoch of the addresses of objects that have just been read of a thread, if any were read.
func (g *gathering) noteHeap(tid int, any bool) {
	if !any {
		return
	}
	if g.epochs == nil {
		g.epochs = map[int]moment.Epoch{}
	}
	now := g.moments.Begun()
	if before, ok := g.epochs[tid]; ok && before != now {
		now = 0 // objects were moved between
	}
	if len(g.epochs) < maxRunners {
		g.epochs[tid] = now
	}
}

// unmoved reports whether there has certainly been no collection since a thread was captured.
func (g *gathering) unmoved(tid int) bool { return g.moments.Unmoved(g.epochs[tid]) }

func RefOf(t *snapshot.Thread) snapshot.ThreadRef {
	return snapshot.ThreadRef{OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, Name: t.Name}
}
