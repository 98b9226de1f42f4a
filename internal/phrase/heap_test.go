package phrase

import (
	"testing"

	"clrsnap/snapshot"
)

// TestWay: what a timer, or a suspended method, of .NET keeps begins with the program's own object.
func TestWay(t *testing.T) {
	const timers = "System.Threading.TimerQueue.<Instances>k__BackingField"
	step := func(typ, field string) snapshot.HeapStep { return snapshot.HeapStep{Type: typ, Field: field, Times: 1} }
	own := []snapshot.HeapStep{step("Shop.Orders", "_list"), step("System.Collections.Generic.List<int>", "")}
	timer := []snapshot.HeapStep{
		step("System.Threading.TimerQueue[]", ""), step("System.Threading.TimerQueue", "_longTimers"),
		step("System.Threading.TimerQueueTimer", "_state"), step("System.Threading.Tasks.Task+DelayPromise", "m_c"),
	}
	box := step("System.Runtime.CompilerServices.AsyncTaskMethodBuilder<System.Threading.Tasks.VoidTaskResult>"+
		"+AsyncStateMachineBox<Shop.Orders+<RunAsync>d__5>", "StateMachine")
	list := func(all ...[]snapshot.HeapStep) (out []snapshot.HeapStep) {
		for _, s := range all {
			out = append(out, s...)
		}
		return out
	}
	for _, tt := range []struct {
		static string
		steps  []snapshot.HeapStep
		want   string
	}{
		{timers, list(timer, []snapshot.HeapStep{box}, own),
			"a timer → a suspended async method → Shop.Orders._list → System.Collections.Generic.List<int>"},
		{timers, list(timer[:3], own), "a timer → Shop.Orders._list → System.Collections.Generic.List<int>"},
		{timers, timer[2:3], "static field " + timers + " → System.Threading.TimerQueueTimer._state"},
		{"System.AppContext.s_dataStore", own,
			"static field System.AppContext.s_dataStore → Shop.Orders._list → System.Collections.Generic.List<int>"},
		{"Shop.Program.Timers", list(timer[2:3], own[:1]),
			"static field Shop.Program.Timers → System.Threading.TimerQueueTimer._state → Shop.Orders._list"},
	} {
		path := &snapshot.HeapPath{Root: snapshot.RootStatic, Static: tt.static, Steps: tt.steps}
		if got := Way(path); got != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.static, got, tt.want)
		}
	}
}
