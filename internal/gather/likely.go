package gather

import (
	"context"
	"time"

	"clrsnap/internal/session"
)

// LikelyGap is how long a likely deadlock must last, beyond the wait inside SnapshotWaits.
const LikelyGap = 500 * time.Millisecond

// likely looks for deadlocks with likely wait edges, through permits of semaphores and suspended methods, if the heap
// is quick to read. A deadlock counts if some time later the deadlock is still there.
func (g *Gatherer) likely(ctx context.Context) {
	if g.heapMissing {
		return
	}
	g.progress("permits of semaphores")
	first, err := g.p.SnapshotWaits(ctx, nil)
	if err != nil || len(first.LikelyEdges)+len(first.Lost)+len(first.PermitQueues) == 0 {
		return
	}
	if len(first.Lost) > 0 && session.Sleep(ctx, LostGap) {
		if again, err := g.p.SnapshotWaits(ctx, nil); err == nil {
			g.Lost = g.unkept(ctx, StillLost(first.Lost, again.Lost))
		}
	}
	g.Likely = first
	if len(first.WaitGraph().Likely) == 0 || !session.Sleep(ctx, LikelyGap) {
		return
	}
	if again, err := g.p.SnapshotWaits(ctx, nil); err == nil {
		g.Likely, g.LikelyBefore = again, first
	}
}
