package inject

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// listening is a Listener that tells each agent to begin, or hangs up on the agent.
type listening struct {
	*Listener
	dir  string
	pids chan int // of the processes with connected agents
}

func listenHere(t *testing.T, welcome bool) *listening {
	t.Helper()
	l, err := listenWith(library(t))
	if err != nil {
		t.Fatal(err)
	}
	here := &listening{l, filepath.Dir(l.f.path), make(chan int, 16)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			a, err := l.Accept(ctx)
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
			if welcome {
				if _, err := tell(a); err != nil {
					t.Error(err)
				}
			} else {
				a.Conn.Close()
			}
			here.pids <- a.PID
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(l.f.path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left behind (%v)", l.f.path, err)
		}
	})
	return here
}

// next is the process of the next agent to connect.
func (l *listening) next(t *testing.T) int {
	t.Helper()
	select {
	case pid := <-l.pids:
		return pid
	case <-time.After(testenv.Hang):
		t.Fatal("no agent comes")
		return 0
	}
}

func (l *listening) environment(t *testing.T, env ...string) []string {
	t.Helper()
	out, err := l.Environment(env)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestListener: a started program has the agent, whatever else its environment says of profilers
// that are not enabled.
func TestListener(t *testing.T) {
	testenv.EachOf(t, testenv.Versions(), func(t *testing.T, rt string) {
		l := listenHere(t, true)
		env := l.environment(t, "CORECLR_ENABLE_PROFILING=0", "CORECLR_PROFILER_PATH_64=/nowhere.so",
			"DOTNET_PROFILER={11111111-1111-1111-1111-111111111111}", "DOTNET_EnableDiagnostics_IPC=0")
		app := testenv.Start(t, "idle", testenv.Options{Runtime: rt, Env: env})
		if pid := l.next(t); pid != app.PID {
			t.Errorf("the agent of process %d came, not of %d", pid, app.PID)
		}
		endsWell(t, app)
	})
}

// TestListenerHangsUp: a program with an unwanted agent runs without the agent.
func TestListenerHangsUp(t *testing.T) {
	layer.Live(t)
	l := listenHere(t, false)
	app := testenv.Start(t, "idle", testenv.Options{Env: l.environment(t)})
	if pid := l.next(t); pid != app.PID {
		t.Errorf("the agent of process %d came, not of %d", pid, app.PID)
	}
	goodAttach(t, app.PID, library(t)) // there is room
	endsWell(t, app)
}

// TestListenerChildren: the program's children have agents, too.
func TestListenerChildren(t *testing.T) {
	layer.Live(t)
	l := listenHere(t, true)
	host, dll := testenv.Kit(t).Host(testenv.DefaultRuntime), testenv.Build(t, "idle")
	cmd := exec.Command("/bin/sh", "-ec", `"$@" </dev/null & "$@" </dev/null; wait`, "sh", host, dll, "--stdin",
		"--max-seconds", "120")
	cmd.Env = l.environment(t, append(os.Environ(), "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var came, said []int
	for line := range strings.Lines(string(out)) {
		if pid, ok := strings.CutPrefix(line, "PID "); ok {
			said = append(said, atoi(t, strings.TrimSpace(pid)))
			came = append(came, l.next(t))
		}
	}
	slices.Sort(said)
	slices.Sort(came)
	if len(said) != 2 || !slices.Equal(said, came) {
		t.Errorf("processes %v ran, the agents of %v came", said, came)
	}
}

// TestListenerClosed: a program without a listener runs normally, without the agent.
func TestListenerClosed(t *testing.T) {
	layer.Live(t)
	l, err := listenWith(library(t))
	if err != nil {
		t.Fatal(err)
	}
	env, err := l.Environment(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	endsWell(t, testenv.Start(t, "idle", testenv.Options{Env: env}))
}

// TestListenerOff: the settings that Environment refuses do keep the agent out.
func TestListenerOff(t *testing.T) {
	layer.Live(t)
	for _, setting := range []string{"DOTNET_EnableDiagnostics=0", "DOTNET_EnableDiagnostics_Profiler=0"} {
		t.Run(setting, func(t *testing.T) {
			l := listenHere(t, true)
			app := testenv.Start(t, "idle", testenv.Options{Env: append(l.environment(t), setting)})
			endsWell(t, app)
			select {
			case pid := <-l.pids:
				t.Errorf("the agent of process %d came", pid)
			default:
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	l := listenHere(t, true)
	env := l.environment(t, "A=1", "CORECLR_PROFILER_PATH_64=/x", "DOTNET_PROFILER=y", "DOTNET_EnableDiagnostics=1",
		"DOTNET_EnableDiagnostics_IPC=0", "CORECLR_ENABLE_NOTIFICATION_PROFILERS=1", "CORECLR_ENABLE_PROFILING=no")
	for _, want := range []string{"A=1", "CORECLR_ENABLE_PROFILING=1", "CORECLR_PROFILER_PATH=" + l.f.library(),
		"CORECLR_ENABLE_NOTIFICATION_PROFILERS=1", "DOTNET_EnableDiagnostics_IPC=0"} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is not in %v", want, env)
		}
	}
	if len(env) != 4+4 {
		t.Errorf("%v", env)
	}
	for setting, want := range map[string]error{
		"CORECLR_ENABLE_PROFILING=1":          ErrOtherProfiler,
		"CORECLR_ENABLE_PROFILING=0x10":       ErrOtherProfiler,
		"DOTNET_ENABLE_PROFILING=1":           ErrOtherProfiler,
		"DOTNET_EnableDiagnostics=0":          ErrProfilerOff,
		"COMPlus_EnableDiagnostics=0":         ErrProfilerOff,
		"DOTNET_EnableDiagnostics_Profiler=0": ErrProfilerOff,
	} {
		_, err := l.Environment([]string{"A=1", setting})
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", setting, err, want)
			continue
		}
		isSentence(t, err.Error(), setting, "start the program without")
	}
}

// TestAcceptAgain: a wait that was given up does not spoil the next wait.
func TestAcceptAgain(t *testing.T) {
	l, err := listenWith([]byte("library"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := l.Accept(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	connected := make(chan error, 1)
	go func() {
		c, err := net.Dial("unix", l.f.socket())
		if err == nil {
			c.Close()
		}
		connected <- err
	}()
	a, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Conn.Close()
	if a.PID != os.Getpid() || a.Loaded() != nil {
		t.Errorf("%+v", a)
	}
	if err := <-connected; err != nil {
		t.Error(err)
	}
}
