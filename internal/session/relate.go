package session

import (
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/waits"
	"clrsnap/profile"
)

// maxRunners bounds the threads whose tasks are kept in mind.
const maxRunners = 1 << 16

// noteRuns notes which tasks a thread that has just been walked runs.
func (s *Suspension) noteRuns(subject *waits.Subject) {
	p := s.Process
	delete(p.runs, s.Thread.OSThreadID)
	if runs := p.waitReader().Runs(subject); len(runs) > 0 && len(p.runs) < maxRunners {
		if p.runs == nil {
			p.runs = map[int][]waits.Run{}
		}
		p.runs[s.Thread.OSThreadID] = runs
	}
}

// relate says of waits for what other threads do who these are: of tasks who runs them, of a ReaderWriterLockSlim
// who reads. of are the waiting threads, as indices; nil: all.
func (p *Process) relate(threads []profile.Thread, of []int) {
	if of == nil {
		of = make([]int, len(threads))
		for i := range of {
			of[i] = i
		}
	}
	r := relating{p: p, threads: threads}
	for _, i := range of {
		w := threads[i].Wait
		switch {
		case w == nil || w.Object == 0 || !w.Certain:
		case w.Kind == profile.TaskWait:
			w.Owner = r.runner(w.Object)
		case w.Kind == profile.WriteLock && w.Owner == nil && strings.Contains(w.Detail, "reader"):
			w.Readers = r.readers(w, i)
		}
	}
}

// relating is what relate needs of all threads.
type relating struct {
	p       *Process
	threads []profile.Thread
	runs    map[uint64][]runner // by task
	reads   [][]uint64          // by thread, as indices: the numbers of the locks that it reads
}

// runner is a thread that runs a task.
type runner struct {
	thread *profile.Thread
	run    waits.Run
}

// runner returns the thread that runs a task; nil: it is not known, or there is none.
func (r *relating) runner(task uint64) *profile.ThreadRef {
	if r.runs == nil {
		r.runs = map[uint64][]runner{}
		for i := range r.threads {
			for _, run := range r.p.runs[r.threads[i].OSThreadID] {
				list := r.runs[uint64(run.Task)]
				if len(list) == 0 || list[len(list)-1].thread != &r.threads[i] {
					r.runs[uint64(run.Task)] = append(list, runner{&r.threads[i], run})
				}
			}
		}
	}
	list := r.runs[task]
	if len(list) != 1 || !r.p.waitReader().StillRuns(list[0].run, r.p.still(list[0].thread.OSThreadID)) {
		return nil
	}
	ref := refOf(list[0].thread)
	return &ref
}

// readers returns the other threads that hold a lock to read.
func (r *relating) readers(w *profile.Wait, self int) (out []profile.ThreadRef) {
	id, ok := r.p.waitReader().LockNumber(arch.Addr(w.Object))
	if !ok {
		return nil
	}
	if r.reads == nil {
		r.reads = make([][]uint64, len(r.threads))
		for i := range r.threads {
			if at := r.threads[i].ThreadID; at != 0 {
				r.reads[i] = r.p.waitReader().ReadLocks(arch.Addr(at))
			}
		}
	}
	for i := range r.threads {
		if i != self && slices.Contains(r.reads[i], id) {
			out = append(out, refOf(&r.threads[i]))
		}
	}
	return out
}

func refOf(t *profile.Thread) profile.ThreadRef {
	return profile.ThreadRef{OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, Name: t.Name}
}

// still reports whether a thread has not run since it was captured.
func (p *Process) still(tid int) bool {
	if p.Live == nil {
		return true
	}
	still, _ := p.Live.StillBlocked(tid)
	return still
}
