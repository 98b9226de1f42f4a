package naming

import (
	"slices"
	"testing"

	"clrsnap/internal/engine"
	"clrsnap/internal/module"
	"clrsnap/snapshot"
)

// TestWithPrimitive: a primitive inlined into its caller explains the thread's wait, and the stack
// of the primitive is the caller's.
func TestWithPrimitive(t *testing.T) {
	const event, later = "System.Threading.ManualResetEventSlim.Wait", "System.Threading.CountdownEvent.Wait"
	for name, tt := range map[string]struct {
		methods []string // of the stack, leaf first; the program's methods begin with "Shop."
		at      int      // the frame with the call at which the methods below were inlined, innermost first
		inlined []string
		kind    snapshot.WaitKind
		outer   uint64 // end of the primitive's stack
	}{
		"event": {
			[]string{"", "System.Threading.Monitor.Wait", "Shop.Work", "Shop.Main"}, 2, []string{event},
			snapshot.EventWait, 0x300,
		},
		"two, and one of the program": {
			[]string{"", "System.Threading.Monitor.Wait", "Shop.Work", "Shop.Main"}, 2,
			[]string{event, later, "Shop.Inner"}, snapshot.CountdownWait, 0x300,
		},
		"into a primitive": {
			[]string{"", "System.Threading.Monitor.Wait", later, "Shop.Work", "Shop.Main"}, 2, []string{event},
			snapshot.CountdownWait, 0x300,
		},
		"a method of the program": {
			[]string{"", "System.Threading.Monitor.Wait", "Shop.Work", "Shop.Main"}, 2, []string{"Shop.Inner", event},
			snapshot.MonitorWait, 0x200,
		},
		"further out": {
			[]string{"", "System.Threading.Monitor.Wait", "Shop.Work", "Shop.Main", "Shop.Begin"}, 3, []string{event},
			snapshot.MonitorWait, 0x200,
		},
		"without a frame": {
			[]string{"", "Shop.Work", "Shop.Main"}, 1, []string{"System.Threading.Thread.Join"},
			snapshot.ThreadJoin, 0x200,
		},
		"no wait": {[]string{"", "Shop.Work", "Shop.Main"}, 1, []string{"Shop.Inner"}, "", 0x100},
		"outermost": {
			[]string{"", "System.Threading.Monitor.Wait", "Shop.Work"}, 2, []string{event}, snapshot.MonitorWait, 0x200,
		},
		"not blocked": {[]string{"Shop.Work", "Shop.Main", "Shop.Begin"}, 1, []string{event}, "", 0x100},
	} {
		var found []InlinedFrame
		for _, m := range tt.inlined {
			found = append(found, InlinedFrame{Frame: framed(m, 0)})
		}
		call := Call{Frame: tt.at, IP: 0x1000, Callee: 0x2000}
		n := &Namer{
			engine:  &engine.Engine{Modules: &module.Set{}},
			inlined: &inlined{known: map[CallKey][]InlinedFrame{call.Key(): found}},
		}
		var frames []snapshot.Frame
		for i, m := range tt.methods {
			frames = append(frames, framed(m, uint64(i)*0x100))
		}
		before := slices.Clone(frames)
		got := n.WithPrimitive(frames, []Call{call})
		is := snapshot.PrimitiveOf(got)
		if is.Kind != tt.kind || got[is.Outer+1].SP != tt.outer {
			t.Errorf("%s: %s, whose stack ends at %#x, want %s and %#x", name, is.Kind, got[is.Outer+1].SP,
				tt.kind, tt.outer)
		}
		for i := range got[1:] {
			if got[i].SP > got[i+1].SP {
				t.Errorf("%s: the stack of frame %d is above that of its caller", name, i)
			}
		}
		if !slices.EqualFunc(frames, before, func(a, b snapshot.Frame) bool {
			return a.Method == b.Method && a.SP == b.SP
		}) {
			t.Errorf("%s: the stack itself has changed", name)
		}
	}
}

// framed is a frame of a method; without a name the frame is native.
func framed(method string, sp uint64) snapshot.Frame {
	switch {
	case method == "":
		return snapshot.Frame{Kind: snapshot.Native, SP: sp}
	case method[:5] == "Shop.":
		return snapshot.Frame{Kind: snapshot.Managed, Module: "Shop", Method: method, SP: sp}
	}
	return snapshot.Frame{Kind: snapshot.Managed, Module: coreLib, Method: method, SP: sp}
}
