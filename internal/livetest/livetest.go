// Package livetest has the shared parts of tests of the public packages: they open live .NET processes
// and compare the results.
package livetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// Hang is how long nothing at all may take.
const Hang = testenv.Hang

// Open opens a program until the test ends.
func Open(tb testing.TB, a *testenv.App, o clrsnap.Options) *clrsnap.Process {
	tb.Helper()
	p, err := clrsnap.Open(context.Background(), a.PID, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.Close() })
	return p
}

// EndsWell stops the program and requires that the program found nothing wrong.
func EndsWell(tb testing.TB, a *testenv.App) {
	tb.Helper()
	if result, code := a.Stop(); result != "OK" || code != 0 {
		tb.Errorf("the target ended with result %q and exit code %d\n%s", result, code, a.Stderr())
	}
}

// ThreadID returns the ThreadID of a thread by its operating system's id.
func ThreadID(tb testing.TB, p *clrsnap.Process, tid int) clrsnap.ThreadID {
	tb.Helper()
	threads, err := p.Threads()
	if err != nil {
		tb.Fatal(err)
	}
	for _, t := range threads {
		if t.OSThreadID == tid && t.ID != 0 {
			return t.ID
		}
	}
	tb.Fatalf("no managed thread %d", tid)
	return 0
}

// ThreadNamed returns the first managed thread with a name.
func ThreadNamed(tb testing.TB, p *clrsnap.Process, name string) clrsnap.Thread {
	tb.Helper()
	threads, err := p.Threads()
	if err != nil {
		tb.Fatal(err)
	}
	for _, t := range threads {
		if t.Name == name && t.ID != 0 {
			return t
		}
	}
	tb.Fatalf("no managed thread named %q", name)
	return clrsnap.Thread{}
}

// OfKind returns the frames of one kind.
func OfKind(frames []snapshot.Frame, k snapshot.Kind) []snapshot.Frame {
	var out []snapshot.Frame
	for _, f := range frames {
		if f.Kind == k {
			out = append(out, f)
		}
	}
	return out
}

// Reported lists the managed frames that DoStackSnapshot does not skip.
func Reported(frames []snapshot.Frame) []clrsnap.FunctionID {
	var out []clrsnap.FunctionID
	for _, f := range frames {
		if f.Kind == snapshot.Managed && f.Tier != "dynamic" && f.Tier != "IL stub" &&
			!strings.HasPrefix(f.Method, "System.Runtime.EH.") {
			out = append(out, clrsnap.FunctionID(f.FunctionID))
		}
	}
	return out
}

// Starved reports whether a thread could not be captured because the thread, or our tracer, was given
// no CPU in time.
func Starved(th snapshot.Thread) bool {
	return strings.Contains(th.Error, live.ErrNotStopping.Error()) ||
		strings.Contains(th.Error, live.ErrWatchdog.Error())
}

// Text writes frames for failure messages, the deepest hundred at most.
func Text(frames []snapshot.Frame) string {
	var b strings.Builder
	for i, f := range frames {
		if i == 100 {
			fmt.Fprintf(&b, "\t… %d more\n", len(frames)-i)
			break
		}
		fmt.Fprintf(&b, "\t%-7s %#x %s!%s+%#x [%s]\n", f.Kind, f.IP, f.Module, f.Method, f.Offset, f.Tier)
	}
	return b.String()
}

// Recorded records for a while, and requires that the recording ends in time.
func Recorded(tb testing.TB, p *clrsnap.Process, o record.Options) *profile.Recording {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), o.Duration+Hang)
	defer cancel()
	r, err := record.Record(ctx, p, o)
	if err != nil {
		tb.Fatal(err)
	}
	if ctx.Err() != nil {
		tb.Fatalf("a recording of %v took %v", o.Duration, r.Duration)
	}
	return r
}

// Command builds cmd/clrsnap and returns its path.
func Command(tb testing.TB) string {
	tb.Helper()
	exe := filepath.Join(tb.TempDir(), "clrsnap")
	args := []string{"build", "-o", exe}
	if runtime.GOARCH == "amd64" {
		args = append(args, "-ldflags", "-E clrsnap_entry") // as in the Makefile
	}
	build := exec.Command("go", append(args, "clrsnap/cmd/clrsnap")...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	return exe
}

// WantSentence requires an error of one line that mentions all of words.
func WantSentence(tb testing.TB, err error, words ...string) {
	tb.Helper()
	if err == nil {
		tb.Error("no error")
		return
	}
	text := err.Error()
	if strings.Contains(text, "\n") || len(text) > 400 {
		tb.Errorf("not a sentence: %q", text)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			tb.Errorf("%q does not mention %q", text, w)
		}
	}
}

// SnapshotCore returns the stacks in a core dump, without marks of names that are not proved.
func SnapshotCore(tb testing.TB, path string, o clrsnap.CoreOptions) *snapshot.Snapshot {
	tb.Helper()
	p, err := clrsnap.OpenCore(context.Background(), path, o)
	if err != nil {
		tb.Fatal(err)
	}
	defer p.Close()
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	Unmark(snap)
	return snap
}

// ByName are the threads of a snapshot by name.
func ByName(s *snapshot.Snapshot) map[string]*snapshot.Thread {
	threads := map[string]*snapshot.Thread{}
	for i := range s.Threads {
		threads[s.Threads[i].Name] = &s.Threads[i]
	}
	return threads
}

// Thread is the thread of a name in a snapshot.
func Thread(tb testing.TB, s *snapshot.Snapshot, name string) *snapshot.Thread {
	tb.Helper()
	th := ByName(s)[name]
	if th == nil {
		tb.Fatalf("there is no thread %q", name)
	}
	return th
}
