package livetest

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/arch"
	"clrsnap/internal/bridge"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// root is the inside of the root package.
var root = clrsnap.Inside(bridge.Access{})

// A Call is one callback of a walk.
type Call struct {
	ID      clrsnap.FunctionID
	IP      uint64
	Context *clrsnap.Context
}

// Calls walks the moment of a suspension and collects the callbacks.
func Calls(s *clrsnap.Suspension, flags clrsnap.SnapshotInfo, seed *clrsnap.Context) ([]Call, error) {
	var all []Call
	collect := func(id clrsnap.FunctionID, ip uint64, _ *clrsnap.FrameInfo, c *clrsnap.Context, _ any) error {
		all = append(all, Call{id, ip, c})
		return nil
	}
	err := s.DoStackSnapshot(collect, flags, nil, seed)
	return all, err
}

// Suspend suspends a thread.
func Suspend(tb testing.TB, p *clrsnap.Process, id clrsnap.ThreadID) *clrsnap.Suspension {
	tb.Helper()
	s, err := p.Suspend(id)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Cooperative suspends a thread at a moment in cooperative mode.
func Cooperative(tb testing.TB, p *clrsnap.Process, id clrsnap.ThreadID) *clrsnap.Suspension {
	tb.Helper()
	for range 1000 {
		s := Suspend(tb, p, id)
		if Walk(s).Mode == "cooperative" {
			return s
		}
		s.Release()
	}
	tb.Fatal("the thread is never in cooperative mode")
	return nil
}

// Walk walks the moment of a suspension, as Snapshot does.
func Walk(s *clrsnap.Suspension) snapshot.Thread {
	t, _ := root.Suspension(s).Named()
	return t
}

// Chain lists the runtime's Frames on the stack, newest first: their kinds, and in state their
// addresses and the thread's mode.
func Chain(s *clrsnap.Suspension) (kinds []string, state string) {
	in := root.Suspension(s)
	chain, stack := in.Process.Runtime.Chain, in.Walk.Stack
	state = fmt.Sprintf("cooperative %v:", in.Walk.Info.Cooperative)
	for at := in.Walk.Info.Frame; at != 0 && at != thread.FrameTop; {
		kind, ok := chain.Kind(stack, at)
		if !ok {
			break
		}
		kinds = append(kinds, kind.String())
		state += fmt.Sprintf(" %v at %v", kind, at)
		if at, ok = chain.Next(stack, at); !ok {
			break
		}
	}
	return kinds, state
}

// Preemptive reports whether the thread was in preemptive mode.
func Preemptive(s *clrsnap.Suspension) bool { return !root.Suspension(s).Walk.Info.Cooperative }

// BareWalk walks without naming anything and returns the number of frames.
func BareWalk(s *clrsnap.Suspension) (frames int, complete bool) {
	in := root.Suspension(s)
	ctx := in.Walk.Context
	r := in.Process.Walker.Walk(&in.Walk, &ctx, walk.ByUnwindInfo, func(*walk.Frame) bool {
		frames++
		return true
	})
	return frames, r.Complete
}

// CopyStack copies the captured stack into to.
func CopyStack(s *clrsnap.Suspension, to []byte) int {
	return copy(to, root.Suspension(s).Walk.Stack.Data)
}

// SetMode changes Options.Mode of an open process.
func SetMode(p *clrsnap.Process, m clrsnap.Mode) { root.SetMode(p, m) }

// Traced calls f on an OS thread that may trace by itself. f gets a function that captures the thread
// anew.
func Traced(s *clrsnap.Suspension, f func(capture func() error) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	in := root.Suspension(s)
	p := in.Process
	req := p.Request(&in.Thread, nil)
	return p.Live.Trace(func(t *live.Tracer) error {
		defer p.Engine.Begin() // the cache is older than the last capture
		return f(func() error { return p.FinishCapture(in, t.Capture(&req, in.Capture)) })
	})
}

// Pause is how long the thread was kept from running.
func Pause(s *clrsnap.Suspension) time.Duration { return root.Suspension(s).Capture.Pause }

// Watch has a recording with these options call f for every walk. The walked moment lies
// between begin and end, in nanoseconds of CLOCK_MONOTONIC.
func Watch(o *record.Options, f func(th *snapshot.Thread, begin, end uint64)) {
	record.Inside(bridge.Access{}).Watch(o, f)
}

// IL is the IL offset of the instruction before ip, as of a caller, and whether it is exact.
func IL(p *clrsnap.Process, ip uint64) (il uint32, exact bool, err error) {
	r := root.Session(p).Runtime
	code, err := r.Code.Lookup(arch.Addr(ip))
	if err != nil {
		return 0, false, err
	}
	m, err := r.IL.Of(&code)
	if err != nil {
		return 0, false, err
	}
	if len(m) == 0 {
		return 0, false, fmt.Errorf("no map of the code at %#x", ip)
	}
	il, exact = m.IL(uint32(ip-uint64(code.MethodStart)) - 1)
	return il, exact, nil
}
