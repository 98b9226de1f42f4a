package record_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// onReady calls a function when a program has said that it is ready.
type onReady struct {
	mu   sync.Mutex
	out  bytes.Buffer
	once sync.Once
	then func()
}

func (w *onReady) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out.Write(p)
	if bytes.Contains(w.out.Bytes(), []byte("READY")) {
		w.once.Do(w.then)
	}
	return len(p), nil
}

// uncaught are the leaves of the exceptions that nobody is said to have caught.
func uncaught(r *profile.Recording) (leaves []string) {
	for i := range r.Samples {
		x := &r.Samples[i]
		if x.Mode != profile.Exception {
			continue
		}
		for l := range r.Stack(x.Node) {
			if f := &r.Functions[l.Function]; f.Kind == snapshot.Event && !strings.HasPrefix(f.Fate, profile.CaughtBy) {
				leaves = append(leaves, f.Display+", "+f.Fate)
			}
		}
	}
	return leaves
}

// TestExceptionsInFlight: an exception is called not caught if it has ended the process. Of other
// exceptions in flight at the end, it is not known whether a handler would have caught them.
func TestExceptionsInFlight(t *testing.T) {
	layer.Live(t)
	const class = "System.InvalidOperationException, "
	unhandled, blocked := []string{"ordeal", "--mode", "unhandled"}, []string{"scenarios", "--only", "eh-filter"}
	for _, tt := range []struct {
		name  string
		args  []string
		ready func(program *os.Process, stop func())
		want  string
	}{
		{"unhandled", unhandled, func(*os.Process, func()) {}, class + "not caught"},
		{"killed", blocked, func(p *os.Process, _ func()) { p.Kill() },
			class + "still in flight when the process ended"},
		{"terminated", blocked, func(p *os.Process, _ func()) { p.Signal(syscall.SIGTERM) },
			class + "still in flight when the process ended"},
		{"recorded", blocked, func(_ *os.Process, stop func()) { stop() },
			class + "still in flight when the recording ended"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kit := testenv.Kit(t)
			ctx, cancel := context.WithTimeout(context.Background(), livetest.Hang)
			defer cancel()
			cmd := exec.Command(kit.Host(testenv.DefaultRuntime), testenv.Build(t, tt.args[0]))
			cmd.Args = append(cmd.Args, tt.args[1:]...)
			cmd.Env = append(os.Environ(), "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1")
			out := &onReady{}
			out.then = func() { tt.ready(cmd.Process, cancel) }
			cmd.Stdout = out
			r, err := record.Command(ctx, cmd, clrsnap.Options{},
				record.Options{Events: events.Options{Monitor: events.MonitorExceptions}})
			if cmd.Process != nil {
				cmd.Process.Kill() // fails if the program has ended
				cmd.Wait()
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := uncaught(r); !slices.Equal(got, []string{tt.want}) {
				t.Errorf("%q instead of %q; %v\n%s", got, tt.want, cmd.ProcessState, livetest.Top(t, r))
			}
		})
	}
}
