package phrase

import (
	"testing"

	"clrsnap/snapshot"
)

func TestSomeOf(t *testing.T) {
	for _, tt := range []struct {
		n, of int
		want  string
	}{{28, 28, "all"}, {27, 28, "27"}, {1, 1, "1"}} {
		if got := SomeOf(tt.n, tt.of); got != tt.want {
			t.Errorf("%d of %d: %q", tt.n, tt.of, got)
		}
	}
}

// TestChild: a wait for the end of a child is told by the field of the event, or by the frames. Other waits below
// Process.WaitForExit are what they are.
func TestChild(t *testing.T) {
	exit := []snapshot.Frame{{Method: "System.Diagnostics.Process.WaitForExit"}, {Method: "Shop.Printer.Print"}}
	const field = "System.Diagnostics.ProcessWaitState._exitedEvent"
	for _, tt := range []struct {
		wait   snapshot.Wait
		frames []snapshot.Frame
		want   string
	}{
		{snapshot.Wait{Kind: snapshot.HandleOne}, exit, "waits for the end of a child process"},
		{snapshot.Wait{Kind: snapshot.HandleOne, Field: field}, nil, "waits for the end of a child process"},
		{snapshot.Wait{Kind: snapshot.HandleOne, Target: ", sleep (12)"}, exit,
			"waits for the end of a child process, sleep (12)"},
		{snapshot.Wait{Kind: snapshot.HandleOne}, exit[1:], "waits for a handle"},
		{snapshot.Wait{Kind: snapshot.HandleOne, Field: "Shop.Printer._ready",
			Type: "System.Threading.ManualResetEvent"}, exit,
			"waits for ManualResetEvent (Printer._ready)"},
	} {
		tt.wait.Certain = true
		if got := Doing(&snapshot.Thread{Wait: &tt.wait, Frames: tt.frames}); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
