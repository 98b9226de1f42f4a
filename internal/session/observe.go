package session

import (
	"context"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/waits"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// Observer takes part in a snapshot: package deadlock notes what the frames of threads hold, and finds wait edges once
// all threads are captured.
type Observer interface {
	// Begin is called before each walk of a thread. Of several walks of a thread, the last walk counts.
	Begin()
	// Frame is called with each frame of a method m with metadata, and with the name of the method's assembly. above
	// has the frames that were walked before.
	Frame(f *walk.Frame, m method.Method, assembly string, above []snapshot.Frame)
	// Walked is called after the walk of a thread. queue is the task by which the thread waits for a semaphore that
	// the stack does not tell; 0: none.
	Walked(tid int, queue arch.Addr)
	// Find is called once, when all threads are captured.
	Find(ctx context.Context)
}

// Observed is a snapshot as its Observer sees the snapshot.
type Observed struct{ g *gathering }

// Snapshot is what was found so far. The Observer may add to the wait graph, and may change Thread.Still.
func (o *Observed) Snapshot() *snapshot.Snapshot { return o.g.out }

// Runs are the tasks that a thread runs.
func (o *Observed) Runs(tid int) []waits.Run { return o.g.runs[tid] }

// AddHolds reads once more which threads hold monitors.
func (o *Observed) AddHolds() { o.g.addHolds() }

// Exceptions describes an exception, and the exceptions that are its reasons; none: the exception cannot be read.
func (p *Process) Exceptions(object arch.Addr) []*snapshot.ExceptionInfo {
	return p.thrown.Exceptions(p.Stacks(), []arch.Addr{object}, "")
}

// ListThreads lists the threads, also in the middle of a look at the process.
func (p *Process) ListThreads() ([]Thread, error) {
	list, _, err := p.list()
	return list, err
}

// NoteGaps records what a dump lacks for the async methods in out.
func (p *Process) NoteGaps(out *snapshot.Tasks) {
	if out.Unproven+out.Unread == 0 {
		return
	}
	missing, dump := p.from.Missing("the async methods that could not be read need them")
	if !dump {
		return
	}
	c := *out.Process.Core
	if c.Missing = missing; c.Writer == "createdump" {
		c.Missing = append(c.Missing, "createdump with type 4 (full) leaves nothing out that async methods need")
	}
	out.Process.Core = &c
}
