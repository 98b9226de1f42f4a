package clrsnap

import (
	"context"

	"clrsnap/internal/arch"
	"clrsnap/profile"
)

// Threads lists the threads of the target: those of the runtime and native ones. With an error,
// such as ErrExited, there is no list.
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

// Snapshot suspends a thread, finds the seed, walks managed and native frames
// and resumes the thread. Unlike DoStackSnapshot it reports methods without
// metadata and the runtime's exception machinery as well, by name. Complete is true
// only if the walk reached the base of the thread's stack and nothing was skipped; if
// not, Error says why. The error of Snapshot itself is about the thread's id: there is
// no such live thread (CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD), or no runtime.
func (p *Process) Snapshot(thread ThreadID) (*Stack, error) {
	s, err := p.s.Snapshot(arch.Addr(thread))
	return s, publish(err)
}

// SnapshotAll takes a snapshot of every thread that filter accepts (nil: all),
// one after the other. Each thread is stopped only while it is copied. When the process exits
// or ctx ends, there is an error, and a Snapshot too: it has the threads captured before. With
// other errors the Snapshot is nil.
func (p *Process) SnapshotAll(ctx context.Context, filter Filter) (*profile.Snapshot, error) {
	s, err := p.s.SnapshotAll(ctx, filter.inner())
	return s, publish(err)
}

// SnapshotWaits is SnapshotAll for who wants to know who waits for whom (profile.Snapshot.WaitGraph). Threads of a
// running process that seem to wait for one another are looked at again, until it is proved that they all did at the
// same time (profile.Thread.Still), or until it turns out that they do not. That takes a fraction of a millisecond
// for each of them. No thread is stopped for it that SnapshotAll would not stop.
func (p *Process) SnapshotWaits(ctx context.Context, filter Filter) (*profile.Snapshot, error) {
	s, err := p.s.SnapshotWaits(ctx, filter.inner())
	return s, publish(err)
}

// SnapshotAtOnce takes the stacks of every thread that filter accepts (nil: all), all of one
// instant. At that instant every thread that was running is stopped. Of the others it is proved
// that they were blocked, and did not run from before their stacks were copied until after the
// instant. If an attempt lacks a stack, because a thread got no CPU to stop on, for example, a few
// more instants are tried. The last attempt counts as it is: a thread that is missing says why.
// The stacks in a core dump always belong to one instant. When the process exits after the
// capture, there is an error and the Snapshot too; when ctx ends, there is only its error.
func (p *Process) SnapshotAtOnce(ctx context.Context, filter Filter) (*profile.Snapshot, error) {
	s, err := p.s.SnapshotAtOnce(ctx, filter.inner())
	return s, publish(err)
}
