package clrsnap

import (
	"clrsnap/internal/arch"
	"clrsnap/profile"
	"context"
)

// Threads lists the threads of the target: those of the runtime and native ones.
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
// metadata and the runtime's exception machinery as well, by name, and it never
// is incomplete without saying so: Complete is true only if the walk reached the
// base of the thread's stack and nothing was skipped, and Error says why not.
func (p *Process) Snapshot(thread ThreadID) (*Stack, error) {
	s, err := p.s.Snapshot(arch.Addr(thread))
	return s, publish(err)
}

// SnapshotAll takes a snapshot of every thread that filter accepts (nil: all),
// one after the other. Each thread is stopped only while it is copied. With an error there
// can be a Snapshot, too: of the threads that were captured before the process exited, or ctx
// ended.
func (p *Process) SnapshotAll(ctx context.Context, filter Filter) (*profile.Snapshot, error) {
	s, err := p.s.SnapshotAll(ctx, filter.inner())
	return s, publish(err)
}

// SnapshotAtOnce takes the stacks that all threads which filter accepts (nil: all) had at
// one instant. At that instant every thread that runs was stopped; of the others it is
// proved that they were blocked, and have not run from before their stacks were copied
// until after it. Where that cannot be had at the first attempt, because a thread gets no
// CPU to stop on, say, a few more instants are tried, and then the last one is
// taken as it is: a thread that is missing says why. The stacks in a core dump always
// belong to one instant. When the process exits meanwhile the error says so, and the Snapshot has
// what was captured; when ctx ends there is only its error.
func (p *Process) SnapshotAtOnce(ctx context.Context, filter Filter) (*profile.Snapshot, error) {
	s, err := p.s.SnapshotAtOnce(ctx, filter.inner())
	return s, publish(err)
}
