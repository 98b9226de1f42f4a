package clrsnap_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

// roles are what the test binary does when it starts itself: CLRSNAP_TEST_ROLE
// names one, CLRSNAP_TEST_PID its target.
var roles = map[string]func(pid int) error{}

func TestMain(m *testing.M) {
	role := os.Getenv("CLRSNAP_TEST_ROLE")
	if role == "" {
		os.Exit(m.Run())
	}
	pid, err := strconv.Atoi(os.Getenv("CLRSNAP_TEST_PID"))
	if err == nil {
		err = roles[role](pid)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func open(tb testing.TB, a *testenv.App, o clrsnap.Options) *clrsnap.Process {
	tb.Helper()
	p, err := clrsnap.Open(context.Background(), a.PID, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.Close() })
	return p
}

// endsWell stops the program and requires that it found nothing wrong.
func endsWell(tb testing.TB, a *testenv.App) {
	tb.Helper()
	if result, code := a.Stop(); result != "OK" || code != 0 {
		tb.Errorf("the target ended with result %q and exit code %d\n%s", result, code, a.Stderr())
	}
}

// threadID returns the ThreadID of a thread by its operating system's id.
func threadID(tb testing.TB, p *clrsnap.Process, tid int) clrsnap.ThreadID {
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

// threadNamed returns the first managed thread with a name.
func threadNamed(tb testing.TB, p *clrsnap.Process, name string) clrsnap.Thread {
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

// ofKind returns the frames of one kind.
func ofKind(frames []profile.Frame, k profile.Kind) []profile.Frame {
	var out []profile.Frame
	for _, f := range frames {
		if f.Kind == k {
			out = append(out, f)
		}
	}
	return out
}

// text writes frames for failure messages, the deepest hundred at most.
func text(frames []profile.Frame) string {
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
