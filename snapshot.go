package clrsnap

import (
	"context"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/deadlock"
	"clrsnap/internal/session"
	"clrsnap/snapshot"
)

// Threads lists the threads of the target: managed and native threads. With an error, such as ErrExited, there is no
// list.
func (p *Process) Threads() ([]Thread, error) {
	list, err := p.s.Threads()
	if err != nil {
		return nil, publish(err)
	}
	out := make([]Thread, len(list))
	for i := range list {
		out[i] = *newThread(&list[i])
	}
	return out, nil
}

// Snapshot suspends a thread, finds the seed, walks managed and native frames and resumes the thread. Unlike
// DoStackSnapshot, Snapshot reports methods without metadata and the runtime's exception machinery as well, by name.
// Complete is true only if the walk reached the base of the thread's stack and skipped nothing; if not, Error says why.
// The error of Snapshot itself is about the thread's id: there is no such live thread
// (CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD), or no runtime.
func (p *Process) Snapshot(thread ThreadID) (*Stack, error) {
	s, err := p.s.SnapshotThread(context.Background(), arch.Addr(thread))
	return s, publish(err)
}

// SnapshotAll takes a snapshot of every thread that filter accepts (nil: all), one after the other. Each thread is
// stopped only for the copy. When the process exits or ctx ends, there is an error, and a Snapshot of the threads
// captured before, too. With other errors the Snapshot is nil.
func (p *Process) SnapshotAll(ctx context.Context, filter Filter) (*snapshot.Snapshot, error) {
	s, err := p.s.Snapshot(ctx, session.SnapshotOptions{Filter: filter.inner()})
	return s, publish(err)
}

// SnapshotWaits is SnapshotAll with the wait graph (snapshot.Snapshot.WaitGraph). SnapshotWaits looks again at threads
// of a running process that seem to wait for one another. The second look proves that all of them waited at the same
// time (snapshot.Thread.Still), or that they did not, and takes a fraction of a millisecond for each thread. The second
// look stops no thread that SnapshotAll would not stop.
func (p *Process) SnapshotWaits(ctx context.Context, filter Filter) (*snapshot.Snapshot, error) {
	s, err := deadlock.Snapshot(ctx, p.s, deadlock.Options{Filter: filter.inner(), Permits: p.permits})
	return s, publish(err)
}

// SnapshotWaitsAtRest is SnapshotWaits while all threads of a running process stand still, for most at most; 0 stands
// for 2 s. So all waits, holds and likely holders belong to one moment, also while the collector moves objects all the
// time. snapshot.Snapshot.Stop says whether that was so, and how long the threads stood still. If the threads cannot be
// held, the result is that of SnapshotWaits.
func (p *Process) SnapshotWaitsAtRest(ctx context.Context, filter Filter, most time.Duration) (
	*snapshot.Snapshot, error,
) {
	s, err := deadlock.SnapshotAtRest(ctx, p.s, deadlock.Options{Filter: filter.inner(), Permits: p.permits}, most)
	return s, publish(err)
}

// SnapshotAtOnce takes the stacks of every thread that filter accepts (nil: all), all of one instant. At that instant
// every running thread is stopped. The other threads are proved to have been blocked from before the copies of their
// stacks until after the instant. If more threads run than the process may use CPUs, SnapshotAtOnce first looks for a
// moment at which no thread has a CPU. Such a moment is an instant without a stop: Snapshot.Registers says so. If an
// attempt lacks a stack, because a thread got no CPU to stop on, for example, SnapshotAtOnce tries a few more
// instants. The last attempt counts, complete or not: a missing thread says why. The stacks in a core dump always
// belong to one instant. When the process exits after the capture, there is an error and the Snapshot too; when ctx
// ends, there is only its error.
func (p *Process) SnapshotAtOnce(ctx context.Context, filter Filter) (*snapshot.Snapshot, error) {
	s, err := p.s.Snapshot(ctx, session.SnapshotOptions{Filter: filter.inner(), AtOnce: true})
	return s, publish(err)
}
