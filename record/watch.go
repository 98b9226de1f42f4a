package record

import (
	"time"

	"clrsnap/internal/bridge"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/snapshot"
)

// Proofs compare every walk of a recording with the runtime's own records at that time.
func init() {
	bridge.Watch = func(options any, f func(th *snapshot.Thread, begin, end uint64)) {
		options.(*Options).watch = func(ft *frameTable, s *session.Suspension, complete bool, begin time.Duration) {
			th := s.Process.Summary(&s.Thread)
			th.Complete = complete
			for i, l := range ft.stack {
				loc, fn := ft.b.At(l)
				th.Frames = append(th.Frames, snapshot.Frame{
					Kind: fn.Kind, IP: uint64(ft.ips[i]), Method: fn.Method, Display: fn.Display, Module: fn.Module,
					Offset: loc.Offset, Tier: loc.Tier,
				})
			}
			f(&th, uint64(begin), uint64(live.Monotonic()))
		}
	}
}
