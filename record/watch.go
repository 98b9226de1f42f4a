package record

import (
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/bridge"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/snapshot"
)

// The insides of the packages that recordings are made with.
var (
	root       = clrsnap.Inside(bridge.Access{})
	subscribed = events.Inside(bridge.Access{})
)

// inside leads to the walks of a recording.
type inside struct{}

// Inside is for the proofs of this module.
func Inside(bridge.Access) inside { return inside{} }

// Watch makes a recording with these options call f for every walk. The walked moment lies between begin and end, in
// nanoseconds of CLOCK_MONOTONIC. A proof compares every walk with the runtime's own records at that time.
func (inside) Watch(o *Options, f func(th *snapshot.Thread, begin, end uint64)) {
	o.watch = func(ft *frameTable, s *session.Suspension, complete bool, begin time.Duration) {
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
